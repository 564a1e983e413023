//! Finds the newest record of each key among records that are added newest first.

use super::moving::Moving;

pub(super) struct Newest<'a, A, B> {
    pub(super) records: Vec<&'a Moving<A, B>>,
    /// Indices into `records` plus one, by hash. There are at least four times as many places as records, so that
    /// collisions are rare.
    places: Vec<u32>,
}

impl<'a, A, B> Newest<'a, A, B> {
    /// Creates an empty collection with room for `keys` keys.
    pub(super) fn with_capacity(keys: usize) -> Self {
        let places = vec![0; (keys * 4).next_power_of_two().max(8)];
        Self { records: Vec::with_capacity(keys), places }
    }

    /// Makes room for `keys` more keys.
    pub(super) fn reserve(&mut self, keys: usize) {
        let wanted = ((self.records.len() + keys) * 4).next_power_of_two().max(8);
        if wanted <= self.places.len() {
            return;
        }
        self.places = vec![0; wanted];
        for (number, moving) in self.records.iter().enumerate() {
            let mut at = home(moving.hash, wanted);
            while self.places[at] != 0 {
                at = (at + 1) & (wanted - 1);
            }
            self.places[at] = number as u32 + 1;
        }
    }

    /// Returns a record with this hash. May miss one that was displaced by a collision.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<&'a Moving<A, B>> {
        let known = self.places[home(hash, self.places.len())].checked_sub(1)?;
        self.records.get(known as usize).copied().filter(|known| known.hash == hash)
    }

    /// Adds a record, unless there is one with the same key according to `same`. Returns whether it was added.
    #[inline(always)]
    pub(super) fn add<E>(
        &mut self,
        moving: &'a Moving<A, B>,
        same: impl Fn(&Moving<A, B>, &Moving<A, B>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut at = home(moving.hash, self.places.len());
        while let Some(known) = self.places[at].checked_sub(1) {
            if same(self.records[known as usize], moving)? {
                return Ok(false);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.records.push(moving);
        self.places[at] = self.records.len() as u32;
        Ok(true)
    }
}

/// The first place to be searched for a hash; `places` is a power of two. The hash is mixed, because its high bits are
/// the same for all records of an entry, and the low bits of some hashes are constant.
#[inline]
fn home(hash: u64, places: usize) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (places - 1)
}
