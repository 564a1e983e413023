//! A small seeded generator. It returns the same numbers on every machine and in every release, so that a printed
//! seed replays a run.

/// Scrambles a word; a bijection (the finalizer of `SplitMix64`, by Steele, Lea and Flood).
#[must_use]
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// A stream of random words: xoshiro256++ by Blackman and Vigna, seeded through [`mix`]. For measured loops, where
/// [`Rng`] would take too long.
#[derive(Clone, Debug)]
pub struct Xoshiro([u64; 4]);

impl Xoshiro {
    /// Creates the stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut n = seed;
        for word in &mut state {
            *word = mix(n);
            n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
        }
        Self(state)
    }

    /// Returns the next word.
    #[inline]
    pub fn word(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a length or index below `limit`, as [`Xoshiro::below`].
    #[inline]
    pub fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }
}

/// A stream of random choices, from [`Xoshiro`]. A fuzzer's input can replace the first ones.
#[derive(Clone, Debug)]
pub struct Rng {
    stream: Xoshiro,
    /// Bytes that determine the first choices, in reverse order: the last byte is used first.
    tape: Vec<u8>,
}

impl Rng {
    /// Creates the stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { stream: Xoshiro::new(seed), tape: Vec::new() }
    }

    /// Creates a stream whose choices are read from `bytes`, with as few bytes per choice as possible: a fuzzer that
    /// changes a byte then changes one choice. After the last byte, the stream continues like that of seed 0.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self { tape: bytes.iter().rev().copied().collect(), ..Self::new(0) }
    }

    /// Returns whether bytes of [`Rng::of_bytes`] are left.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        !self.tape.is_empty()
    }

    /// Returns the number in the next `count` bytes.
    #[cold]
    fn next_bytes(&mut self, count: usize) -> u64 {
        (0..count).fold(0, |number, _| number << 8 | u64::from(self.tape.pop().unwrap_or(0)))
    }

    /// Creates an independent stream for part `part` of the work that `seed` determines.
    #[must_use]
    pub fn fork(seed: u64, part: u64) -> Self {
        Self::new(seed ^ mix(part.wrapping_add(1)))
    }

    /// Returns the next word.
    pub fn word(&mut self) -> u64 {
        if self.has_bytes() {
            return self.next_bytes(8);
        }
        self.stream.word()
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if self.has_bytes() {
            let bytes = (u64::BITS - limit.saturating_sub(1).leading_zeros()).div_ceil(8);
            return self.next_bytes(bytes as usize) % limit.max(1);
        }
        self.stream.below(limit)
    }

    /// Returns a length or index below `limit`, as [`Rng::below`].
    pub fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// Returns true once in `n` calls, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns one of `items`.
    ///
    /// # Panics
    /// Panics if `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let stream = |seed| {
            let mut rng = Rng::new(seed);
            (0..4).map(|_| rng.word()).collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn bytes_decide_one_choice_each() {
        let mut rng = Rng::of_bytes(&[3, 250, 1, 0, 7]);
        assert_eq!(
            (rng.below(10), rng.below(256), rng.below(1), rng.below(1000)),
            (3, 250, 0, 256)
        );
        assert!(rng.has_bytes());
        assert_eq!(rng.below(2), 1);
        assert!(!rng.has_bytes());
        assert_eq!(rng.word(), Rng::new(0).word());
    }

    #[test]
    fn below_covers_its_range_and_stays_in_it() {
        let mut rng = Rng::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[rng.index(10)] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
