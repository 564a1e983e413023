// libcuckoo (Li, Andersen, Kaminsky, Freedman, EuroSys 2014) as a peer.

#include <cstdint>

#include <libcuckoo/cuckoohash_map.hh>

#include "icefield_peer.h"
#include "mixed.hpp"

namespace {

using Map = libcuckoo::cuckoohash_map<uint64_t, uint64_t, Mixed>;

} // namespace

#include "map.hpp"

extern "C" {

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

uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n) {
  return count(n, [&](uint64_t i) {
    const bool inserted = map(table).insert(keys[i], keys[i]);
    return map(table).erase(keys[i]) && inserted;
  });
}

} // extern "C"
