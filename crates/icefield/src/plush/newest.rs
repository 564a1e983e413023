//! Which record of each key is the newest: whoever merges shows records newest first.

use super::level::Moving;

/// The newest record of each key.
pub(super) struct Newest<A, B> {
    pub(super) records: Vec<Moving<A, B>>,
    /// Places in `records` plus one, by hashes. Of four times as many as there are records: hardly any two meet.
    places: Vec<u32>,
}

impl<A: Copy, B: Copy> Newest<A, B> {
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
        for (number, moving) in self.records.iter().enumerate() {
            let mut at = home(moving.hash, wanted);
            while self.places[at] != 0 {
                at = (at + 1) & (wanted - 1);
            }
            self.places[at] = number as u32 + 1;
        }
    }

    /// A record with this hash. May miss one whose place another record has taken.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<&Moving<A, B>> {
        let known = self.places[home(hash, self.places.len())].checked_sub(1)?;
        self.records.get(known as usize).filter(|known| known.hash == hash)
    }

    /// Takes a record over unless there is one of its key, as `same` says. Whether it did.
    #[inline(always)]
    pub(super) fn add<E>(
        &mut self,
        moving: Moving<A, B>,
        same: impl Fn(&Moving<A, B>, &Moving<A, B>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut at = home(moving.hash, self.places.len());
        while let Some(known) = self.places[at].checked_sub(1) {
            if same(&self.records[known as usize], &moving)? {
                return Ok(false);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
        self.records.push(moving);
        self.places[at] = self.records.len() as u32;
        Ok(true)
    }
}

/// Where the place of a hash is looked for, among a power of two of them. Its high bits are those of the entry, the low
/// ones of some hashes are always the same.
#[inline]
fn home(hash: u64, places: usize) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (places - 1)
}
