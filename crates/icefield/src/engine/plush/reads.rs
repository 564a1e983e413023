//! Batches of reads: a loop that is compiled for each instruction set.

use std::ops::ControlFlow;

use super::Plush;
use super::core::Core;
use super::seek::Begun;
use crate::Result;
use crate::base::group::{Isa, Kernel};
use crate::base::pipeline::{self, Stages};
use crate::base::reclaim::Guard;
use crate::engine::LookupKey;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm, Take};

/// Distances, in operations: the root entry and filters are prefetched `RING` ahead, the fingerprints and the entry of
/// a level `PEEK` ahead, and the bucket one burst ahead. Each stage runs in bursts of `BURST` operations.
pub(super) const RING: usize = 32;
const PEEK: usize = 16;
pub(super) const BURST: usize = 8;
/// The distance `PEEK` of tables with a payload log. Their records take one step more: the bucket is prefetched two
/// bursts ahead, and the payload one burst ahead.
const PAYLOAD_PEEK: usize = PEEK + BURST;

/// Number of reads of a batch that share a pin. Bounds how long freed payload chunks wait for the end of a pin.
const PINNED: usize = 256;

/// The reads of a batch.
pub(super) struct Reads<'t, R, M, K, F, T>
where
    R: RecordForm,
    M: Medium,
{
    pub(super) table: &'t Plush<R, M>,
    pub(super) count: usize,
    pub(super) key: K,
    pub(super) take: T,
    pub(super) found: F,
}

impl<'k, R, M, K, F, T> Kernel for Reads<'_, R, M, K, F, T>
where
    R: RecordForm,
    M: Medium,
    K: Fn(usize) -> Raw<'k>,
    F: FnMut(usize, Option<T::Out>),
    T: Take + Copy,
{
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Result<()> {
        let (core, count) = (&self.table.core, self.count);
        let mut result = Ok(());
        let ring = Ring { core, pin: core.pin(), reads: self, result: &mut result, isa };
        pipeline::rolling_in_bursts::<BURST, _>(count, RING, core.peek_distance(), ring);
        result
    }
}

struct Ring<'t, 'r, R, M, K, F, T, I>
where
    R: RecordForm,
    M: Medium,
{
    core: &'t Core<R, M>,
    reads: Reads<'t, R, M, K, F, T>,
    pin: Option<Guard<'t>>,
    result: &'r mut Result<()>,
    isa: I,
}

/// A read that is being prefetched.
#[derive(Clone, Copy)]
struct Sought<'t> {
    hash: u64,
    begun: Option<Begun<'t>>,
}

impl<'t, 'k, R, M, K, F, T, I> Stages for Ring<'t, '_, R, M, K, F, T, I>
where
    R: RecordForm,
    M: Medium,
    K: Fn(usize) -> Raw<'k>,
    F: FnMut(usize, Option<T::Out>),
    T: Take + Copy,
    I: Isa,
{
    type Entry = Sought<'t>;

    #[inline(always)]
    fn locate(&mut self, index: usize) -> Sought<'t> {
        let hash = self.core.hash_key(&(self.reads.key)(index)).hash;
        self.core.hint_root(hash);
        self.core.hint_filters(hash);
        Sought { hash, begun: None }
    }

    #[inline(always)]
    fn inspect(&mut self, sought: &mut Sought<'t>) {
        sought.begun = self.core.try_begin_search(sought.hash);
    }

    #[inline(always)]
    fn follow(&mut self, Sought { hash, begun }: &mut Sought<'t>) {
        self.core.follow(self.isa, *hash, begun);
    }

    #[inline(always)]
    fn prefetch_record(&mut self, Sought { hash, begun }: &mut Sought<'t>) {
        self.core.approach(self.isa, *hash, begun);
    }

    #[inline(always)]
    fn run(&mut self, index: usize, sought: Sought<'t>) -> ControlFlow<()> {
        if index % PINNED == PINNED - 1 {
            self.pin.iter_mut().for_each(Guard::renew);
        }
        let key = (self.reads.key)(index);
        let probe = LookupKey::new(sought.hash, &key);
        match self.reads.table.read_begun(self.isa, &probe, &sought.begun, self.reads.take) {
            Ok(value) => {
                (self.reads.found)(index, value);
                ControlFlow::Continue(())
            }
            Err(error) => {
                *self.result = Err(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// The distance at which the searches of a batch begin: `PEEK` or `PAYLOAD_PEEK`.
    #[inline(always)]
    pub(super) fn peek_distance(&self) -> usize {
        if self.measure.is_inline() { PEEK } else { PAYLOAD_PEEK }
    }
}

impl<R: RecordForm, M: Medium> Plush<R, M> {
    /// Takes the value of a key, given the first steps of the search. The caller is pinned.
    #[inline(always)]
    pub(super) fn read_begun<T: Take>(
        &self,
        isa: impl Isa,
        probe: &LookupKey<'_>,
        begun: &Option<Begun<'_>>,
        take: T,
    ) -> Result<Option<T::Out>> {
        let core = &self.core;
        if !core.measure.is_inline()
            && let Some(begun) = begun
            && let Some(value) = core.find_sighted(probe, begun)
        {
            return value.map(|value| self.take_bytes(value, take)).transpose();
        }
        let words = core.find_begun(isa, probe, begun)?;
        words.map(|words| self.take_value(words, take)).transpose()
    }
}
