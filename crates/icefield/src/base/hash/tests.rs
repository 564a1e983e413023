//! The pinned values of the hash function, and measurements of its quality.

use super::*;

/// `Debug` prints neither the hash's keys nor the seed, because both allow choosing keys that collide.
#[test]
fn what_is_printed_tells_no_secret() {
    let hash = Hash::new(HashKind::Strong, [1, 2]);
    assert_eq!(format!("{hash:?}, {:?}", Seed([1, 2])), "Hash { .. }, Seed(..)");
}

const SEEDS: [[u64; 2]; 6] = [
    [0, 0],
    [1, 0],
    [0, 1],
    [u64::MAX; 2],
    [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210],
    [0x5EED, 0x1CE],
];

/// The expected hashes were computed once by a separate implementation of the description in the header of `hash.rs`. A
/// change to them would make every existing table unreadable: a new function needs a new [`HashKind`].
#[test]
fn vectors_are_pinned() {
    let content: Vec<u8> = (0..200_u32).map(|i| (i * 7 + 1) as u8).collect();
    let check = |seed, words: [u64; 4], byte_strings: [(usize, u64); 17]| {
        let hash = Hash::new(HashKind::Strong, seed);
        for (word, expected) in [0, 1, 42, u64::MAX].into_iter().zip(words) {
            assert_eq!(hash.word(word), expected, "seed {seed:x?}, word {word:#x}");
        }
        for (len, expected) in byte_strings {
            assert_eq!(hash.bytes(&content[..len]), expected, "seed {seed:x?}, {len} bytes");
        }
    };
    check(
        [0, 0],
        [
            0x71DF_A0AA_A4E5_CCFE,
            0xCB25_6214_A4DA_98B0,
            0x938A_B816_6EA3_09B4,
            0x3312_2A59_5737_EBFC,
        ],
        [
            (0, 0x79FD_ED44_59D9_DF9D),
            (1, 0x65C0_6884_1946_96EF),
            (3, 0x34B4_235B_FD10_DF78),
            (4, 0x8160_FD85_2BF2_7C9C),
            (7, 0x761F_780A_4F51_569F),
            (8, 0x6342_E318_A8B9_8E15),
            (15, 0x517F_BB23_7179_EEA1),
            (16, 0x390F_BC22_DC4D_25A0),
            (17, 0xBE3D_F35C_F253_7DAD),
            (32, 0x0EC1_CD47_70FF_6C5C),
            (33, 0xC9D5_8409_C371_4714),
            (64, 0x0A73_4433_222E_1B35),
            (65, 0xC49C_2E5D_50A9_8B5B),
            (100, 0x2675_8125_A1EA_2763),
            (128, 0x5456_5253_06D2_569E),
            (129, 0x2173_54F6_5D91_6106),
            (200, 0xC9C3_82E2_02D1_0950),
        ],
    );
    check(
        [0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210],
        [
            0x36F1_9B5C_41E5_3808,
            0x20B2_B405_7010_6DE9,
            0x162C_B247_1692_FB5C,
            0x8504_C235_9716_F394,
        ],
        [
            (0, 0x6238_24CE_39AF_0CE6),
            (1, 0x7BF0_3BFB_168B_C0A2),
            (3, 0x0FC2_9DB9_5AC4_1050),
            (4, 0x4E6A_2FA1_23AE_4C88),
            (7, 0xA2EF_8274_ACF4_6171),
            (8, 0xBE35_012D_5912_41D8),
            (15, 0xABE3_4BF2_D8D4_6AF8),
            (16, 0xD123_BC0D_1AC3_0623),
            (17, 0x50E2_9A4E_E1D4_8373),
            (32, 0x78BA_9C0D_0A9E_59F2),
            (33, 0xFD6A_EB31_1A6D_6DF4),
            (64, 0xEF29_FA07_6711_4938),
            (65, 0x22FB_15AD_348B_A10A),
            (100, 0x5013_D0C7_FEA9_2029),
            (128, 0xA792_AD54_661F_2691),
            (129, 0xD116_4155_2F62_F2C0),
            (200, 0xAD12_6065_FEEE_4CC6),
        ],
    );
}

#[test]
fn a_constant_hash_is_constant() {
    let hash = Hash::new(HashKind::Constant, [3, 4]);
    assert_eq!([hash.word(1), hash.word(2), hash.bytes(b"frost")], [0; 3]);
}

#[test]
fn kinds_keep_their_numbers() {
    assert_eq!(HashKind::Strong.id(), 1);
    assert_eq!(HashKind::Constant.id(), 0xFFFF);
    for kind in [HashKind::Strong, HashKind::Constant] {
        assert_eq!(HashKind::from_id(kind.id()), Some(kind));
    }
    assert_eq!(HashKind::from_id(0), None);
    assert_eq!(HashKind::from_id(2), None);
}

#[test]
fn random_seeds_differ() {
    assert_ne!(random_seed(), random_seed());
}

/// Checks for each of 64 input bits (of the word or of the seed) that flipping it flips each output bit for about half
/// of `inputs` words. `flip` returns the difference of the hashes before and after one input bit is flipped.
fn check_avalanche(name: &str, inputs: usize, flip: impl Fn(u64, u32) -> u64) {
    // Six standard deviations: the inputs are fixed, so this never fails by chance.
    let tolerance = 6.0 * 0.5 / (inputs as f64).sqrt();
    for bit in 0..u64::BITS {
        let mut flips = [0_usize; 64];
        for input in 0..inputs as u64 {
            let difference = flip(input, bit);
            for (out, count) in flips.iter_mut().enumerate() {
                *count += (difference >> out & 1) as usize;
            }
        }
        for (out, count) in flips.into_iter().enumerate() {
            let share = count as f64 / inputs as f64;
            assert!(
                (share - 0.5).abs() < tolerance,
                "{name}: input bit {bit}, output bit {out}: {share:.3}"
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics of integers")]
fn every_input_bit_flips_every_output_bit_half_of_the_time() {
    let inputs = 4096;
    for seed in SEEDS {
        let hash = Hash::new(HashKind::Strong, seed);
        check_avalanche("words", inputs, |input, bit| {
            hash.word(input) ^ hash.word(input ^ 1 << bit)
        });
        check_avalanche("bytes", inputs, |input, bit| {
            hash.bytes(&input.to_le_bytes()) ^ hash.bytes(&(input ^ 1 << bit).to_le_bytes())
        });
        check_avalanche("seeds", inputs, |input, bit| {
            let other = Hash::new(HashKind::Strong, [seed[0], seed[1] ^ 1 << bit]);
            hash.word(input) ^ other.word(input)
        });
    }
}

#[test]
fn every_byte_of_a_long_string_counts() {
    let hash = Hash::new(HashKind::Strong, SEEDS[4]);
    let lens: &[usize] = if cfg!(miri) {
        &[3, 9, 17, 65]
    } else {
        &[1, 3, 4, 8, 9, 16, 17, 31, 64, 65, 127, 128, 200]
    };
    for &len in lens {
        let mut bytes = vec![0; len];
        let mut seen = std::collections::HashSet::from([hash.bytes(&bytes)]);
        for at in 0..len {
            for bit in 0..8 {
                bytes[at] = 1 << bit;
                assert!(seen.insert(hash.bytes(&bytes)), "{len} bytes, bit {bit} of byte {at}");
            }
            bytes[at] = 0;
        }
    }
}

#[test]
fn lengths_and_prefixes_differ() {
    let hash = Hash::new(HashKind::Strong, SEEDS[5]);
    for filler in [0, 1, 0xFF] {
        let bytes = [filler; 300];
        let hashes: std::collections::HashSet<u64> =
            (0..=300).map(|len| hash.bytes(&bytes[..len])).collect();
        assert_eq!(hashes.len(), 301);
    }
}

/// Returns how far the counts are from a random spread, in standard deviations.
fn deviation(counts: &[u32]) -> f64 {
    let mean = counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64;
    let chi_square: f64 =
        counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
    let freedom = (counts.len() - 1) as f64;
    (chi_square - freedom) / (2.0 * freedom).sqrt()
}

type Pattern = Box<dyn Fn(u64) -> u64>;

/// Key sets that occur in practice and that weak functions map to few buckets.
fn key_patterns() -> Vec<(String, Pattern)> {
    let mut patterns: Vec<(String, Pattern)> = Vec::new();
    for shift in [0, 1, 3, 6, 12, 16, 21, 32, 40, 46] {
        patterns.push((format!("i << {shift}"), Box::new(move |i| i << shift)));
    }
    for factor in [3, 10, 1000, 0xFFFF, 0x1_0001, 0x1_0000_0001, 0x9E37_79B9_7F4A_7C15] {
        patterns.push((format!("i * {factor}"), Box::new(move |i: u64| i.wrapping_mul(factor))));
    }
    patterns.push(("!i".into(), Box::new(|i| !i)));
    patterns.push(("reversed bits".into(), Box::new(u64::reverse_bits)));
    patterns.push(("two counters".into(), Box::new(|i| (i & 0xFF) | (i >> 8) << 32)));
    patterns
}

#[test]
#[cfg_attr(miri, ignore = "statistics of integers")]
fn regular_keys_spread_like_random_ones() {
    let keys = 1 << 16;
    // Parts of the hash as (position, width): the directory bits, the bucket in a segment, the fingerprint, and pairs
    // of these.
    let fields = [(52, 12), (56, 8), (40, 12), (24, 12), (8, 12), (0, 8), (0, 12)];
    for seed in SEEDS {
        let hash = Hash::new(HashKind::Strong, seed);
        for (name, pattern) in key_patterns() {
            let words: Vec<u64> = (0..keys).map(|i| hash.word(pattern(i))).collect();
            let bytes: Vec<u64> =
                (0..keys).map(|i| hash.bytes(&pattern(i).to_le_bytes())).collect();
            for (position, bits) in fields {
                for (form, hashes) in [("words", &words), ("bytes", &bytes)] {
                    let mut counts = vec![0_u32; 1 << bits];
                    hashes.iter().for_each(|hash| {
                        counts[(hash >> position) as usize & ((1 << bits) - 1)] += 1
                    });
                    let deviation = deviation(&counts);
                    // A spread that is too even is as suspicious as one that is too uneven, so both fail the test.
                    assert!(
                        deviation.abs() < 6.0,
                        "{form}, {name}, bits {position}+{bits}, {seed:x?}: {deviation:.1}"
                    );
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics of integers")]
fn fingerprints_are_independent_of_buckets() {
    let hash = Hash::new(HashKind::Strong, SEEDS[4]);
    for (name, pattern) in key_patterns() {
        for bucket_position in [58, 24, 8] {
            let mut counts = vec![0_u32; 1 << 14];
            for i in 0..1 << 18 {
                let hash = hash.word(pattern(i));
                counts
                    [(hash >> bucket_position & 0x3F) as usize | ((hash & 0xFF) as usize) << 6] +=
                    1;
            }
            let deviation = deviation(&counts);
            assert!(deviation.abs() < 6.0, "{name}, buckets at {bucket_position}: {deviation:.1}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics of integers")]
fn sequential_keys_do_not_collide() {
    let keys = 1 << 20;
    let hash = Hash::new(HashKind::Strong, SEEDS[0]);
    let mut hashes: Vec<u64> = (0..keys).map(|i| hash.word(i)).collect();
    hashes.sort_unstable();
    assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
}
