// The functions of the interface that are equal for all C++ peers. Included once, after `Map` is declared.

#include <cstdint>
#include <new>

#include "icefield_peer.h"
#include "mixed.hpp"

namespace {

Map &map(void *table) { return *static_cast<Map *>(table); }

} // namespace

extern "C" {

void *icefield_peer_create(uint64_t capacity, const char *) {
  try {
    return new Map(capacity);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

void icefield_peer_destroy(void *table) { delete &map(table); }

uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) { return map(table).erase(keys[i]); });
}

} // extern "C"
