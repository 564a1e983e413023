//! Batches: the ring in front, which fetches what lies ahead, and windows behind it (`window`).

use std::ops::ControlFlow;

use super::Iceberg;
use super::core::Core;
use super::layout::fingerprint;
use super::window::Writer;
use crate::Result;
use crate::base::group::{Isa, Kernel, dispatch};
use crate::base::pipeline::{self, prefetch_read, prefetch_write};
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::Probe;
use crate::record::batch::{BatchEngine, BatchWriter};
use crate::record::engine::{Engine, Mode, Wrote};
use crate::table::{Arg, Owned, same_length};

/// How far ahead the ring fetches fingerprints, and when it looks at them to fetch slots.
const RING: usize = 48;
const PEEK: usize = 16;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Asks for the fingerprints of a hash's front bucket.
    #[inline(always)]
    fn fetch_line(&self, hash: u64, hint: impl Fn(*const crate::base::sync::Line)) {
        hint(self.front_line(self.shape().front(hash)).0);
    }

    /// Looks at the fingerprints and asks for the slot that will be read, or else for the back buckets' fingerprints.
    /// Decides nothing.
    #[inline(always)]
    fn fetch_slot(&self, isa: impl Isa, hash: u64) {
        let shape = self.shape();
        let bucket = shape.front(hash);
        let line = self.front_line(bucket);
        let candidates = line.candidates_on(isa, fingerprint(hash), self.front_mask());
        if candidates != 0 {
            if let Ok(slot) = self.front_slot(bucket, candidates.trailing_zeros()) {
                prefetch_read(slot);
            }
        } else {
            self.fetch_words(shape.back(hash));
        }
    }

    /// As [`Core::fetch_slot`], for a write.
    #[inline(always)]
    fn fetch_room(&self, hash: u64) {
        let shape = self.shape();
        let bucket = shape.front(hash);
        let line = self.front_line(bucket);
        let candidates = line.candidates(fingerprint(hash), self.front_mask());
        let wanted = if candidates != 0 { candidates } else { line.empty(self.front_mask()) };
        if wanted != 0
            && let Ok(slot) = self.front_slot(bucket, wanted.trailing_zeros())
        {
            prefetch_write(slot);
        }
        if candidates == 0 {
            self.fetch_words(shape.back(hash));
        }
    }

    #[inline(always)]
    fn fetch_words(&self, buckets: [u64; 2]) {
        for bucket in buckets {
            prefetch_read(self.back_word(bucket).0);
        }
    }

    /// Hints that a key with this hash will be asked for soon.
    pub(super) fn prefetch(&self, hash: u64) {
        self.fetch_line(hash, prefetch_read);
    }
}

/// The reads of a batch, for whichever instruction set there is.
struct Reads<'a, 'k, K: Key + ?Sized + 'k, V: Value + ?Sized, M: Medium> {
    table: &'a Iceberg<K, V, M>,
    keys: &'a [Arg<'k, K>],
    found: &'a mut [Option<Owned<V>>],
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Kernel for Reads<'_, '_, K, V, M> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Result<()> {
        let Self { table, keys, found } = self;
        let core = &table.core;
        let pin = core.pin();
        let mut failure = Ok(());
        let reads = pipeline::stages(
            |index| {
                let hash = core.records.probe(keys[index]).hash;
                core.fetch_line(hash, prefetch_read);
                hash
            },
            |_, hash| core.fetch_slot(isa, hash),
            |index, hash| {
                let probe = Probe { hash, key: K::raw(keys[index]) };
                let value = core.lookup_on(isa, &pin, &probe);
                match value.and_then(|word| word.map(|word| table.own_value(word)).transpose()) {
                    Ok(value) => {
                        found[index] = value;
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling(keys.len(), RING, PEEK, reads);
        failure
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Iceberg<K, V, M> {
    /// Reads keys in order, fetching what lies ahead.
    pub(super) fn read_batch(
        &self,
        keys: &[Arg<'_, K>],
        found: &mut [Option<Owned<V>>],
    ) -> Result<()> {
        same_length(keys.len(), found.len())?;
        dispatch(Reads { table: self, keys, found })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> BatchEngine<K, V> for Iceberg<K, V, M> {
    type Writer<'t>
        = Writer<'t, K, V, M>
    where
        Self: 't;

    fn writer(&self) -> Writer<'_, K, V, M> {
        Writer::new(self)
    }

    #[inline]
    fn hint(&self, hash: u64) {
        self.core.fetch_line(hash, prefetch_write);
    }

    fn write_batch<'k, 'v>(
        &self,
        count: usize,
        operation: impl Fn(usize) -> (Arg<'k, K>, Option<(Mode, Raw<'v>)>),
        mut answer: impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()>
    where
        K: 'k,
    {
        let core = &self.core;
        let mut writer = Writer::new(self);
        let mut failure = Ok(());
        let writes = pipeline::stages(
            |index| {
                let hash = core.records.probe(operation(index).0).hash;
                core.fetch_line(hash, prefetch_write);
                hash
            },
            |_, hash| core.fetch_room(hash),
            |index, hash| {
                let (key, write) = operation(index);
                let probe = Probe { hash, key: K::raw(key) };
                match writer.run(index, &probe, write, &mut answer) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failure = Err(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        pipeline::rolling(count, RING, PEEK, writes);
        // What came before a failure is made durable and answered.
        let finished = writer.commit(&mut answer);
        failure.and(finished)
    }
}
