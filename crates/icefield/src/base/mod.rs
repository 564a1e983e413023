//! What every table needs and no medium knows: atomics, locks, reclamation, hashing, SIMD, memory, the prefetch ring.
