//! Partitioning (§6.6): the property of keys that selects their entries. This is the hash of a key, or, for ranges,
//! its place among all keys. With ranges, the upper half of the value that the table uses as the hash keeps the order
//! of the keys; only the lower half is hashed.

use std::cmp::Ordering;
use std::ops::Deref;

use super::words::raw_of;
use crate::storage::superblock::Identity;
use crate::types::{Form, Raw};

/// The property of keys by which a [`Plush`](crate::Plush) arranges its records.
///
/// ```
/// use icefield::{Partition, Plush};
/// let table = Plush::<u32, u64>::options().partition(Partition::Range).in_memory()?;
/// (0..100).try_for_each(|key| table.put(key * 10, 1))?;
/// assert_eq!(table.range(42, 2)?, [(50, 1), (60, 1)]);
/// # Ok::<(), icefield::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// The hashes of the keys: all parts of the table fill evenly.
    #[default]
    Hash,
    /// The order of the keys: numbers by size, bytes lexicographically, user-defined words by their words.
    /// [`Plush::range`](crate::Plush::range) reads them in order.
    Range,
}

/// The superblock parameters of the partitioning: 1 for ranges, first rank, last rank.
const PARTITION: usize = 6;

/// The order of a type's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By their words.
    Word,
    /// Signed integers of this many bits.
    Signed(u32),
    /// Byte arrays in words.
    Array,
    /// Bytes, lexicographically.
    Bytes,
    /// Bytes, the last one first: integers of 16 bytes.
    Little,
}

impl Order {
    fn of(type_name: &str, is_word: bool) -> Self {
        match (type_name, is_word) {
            ("i8", true) => Self::Signed(8),
            ("i16", true) => Self::Signed(16),
            ("i32", true) => Self::Signed(32),
            ("i64", true) => Self::Signed(64),
            (name, true) if name.starts_with("[u8;") => Self::Array,
            (_, true) => Self::Word,
            ("u128", false) => Self::Little,
            (_, false) => Self::Bytes,
        }
    }

    /// A number that grows with the key: the whole of a word; of other keys, the eight most significant bytes.
    #[inline]
    fn rank(self, key: &Raw<'_>) -> u64 {
        let first_bytes = |bytes: &mut dyn Iterator<Item = &u8>| {
            (0..8).fold(0, |rank, _| rank << 8 | bytes.next().map_or(0, |&byte| u64::from(byte)))
        };
        match self {
            Self::Word => key.word(),
            Self::Signed(bits) => key.word() ^ 1 << (bits - 1),
            Self::Array => key.word().swap_bytes(),
            Self::Bytes => first_bytes(&mut key.bytes().iter()),
            Self::Little => first_bytes(&mut key.bytes().iter().rev()),
        }
    }

    fn compare(self, a: &Raw<'_>, b: &Raw<'_>) -> Ordering {
        match self {
            Self::Bytes => a.bytes().cmp(b.bytes()),
            Self::Little => a.bytes().iter().rev().cmp(b.bytes().iter().rev()),
            _ => self.rank(a).cmp(&self.rank(b)),
        }
    }

    /// The highest rank of a type.
    fn last(self, type_name: &str) -> u64 {
        match type_name {
            "u8" | "i8" => u8::MAX.into(),
            "u16" | "i16" => u16::MAX.into(),
            "u32" | "i32" => u32::MAX.into(),
            "bool" => 1,
            "char" => char::MAX.into(),
            _ => u64::MAX,
        }
    }
}

/// The ranks of the two keys between which most keys are expected; `None` for the limits of the type.
pub(super) type Bounds = Option<[u64; 2]>;

/// The rank of a key, for [`Bounds`].
pub(crate) fn rank_of(type_name: &str, form: Form, key: &Raw<'_>) -> u64 {
    Order::of(type_name, form == Form::Word).rank(key)
}

/// Maps keys to places in a range-partitioned table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    order: Order,
    first: u64,
    last: u64,
    /// The number of bits by which a rank can be shifted to the left without loss.
    shift: u32,
    /// 2^96 divided by one more than the largest shifted rank, or `u64::MAX` if that is less.
    factor: u64,
}

impl Ranges {
    fn new(order: Order, [first, last]: [u64; 2]) -> Self {
        let width = last - first;
        let shift = width.leading_zeros().min(63);
        let factor = (1_u128 << 96) / (u128::from(width << shift) + 1);
        let factor = u64::try_from(factor).unwrap_or(u64::MAX);
        Self { order, first, last, shift, factor }
    }

    /// Stores the partitioning in the identity of a new table.
    pub(super) fn inscribe(identity: &mut Identity, partition: Partition, bounds: Bounds) {
        if partition == Partition::Range {
            let is_word = form_is_word(identity);
            let order = Order::of(&identity.key_type, is_word);
            let [first, last] = bounds.unwrap_or([0, order.last(&identity.key_type)]);
            let params = [1, first.min(last), first.max(last)];
            identity.params[PARTITION..PARTITION + 3].copy_from_slice(&params);
        }
    }

    /// Reads the partitioning of a table; `Err` when its superblock holds an impossible one.
    pub(super) fn of(identity: &Identity) -> Result<Option<Self>, ()> {
        let [kind, first, last] = [0, 1, 2].map(|at| identity.params[PARTITION + at]);
        match kind {
            0 => Ok(None),
            1 if first <= last => {
                let order = Order::of(&identity.key_type, form_is_word(identity));
                Ok(Some(Self::new(order, [first, last])))
            }
            _ => Err(()),
        }
    }

    /// The bounds, for a new table like this one.
    pub(super) fn bounds(self) -> [u64; 2] {
        [self.first, self.last]
    }

    /// The upper half of the value used as a key's hash. Grows with the key.
    #[inline]
    pub(super) fn place(self, key: &Raw<'_>) -> u64 {
        self.place_of_rank(self.order.rank(key))
    }

    /// Like [`Ranges::place`], for a sort key, whose first eight bytes are the rank.
    pub(super) fn place_of_sorted(self, sort_key: &[u8]) -> u64 {
        let mut bytes = sort_key.iter();
        self.place_of_rank(
            (0..8).fold(0, |rank, _| rank << 8 | bytes.next().map_or(0, |&byte| u64::from(byte))),
        )
    }

    #[inline]
    fn place_of_rank(self, rank: u64) -> u64 {
        let rank = rank.clamp(self.first, self.last) - self.first;
        let scaled = u128::from(rank << self.shift) * u128::from(self.factor);
        // Less than 2^96, because the factor is at most 2^96 divided by one more than the largest shifted rank.
        ((scaled >> 64) as u64) << 32
    }

    /// The bytes by which a key is sorted.
    #[inline]
    pub(super) fn sort_key<'a>(self, key: &'a Raw<'_>) -> SortKey<'a> {
        match self.order {
            Order::Bytes => SortKey::Slice(key.bytes()),
            _ => self.sort_key_of_owned(key),
        }
    }

    /// Like [`Ranges::sort_key`], for a key of fixed width.
    #[inline]
    pub(super) fn sort_key_of_owned<'a>(self, key: &Raw<'_>) -> SortKey<'a> {
        let mut bytes = [0; 64];
        let len = match self.order {
            Order::Bytes | Order::Little => {
                // A damaged key may be longer.
                let key = &key.bytes()[..key.bytes().len().min(bytes.len())];
                bytes[..key.len()].copy_from_slice(key);
                if self.order == Order::Little {
                    bytes[..key.len()].reverse();
                }
                key.len()
            }
            _ => {
                bytes[..8].copy_from_slice(&self.order.rank(key).to_be_bytes());
                8
            }
        };
        SortKey::Array { bytes, len: len as u8 }
    }

    /// Like [`Ranges::sort_key`], for a key in the payload log; `None` when the bytes are not a key.
    #[inline]
    pub(super) fn sort_key_of_stored(self, form: Form, key: &[u8]) -> Option<SortKey<'_>> {
        match self.order {
            Order::Bytes => Some(SortKey::Slice(key)),
            _ => raw_of(form, key).map(|key| self.sort_key_of_owned(&key)),
        }
    }

    pub(super) fn compare(self, a: &Raw<'_>, b: &Raw<'_>) -> Ordering {
        self.order.compare(a, b)
    }
}

#[derive(Clone, Copy)]
pub(super) enum SortKey<'a> {
    Slice(&'a [u8]),
    Array { bytes: [u8; 64], len: u8 },
}

impl Deref for SortKey<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Array { bytes, len } => &bytes[..usize::from(*len)],
        }
    }
}

fn form_is_word(identity: &Identity) -> bool {
    crate::engine::stored_types::key_is_word(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Key;

    fn is_monotone<K: Key + ?Sized>(ranges: Ranges, keys: &[K::Owned]) {
        for pair in keys.windows(2) {
            let [a, b] = [K::raw(K::arg(&pair[0])), K::raw(K::arg(&pair[1]))];
            assert!(ranges.place(&a) <= ranges.place(&b), "{pair:?}");
            assert_eq!(ranges.compare(&a, &b), Ordering::Less, "{pair:?}");
            assert_eq!(ranges.place_of_sorted(&ranges.sort_key(&b)), ranges.place(&b), "{pair:?}");
        }
    }

    #[test]
    fn places_keep_the_order() {
        let full = |name, is_word| {
            let order = Order::of(name, is_word);
            Ranges::new(order, [0, order.last(name)])
        };
        is_monotone::<u64>(full("u64", true), &[0, 1, 7, 1 << 32, 1 << 63, u64::MAX]);
        is_monotone::<i16>(full("i16", true), &[i16::MIN, -300, -1, 0, 1, 300, i16::MAX]);
        is_monotone::<i64>(full("i64", true), &[i64::MIN, -1, 0, 1, i64::MAX]);
        is_monotone::<char>(full("char", true), &['\0', 'a', 'z', 'é', char::MAX]);
        is_monotone::<[u8; 3]>(
            full("[u8; 3]", true),
            &[[0; 3], [0, 0, 9], [0, 1, 0], [1, 0, 0], [255; 3]],
        );
        is_monotone::<u128>(full("u128", false), &[0, 255, 256, 1 << 64, 1 << 127, u128::MAX]);
        let words = ["", "a", "aa", "abcdefgh", "abcdefghi", "abcdefgi", "b"].map(str::to_owned);
        is_monotone::<str>(full("str", false), &words);
    }

    #[test]
    fn places_fill_the_whole_of_the_halves() {
        for last in [0, 1, 2, 999, 1000, 1 << 20, (1 << 32) - 1, 1 << 32, u64::MAX - 5, u64::MAX] {
            let ranges = Ranges::new(Order::Word, [0, last]);
            let place = |word| ranges.place(&Raw::Word(word));
            assert_eq!(place(0), 0);
            let top = place(last) >> 32;
            let expected = (1_u128 << 32) - (1 << 32) / (u128::from(last) + 1);
            assert!(u128::from(top) + 2 >= expected, "{last}: {top}");
            assert_eq!(place(u64::MAX), place(last));
        }
        let shifted = Ranges::new(Order::Word, [1000, 1999]);
        assert_eq!(shifted.place(&Raw::Word(3)), 0);
        assert_eq!(shifted.place(&Raw::Word(1500)) >> 60, 8);
    }
}
