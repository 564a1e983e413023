// A minimal peer: shards of std::unordered_map, each behind a lock.
//
//   g++ -O3 -std=c++17 -shared -fPIC -I.. std_unordered_map.cpp -o libstd_unordered_map.so
//   icefield-bench get --peer-lib ./libstd_unordered_map.so
//
// With -DWRONG, each call of get counts one key too many, which `icefield-bench` must detect.

#include <array>
#include <cstdint>
#include <mutex>
#include <new>
#include <unordered_map>

#include "icefield_peer.h"

namespace {

constexpr size_t kShards = 64;

// MurmurHash3's finaliser, because std::hash of an integer is the integer itself.
uint64_t mix(uint64_t key) {
  key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
  key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return key ^ (key >> 33);
}

struct Mixed {
  size_t operator()(uint64_t key) const { return mix(key); }
};

struct alignas(128) Shard {
  std::mutex lock;
  std::unordered_map<uint64_t, uint64_t, Mixed> map;
};

struct Table {
  std::array<Shard, kShards> shards;

  Shard &shard(uint64_t key) { return shards[mix(key) >> 58]; }
};

// Calls act(map, i) for each key, with its shard locked. Returns the number of calls that are true.
template <typename Act> uint64_t count(void *table, const uint64_t *keys, uint64_t n, Act act) {
  uint64_t counted = 0;
  for (uint64_t i = 0; i < n; ++i) {
    Shard &shard = static_cast<Table *>(table)->shard(keys[i]);
    std::lock_guard<std::mutex> locked(shard.lock);
    counted += act(shard.map, i) ? 1 : 0;
  }
  return counted;
}

} // namespace

extern "C" {

const char *icefield_peer_name(void) { return "std-unordered-map"; }

void *icefield_peer_create(uint64_t capacity, const char *) {
  try {
    Table *table = new Table;
    for (Shard &shard : table->shards) {
      shard.map.reserve(capacity / kShards + 1);
    }
    return table;
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

void icefield_peer_destroy(void *table) { delete static_cast<Table *>(table); }

uint64_t icefield_peer_insert(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
  return count(table, keys, n, [&](auto &map, uint64_t i) { return map.emplace(keys[i], values[i]).second; });
}

uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum) {
  uint64_t total = 0;
  uint64_t found = count(table, keys, n, [&](auto &map, uint64_t i) {
    auto at = map.find(keys[i]);
    if (at == map.end()) {
      return false;
    }
    total += at->second;
    return true;
  });
  *sum = total;
#ifdef WRONG
  ++found;
#endif
  return found;
}

uint64_t icefield_peer_update(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
  return count(table, keys, n, [&](auto &map, uint64_t i) {
    auto at = map.find(keys[i]);
    if (at == map.end()) {
      return false;
    }
    at->second = values[i];
    return true;
  });
}

uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n) {
  return count(table, keys, n, [&](auto &map, uint64_t i) { return map.erase(keys[i]) == 1; });
}

uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n) {
  return count(table, keys, n, [&](auto &map, uint64_t i) {
    return map.emplace(keys[i], keys[i]).second && map.erase(keys[i]) == 1;
  });
}

} // extern "C"
