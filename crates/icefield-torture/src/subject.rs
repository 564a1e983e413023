//! What a table must offer to be tortured: each scenario is generic over these traits, so a new table gets the whole
//! arsenal by implementing them.

use std::hash::Hash;

use icefield::pm::sim::Sim;
use icefield::{Arg, Computed, Data, Decision, Durable, Key, Result, Table, Value};

use crate::call::FOREIGN;
use crate::pass::Seen;

/// A table on the simulated medium.
pub trait Subject: Durable<Key: Sample, Value: Sample> + Sized + 'static {
    /// The table's name in commands and reports, e.g. `dash-eh`.
    const NAME: &'static str;

    /// Regions whose words may be read before they are persistent, because recovery is sure to redo what they say.
    const EXEMPT: &'static [&'static str] = &[];

    /// Whether the table also lives on disks.
    const DISKS: bool = false;

    /// A new table of the smallest geometry, so that every structure change happens within a few dozen operations.
    /// `variant` picks among the geometries worth testing; any number is allowed.
    ///
    /// # Errors
    /// The table's own.
    fn create_tiny(sim: Sim, variant: u64) -> Result<Self>;

    /// One of the table's ways to put a record that is durable after the next `sync`, chosen by `way`.
    ///
    /// # Errors
    /// The table's own.
    fn put_relaxed(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
        _way: u64,
    ) -> Result<()> {
        self.put(key, value)
    }

    /// All records by a way that only this design has, if it has one.
    ///
    /// # Errors
    /// The table's own.
    fn own_pass(&self) -> Result<Option<Seen>> {
        Ok(None)
    }

    /// Opens the table that `sim` holds.
    ///
    /// # Errors
    /// The table's own; also [`icefield::Error::NotFound`] when `sim` holds none, because its creation was cut short.
    fn open_on(sim: Sim) -> Result<Self>;
}

/// A key or value type that scenarios can make examples of.
///
/// Distinct numbers give distinct samples, and a sample tells its number.
pub trait Sample: Data<Owned: Eq + Hash + Ord> {
    /// The `n`th example.
    fn sample(n: u64) -> Self::Owned;

    /// The number whose sample `owned` is; `None` when it is nobody's, i.e. nothing that a scenario ever wrote.
    fn number(owned: &Self::Owned) -> Option<u64>;

    /// One that no other comes before, in the order of the type.
    #[must_use]
    fn least() -> Self::Owned {
        Self::sample(0)
    }

    /// `compare_exchange`, in numbers; of values for which no table has it, a `compute` that does the same.
    ///
    /// # Errors
    /// The table's own.
    fn compare_exchange<T>(
        table: &T,
        key: Arg<'_, T::Key>,
        current: u64,
        new: u64,
    ) -> Result<std::result::Result<(), Option<u64>>>
    where
        Self: Value,
        T: Table<Value = Self>,
    {
        let number =
            |value: Option<Self::Owned>| value.map(|value| Self::number(&value).unwrap_or(FOREIGN));
        let computed = table.compute(key, |value| match value {
            Some(value) if Self::number(&value.own_ref()) == Some(current) => {
                Decision::Put(Self::sample(new))
            }
            _ => Decision::Keep,
        })?;
        Ok(match computed {
            Computed::Put(_) => Ok(()),
            other => Err(number(other.before())),
        })
    }
}

/// What scenarios ask of a key type.
pub trait SampleKey: Sample + Key {}
impl<K: Sample + Key + ?Sized> SampleKey for K {}

/// What scenarios ask of a value type.
pub trait SampleValue: Sample + Value {}
impl<V: Sample + Value + ?Sized> SampleValue for V {}

impl Sample for u64 {
    fn sample(n: u64) -> u64 {
        n
    }

    fn number(owned: &u64) -> Option<u64> {
        Some(*owned)
    }

    fn compare_exchange<T: Table<Value = Self>>(
        table: &T,
        key: Arg<'_, T::Key>,
        current: u64,
        new: u64,
    ) -> Result<std::result::Result<(), Option<u64>>> {
        table.compare_exchange(key, current, new)
    }
}

/// Nothing for 0, one byte below 256, else the number followed by bytes that depend on it: mostly few, sometimes
/// hundreds, rarely thousands, so that inline, small and multi-block records all occur.
impl Sample for [u8] {
    fn sample(n: u64) -> Vec<u8> {
        if n < 256 {
            return if n == 0 { Vec::new() } else { vec![n as u8] };
        }
        let mixed = crate::rng::mix(n);
        let tail = match mixed % 256 {
            0 => mixed >> 8 & 0xFFF,
            1..=16 => mixed >> 8 & 0xFF,
            _ => mixed >> 8 & 0xF,
        };
        let mut bytes = n.to_le_bytes().to_vec();
        bytes.extend((0..tail).map(|at| mixed.rotate_left(at as u32 % 64) as u8));
        bytes
    }

    fn number(owned: &Vec<u8>) -> Option<u64> {
        let n = match owned.as_slice() {
            [] => 0,
            [byte] => u64::from(*byte),
            bytes => u64::from_le_bytes(*bytes.first_chunk()?),
        };
        (Self::sample(n) == *owned).then_some(n)
    }
}

/// Words that all depend on the number, so that a mixture of two samples is nobody's: the first is one of four, so that
/// keys often begin alike, the second the number itself.
macro_rules! wide_samples {
    ($($ty:ty),*) => {$(
        impl Sample for $ty {
            fn sample(n: u64) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                for (at, word) in (0..).zip(bytes.as_chunks_mut().0) {
                    *word = wide_word(n, at).to_le_bytes();
                }
                bytes
            }

            fn number(owned: &Self) -> Option<u64> {
                let n = u64::from_le_bytes(*owned[8..].first_chunk()?);
                (Self::sample(n) == *owned).then_some(n)
            }

            fn least() -> Self {
                [0; size_of::<Self>()]
            }
        }
    )*};
}
wide_samples!([u8; 16], [u8; 32], [u8; 64]);

fn wide_word(n: u64, at: u64) -> u64 {
    match at {
        0 => crate::rng::mix(n) & 0x8000_0000_0000_0001,
        1 => n,
        _ => crate::rng::mix(n ^ at << 56),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_tell_their_number() {
        for n in (0..3000).chain([u64::MAX, 1 << 40]) {
            assert_eq!(<[u8] as Sample>::number(&<[u8] as Sample>::sample(n)), Some(n));
            assert_eq!(u64::number(&u64::sample(n)), Some(n));
            assert_eq!(<[u8; 16]>::number(&<[u8; 16]>::sample(n)), Some(n));
            assert_eq!(<[u8; 64]>::number(&<[u8; 64]>::sample(n)), Some(n));
        }
    }

    #[test]
    fn damaged_samples_are_nobodys() {
        let mut bytes = <[u8] as Sample>::sample(12_345);
        bytes.push(1);
        assert_eq!(<[u8] as Sample>::number(&bytes), None);
        let mut bytes = <[u8; 32]>::sample(12_345);
        bytes[31] ^= 1;
        assert_eq!(<[u8; 32]>::number(&bytes), None);
    }
}
