// oneTBB's concurrent_hash_map as a peer.

#include <cstdint>
#include <new>

#include <oneapi/tbb/concurrent_hash_map.h>

#include "icefield_peer.h"
#include "mixed.hpp"

namespace {

struct Compare {
  size_t hash(uint64_t key) const { return Mixed()(key); }
  bool equal(uint64_t one, uint64_t other) const { return one == other; }
};

using Map = oneapi::tbb::concurrent_hash_map<uint64_t, uint64_t, Compare>;

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
  return count(n, [&](uint64_t i) { return map(table).emplace(keys[i], values[i]); });
}

uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum) {
  uint64_t total = 0;
  const uint64_t found = count(n, [&](uint64_t i) {
    Map::const_accessor at;
    if (!map(table).find(at, keys[i])) {
      return false;
    }
    total += at->second;
    return true;
  });
  *sum = total;
  return found;
}

uint64_t icefield_peer_update(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
  return count(n, [&](uint64_t i) {
    Map::accessor at;
    if (!map(table).find(at, keys[i])) {
      return false;
    }
    at->second = values[i];
    return true;
  });
}

uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) { return map(table).erase(keys[i]); });
}

uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) {
    const bool inserted = map(table).emplace(keys[i], keys[i]);
    return map(table).erase(keys[i]) && inserted;
  });
}

} // extern "C"
