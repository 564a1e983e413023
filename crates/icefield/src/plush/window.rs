//! Batches of writes (the paper has none): windows of up to 32 records that share a fence, 512 where it is a sync.
//!
//! Each operation of a window locks its root entry. Only the first lock of a window is waited for; every other one is
//! tried, and a failure closes the window: a thread never waits while it holds something, so no order of locking is
//! needed. Closing gets all places in a log at once, writes all log records (after a fence for the payloads, where
//! there are any), each line once, fences, and lets the root entries have them. What a full log has no places for comes
//! into the next window, which is closed, too, before anything is told. That may only be said of blind writes; those
//! that look have told already whether they do anything, and get their places at once.

use std::collections::VecDeque;

use super::ahead::Pace;
use super::core::Core;
use super::op::{Attempt, Mode, ModeOf, Wrote, WroteOf};
use super::recovery_log::{Place, Places, Span};
use super::root::Held;
use super::words::RecordOf;
use crate::base::gate::Pass;
use crate::base::reclaim::Guard;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::Probe;
use crate::{Error, Result};

/// Records that share a fence.
const WINDOW: usize = 32;
/// The same where a fence is a sync of files.
const SYNC_WINDOW: usize = 512;

/// What an operation of the window found, to be told.
struct Answer<B> {
    /// Its number in the batch.
    index: usize,
    wrote: Wrote<B>,
}

/// What an operation of the window will write.
struct Write<K: Key + ?Sized, V: Value + ?Sized> {
    /// Where its root entry is among those held.
    at: usize,
    hash: u64,
    record: RecordOf<K, V>,
    /// None yet for blind ones.
    place: Option<Place>,
}

/// What a window has of a log.
struct Share {
    /// Records that have no place yet.
    due: u32,
    /// Places that no record has yet; none between commits.
    places: Places,
    /// The last of its spans.
    last_span: usize,
}

impl Share {
    const NONE: Self = Self { due: 0, places: Places::NONE, last_span: usize::MAX };

    /// The next place in the log, out of those that its records still need, which are handed out at once; `None` when
    /// it is full.
    #[inline(always)]
    fn place<K: Key + ?Sized, V: Value + ?Sized, M: Medium>(
        &mut self,
        core: &Core<K, V, M>,
        log: usize,
        spans: &mut Vec<Span>,
    ) -> Result<Option<Place>> {
        if let Some(place) = self.places.next() {
            return Ok(Some(place));
        }
        // Of a full log nobody gets a place who comes behind one without: they may have the same key.
        let due = std::mem::take(&mut self.due);
        if due > 0 {
            self.places = core.logs.hand_out(&core.pm, log, due)?;
            self.places.note(spans, &mut self.last_span);
            if self.places.len() > 0 {
                self.due = due - self.places.len() as u32;
            }
        }
        Ok(self.places.next())
    }
}

/// What became of an attempt to stage an operation.
enum Step {
    /// Whether there was anything to do.
    Staged(bool),
    /// Not in this window.
    Later,
}

/// The open window of a batch.
pub(super) struct Window<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> {
    core: &'t Core<K, V, M>,
    /// Operations that it takes, and has.
    room: usize,
    staged: usize,
    /// Of those that look; blind ones have nothing to tell.
    answers: Vec<Answer<V::Words>>,
    writes: Vec<Write<K, V>>,
    /// Of each log.
    shares: Box<[Share]>,
    /// Those that found a full log, for the next window; empty between commits.
    left: VecDeque<Write<K, V>>,
    /// Root entries, and how many records each of them will get.
    held: Vec<(Held<'t, M>, usize)>,
    /// Where log records have been written; empty between commits.
    spans: Vec<Span>,
    /// Inside the gate while anything is held; after `held`, so that the locks go first.
    pass: Option<Pass<'t>>,
    /// Pinned from its first operation until its answers are given: what that may need stays. Not for longer, as chunks
    /// that were freed return between windows.
    pin: Option<Guard<'t>>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Window<'_, K, V, M> {
    /// Gives back what was handed out for operations that will not come to pass: a panic only leads here.
    fn drop(&mut self) {
        for write in self.writes.drain(..).chain(self.left.drain(..)) {
            write.place.into_iter().for_each(|place| self.core.waste(place));
            self.core.finish_payload(write.record.value);
        }
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Window<'t, K, V, M> {
    pub(super) fn new(core: &'t Core<K, V, M>) -> Self {
        let room = if core.pm.fence_syncs() { SYNC_WINDOW } else { WINDOW };
        let (writes, held) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
        let shares = (0..core.logs.count()).map(|_| Share::NONE).collect();
        let (answers, left, spans) = (Vec::new(), VecDeque::new(), Vec::new());
        Self {
            core,
            room,
            staged: 0,
            answers,
            writes,
            shares,
            left,
            held,
            spans,
            pass: None,
            pin: None,
        }
    }

    /// Runs one write: in the open window or in a new one. `answer` gets what it and earlier ones have found, if they
    /// look, in order, once they are durable. Whether there was anything to do.
    pub(super) fn run(
        &mut self,
        index: usize,
        probe: &Probe<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
        answer: &mut impl FnMut(usize, WroteOf<V>) -> Result<()>,
    ) -> Result<bool> {
        let core = self.core;
        core.pm.writable()?;
        core.fits(probe, value)?;
        if self.staged == self.room {
            self.commit(answer)?;
        }
        let mut attempt = 0;
        loop {
            let step = match self.begin(probe) {
                Ok(()) => self.stage(index, probe, value, mode),
                Err(error) => Err(error),
            };
            match step {
                Ok(Step::Staged(done)) => return Ok(done),
                Ok(Step::Later) => self.commit(answer)?,
                Err(error) => {
                    // What came before the failure is made durable and told.
                    self.commit(answer)?;
                    let no_space = matches!(error, Error::NoSpace { .. });
                    if no_space && mode.removes() {
                        let _pass = core.gate.enter();
                        let _pin = core.pin();
                        let wrote = core.remove_in_place(probe, mode)?;
                        if mode.looks() {
                            answer(index, wrote)?;
                        }
                        return Ok(wrote.done);
                    }
                    let made = || {
                        let _pass = core.gate.enter();
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

    /// Enters the gate, pins, and locks a first root entry, if that has not been done.
    fn begin(&mut self, probe: &Probe<'_>) -> Result<()> {
        let core = self.core;
        if !self.held.is_empty() {
            return Ok(());
        }
        self.pass.get_or_insert_with(|| core.gate.enter());
        if self.pin.is_none() {
            core.make_payload_room()?;
            self.pin = core.pin();
        }
        self.hold_first(core.root_entry(probe.hash))
    }

    /// Whether a record with the key's words is staged.
    pub(super) fn has(&self, probe: &Probe<'_>) -> bool {
        let wanted = self.core.key_words(probe);
        self.writes.iter().any(|write| write.record.key == wanted)
    }

    /// Locks the first root entry of a window, after what must be done while nothing is held.
    fn hold_first(&mut self, entry: usize) -> Result<()> {
        let core = self.core;
        core.make_log_ready(core.logs.log_of(entry))?;
        self.held.push((core.root.lock(&core.pm, entry), 0));
        Ok(())
    }

    /// Locks another root entry, unless it is held: which one of those held it is. `None` when somebody else has it.
    #[inline(always)]
    fn hold(&mut self, entry: usize) -> Option<usize> {
        // Who gets the lock did not have it: few operations meet an entry again.
        match self.core.root.try_lock(&self.core.pm, entry) {
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
        probe: &Probe<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
    ) -> Result<Step> {
        let core = self.core;
        let Some(at) = self.hold(core.root_entry(probe.hash)) else { return Ok(Step::Later) };
        if mode.looks() && self.held[at].1 > 0 && self.has(probe) {
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

    /// Takes a record with its payload into the window, and a place in the log if it needs that now; not, when there is
    /// no room while others are staged.
    #[inline(always)]
    fn prepare(
        &mut self,
        at: usize,
        probe: &Probe<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
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
        let value = if mode.removes() { &Raw::Word(0) } else { value };
        let value = match core.write_payload(probe, value) {
            Ok(value) => value,
            Err(error) => {
                place.into_iter().for_each(|place| core.waste(place));
                return Err(error);
            }
        };
        if mode.looks() || *staged > 0 {
            // Else the ring has asked for it.
            core.root.prefetch_push(held.entry, *staged);
        }
        let record = mode.record(core.key_words(probe), value);
        self.take(Write { at, hash: probe.hash, record, place });
        Ok(true)
    }

    #[inline(always)]
    fn take(&mut self, write: Write<K, V>) {
        let (held, staged) = &mut self.held[write.at];
        *staged += 1;
        if write.place.is_none() {
            self.shares[self.core.logs.log_of(held.entry)].due += 1;
        }
        self.writes.push(write);
    }

    /// Takes records that found a full log into a new window, in their order, as far as it has room for them.
    #[cold]
    fn take_left(&mut self) -> Result<()> {
        let core = self.core;
        while let Some(write) = self.left.front() {
            let entry = core.root_entry(write.hash);
            if self.held.is_empty() {
                self.hold_first(entry)?;
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

    /// Writes the log records of a window, whose places become those of `spans`, and makes them durable. Those that a full
    /// log has no place for are left. What has a place is written also after a failure: others' records may be behind it.
    fn log_all(&mut self, writes: &mut Vec<Write<K, V>>, spans: &mut Vec<Span>) -> Result<()> {
        let core = self.core;
        if writes.is_empty() {
            return Ok(());
        }
        // Places that were handed out are written all the same.
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
                core.logs.store(&core.pm, place, &write.record, core.root.epoch(entry))
            {
                logged = Err(error);
            }
        }
        if is_left {
            let left: Vec<_> = writes.extract_if(.., |write| write.place.is_none()).collect();
            left.into_iter().rev().for_each(|write| self.left.push_front(write));
        }
        let flushed = core.logs.flush_all(&core.pm, spans);
        // P2, commit point of all of them.
        let committed = core.commit(Mode::Put);
        // What could not be made durable nobody may see.
        fenced.and(logged).and(flushed).and(committed)
    }

    /// Makes the window durable and visible, lets go of everything, and gives the answers.
    pub(super) fn commit(
        &mut self,
        answer: &mut impl FnMut(usize, WroteOf<V>) -> Result<()>,
    ) -> Result<()> {
        let mut committed = self.commit_placed();
        let mut attempt = 0;
        while committed.is_ok()
            && let Some(hash) = self.left.front().map(|write| write.hash)
        {
            let taken = self.take_left();
            committed = taken.and(self.commit_placed());
            if matches!(committed, Err(Error::NoSpace { .. })) {
                // Inside the gate, as before, and nothing is held.
                match self.core.make_room_in_need(hash, attempt) {
                    Ok(true) => committed = Ok(()),
                    Ok(false) => {}
                    Err(error) => committed = Err(error),
                }
                attempt += 1;
            } else {
                attempt = 0;
            }
        }
        if committed.is_err() {
            self.left.drain(..).for_each(|write| self.core.finish_payload(write.record.value));
        }
        // Not before: a `clear` would free the payloads of those that were left.
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

    /// Makes what has a place in a log durable and visible, and lets go of the locks.
    fn commit_placed(&mut self) -> Result<()> {
        let core = self.core;
        let mut spans = std::mem::take(&mut self.spans);
        let mut writes = std::mem::take(&mut self.writes);
        // A batch goes on after a window whose sync failed.
        let writable = core.pm.writable();
        let logged = writable.and_then(|()| self.log_all(&mut writes, &mut spans));
        let (mut written, mut records) = (0, 0);
        for Write { at, hash, record, place } in writes.drain(..) {
            if let (Ok(()), Some(place)) = (&logged, place) {
                let entry = self.held[at].0.entry;
                core.root.note_chunk(entry, place.chunk());
                core.root.push(entry, hash, record);
                written += 1;
                records += if record.dead { -1 } else { 1 };
            }
            core.finish_payload(record.value);
        }
        core.note_written(written, records);
        core.logs.finish_all(&spans);
        spans.clear();
        self.spans = spans;
        let helds = self.held.iter().map(|(held, _)| held);
        if core.pm.fence_syncs() {
            core.step_together(&helds.collect::<Vec<_>>());
        } else {
            helds.for_each(|held| core.step_ahead(held, Pace::Whole));
        }
        self.writes = writes;
        self.held.clear();
        logged
    }
}
