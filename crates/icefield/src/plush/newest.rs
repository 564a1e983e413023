//! Which record of each key is the newest: whoever merges shows records newest first.

use super::words::Record;
use crate::key::WordArray;

/// The newest record of each key.
pub(super) struct Newest<A, B> {
    pub(super) records: Vec<Record<A, B>>,
    /// Places in `records` plus one, by key words. Of four times as many as there are records: hardly any two meet.
    places: Vec<u32>,
}

impl<A: WordArray, B: WordArray> Newest<A, B> {
    /// Room for so many keys.
    pub(super) fn with_capacity(keys: usize) -> Self {
        let places = vec![0; (keys * 4).next_power_of_two().max(8)];
        Self { records: Vec::with_capacity(keys), places }
    }

    /// Makes room for so many more keys.
    pub(super) fn reserve(&mut self, keys: usize) {
        let wanted = ((self.records.len() + keys) * 4).next_power_of_two().max(8);
        if wanted <= self.places.len() {
            return;
        }
        self.places = vec![0; wanted];
        for (number, record) in self.records.iter().enumerate() {
            let mut at = home(&record.key, wanted);
            while self.places[at] != 0 {
                at = (at + 1) & (wanted - 1);
            }
            self.places[at] = number as u32 + 1;
        }
    }

    /// Takes a record over unless there is one of its key, as `same` says. Whether it did.
    #[inline]
    pub(super) fn add<E>(
        &mut self,
        record: Record<A, B>,
        same: impl Fn(Record<A, B>, Record<A, B>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut at = home(&record.key, self.places.len());
        while let Some(known) = self.places[at].checked_sub(1) {
            if same(self.records[known as usize], record)? {
                return Ok(false);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.records.push(record);
        self.places[at] = self.records.len() as u32;
        Ok(true)
    }
}

/// Where the place of a key's words is looked for, among a power of two of them.
#[inline]
fn home<A: WordArray>(key: &A, places: usize) -> usize {
    let words = key.as_ref().iter();
    let mixed = words.fold(0, |mixed: u64, word| {
        (mixed.rotate_left(32) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    (mixed >> 32) as usize & (places - 1)
}
