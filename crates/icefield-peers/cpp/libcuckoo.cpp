// libcuckoo (Li, Andersen, Kaminsky, Freedman, EuroSys 2014) as a peer.

#include <cstdint>
#include <new>

#include <libcuckoo/cuckoohash_map.hh>

#include "icefield_peer.h"
#include "mixed.hpp"

namespace {

using Map = libcuckoo::cuckoohash_map<uint64_t, uint64_t, Mixed>;

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

uint64_t icefield_peer_insert(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
  return count(n, [&](uint64_t i) { return map(table).insert(keys[i], values[i]); });
}

uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum) {
  uint64_t total = 0;
  const uint64_t found = count(n, [&](uint64_t i) {
    return map(table).find_fn(keys[i], [&](const uint64_t &value) { total += value; });
  });
  *sum = total;
  return found;
}

uint64_t icefield_peer_update(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
  return count(n, [&](uint64_t i) { return map(table).update(keys[i], values[i]); });
}

uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) { return map(table).erase(keys[i]); });
}

uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) {
    const bool inserted = map(table).insert(keys[i], keys[i]);
    return map(table).erase(keys[i]) && inserted;
  });
}

} // extern "C"
