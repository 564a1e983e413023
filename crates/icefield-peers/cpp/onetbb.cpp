// oneTBB's concurrent_hash_map as a peer.

#include <cstdint>

#include <oneapi/tbb/concurrent_hash_map.h>

#include "icefield_peer.h"
#include "mixed.hpp"

namespace {

struct Compare {
  size_t hash(uint64_t key) const { return Mixed()(key); }
  bool equal(uint64_t one, uint64_t other) const { return one == other; }
};

using Map = oneapi::tbb::concurrent_hash_map<uint64_t, uint64_t, Compare>;

} // namespace

#include "map.hpp"

extern "C" {

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

uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) {
    const bool inserted = map(table).emplace(keys[i], keys[i]);
    return map(table).erase(keys[i]) && inserted;
  });
}

} // extern "C"
