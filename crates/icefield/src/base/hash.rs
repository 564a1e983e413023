//! The hash function of all tables: fast for one word, well mixed in all 64 bits, keyed by a seed of 128 bits.
//!
//! Its construction follows the wyhash family: the 128-bit product of two 64-bit words, folded by xor of its halves,
//! diffuses as well as many rounds of shifts and additions, and costs one multiplication. Differences from that family:
//! - Every constant is derived from the whole seed. If the seed is unknown, no input is known to make a factor zero,
//!   and no two inputs are known to collide.
//! - A word costs two multiplications: first `(x ^ k0) * k1`, then `(low ^ k2) * (high ^ k3)`, where `low` and `high`
//!   are the halves of the first product. The first multiplication spreads `x` over 128 bits; the second mixes every
//!   bit into every bit.
//! - Bytes are read 16 at a time; for more than 64 bytes, four independent chains run in parallel.
//!
//! This is not a cryptographic hash: it resists inputs that were chosen without knowledge of the seed and of hash
//! values.
//!
//! The function is part of the file format: a table's superblock names it by [`HashKind::id`]. It never changes; a
//! better function would be a new kind. The test vectors in `hash/tests.rs` pin the function.
//!
//! Tables use the highest bits of a hash for directories, the middle bits for buckets, and the lowest eight for
//! fingerprints. These are sufficiently independent, as `hash/tests.rs` measures.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The hash function of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum HashKind {
    /// The keyed function described in this module.
    #[default]
    Strong = 1,
    /// For tests: bits 58 to 62 of every hash are zero, so several successive splits of a segment leave its records
    /// together.
    #[cfg(any(test, feature = "sim"))]
    Crowded = 0xFFFE,
    /// For tests: every key has hash 0.
    #[cfg(any(test, feature = "sim"))]
    Constant = 0xFFFF,
}

impl HashKind {
    /// Returns the number that identifies the kind in files.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Returns the kind with this number, or `None` if this build has no such kind.
    #[must_use]
    pub const fn from_id(id: u32) -> Option<Self> {
        match id {
            1 => Some(Self::Strong),
            #[cfg(any(test, feature = "sim"))]
            0xFFFE => Some(Self::Crowded),
            #[cfg(any(test, feature = "sim"))]
            0xFFFF => Some(Self::Constant),
            _ => None,
        }
    }
}

/// Returns a seed that differs from call to call and from process to process.
#[must_use]
pub fn random_seed() -> [u64; 2] {
    [RandomState::new().hash_one(0_u64), RandomState::new().hash_one(1_u64)]
}

/// The fractional digits of pi, which visibly were not chosen for a hidden purpose.
const PI: [u64; 8] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7344,
    0xA409_3822_299F_31D0,
    0x082E_FA98_EC4E_6C89,
    0x4528_21E6_38D0_1377,
    0xBE54_66CF_34E9_0C6C,
    0xC0AC_29B7_C97C_50DD,
    0x3F84_D5B5_B547_0917,
];

/// A seed in the options of a table. `Debug` omits it, because it allows choosing keys that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) [u64; 2]);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// A hash function with its seed. Small and `Copy`, so that it can be stored where it is used.
#[derive(Clone, Copy)]
pub struct Hash {
    keys: [u64; 6],
    /// All ones except for the test kinds.
    #[cfg(any(test, feature = "sim"))]
    mask: u64,
}

/// Omits the keys.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hash").finish_non_exhaustive()
    }
}

impl Hash {
    /// Creates the function `kind` with the given seed.
    #[must_use]
    pub fn new(kind: HashKind, seed: [u64; 2]) -> Self {
        let mut keys: [u64; 6] = std::array::from_fn(|i| {
            scramble(scramble(seed[0] ^ PI[i]).wrapping_add(seed[1] ^ PI[i + 2]))
        });
        // An odd factor makes the low half of the first product a permutation of the hashed word.
        keys[1] |= 1;
        match kind {
            HashKind::Strong => Self {
                keys,
                #[cfg(any(test, feature = "sim"))]
                mask: u64::MAX,
            },
            #[cfg(any(test, feature = "sim"))]
            HashKind::Crowded => Self { keys, mask: !(0x1F << 58) },
            #[cfg(any(test, feature = "sim"))]
            HashKind::Constant => Self { keys, mask: 0 },
        }
    }

    /// Returns the hash of one word.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, word: u64) -> u64 {
        let [k0, k1, ..] = self.keys;
        self.finish(multiply(word ^ k0, k1))
    }

    /// Returns the hash of a byte string. It differs from the hash of the word with the same bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> u64 {
        let [k0, _, _, _, k4, k5] = self.keys;
        // The length is multiplied by a key, so that no content can cancel its effect.
        let start = k4.wrapping_add(k5.wrapping_mul(bytes.len() as u64));
        let (state, [low, high]) =
            if bytes.len() <= 16 { (start, short_tail(bytes)) } else { self.absorb(start, bytes) };
        self.finish(multiply(low ^ k0, high ^ state))
    }

    /// Absorbs an input of more than 16 bytes, except its last 1 to 16 bytes. Returns the state and, as the tail, the
    /// last 16 bytes, which may overlap absorbed bytes.
    fn absorb(&self, start: u64, bytes: &[u8]) -> (u64, [u64; 2]) {
        let mut rest = bytes;
        let mut state = start;
        if rest.len() > 64 {
            let mut lanes = [start; 4];
            while rest.len() > 64 {
                for (lane, key) in lanes.iter_mut().zip(self.keys) {
                    let [low, high] = two_words(rest);
                    *lane = fold(multiply(low ^ key, high ^ *lane));
                    rest = &rest[16..];
                }
            }
            state = lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
        }
        while rest.len() > 16 {
            let [low, high] = two_words(rest);
            state = fold(multiply(low ^ self.keys[0], high ^ state));
            rest = &rest[16..];
        }
        (state, two_words(&bytes[bytes.len() - 16..]))
    }

    /// Performs the second multiplication.
    #[inline(always)]
    fn finish(&self, [low, high]: [u64; 2]) -> u64 {
        let [_, _, k2, k3, ..] = self.keys;
        let hash = fold(multiply(low ^ k2, high ^ k3));
        #[cfg(any(test, feature = "sim"))]
        let hash = hash & self.mask;
        hash
    }
}

/// Returns the 128-bit product as its low and high half.
#[inline(always)]
fn multiply(a: u64, b: u64) -> [u64; 2] {
    let product = u128::from(a) * u128::from(b);
    [product as u64, (product >> 64) as u64]
}

#[inline(always)]
fn fold([low, high]: [u64; 2]) -> u64 {
    low ^ high
}

/// A permutation of 64 bits in which every bit depends on every bit (the finaliser of MurmurHash3). It is not keyed, so
/// it is used for seeds only.
fn scramble(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word = (word ^ (word >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ (word >> 33)
}

#[inline(always)]
fn two_words(bytes: &[u8]) -> [u64; 2] {
    [u64_at(bytes, 0), u64_at(bytes, 8)]
}

/// Returns at most 16 bytes as two words. Different contents of the same length give different words.
#[inline(always)]
fn short_tail(bytes: &[u8]) -> [u64; 2] {
    match bytes.len() {
        8.. => [u64_at(bytes, 0), u64_at(bytes, bytes.len() - 8)],
        4.. => [u32_at(bytes, 0), u32_at(bytes, bytes.len() - 4)],
        len @ 1.. => [
            u64::from(bytes[0]) << 16 | u64::from(bytes[len / 2]) << 8 | u64::from(bytes[len - 1]),
            0,
        ],
        0 => [0, 0],
    }
}

#[inline(always)]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

#[cfg(test)]
mod tests;
