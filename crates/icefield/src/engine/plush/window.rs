//! Batches of writes (not in the paper): windows of up to 32 records that share a fence, 512 where a fence is a sync.
//!
//! Each operation of a window locks its root entry. A window waits only for its first lock. It takes further locks only
//! if they are free, and commits when another thread holds one that it needs. So a thread never waits while it holds a
//! lock, and no lock order is needed. Where a fence is a sync, a blind write whose lock is not free moves to the next
//! window instead, like one that finds its log full, together with all later writes of its root entry, so that a window
//! does not sync a few records only.
//!
//! The commit takes all places in a log at once, writes all log records (after a fence for the payloads, if there are
//! any), flushes each line once, fences, and appends the records to their root entries. Records for which a full log has
//! no place go to the next window, which is also committed before any result is returned. Only blind writes, which do
//! not look up the present value, can move to the next window. Any other write has a result that is valid only while its
//! root entry stays locked, so it takes its place in the log when it is staged.
//!
//! Where a fence is a sync that the batch waits for, the commit appends the records before its fence, where readers do
//! not see them yet, and releases the locks. So the windows of other threads can add blind writes to the same root
//! entries and share the sync.

use std::collections::VecDeque;

use super::core::Core;
use super::incremental_migration::Pace;
use super::op::{Attempt, ModeOf, PlushWriteMode, Wrote, WroteOf};
use super::payload_log::Unflushed;
use super::recovery_log::{Place, Places, Span};
use super::root::RootTable;
use super::root_lock::Held;
use super::words::RecordOf;
use crate::base::gate::Pass;
use crate::base::reclaim::Guard;
use crate::base::recycled::Recycled;
use crate::engine::LookupKey;
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};
use crate::{Error, Result};

const WINDOW: usize = 32;
/// Number of records that share a fence where a fence is a sync of files.
const SYNC_WINDOW: usize = 512;
/// The most writes that a window leaves for the next one because their locks are not free.
const MOST_LEFT: usize = 32;

/// The result of an operation of the window, to be returned after the commit.
struct Answer<B> {
    /// The operation's number in the batch.
    index: usize,
    wrote: Wrote<B>,
}

/// A record that the window will write.
struct Write<R: RecordForm> {
    /// Index of its root entry in `held`.
    at: usize,
    hash: u64,
    record: RecordOf<R>,
    /// The record's place in a log. A blind write has none until the commit.
    place: Option<Place>,
}

/// The window's records and places in one log.
struct Share {
    /// Number of staged records without a place.
    due: u32,
    /// Places taken for records that have not been written yet; empty between commits.
    places: Places,
    /// Index of the log's last span in the window's `spans`.
    last_span: usize,
}

impl Share {
    const NONE: Self = Self { due: 0, places: Places::NONE, last_span: usize::MAX };

    /// Returns the next place in the log; `None` if the log is full. If no place is left over, first takes places for
    /// all records of the window that need one.
    #[inline(always)]
    fn place<R: RecordForm, M: Medium>(
        &mut self,
        core: &Core<R, M>,
        log: usize,
        spans: &mut Vec<Span>,
    ) -> Result<Option<Place>> {
        if let Some(place) = self.places.next() {
            return Ok(Some(place));
        }
        // Once a record gets no place, later records of this log get none either: they may have the same key.
        let due = std::mem::take(&mut self.due);
        if due > 0 {
            self.places = core.logs.hand_out(&core.storage, log, due)?;
            self.places.note(spans, &mut self.last_span);
            if self.places.len() > 0 {
                self.due = due - self.places.len() as u32;
            }
        }
        Ok(self.places.next())
    }
}

/// The outcome of an attempt to stage an operation.
enum Step {
    /// The operation is staged. `false` if its condition does not hold, so that it writes nothing.
    Staged(bool),
    /// The operation does not fit into this window.
    Later,
}

/// The open window of a batch.
pub(super) struct Window<'t, R: RecordForm, M: Medium> {
    core: &'t Core<R, M>,
    /// Maximum number of operations in the window; `staged` is their present number.
    room: usize,
    staged: usize,
    /// Results of operations that look up the present value; blind writes have no result.
    answers: Vec<Answer<R::ValueWords>>,
    writes: Recycled<Write<R>>,
    /// Payloads that the commit must flush: after a flush, the next operation's lock would wait for the flushed lines.
    unflushed: Vec<Unflushed>,
    /// One share for each log.
    shares: Recycled<Share>,
    /// Writes for the next window, in order. Each found no place in a full log, or a lock that was not free. Later writes
    /// of their root entries follow them here, so the writes of one key keep their order.
    left: VecDeque<Write<R>>,
    /// Locked root entries, and the number of records staged for each.
    held: Recycled<(Held<'t, M>, usize)>,
    /// Root entries to which the commit has added records that readers do not see yet, and what `begin_unseen` returned.
    unseen: Vec<(usize, u64)>,
    /// Places of the log records that were written; empty between commits.
    spans: Recycled<Span>,
    /// The pass through the gate, held at least while the window holds a lock. Declared after `held`, so that the locks
    /// are released first.
    pass: Option<Pass<'t>>,
    /// Taken at a window's first operation and held until the results are returned, so that payloads to which the
    /// results refer are not reclaimed. Each window pins anew, so that freed chunks can be reused.
    pin: Option<Guard<'t>>,
}

impl<R: RecordForm, M: Medium> Drop for Window<'_, R, M> {
    /// Gives back the places and payloads of operations that were not committed. Only a panic leaves such operations.
    fn drop(&mut self) {
        self.held.clear();
        for write in self.writes.drain(..).chain(self.left.drain(..)) {
            write.place.into_iter().for_each(|place| self.core.waste(place));
            self.core.finish_payload(write.record.value);
        }
        self.end_unseen(false);
    }
}

impl<'t, R: RecordForm, M: Medium> Window<'t, R, M> {
    pub(super) fn new(core: &'t Core<R, M>) -> Self {
        let room = if core.storage.fence_syncs() { SYNC_WINDOW } else { WINDOW };
        let (writes, held) = (Recycled::with_capacity(WINDOW), Recycled::with_capacity(WINDOW));
        let mut shares = Recycled::with_capacity(core.logs.count());
        shares.extend((0..core.logs.count()).map(|_| Share::NONE));
        let (answers, left) = (Vec::new(), VecDeque::new());
        let (unflushed, unseen) = (Vec::new(), Vec::new());
        let spans = Recycled::with_capacity(WINDOW / 2);
        Self {
            core,
            room,
            staged: 0,
            answers,
            writes,
            unflushed,
            shares,
            left,
            held,
            unseen,
            spans,
            pass: None,
            pin: None,
        }
    }

    /// Runs one write in the open window, or in a new one. `answer` receives the results of this and earlier
    /// operations that look up the present value, in order, once they are durable. Returns whether the condition of
    /// the write's mode holds.
    pub(super) fn run(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
        answer: &mut impl FnMut(usize, WroteOf<R>) -> Result<()>,
    ) -> Result<bool> {
        let core = self.core;
        core.storage.check_writable()?;
        core.fits(probe, value)?;
        if self.staged == self.room {
            self.commit(answer)?;
        }
        let mut attempt = 0;
        loop {
            let step = match self.begin(probe, mode) {
                Ok(()) => self.stage(index, probe, value, mode),
                Err(error) => Err(error),
            };
            match step {
                Ok(Step::Staged(done)) => return Ok(done),
                Ok(Step::Later) => self.commit(answer)?,
                Err(error) => {
                    // The operations before the failed one are made durable and answered.
                    self.commit(answer)?;
                    let no_space = matches!(error, Error::NoSpace { .. });
                    if no_space && mode.removes() {
                        let _pass = core.exclusion.enter();
                        let _pin = core.pin();
                        let wrote = core.remove_in_place(probe, mode)?;
                        if mode.looks() {
                            answer(index, wrote)?;
                        }
                        return Ok(wrote.done);
                    }
                    let made = || {
                        let _pass = core.exclusion.enter();
                        core.make_room_in_need(probe.hash, attempt)
                    };
                    if !no_space || !made()? {
                        return Err(error);
                    }
                    attempt += 1;
                }
            }
        }
    }

    /// Enters the gate, pins, and locks the first root entry, if the window holds none yet.
    fn begin(&mut self, probe: &LookupKey<'_>, mode: ModeOf<R>) -> Result<()> {
        let core = self.core;
        if !self.held.is_empty() {
            return Ok(());
        }
        self.pass.get_or_insert_with(|| core.exclusion.enter());
        if self.pin.is_none() {
            core.make_payload_room()?;
            self.pin = core.pin();
        }
        self.hold_first(core.root_entry(probe.hash), mode)
    }

    /// Returns whether a record with the key's words is staged, or left for the next window.
    pub(super) fn has(&self, probe: &LookupKey<'_>) -> bool {
        let wanted = self.core.key_words(probe);
        self.writes.iter().chain(&self.left).any(|write| write.record.key == wanted)
    }

    /// Returns whether a write of the root entry is left for the next window.
    fn leaves(&self, entry: usize) -> bool {
        self.left.iter().any(|write| self.core.root_entry(write.hash) == entry)
    }

    /// Locks the first root entry of a window. First does the work that must not run under a lock.
    fn hold_first(&mut self, entry: usize, mode: ModeOf<R>) -> Result<()> {
        let core = self.core;
        core.make_log_ready(core.logs.log_of(entry))?;
        let held = if mode.looks() {
            core.root.lock(&core.storage, entry)
        } else {
            core.root.lock_to_add(&core.storage, entry)
        };
        self.held.push((held, 0));
        Ok(())
    }

    /// Locks another root entry, or finds it among those held. Returns its index in `held`; `None` if another thread
    /// holds its lock.
    #[inline(always)]
    fn hold(&mut self, entry: usize) -> Option<usize> {
        // The lock is tried first, because few operations of a window share a root entry.
        match self.core.root.try_lock_to_add(&self.core.storage, entry) {
            Some(held) => {
                self.held.push((held, 0));
                Some(self.held.len() - 1)
            }
            None => self.held.iter().position(|(held, _)| held.entry == entry),
        }
    }

    #[inline(always)]
    fn stage(
        &mut self,
        index: usize,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
    ) -> Result<Step> {
        let core = self.core;
        let entry = core.root_entry(probe.hash);
        let held = if self.leaves(entry) { None } else { self.hold(entry) };
        let Some(at) = held else { return self.leave(probe, value, mode) };
        let is_unknown = || core.root.has_unseen(entry) || self.held[at].1 > 0 && self.has(probe);
        if mode.looks() && is_unknown() {
            return Ok(Step::Later);
        }
        let before = core.present(&self.held[at].0, probe, mode)?;
        let done = mode.applies(before);
        if done && !self.prepare(at, probe, value, mode)? {
            return Ok(Step::Later);
        }
        self.staged += 1;
        if mode.looks() {
            self.answers.push(Answer { index, wrote: Wrote { before, done } });
        }
        Ok(Step::Staged(done))
    }

    /// Leaves a blind write for the next window, and writes its payload. Does so only where fences are syncs, and for a
    /// few writes.
    #[cold]
    fn leave(&mut self, probe: &LookupKey<'_>, value: &Raw<'_>, mode: ModeOf<R>) -> Result<Step> {
        let core = self.core;
        // A removal must succeed even without space, which only `run` ensures.
        let can_wait = !mode.looks() && !mode.removes();
        if !can_wait || !core.storage.fence_syncs() || self.left.len() == MOST_LEFT {
            return Ok(Step::Later);
        }
        let record = self.record(probe, value, mode)?;
        self.left.push_back(Write { at: usize::MAX, hash: probe.hash, record, place: None });
        self.staged += 1;
        Ok(Step::Staged(true))
    }

    /// Writes the payload of a write, and returns its record.
    #[inline(always)]
    fn record(
        &mut self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
    ) -> Result<RecordOf<R>> {
        let value = if mode.removes() { &Raw::Word(0) } else { value };
        let (value, unflushed) = self.core.append_payload(probe, value)?;
        self.unflushed.extend(unflushed);
        Ok(mode.record(self.core.key_words(probe), value))
    }

    /// Adds a record to the window and writes its payload. If the write is not blind, also takes a place in the log.
    /// Returns `false` if the log or the root entry had no room: the operation must be staged again after a commit.
    #[inline(always)]
    fn prepare(
        &mut self,
        at: usize,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
        mode: ModeOf<R>,
    ) -> Result<bool> {
        let (core, (held, staged)) = (self.core, &self.held[at]);
        let place = if mode.looks() {
            match core.place(held, *staged)? {
                Attempt::Done(place) => Some(place),
                Attempt::LogFull | Attempt::Emptied => return Ok(false),
            }
        } else if core.has_room(held, *staged)? {
            None
        } else {
            return Ok(false);
        };
        let record = match self.record(probe, value, mode) {
            Ok(record) => record,
            Err(error) => {
                place.into_iter().for_each(|place| core.waste(place));
                return Err(error);
            }
        };
        let (held, staged) = &self.held[at];
        if mode.looks() || *staged > 0 {
            // If the entry's first staged record is a blind write, the batch's pipeline has prefetched its slot.
            core.root.prefetch_push(held.entry, *staged);
        }
        self.take(Write { at, hash: probe.hash, record, place });
        Ok(true)
    }

    #[inline(always)]
    fn take(&mut self, write: Write<R>) {
        let (held, staged) = &mut self.held[write.at];
        *staged += 1;
        if write.place.is_none() {
            self.shares[self.core.logs.log_of(held.entry)].due += 1;
        }
        self.writes.push(write);
    }

    /// Adds the records that were left to a new window, in order, as long as it has room and their locks are free.
    #[cold]
    fn take_left(&mut self) -> Result<()> {
        let core = self.core;
        while let Some(write) = self.left.front() {
            let entry = core.root_entry(write.hash);
            if self.held.is_empty() {
                self.hold_first(entry, ModeOf::<R>::Put)?;
            }
            let Some(at) = self.hold(entry) else { break };
            let (held, staged) = &self.held[at];
            if !core.has_room(held, *staged)? {
                break;
            }
            if let Some(write) = self.left.pop_front() {
                self.take(Write { at, ..write });
            }
        }
        Ok(())
    }

    /// Flushes the payloads of a window, writes its log records, and makes all durable; adds the places of the log
    /// records to `spans`. Where a fence is a sync that the caller must wait for, only begins it and returns its number.
    /// Records for which a full log has no place move to `left`. Records with a place are written even after a failure:
    /// records of other threads may follow them in the log.
    fn log_all(
        &mut self,
        writes: &mut Vec<Write<R>>,
        spans: &mut Vec<Span>,
    ) -> Result<Option<u64>> {
        let core = self.core;
        core.flush_payloads(self.unflushed.drain(..));
        if writes.is_empty() {
            return Ok(None);
        }
        // The result is checked at the end: places that were handed out must be written in any case.
        let fenced = core.fence_payloads();
        self.shares.iter_mut().for_each(|share| share.last_span = usize::MAX);
        let (mut logged, mut is_left) = (Ok(()), false);
        for write in writes.iter_mut() {
            let entry = self.held[write.at].0.entry;
            let log = core.logs.log_of(entry);
            match &write.place {
                Some(place) => place.note(1, spans, &mut self.shares[log].last_span),
                None => match self.shares[log].place(core, log, spans) {
                    Ok(place) => write.place = place,
                    Err(error) => logged = Err(error),
                },
            }
            let Some(place) = &write.place else {
                is_left = true;
                continue;
            };
            if let Err(error) =
                core.logs.store(&core.storage, place, &write.record, core.root.epoch(entry))
            {
                logged = Err(error);
            }
        }
        if is_left {
            let left: Vec<_> = writes.extract_if(.., |write| write.place.is_none()).collect();
            for write in left.into_iter().rev() {
                self.held[write.at].1 -= 1;
                self.left.push_front(write);
            }
        }
        let flushed = core.logs.flush_all(&core.storage, spans);
        let logged = fenced.and(logged).and(flushed);
        if writes.is_empty() {
            return logged.map(|()| None);
        }
        if logged.is_ok() && core.storage.fence_syncs() && core.syncs_always() {
            return core.storage.begin_fence().map(Some);
        }
        // P2, commit point of all records of the window.
        let committed = core.commit(PlushWriteMode::Put);
        // Records that are not durable must not become visible.
        logged.and(committed).map(|()| None)
    }

    /// Appends the records that have a place in a log to their root entries, by `append`.
    #[inline(always)]
    fn append_all(
        &self,
        writes: &[Write<R>],
        append: impl Fn(&RootTable<R>, usize, u64, RecordOf<R>),
    ) {
        let root = &self.core.root;
        for Write { at, hash, record, place } in writes {
            if let Some(place) = place {
                let entry = self.held[*at].0.entry;
                root.note_chunk(entry, place.chunk());
                append(root, entry, *hash, *record);
            }
        }
    }

    /// Appends the records to their root entries, releases the locks, and ends the fence. Only then do readers see the
    /// records. In the meantime, other windows may add records to the same entries and share the sync.
    fn share_sync(&mut self, writes: &[Write<R>], begun: u64) -> Result<()> {
        let core = self.core;
        self.append_all(writes, RootTable::add_unseen);
        let added = self.held.iter().filter(|(_, staged)| *staged > 0);
        self.unseen.extend(added.map(|(held, _)| (held.entry, core.root.begin_unseen(held.entry))));
        self.held.clear();
        // P2, commit point of all records of the window.
        let ended = core.storage.end_fence(begun);
        self.end_unseen(ended.is_ok());
        ended
    }

    /// Shows readers what the window has added, if it is durable. The window holds no lock.
    fn end_unseen(&mut self, is_durable: bool) {
        let root = &self.core.root;
        // Each is forgotten last, because the lock may panic in the simulator.
        while let Some(&(entry, until)) = self.unseen.last() {
            let _held = root.lock_any(&self.core.storage, entry);
            root.end_unseen(entry, until, is_durable);
            self.unseen.pop();
        }
    }

    /// Makes the window durable and visible, releases all locks, and passes the results to `answer`.
    pub(super) fn commit(
        &mut self,
        answer: &mut impl FnMut(usize, WroteOf<R>) -> Result<()>,
    ) -> Result<()> {
        let mut committed = self.commit_placed();
        let mut attempt = 0;
        while committed.is_ok()
            && let Some(hash) = self.left.front().map(|write| write.hash)
        {
            let taken = self.take_left();
            committed = taken.and(self.commit_placed());
            if matches!(committed, Err(Error::NoSpace { .. })) {
                // The window still holds its pass through the gate, but no lock. Its pin, which would keep space from
                // becoming free, protects what the answers refer to, and nothing else.
                if self.answers.is_empty() {
                    self.pin = None;
                }
                match self.core.make_room_in_need(hash, attempt) {
                    Ok(true) => committed = Ok(()),
                    Ok(false) => {}
                    Err(error) => committed = Err(error),
                }
                if self.pin.is_none() {
                    self.pin = self.core.pin();
                }
                attempt += 1;
            } else {
                attempt = 0;
            }
        }
        if committed.is_err() {
            self.left.drain(..).for_each(|write| self.core.finish_payload(write.record.value));
        }
        // The pass is kept until here: a `clear` between the windows would free the payloads of the writes in `left`.
        self.pass = None;
        self.staged = 0;
        let mut answers = std::mem::take(&mut self.answers);
        if committed.is_err() {
            self.pin = None;
        }
        committed?;
        let answered =
            answers.drain(..).try_for_each(|Answer { index, wrote }| answer(index, wrote));
        self.answers = answers;
        self.pin = None;
        answered
    }

    /// Makes the records that have a place in a log durable and visible, and releases the locks.
    fn commit_placed(&mut self) -> Result<()> {
        let core = self.core;
        let mut spans = std::mem::take(&mut *self.spans);
        let mut writes = std::mem::take(&mut *self.writes);
        // Each window checks this, because a batch continues after a window whose sync failed.
        let writable = core.storage.check_writable().inspect_err(|_| {
            self.unflushed.clear();
            self.shares.iter_mut().for_each(|share| share.due = 0);
            // A failed sync is final, so no chunk is begun anew without these records. Another thread may wait until all
            // places of the chunk are finished.
            let places = writes.iter_mut().filter_map(|write| write.place.take());
            places.for_each(|place| core.logs.finish(place));
        });
        let begun = writable.and_then(|()| self.log_all(&mut writes, &mut spans));
        let is_shared = matches!(begun, Ok(Some(_)));
        let logged = begun.and_then(|begun| match begun {
            Some(begun) => self.share_sync(&writes, begun),
            None => {
                self.append_all(&writes, RootTable::push);
                Ok(())
            }
        });
        let (mut written, mut records) = (0, 0);
        for Write { record, place, .. } in &writes {
            if logged.is_ok() && place.is_some() {
                written += 1;
                records += if record.dead { -1 } else { 1 };
            }
            core.finish_payload(record.value);
        }
        core.note_written(written, records);
        core.logs.finish_all(&spans);
        spans.clear();
        *self.spans = spans;
        let helds = self.held.iter().map(|(held, _)| held);
        if is_shared {
            core.step_later(writes.iter().map(|write| core.root_entry(write.hash)));
        } else if core.storage.fence_syncs() {
            // An entry in which another window has records that readers do not see must keep what it has.
            let helds = helds.filter(|held| !core.root.has_unseen(held.entry));
            core.step_together(&helds.collect::<Vec<_>>());
        } else {
            helds.for_each(|held| core.step_ahead(held, Pace::Whole));
        }
        writes.clear();
        *self.writes = writes;
        self.held.clear();
        logged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Operations;
    use crate::engine::plush::options::table_of_words;
    use crate::storage::sim::{Sim, SimOptions};

    /// Otherwise a thread that needs the chunk of such a place waits forever.
    #[test]
    fn a_window_that_may_not_write_finishes_its_places() {
        let sim = Sim::new(SimOptions::default());
        let table = table_of_words(sim.clone()).expect("space");
        let core = &*table.core;
        let mut window = Window::new(core);
        let mut answer = |_, _| Ok(());
        for key in 0..20 {
            let key = Raw::Word(key);
            let mode =
                if key.word() % 3 == 0 { PlushWriteMode::Put } else { PlushWriteMode::Upsert };
            let ran = window.run(0, &core.hash_key(&key), &Raw::Word(7), mode, &mut answer);
            assert!(ran.expect("space"));
        }
        let unfinished = || {
            (0..core.logs.count()).map(|log| core.logs.unfinished(&core.storage, log)).sum::<u32>()
        };
        assert!(unfinished() >= 13, "{}", unfinished());
        sim.set_read_only(true);
        assert!(matches!(window.commit(&mut answer), Err(Error::ReadOnly)));
        assert_eq!(unfinished(), 0);
        sim.set_read_only(false);
        assert!(!table.contains(&Raw::Word(1)).expect("whole"), "its result was an error");
    }
}
