// What the C++ peers share: a hash function that is one, and a loop that counts.
#ifndef ICEFIELD_PEERS_MIXED_HPP
#define ICEFIELD_PEERS_MIXED_HPP

#include <cstddef>
#include <cstdint>

namespace {

// MurmurHash3's finaliser: std::hash of an integer is the integer.
struct Mixed {
  size_t operator()(uint64_t key) const {
    key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
    key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    return key ^ (key >> 33);
  }
};

// For how many i below n act(i) says so.
template <typename Act> uint64_t count(uint64_t n, Act act) {
  uint64_t counted = 0;
  for (uint64_t i = 0; i < n; ++i) {
    counted += act(i) ? 1 : 0;
  }
  return counted;
}

} // namespace

#endif
