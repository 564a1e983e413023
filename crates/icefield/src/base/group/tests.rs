//! Tests every instruction set against a loop over the bytes.

use std::sync::atomic::AtomicU64;

use super::*;

/// Words with many equal bytes, near misses, and neighbours that would reveal a borrow or a swapped lane.
fn samples() -> Vec<[u64; 8]> {
    let mut state = 0x1CEF_1E1D_u64;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 29)
    };
    let mut samples =
        vec![[0; 8], [u64::MAX; 8], [0x0100_0100_0001_0001; 8], [0x8080_8080_8080_8080; 8]];
    samples.extend((0..64).map(|byte| {
        let mut words = [0; 8];
        words[byte / 8] = 0xA5 << (8 * (byte % 8));
        words
    }));
    samples.extend((0..200).map(|_| std::array::from_fn(|_| next())));
    // Few different bytes, so that most groups have several matches.
    samples.extend((0..200).map(|_| std::array::from_fn(|_| next() & 0x0101_0101_0101_0101)));
    samples.extend((0..100).map(|_| std::array::from_fn(|_| next() & 3)));
    samples
}

struct AgainstLoop;

impl Kernel for AgainstLoop {
    type Output = &'static str;

    fn run<I: Isa>(self, isa: I) -> &'static str {
        // Code that Miri interprets is a thousand times slower.
        let sparse = if cfg!(miri) { 23 } else { 1 };
        for words in samples().into_iter().step_by(sparse) {
            let [a, b, ..] = words;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            for byte in [0, 1, 2, 0x7F, 0x80, 0xA5, 0xFF, bytes[0], bytes[15], bytes[31], bytes[63]]
            {
                let expected: u64 =
                    bytes.iter().enumerate().map(|(i, &b)| u64::from(b == byte) << i).sum();
                assert_eq!(
                    isa.match16([a, b], byte),
                    expected as u32 & 0xFFFF,
                    "{}: {byte:#x} {words:x?}",
                    I::NAME
                );
            }
            for key in [0, 1, 2, words[0], words[3], words[7], words[5] ^ 1 << 63, words[6] ^ 1] {
                let expected: u32 =
                    words.iter().enumerate().map(|(i, &word)| u32::from(word == key) << i).sum();
                let line = words.map(AtomicU64::new);
                let even = isa.find_keys(&line, key) & 0x55;
                assert_eq!(even, expected & 0x55, "{}: {key:#x} {words:x?}", I::NAME);
            }
            for hash in [0, u64::MAX, words[1], words[6].rotate_left(17), numbers(&words)] {
                let expected =
                    (3..8).all(|word| words[word] >> (hash >> (4 + 6 * (word - 3)) & 63) & 1 == 1);
                let line = words.map(AtomicU64::new);
                assert_eq!(isa.has_bits(&line, hash), expected, "{hash:#x} {words:x?}");
            }
        }
        for (byte, words) in BYTES.iter().flat_map(|&byte| LINES.map(|words| (byte, words))) {
            // The highest bit of the last byte is not compared.
            let at = |i: usize| {
                let differ = (words[i / 8] >> (8 * (i % 8))) as u8 ^ byte;
                differ & if i == 63 { 0x7F } else { 0xFF } == 0
            };
            let expected = (0..64).fold(0, |bits, i| bits | u64::from(at(i)) << i);
            let line = words.map(AtomicU64::new);
            assert_eq!(isa.find_bytes(&line, byte), expected, "{}: {byte:#x} {words:x?}", I::NAME);
        }
        I::NAME
    }
}

/// Returns a hash that selects a set bit in each of the words 3 to 7 that has one.
fn numbers(words: &[u64; 8]) -> u64 {
    let number = |word: usize| u64::from(words[word].trailing_zeros() & 63) << (6 * word - 14);
    (3..8).map(number).sum()
}

const BYTES: [u8; 5] = [0, 1, 0x7F, 0x80, 0xFF];
const LINES: [[u64; 8]; 3] = [
    [0; 8],
    [0x0100_7F80_FF01_0001; 8],
    [0, u64::MAX, 1, 1 << 63, 0x7F << 56, 0x8000, 0xFF, 0x0101_0101_0101_0101],
];

#[test]
fn generic_is_right() {
    AgainstLoop.run(Generic);
}

#[test]
fn native_is_right() {
    AgainstLoop.run(Native::default());
}

#[test]
fn the_best_set_is_right() {
    println!("best instruction set here: {}", dispatch(AgainstLoop));
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn every_set_of_this_processor_is_right() {
    AgainstLoop.run(Sse2);
    match Avx2::detect() {
        Some(isa) => assert_eq!(isa.enter(AgainstLoop), "avx2"),
        None => println!("not run: this processor has no AVX2"),
    }
    match Avx512::detect() {
        Some(isa) => assert_eq!(isa.enter(AgainstLoop), "avx512"),
        None => println!("not run: this processor has no AVX-512"),
    }
}
