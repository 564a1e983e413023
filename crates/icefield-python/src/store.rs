//! One interface to the tables of a `Map`: any durable table, and two in memory. Keys and values are bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use icefield::{AnyTable, Computed, Cursor, Decision, Dlht, DlhtMap, Result, Table, TryInsert};

use crate::flat::Flat;
use crate::types::{Type, word};

/// Number of keys for which the tables of words are called at once: their results stay in the processor's cache.
const GROUP: usize = 2048;

/// Returns the next value of a key for its present one; `None` keeps it.
type Compute<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>;

/// A table, and how it is kept.
#[expect(clippy::large_enum_variant, reason = "one exists for each map, behind a pointer")]
pub enum Store {
    Durable {
        table: AnyTable,
        /// Held exclusively by operations that read a record and then write it, and shared by all other changes.
        changes: RwLock<()>,
    },
    /// In memory, for keys and values of at most 8 bytes.
    Words { table: Dlht<u64, u64>, width: usize },
    /// In memory, for all others.
    Records(DlhtMap<Box<[u8]>, Box<[u8]>>),
}

/// The keys or the values of a piece of a batch.
pub enum Piece<'a> {
    /// Of a width, one after another.
    Fixed {
        bytes: &'a [u8],
        width: usize,
    },
    Slices(Vec<&'a [u8]>),
}

impl<'a> Piece<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Fixed { bytes, width } => bytes.len() / width,
            Self::Slices(slices) => slices.len(),
        }
    }

    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        match self {
            Self::Fixed { bytes, width } => &bytes[index * width..(index + 1) * width],
            Self::Slices(slices) => slices[index],
        }
    }

    /// Calls `f` with the slices of each group of keys and the index of the group's first key.
    fn in_groups(&self, mut f: impl FnMut(usize, &[&'a [u8]]) -> Result<()>) -> Result<()> {
        match self {
            Self::Slices(slices) => slices
                .chunks(GROUP)
                .enumerate()
                .try_for_each(|(group, slices)| f(group * GROUP, slices)),
            Self::Fixed { bytes, width } => {
                let mut slices = Vec::with_capacity(GROUP);
                for (group, bytes) in bytes.chunks(GROUP * width).enumerate() {
                    slices.clear();
                    slices.extend(bytes.chunks_exact(*width));
                    f(group * GROUP, &slices)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the keys or values as they are, if they are aligned words of 8 bytes.
    fn aligned(&self) -> Option<&'a [u64]> {
        let Self::Fixed { bytes, width: 8 } = self else { return None };
        // SAFETY: any 8 bytes are a `u64`.
        let (before, words, after) = unsafe { bytes.align_to::<u64>() };
        (before.is_empty() && after.is_empty()).then_some(words)
    }

    /// Returns the keys or values as words.
    fn words(&self) -> Cow<'a, [u64]> {
        match self.aligned() {
            Some(words) => words.into(),
            None => (0..self.len()).map(|index| word(self.get(index))).collect(),
        }
    }

    /// Calls `f` with each group of keys as words, and the index of the group's first key.
    fn in_words(&self, mut f: impl FnMut(usize, &[u64]) -> Result<()>) -> Result<()> {
        if let Some(words) = self.aligned() {
            let mut groups = words.chunks(GROUP).enumerate();
            return groups.try_for_each(|(group, words)| f(group * GROUP, words));
        }
        let mut words = Vec::with_capacity(GROUP);
        let mut first = 0;
        while first < self.len() {
            let count = GROUP.min(self.len() - first);
            words.clear();
            words.extend((first..first + count).map(|index| word(self.get(index))));
            f(first, &words)?;
            first += count;
        }
        Ok(())
    }
}

/// Records of a part of a map.
pub struct Page {
    pub keys: Flat,
    pub values: Flat,
    /// The cursor of the next part; `None` after the last one.
    pub next: Option<Cursor>,
    /// A fault, if a record of this part cannot be read.
    pub damage: Option<String>,
}

/// Receives the results of a piece of a batch: the index of a key, and its value.
pub trait Receive {
    fn value(&mut self, index: usize, value: Option<&[u8]>);
    fn word(&mut self, index: usize, value: Option<u64>);

    /// Receives the values of the keys from `first` on.
    fn words(&mut self, first: usize, values: &[Option<u64>]) {
        for (index, value) in values.iter().enumerate() {
            self.word(first + index, *value);
        }
    }
}

fn owned(bytes: &[u8]) -> Box<[u8]> {
    bytes.into()
}

impl Store {
    pub fn durable(table: AnyTable) -> Self {
        Self::Durable { table, changes: RwLock::new(()) }
    }

    pub fn as_durable(&self) -> Option<&AnyTable> {
        match self {
            Self::Durable { table, .. } => Some(table),
            _ => None,
        }
    }

    /// Calls `f` with the value of a key.
    #[inline]
    pub fn get_with<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        match self {
            Self::Durable { table, .. } => table.get_with(key, f),
            Self::Words { table, width } => {
                Ok(table.get(word(key)).map(|value| f(&value.to_le_bytes()[..*width])))
            }
            Self::Records(table) => Ok(table.get_with(key, |value| f(value))),
        }
    }

    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Durable { table, .. } => table.contains(key),
            Self::Words { table, .. } => Ok(table.contains(word(key))),
            Self::Records(table) => Ok(table.contains(key)),
        }
    }

    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                table.put(key, value)
            }
            Self::Words { table, .. } => Table::put(table, word(key), word(value)),
            Self::Records(table) => {
                table.checked_put(owned(key), owned(value)).map_err(|refused| refused.error)
            }
        }
    }

    /// Inserts a key if it is absent; returns the present value otherwise.
    pub fn try_insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Durable { table, changes } => {
                let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                Ok(table.try_insert(key, value)?.err().map(|occupied| occupied.0))
            }
            Self::Words { table, width } => {
                let present = Table::try_insert(table, word(key), word(value))?.err();
                Ok(present.map(|occupied| occupied.0.to_le_bytes()[..*width].to_vec()))
            }
            Self::Records(table) => {
                let guard = table.pin();
                let inserted = table.checked_try_insert(owned(key), owned(value), &guard);
                let present = inserted.map_err(|refused| refused.error)?.err();
                Ok(present.map(|occupied| occupied.0.to_vec()))
            }
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Durable { table, changes } => {
                let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                table.remove(key)
            }
            Self::Words { table, width } => Ok(Table::remove(table, word(key))?
                .map(|value| value.to_le_bytes()[..*width].to_vec())),
            Self::Records(table) => Ok(table.remove(key, &table.pin()).map(|value| value.to_vec())),
        }
    }

    /// Replaces the value of a key by what `f` returns for it, atomically; `None` keeps it. `f` may be called again.
    pub fn compute(&self, key: &[u8], f: Compute<'_>) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                let _exclusive = changes.write().unwrap_or_else(PoisonError::into_inner);
                let value = table.get(key)?;
                f(value.as_deref()).map_or(Ok(()), |new| table.put(key, &new))
            }
            Self::Words { table, width } => {
                let _: Computed<u64> = Table::compute(table, word(key), |value| {
                    let bytes = value.map(|value| value.to_le_bytes());
                    let new = f(bytes.as_ref().map(|bytes| &bytes[..*width]));
                    new.map_or(Decision::Keep, |new| Decision::Put(word(&new)))
                })?;
                Ok(())
            }
            Self::Records(table) => {
                let guard = table.pin();
                let decide = |value: Option<&Box<[u8]>>| {
                    f(value.map(|value| &**value))
                        .map_or(Decision::Keep, |new| Decision::Put(new.into()))
                };
                table.checked_compute(owned(key), decide, &guard).map(drop)
            }
        }
    }

    pub fn len(&self) -> Result<u64> {
        match self {
            Self::Durable { table, .. } => table.len(),
            Self::Words { table, .. } => Table::len(table),
            Self::Records(table) => Ok(table.len() as u64),
        }
    }

    pub fn clear(&self) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                let _exclusive = changes.write().unwrap_or_else(PoisonError::into_inner);
                table.clear()
            }
            Self::Words { table, .. } => Table::clear(table),
            Self::Records(table) => table.try_clear(),
        }
    }

    pub fn reserve(&self, additional: u64) -> Result<()> {
        match self {
            Self::Durable { table, .. } => table.reserve(additional),
            Self::Words { table, .. } => Table::reserve(table, additional),
            Self::Records(table) => {
                table.try_reserve(usize::try_from(additional).unwrap_or(usize::MAX))
            }
        }
    }

    /// Returns about `count` records from a cursor on.
    pub fn scan(
        &self,
        cursor: Cursor,
        count: usize,
        [key_type, value_type]: [Type; 2],
    ) -> Result<Page> {
        // `count` is a program's number: a page may have far fewer records.
        let capacity = count.min(GROUP);
        let mut keys = Flat::with_capacity(key_type, capacity);
        let mut values = Flat::with_capacity(value_type, capacity);
        let mut damage = None;
        let next = match self {
            Self::Durable { table, .. } => {
                let mut page = table.scan(cursor, count)?;
                damage = page.damaged.pop().map(|damaged| damaged.detail);
                for (key, value) in &page.records {
                    keys.push(key);
                    values.push(value);
                }
                page.next
            }
            Self::Words { table, width } => {
                let page = Table::scan(table, cursor, count)?;
                for (key, value) in &page.records {
                    keys.push(&key.to_le_bytes()[..key_type.width]);
                    values.push(&value.to_le_bytes()[..*width]);
                }
                page.next
            }
            Self::Records(table) => {
                let guard = table.pin();
                let page = table.scan(cursor, count, &guard);
                for (key, value) in &page.records {
                    keys.push(key);
                    values.push(value);
                }
                page.next
            }
        };
        Ok(Page { keys, values, next, damage })
    }

    /// Reads the values of a piece of a batch, in order.
    pub fn get_batch(&self, keys: &Piece<'_>, found: &mut impl Receive) -> Result<()> {
        match self {
            Self::Durable { table, .. } => match table.words() {
                Some(table) => {
                    table.get_batch(&keys.words(), |index, value| found.word(index, value))
                }
                None => keys.in_groups(|first, keys| {
                    table.get_batch_with(keys, |index, value| found.value(first + index, value))
                }),
            },
            Self::Words { table, .. } => {
                let mut values = [None; GROUP];
                keys.in_words(|first, keys| {
                    let values = &mut values[..keys.len()];
                    Table::get_batch(table, keys, values)?;
                    found.words(first, values);
                    Ok(())
                })
            }
            Self::Records(table) => {
                let guard = table.pin();
                keys.in_groups(|first, keys| {
                    let mut values = vec![None; keys.len()];
                    table.get_batch(keys, &mut values, &guard);
                    for (index, value) in values.into_iter().enumerate() {
                        found.value(first + index, value.map(|value| &**value));
                    }
                    Ok(())
                })
            }
        }
    }

    /// Inserts or replaces the records of a piece of a batch.
    pub fn put_batch(&self, keys: &Piece<'_>, values: &Piece<'_>) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(table) = table.words() {
                    return table.put_batch(&keys.words(), &values.words());
                }
                let records: Vec<_> =
                    (0..keys.len()).map(|i| (keys.get(i), values.get(i))).collect();
                table.put_batch(&records)
            }
            Self::Words { table, .. } => Table::put_batch(table, &words_of(keys, values)),
            Self::Records(_) => {
                (0..keys.len()).try_for_each(|i| self.put(keys.get(i), values.get(i)))
            }
        }
    }

    /// Inserts the records of a piece whose keys are absent; sets the others' bytes in `inserted` to 0, theirs to 1.
    pub fn insert_batch(
        &self,
        keys: &Piece<'_>,
        values: &Piece<'_>,
        inserted: &mut [u8],
    ) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                if let Some(table) = table.words() {
                    let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                    let note = |index, present: Option<u64>| {
                        inserted[index] = u8::from(present.is_none());
                    };
                    return table.try_insert_batch(&keys.words(), &values.words(), note);
                }
                let _exclusive = changes.write().unwrap_or_else(PoisonError::into_inner);
                keys.in_groups(|first, keys| {
                    table.get_batch_with(keys, |index, value| {
                        inserted[first + index] = u8::from(value.is_none());
                    })
                })?;
                let mut seen = HashSet::new();
                let mut records = Vec::new();
                for (index, inserted) in inserted.iter_mut().enumerate() {
                    if *inserted == 1 {
                        // A key that occurs twice is inserted once.
                        *inserted = u8::from(seen.insert(keys.get(index)));
                        if *inserted == 1 {
                            records.push((keys.get(index), values.get(index)));
                        }
                    }
                }
                table.put_batch(&records)
            }
            Self::Words { table, .. } => {
                let mut outcomes: Vec<TryInsert<u64>> = vec![Ok(()); keys.len()];
                Table::try_insert_batch(table, &words_of(keys, values), &mut outcomes)?;
                for (inserted, outcome) in inserted.iter_mut().zip(&outcomes) {
                    *inserted = u8::from(outcome.is_ok());
                }
                Ok(())
            }
            Self::Records(_) => {
                inserted.iter_mut().enumerate().try_for_each(|(index, inserted)| {
                    let present = self.try_insert(keys.get(index), values.get(index))?;
                    *inserted = u8::from(present.is_none());
                    Ok(())
                })
            }
        }
    }

    /// Removes the keys of a piece of a batch; sets the bytes of those that were present to 1, the others' to 0.
    pub fn remove_batch(&self, keys: &Piece<'_>, removed: &mut [u8]) -> Result<()> {
        match self {
            Self::Durable { table, changes } => {
                let _shared = changes.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(table) = table.words() {
                    return table.remove_batch(&keys.words(), |index, value| {
                        removed[index] = u8::from(value.is_some());
                    });
                }
                let keys: Vec<_> = (0..keys.len()).map(|index| keys.get(index)).collect();
                let values = table.remove_batch(&keys)?;
                removed
                    .iter_mut()
                    .zip(&values)
                    .for_each(|(byte, value)| *byte = u8::from(value.is_some()));
                Ok(())
            }
            Self::Words { table, .. } => keys.in_words(|first, keys| {
                let mut values = vec![None; keys.len()];
                Table::remove_batch(table, keys, &mut values)?;
                for (byte, value) in removed[first..].iter_mut().zip(&values) {
                    *byte = u8::from(value.is_some());
                }
                Ok(())
            }),
            Self::Records(table) => {
                let guard = table.pin();
                keys.in_groups(|first, keys| {
                    let mut values = vec![None; keys.len()];
                    table.remove_batch(keys, &mut values, &guard);
                    for (byte, value) in removed[first..].iter_mut().zip(&values) {
                        *byte = u8::from(value.is_some());
                    }
                    Ok(())
                })
            }
        }
    }
}

fn words_of(keys: &Piece<'_>, values: &Piece<'_>) -> Vec<(u64, u64)> {
    (0..keys.len()).map(|index| (word(keys.get(index)), word(values.get(index)))).collect()
}
