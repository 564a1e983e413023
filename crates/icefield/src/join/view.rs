//! The state that probes read: one generation, that is, its base and its delta store.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::base::Base;
use super::delta::{Change, Delta, KeyDelta, MAX_CHANGES, PayloadDelta, Snapshot};
use super::delta_filter::DeltaFilter;
use super::layout::{Root, Watermark, watermark};
use super::log::{self, Log, RECORD_BYTES, Tail};
use super::placed::Placed;
use super::plan::FilterBits;
use crate::base::hash::{Hash, HashKind};
use crate::base::pipeline::prefetch_write;
use crate::storage::superblock::impossible;
use crate::storage::superblock::{self, Identity, SessionEnd};
use crate::storage::{Medium, Region};
use crate::{Error, Result};

/// Lower bound of the default limit of delta records, for small bases.
const LEAST_LIMIT: u64 = 1024;
/// A generation number that no index reaches.
const MOST_GENERATIONS: u64 = 1 << 62;
/// Distance, in changes, between the prefetch of a change's lines and the change.
const AHEAD: usize = 16;
/// The default limit of delta records is the number of pairs in the base, divided by this number.
const DELTA_SHARE: u64 = 4;

/// The part of an index that all generations share.
pub(super) struct Frame<M> {
    pub(super) storage: M,
    pub(super) table: Region,
    pub(super) identity: Identity,
    pub(super) hash: Hash,
    /// The hash function for checksums: always strong, whichever `hash` a test chooses.
    pub(super) sums: Hash,
    /// Maximum size of each file, in bytes.
    pub(super) limit: u64,
    /// `true` if probes verify checksums.
    pub(super) verify: bool,
    /// Maximum number of records in a delta log; `None` for the default.
    pub(super) delta_limit: Option<u64>,
}

pub(super) struct View<M> {
    pub(super) frame: Arc<Frame<M>>,
    pub(super) root: Root,
    pub(super) bits: FilterBits,
    pub(super) base: Base,
    delta: RwLock<Delta>,
    pub(super) filter: DeltaFilter,
    /// Number of changes in the delta store. Probes look into the store only if this number is not 0.
    changes: AtomicU64,
    /// Number of pairs, in the base and the delta store.
    len: AtomicU64,
    /// Maximum number of records in the delta log.
    pub(super) delta_limit: u64,
}

impl<M: Medium> Frame<M> {
    /// Returns the frame of the index on `storage`.
    pub(super) fn new(
        storage: M,
        table: Region,
        identity: Identity,
        limit: u64,
        verify: bool,
        delta_limit: Option<u64>,
    ) -> Result<Self> {
        let kind = HashKind::from_id(identity.hash_id)
            .ok_or_else(|| impossible(&storage, "hash function"))?;
        let hash = Hash::new(kind, identity.hash_seed);
        let sums = Hash::new(HashKind::Strong, identity.hash_seed.map(|word| !word));
        Ok(Self { storage, table, identity, hash, sums, limit, verify, delta_limit })
    }

    /// Returns the generation that the root words name. During a merge, a reader can read the first copy half written
    /// and then the second copy half written; a second attempt finds the first copy whole.
    pub(super) fn root(&self) -> Result<Root> {
        let read = || Root::read(&self.storage, &self.table, &self.sums);
        read().or_else(|_| read())
    }
}

impl<M: Medium> View<M> {
    /// Returns a generation with a sealed base and an empty delta store.
    pub(super) fn fresh(frame: &Arc<Frame<M>>, root: Root) -> Result<Self> {
        let Frame { storage, identity, sums, limit, verify, .. } = &**frame;
        if !(1..MOST_GENERATIONS).contains(&root.generation) {
            return Err(impossible(storage, "number of the generation"));
        }
        let bits = FilterBits::stored(root.filter_bits)
            .ok_or_else(|| impossible(storage, "number of filter bits"))?;
        let base = Base::open(storage, &root, identity.uuid, sums, *limit, *verify)?;
        let records = base.layout().records;
        let delta_limit = frame.delta_limit.unwrap_or((records / DELTA_SHARE).max(LEAST_LIMIT));
        let delta_limit = delta_limit.clamp(1, MAX_CHANGES);
        Ok(Self {
            frame: Arc::clone(frame),
            root,
            bits,
            base,
            delta: RwLock::default(),
            filter: DeltaFilter::new(delta_limit)?,
            changes: AtomicU64::new(0),
            len: AtomicU64::new(records),
            delta_limit,
        })
    }

    /// Loads the generation that `root` names, and replays its log.
    pub(super) fn load(frame: &Arc<Frame<M>>, root: Root) -> Result<(Self, Region, Tail)> {
        let view = Self::fresh(frame, root)?;
        let storage = &frame.storage;
        let end = superblock::session_end(storage, &frame.table)?;
        let closed = if let SessionEnd::Clean(records) = end { records } else { 0 };
        let kept = match watermark(storage, &frame.table, &frame.sums, root.generation)? {
            Watermark::Records(records) => records,
            Watermark::Odd => 0,
        };
        let expected = closed.max(kept);
        let region = log::region(storage, root.generation, frame.limit)?;
        let mut replayed = 0;
        // Consecutive removals of pairs of one key are collected, because `apply` is faster if one call gets them all.
        let mut together: Vec<(Change, ChangeEffect)> = Vec::new();
        let tail =
            log::replay(storage, &region, &frame.sums, root.generation, expected, |change| {
                replayed += 1;
                if replayed > MAX_CHANGES {
                    return Err(impossible(storage, "number of delta records"));
                }
                let follows = |(last, _): &(Change, _)| last.removes_of(change.key());
                if !together.last().is_some_and(follows) || !change.removes_of(change.key()) {
                    view.apply(&together)?;
                    together.clear();
                }
                let effect = match change {
                    // The removal had an effect, otherwise it would not have been logged.
                    Change::RemovePair(key, _) => ChangeEffect::of_pair(frame.hash.word(key)),
                    change => view.effect(change)?,
                };
                together.push((change, effect));
                Ok(())
            })?;
        view.apply(&together)?;
        if end == SessionEnd::Odd && tail.stray > 0 {
            let detail = "the bytes after the last delta record are not a record, and the words of the last session, \
                          which record whether the index was closed, are damaged";
            return Err(region.fault(storage, tail.records * RECORD_BYTES, detail));
        }
        Ok((view, region, tail))
    }

    /// Returns the log of a loaded or new generation, ready for appending.
    pub(super) fn log(&self, region: Region, tail: &Tail) -> Result<Log> {
        Log::resume(&self.frame.storage, region, self.root.generation, tail)
    }

    pub(super) fn read_delta(&self) -> RwLockReadGuard<'_, Delta> {
        // A poisoned lock is usable: room is reserved before a change, so a change cannot panic halfway.
        self.delta.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the delta store may have entries.
    fn has_changes(&self) -> bool {
        // Acquire: pairs with the Release in `apply`.
        self.changes.load(Acquire) > 0
    }

    /// Returns the present state of the delta store; `None` if the store has no entries.
    pub(super) fn snapshot(&self) -> Option<DeltaSnapshot<'_, M>> {
        let taken = || DeltaSnapshot { view: self, state: self.read_delta().snapshot() };
        self.has_changes().then(taken)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Calls `visit` with the payloads of a key, from the delta store and from the base, until it returns `false`.
    pub(super) fn gather(
        &self,
        hash: u64,
        key: u64,
        mut visit: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut known = KeyDelta::default();
        self.read_delta().look_up(hash, key, &mut known);
        if !known.added.iter().all(|&payload| visit(payload)) || known.hides_all.is_some() {
            return Ok(());
        }
        self.base.payloads(&self.frame.storage, hash, key, |payload| {
            !known.shows(payload) || visit(payload)
        })
    }

    /// Returns the effect that a change would have.
    pub(super) fn effect(&self, change: Change) -> Result<ChangeEffect> {
        let hash = self.frame.hash.word(change.key());
        let mut effect = ChangeEffect { hash, pairs: 0, in_base: 0 };
        match change {
            Change::Insert(..) => effect.pairs = 1,
            Change::Remove(key) => {
                let mut known = KeyDelta::default();
                self.read_delta().look_up(hash, key, &mut known);
                effect.pairs = known.added.len() as u64;
                if let Some(in_base) = known.hides_all {
                    effect.in_base = in_base;
                    return Ok(effect);
                }
                self.base.payloads(&self.frame.storage, hash, key, |payload| {
                    effect.in_base += 1;
                    effect.pairs += u64::from(known.shows(payload));
                    true
                })?;
            }
            Change::RemovePair(key, payload) => {
                let known = self.read_delta().look_up_pair(hash, key, payload);
                effect.pairs = match known {
                    PayloadDelta::Added => 1,
                    PayloadDelta::Hidden(hidden) => {
                        // The pair is present if the base has more equal pairs than are hidden.
                        let mut left = hidden + 1;
                        self.base.payloads(&self.frame.storage, hash, key, |found| {
                            left -= u64::from(found == payload);
                            left > 0
                        })?;
                        u64::from(left == 0)
                    }
                    PayloadDelta::AllHidden => 0,
                };
            }
        }
        Ok(effect)
    }

    /// Makes room for changes, so that applying them cannot fail after they have become durable.
    pub(super) fn reserve(&self, changes: usize) -> Result<()> {
        let mut delta = self.delta.write().unwrap_or_else(PoisonError::into_inner);
        delta.reserve(&self.frame.hash, changes)
    }

    /// Makes changes visible, all at once; they must be durable already. Only one thread may do so at a time.
    pub(super) fn apply(&self, changes: &[(Change, ChangeEffect)]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut delta = self.delta.write().unwrap_or_else(PoisonError::into_inner);
        delta.reserve(&self.frame.hash, changes.len())?;
        if let Some((key, hash)) = removed_of(changes) {
            self.filter.set(hash);
            delta.remove_pairs(hash, key, changes.iter().map(|(change, _)| change.payload()));
        } else {
            for (at, &(change, effect)) in changes.iter().enumerate() {
                if let Some((_, later)) = changes.get(at + AHEAD) {
                    prefetch_write(self.filter.word(later.hash));
                    delta.prefetch(later.hash);
                }
                self.filter.set(effect.hash);
                delta.apply(change, effect.hash, effect.in_base);
            }
        }
        delta.next_version();
        let (mut added, mut removed) = (0, 0);
        for (change, effect) in changes {
            match change {
                Change::Insert(..) => added += effect.pairs,
                Change::Remove(_) | Change::RemovePair(..) => removed += effect.pairs,
            }
        }
        // A store suffices, because only the holder of the lock writes `len`. Release: pairs with the Acquire in `len`.
        // The subtraction saturates, because a forged log may remove more pairs than there are.
        self.len.store((self.len() + added).saturating_sub(removed), Release);
        // Release: a thread that reads the count sees the filter's bits, and then waits for the lock or finds the
        // entries.
        self.changes.fetch_add(changes.len() as u64, Release);
        Ok(())
    }

    /// Returns the number of living entries in the delta store.
    pub(super) fn living(&self) -> u64 {
        self.read_delta().living()
    }

    /// Returns the living entries of the delta store in bucket order.
    pub(super) fn placed(&self, groups: u64) -> Vec<Placed> {
        self.read_delta().placed(&self.frame.hash, groups)
    }

    /// Returns the bytes of DRAM used by the delta store and its filter.
    pub(super) fn dram_bytes(&self) -> u64 {
        let filter = if self.has_changes() { self.filter.bytes() } else { 0 };
        self.read_delta().bytes() + filter
    }

    /// Returns an error unless the index has this design and key type.
    pub(super) fn check_type(frame: &Frame<M>, design: &str, key: &str) -> Result<()> {
        let Identity { design: found, key_type, .. } = &frame.identity;
        if found == design && key_type == key {
            return Ok(());
        }
        Err(Error::TypeMismatch {
            path: frame.storage.path().to_owned(),
            expected: format!("{design}<{key}>"),
            found: format!("{found}<{key_type}>"),
        })
    }
}

/// A state of a generation's delta store, which is kept until this is dropped.
pub(super) struct DeltaSnapshot<'v, M> {
    view: &'v View<M>,
    pub(super) state: Snapshot,
}

impl<M> Drop for DeltaSnapshot<'_, M> {
    fn drop(&mut self) {
        let delta = self.view.delta.read().unwrap_or_else(PoisonError::into_inner);
        delta.release(self.state);
    }
}

/// The effect of a change, determined before the change is made.
#[derive(Clone, Copy)]
pub(super) struct ChangeEffect {
    pub(super) hash: u64,
    /// Number of pairs that the change adds or removes.
    pub(super) pairs: u64,
    /// For [`Change::Remove`], the number of the key's pairs in the base.
    pub(super) in_base: u64,
}

impl ChangeEffect {
    /// Returns the effect of removing a pair that is present.
    pub(super) fn of_pair(hash: u64) -> Self {
        Self { hash, pairs: 1, in_base: 0 }
    }
}

/// Returns the key and its hash if there are several changes and all of them remove pairs of this key.
fn removed_of(changes: &[(Change, ChangeEffect)]) -> Option<(u64, u64)> {
    let [(first, effect), _, ..] = changes else { return None };
    let key = first.key();
    changes.iter().all(|(change, _)| change.removes_of(key)).then_some((key, effect.hash))
}
