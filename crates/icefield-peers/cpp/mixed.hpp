// Shared by the C++ peers: a hash function that mixes, and a counting loop.
#ifndef ICEFIELD_PEERS_MIXED_HPP
#define ICEFIELD_PEERS_MIXED_HPP

#include <cstddef>
#include <cstdint>

namespace {

// MurmurHash3's finaliser, because std::hash of an integer is the integer itself.
struct Mixed {
  size_t operator()(uint64_t key) const {
    key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
    key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
    return key ^ (key >> 33);
  }
};

// Returns the number of i below n for which act(i) is true.
template <typename Act> uint64_t count(uint64_t n, Act act) {
  uint64_t counted = 0;
  for (uint64_t i = 0; i < n; ++i) {
    counted += act(i) ? 1 : 0;
  }
  return counted;
}

} // namespace

#endif
