//! Streams of key indices, each of which selects the record for one operation.
//!
//! Indices are `0..keys`. Popular ones are scattered over the range, so that no table profits from their locality; only
//! [`Distribution::Latest`] prefers adjacent indices.

use std::fmt;
use std::str::FromStr;

use crate::rng::Rng;

/// The popularity of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys are equally popular.
    Uniform,
    /// The `n`th most popular key is drawn with a probability proportional to `n` to the power of minus the exponent.
    Zipf(f64),
    /// As `Zipf`, with the most recently inserted key as the most popular one.
    Latest(f64),
    /// A few keys get most of the operations.
    Hot {
        /// The number of hot keys.
        keys: u64,
        /// The percentage of operations on them.
        percent: u64,
    },
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Latest(exponent) => write!(f, "latest:{exponent}"),
            Self::Hot { keys, percent } => write!(f, "hot:{keys}:{percent}"),
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "`{text}` is not a distribution such as uniform, zipf:0.99, latest:0.99 or hot:1000:90"
            )
        };
        let exponent = |part: Option<&str>| match part.map_or(Ok(0.99), str::parse) {
            Ok(exponent) if exponent > 0.0 && f64::is_finite(exponent) => Ok(exponent),
            _ => Err(unknown()),
        };
        let mut parts = text.split(':');
        let found = match (parts.next(), parts.next(), parts.next()) {
            (Some("uniform"), None, None) => Self::Uniform,
            (Some("zipf"), part, None) => Self::Zipf(exponent(part)?),
            (Some("latest"), part, None) => Self::Latest(exponent(part)?),
            (Some("hot"), Some(keys), Some(percent)) => {
                let keys = keys.parse().map_err(|_| unknown())?;
                let percent =
                    percent.parse().ok().filter(|&percent| percent <= 100).ok_or_else(unknown)?;
                Self::Hot { keys, percent }
            }
            _ => return Err(unknown()),
        };
        if parts.next().is_some() { Err(unknown()) } else { Ok(found) }
    }
}

/// An endless stream of indices.
#[derive(Clone, Debug)]
pub struct Stream {
    distribution: Distribution,
    keys: u64,
    zipf: Option<Zipf>,
    rng: Rng,
}

impl Stream {
    /// Creates the stream of `seed` over `keys` keys, at least one.
    #[must_use]
    pub fn new(distribution: Distribution, keys: u64, seed: u64) -> Self {
        let keys = keys.max(1);
        let zipf = match distribution {
            Distribution::Zipf(exponent) | Distribution::Latest(exponent) => {
                Some(Zipf::new(keys, exponent))
            }
            _ => None,
        };
        Self { distribution, keys, zipf, rng: Rng::new(seed) }
    }

    /// Returns the next index.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        match (self.distribution, &self.zipf) {
            (Distribution::Zipf(_), Some(zipf)) => scatter(zipf.rank(&mut self.rng), self.keys),
            (Distribution::Latest(_), Some(zipf)) => self.keys - 1 - zipf.rank(&mut self.rng),
            (Distribution::Hot { keys: hot, percent }, _) if self.rng.below(100) < percent => {
                scatter(self.rng.below(hot.clamp(1, self.keys)), self.keys)
            }
            _ => self.rng.below(self.keys),
        }
    }

    /// Raises the number of keys to `keys`; a smaller number has no effect. The last key is the newest.
    pub fn grow(&mut self, keys: u64) {
        self.keys = keys.max(self.keys);
        if let Some(zipf) = &mut self.zipf {
            *zipf = Zipf::new(self.keys, zipf.exponent);
        }
    }
}

/// Spreads ranks over the range. It is a bijection unless `keys` is a multiple of the prime.
#[inline]
fn scatter(rank: u64, keys: u64) -> u64 {
    const PRIME: u128 = 0xFFFF_FFFF_FFFF_FFC5;
    (u128::from(rank) * PRIME % u128::from(keys)) as u64
}

/// Zipf ranks by rejection-inversion (Hörmann and Derflinger 1996), which takes constant time and needs no table.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    exponent: f64,
    /// The values of the integral between which ranks are drawn: `upper` is its value half a rank past the last rank,
    /// `lower` is its value at the start of the first rank.
    upper: f64,
    lower: f64,
    /// Candidates this close to their rank are accepted without evaluating the density.
    shortcut: f64,
    ranks: f64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf =
            Self { exponent, upper: 0.0, lower: 0.0, shortcut: 0.0, ranks: ranks as f64 };
        zipf.lower = zipf.integral(1.5) - 1.0;
        zipf.upper = zipf.integral(zipf.ranks + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - 2.0_f64.powf(-exponent));
        zipf
    }

    /// Returns a rank, counted from 0.
    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.upper + rng.unit() * (self.lower - self.upper);
            let point = self.inverse(area);
            let rank = point.round().clamp(1.0, self.ranks);
            let close = rank - point <= self.shortcut;
            if close || area >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64 - 1;
            }
        }
    }

    /// Returns the integral of the density `x^-exponent` up to `x`, except for an additive constant.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (log1p_over(t) * area).exp()
    }
}

/// Returns `(e^x - 1) / x`, continued at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// Returns `ln(1 + x) / x`, continued at 0.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, keys: u64, draws: u64) -> Vec<u64> {
        let mut stream = Stream::new(distribution, keys, 3);
        let mut counts = vec![0; keys as usize];
        for _ in 0..draws {
            counts[stream.draw() as usize] += 1;
        }
        counts
    }

    #[test]
    fn names_round_trip() {
        for name in ["uniform", "zipf:0.99", "latest:0.5", "hot:1000:90"] {
            assert_eq!(name.parse::<Distribution>().map(|d| d.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "zipf:x", "zipf:-1", "hot:1", "hot:1:200", "uniform:1", "hot:1:2:3"] {
            assert!(name.parse::<Distribution>().is_err(), "{name}");
        }
    }

    #[test]
    fn zipf_follows_its_law() {
        let mut ranks = counts(Distribution::Zipf(0.99), 1000, 400_000);
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        let total: f64 = (1..=1000).map(|n| f64::from(n).powf(-0.99)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let expected = 400_000.0 * f64::from(rank).powf(-0.99) / total;
            let got = ranks[rank as usize - 1] as f64;
            assert!(
                (got / expected - 1.0).abs() < 0.15,
                "rank {rank}: {got} instead of {expected}"
            );
        }
    }

    #[test]
    fn latest_prefers_the_newest_key() {
        let counts = counts(Distribution::Latest(0.99), 100, 10_000);
        assert_eq!(counts.iter().max(), counts.last());
        let mut stream = Stream::new(Distribution::Latest(0.99), 10, 1);
        stream.grow(50);
        assert!((0..100).map(|_| stream.draw()).any(|index| index >= 10));
    }

    #[test]
    fn hot_keys_get_their_share() {
        let mut counts = counts(Distribution::Hot { keys: 10, percent: 90 }, 1000, 10_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = counts[..10].iter().sum();
        assert!((8800..9300).contains(&hot), "{hot}");
    }

    #[test]
    fn scattering_loses_no_key() {
        let mut seen: Vec<u64> = (0..1000).map(|rank| scatter(rank, 1000)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }
}
