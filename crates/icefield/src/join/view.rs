//! What probes see: one generation, its base and its delta store.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::base::Base;
use super::delta::{Change, Delta, DeltaFilter, KeyDelta, MAX_ENTRIES, PayloadDelta};
use super::layout::{Root, Watermark, corrupt, watermark};
use super::log::{self, Log, RECORD_BYTES, Tail};
use super::placed::Placed;
use super::plan::FilterBits;
use crate::base::hash::{Hash, HashKind};
use crate::base::pipeline::prefetch_write;
use crate::pm::superblock::{self, Identity, SessionEnd};
use crate::pm::{Medium, Region};
use crate::record::opening::impossible;
use crate::{Error, Result};

/// Delta records that are always allowed, however small the base.
const LEAST_LIMIT: u64 = 1024;
/// More generations than an index comes to.
const MOST_GENERATIONS: u64 = 1 << 62;
/// How many changes ahead of a change the lines are asked for that it will touch.
const AHEAD: usize = 16;
/// The delta store's share of the base, unless somebody says otherwise.
const DELTA_SHARE: u64 = 4;

/// What stays the same from generation to generation.
pub(super) struct Frame<M> {
    pub(super) pm: M,
    pub(super) table: Region,
    pub(super) identity: Identity,
    pub(super) hash: Hash,
    /// What checksums are made with: strong, whatever tests do to `hash`.
    pub(super) sums: Hash,
    /// Bytes that each file may have.
    pub(super) limit: u64,
    /// Whether probes verify what they read.
    pub(super) verify: bool,
    /// The most records of a delta log, if somebody says.
    pub(super) delta_limit: Option<u64>,
}

/// A generation.
pub(super) struct View<M> {
    pub(super) frame: Arc<Frame<M>>,
    pub(super) root: Root,
    pub(super) bits: FilterBits,
    pub(super) base: Base,
    delta: RwLock<Delta>,
    pub(super) filter: DeltaFilter,
    /// Changes in the delta store: probes ask it when there are any.
    changes: AtomicU64,
    /// Pairs, those of the base and of the delta store.
    len: AtomicU64,
    /// The most records that the delta log may have.
    pub(super) delta_limit: u64,
}

impl<M: Medium> Frame<M> {
    /// Of an index that is on `pm`.
    pub(super) fn new(
        pm: M,
        table: Region,
        identity: Identity,
        limit: u64,
        verify: bool,
        delta_limit: Option<u64>,
    ) -> Result<Self> {
        let kind =
            HashKind::from_id(identity.hash_id).ok_or_else(|| impossible(&pm, "hash function"))?;
        let hash = Hash::new(kind, identity.hash_seed);
        let sums = Hash::new(HashKind::Strong, identity.hash_seed.map(|word| !word));
        Ok(Self { pm, table, identity, hash, sums, limit, verify, delta_limit })
    }

    /// The generation that the root words name at the moment. Beside a merge a reader can find the first copy half
    /// written, and then the second one: the next look finds the first one whole.
    pub(super) fn root(&self) -> Result<Root> {
        let read = || Root::read(&self.pm, &self.table, &self.sums);
        read().or_else(|_| read())
    }
}

impl<M: Medium> View<M> {
    /// A generation whose base is sealed, with an empty delta store.
    pub(super) fn fresh(frame: &Arc<Frame<M>>, root: Root) -> Result<Self> {
        let Frame { pm, identity, sums, limit, verify, .. } = &**frame;
        if !(1..MOST_GENERATIONS).contains(&root.generation) {
            return Err(impossible(pm, "number of the generation"));
        }
        let bits = FilterBits::stored(root.filter_bits)
            .ok_or_else(|| impossible(pm, "number of filter bits"))?;
        let base = Base::open(pm, &root, identity.uuid, sums, *limit, *verify)?;
        let records = base.layout().records;
        let delta_limit = frame.delta_limit.unwrap_or((records / DELTA_SHARE).max(LEAST_LIMIT));
        let delta_limit = delta_limit.clamp(1, MAX_ENTRIES);
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

    /// The generation that `root` names, with what its log says.
    pub(super) fn load(frame: &Arc<Frame<M>>, root: Root) -> Result<(Self, Region, Tail)> {
        let view = Self::fresh(frame, root)?;
        let pm = &frame.pm;
        let end = superblock::session_end(pm, &frame.table)?;
        let closed = if let SessionEnd::Clean(records) = end { records } else { 0 };
        let kept = match watermark(pm, &frame.table, &frame.sums, root.generation)? {
            Watermark::Records(records) => records,
            Watermark::Odd => 0,
        };
        let expected = closed.max(kept);
        let region = log::region(pm, root.generation, frame.limit)?;
        let mut replayed = 0;
        // Removals of one key's pairs that follow one another are done together, as `apply` does them fast.
        let mut together: Vec<(Change, ChangeEffect)> = Vec::new();
        let tail = log::replay(pm, &region, &frame.sums, root.generation, expected, |change| {
            replayed += 1;
            if replayed > MAX_ENTRIES {
                return Err(impossible(pm, "number of delta records"));
            }
            let follows = |(last, _): &(Change, _)| last.removes_of(change.key());
            if !together.last().is_some_and(follows) || !change.removes_of(change.key()) {
                view.apply(&together)?;
                together.clear();
            }
            let effect = match change {
                // It had an effect, or it would not have been logged.
                Change::RemovePair(key, _) => ChangeEffect::of_pair(frame.hash.word(key)),
                change => view.effect(change)?,
            };
            together.push((change, effect));
            Ok(())
        })?;
        view.apply(&together)?;
        if end == SessionEnd::Odd && tail.stray > 0 {
            let detail = "what follows on the delta log's records is no record, and whether the index was closed cannot \
                          be told: the words of the last session are damaged";
            return Err(corrupt(pm, &region, tail.records * RECORD_BYTES, detail));
        }
        Ok((view, region, tail))
    }

    /// The log of a generation that was loaded, or is new, to go on with.
    pub(super) fn log(&self, region: Region, tail: &Tail) -> Result<Log> {
        Log::resume(&self.frame.pm, region, self.root.generation, tail)
    }

    pub(super) fn read_delta(&self) -> RwLockReadGuard<'_, Delta> {
        // Whoever panics while it changes has run out of nothing: room was made before.
        self.delta.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the delta store may have something to say.
    pub(super) fn has_changes(&self) -> bool {
        // Acquire: pairs with the Release in `apply`.
        self.changes.load(Acquire) > 0
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Shows the payloads of a key, those of the delta store and of the base, until `visit` says no. No lock is held
    /// meanwhile.
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
        self.base
            .payloads(&self.frame.pm, hash, key, |payload| !known.shows(payload) || visit(payload))
    }

    /// What a change would do.
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
                self.base.payloads(&self.frame.pm, hash, key, |payload| {
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
                        // One more than are hidden: the first that is not.
                        let mut left = hidden + 1;
                        self.base.payloads(&self.frame.pm, hash, key, |found| {
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

    /// Makes room for changes, so that they cannot fail once they are durable.
    pub(super) fn reserve(&self, changes: usize) -> Result<()> {
        let mut delta = self.delta.write().unwrap_or_else(PoisonError::into_inner);
        delta.reserve(&self.frame.hash, changes)
    }

    /// Makes durable changes visible, all at once. One writer at a time.
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
        let (mut added, mut removed) = (0, 0);
        for (change, effect) in changes {
            match change {
                Change::Insert(..) => added += effect.pairs,
                Change::Remove(_) | Change::RemovePair(..) => removed += effect.pairs,
            }
        }
        // Once for all: who changes something holds the lock. Release: pairs with the Acquire in `len`.
        // A log that was made up may remove more than there is.
        self.len.store((self.len() + added).saturating_sub(removed), Release);
        // Release: who sees the count sees the filter's bits, and finds the lock taken or the entries there.
        self.changes.fetch_add(changes.len() as u64, Release);
        Ok(())
    }

    /// How many living entries the delta store has.
    pub(super) fn living(&self) -> u64 {
        self.read_delta().living()
    }

    /// The living entries of the delta store in the order of buckets.
    pub(super) fn placed(&self, groups: u64) -> Vec<Placed> {
        self.read_delta().placed(&self.frame.hash, groups)
    }

    /// DRAM that it takes beside the mapping.
    pub(super) fn dram_bytes(&self) -> u64 {
        let filter = if self.has_changes() { self.filter.bytes() } else { 0 };
        self.read_delta().bytes() + filter
    }

    /// Fails when the hash of `K` is not what the index was made for.
    pub(super) fn check_type(frame: &Frame<M>, design: &str, key: &str) -> Result<()> {
        let Identity { design: found, key_type, .. } = &frame.identity;
        if found == design && key_type == key {
            return Ok(());
        }
        Err(Error::TypeMismatch {
            path: frame.pm.path().to_owned(),
            expected: format!("{design}<{key}>"),
            found: format!("{found}<{key_type}>"),
        })
    }
}

/// What a change does, found out before it is made.
#[derive(Clone, Copy)]
pub(super) struct ChangeEffect {
    pub(super) hash: u64,
    /// How many pairs it adds or removes.
    pub(super) pairs: u64,
    /// How many pairs of a removed key the base has.
    pub(super) in_base: u64,
}

impl ChangeEffect {
    /// That of removing a pair which is there.
    pub(super) fn of_pair(hash: u64) -> Self {
        Self { hash, pairs: 1, in_base: 0 }
    }
}

/// The key, and its hash, when there are several changes and all of them remove pairs of one key.
fn removed_of(changes: &[(Change, ChangeEffect)]) -> Option<(u64, u64)> {
    let [(first, effect), _, ..] = changes else { return None };
    let key = first.key();
    changes.iter().all(|(change, _)| change.removes_of(key)).then_some((key, effect.hash))
}
