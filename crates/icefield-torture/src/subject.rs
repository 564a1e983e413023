//! The interface that the scenarios need of a table. Each scenario is generic over these traits, so a new table gets
//! all scenarios by implementing them.

use std::hash::Hash;

use icefield::storage::sim::Sim;
use icefield::{Arg, Computed, Data, Decision, Durable, Key, Result, Table, Value};

/// Records as numbers of keys and values.
pub type Seen = Vec<(u64, u64)>;

/// A table on the simulated medium.
pub trait Subject: Durable<Key: Sample, Value: Sample> + Sized + 'static {
    /// The table's name in commands and reports, e.g. `dash-eh`.
    const NAME: &'static str;

    /// Regions whose words may be used before these words are persistent, because recovery certainly repeats the
    /// changes that they record.
    const EXEMPT: &'static [&'static str] = &[];

    /// True if the design supports disks.
    const DISKS: bool = false;

    /// Creates a table of the smallest geometry, so that every structure change happens within a few dozen
    /// operations. `variant` selects one of the geometries worth testing; any number is allowed.
    ///
    /// # Errors
    /// Returns the table's error.
    fn create_tiny(sim: Sim, variant: u64) -> Result<Self>;

    /// Puts a record by a call whose write need not be durable before the next `sync`. `way` selects the call.
    /// # Errors
    /// Returns the table's error.
    fn put_relaxed(
        &self,
        key: Arg<'_, Self::Key>,
        value: Arg<'_, Self::Value>,
        _way: u64,
    ) -> Result<()> {
        self.put(key, value)
    }

    /// Returns all records by a call that only this design has, if it has one.
    ///
    /// # Errors
    /// Returns the table's error.
    fn own_pass(&self) -> Result<Option<Seen>> {
        Ok(None)
    }

    /// Does the work that waits for the table's helper, if it is a table whose callers help.
    fn help(&self) {}

    /// Opens the table that `sim` holds.
    ///
    /// # Errors
    /// Returns the table's error. It is [`icefield::Error::NotFound`] if `sim` holds no table, because a crash
    /// interrupted its creation.
    fn open_on(sim: Sim) -> Result<Self>;
}

/// The number of a value that no scenario wrote.
pub const FOREIGN: u64 = u64::MAX;

/// A key or value type for which scenarios can create examples.
///
/// Distinct numbers give distinct samples, and the number of a sample can be recovered from it.
pub trait Sample: Data<Owned: Eq + Hash + Ord> {
    /// Returns the `n`th example.
    fn sample(n: u64) -> Self::Owned;

    /// Returns the number whose sample is `owned`, or `None` if no scenario ever wrote this value.
    fn number(owned: &Self::Owned) -> Option<u64>;

    /// Returns the least value in the order of the type.
    #[must_use]
    fn least() -> Self::Owned {
        Self::sample(0)
    }

    /// Calls `compare_exchange` with numbers. Types without that call use a `compute` that does the same.
    /// # Errors
    /// Returns the table's error.
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

/// A key type of the scenarios.
pub trait SampleKey: Sample + Key {}
impl<K: Sample + Key + ?Sized> SampleKey for K {}

/// A value type of the scenarios.
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

/// The sample of 0 is empty, and that of a number below 256 is one byte. Any other sample is the number followed by
/// bytes that depend on it: mostly few, sometimes hundreds, rarely thousands, so that inline, small and multi-block
/// records all occur.
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

/// Every word depends on the number, so that a mixture of two samples is not a sample. The first word is one of four,
/// so that keys often share a prefix; the second is the number itself.
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
