//! Batches of writes (the paper has none): windows of up to 32 records that share a fence, 512 where it is a sync.
//!
//! Each operation of a window locks its root entry and gets a place in its log. Only the first lock of a window is
//! waited for; every other one is tried, and a failure closes the window: a thread never waits while it holds
//! something, so no order of locking is needed. Closing writes all log records (after a fence for the payloads, where
//! there are any), each line once, fences, and lets the root entries have them.

use super::ahead::Pace;
use super::core::Core;
use super::op::{Attempt, Mode, ModeOf, Wrote, WroteOf};
use super::recovery_log::{Place, Span};
use super::root::Held;
use super::words::RecordOf;
use crate::Result;
use crate::base::gate::Pass;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::Probe;

/// Records that share a fence.
const WINDOW: usize = 32;
/// The same where a fence is a sync of files.
const SYNC_WINDOW: usize = 512;

/// An operation of the window.
struct Staged<B> {
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
    place: Place,
}

/// What became of an attempt to stage an operation.
enum Step {
    Staged,
    /// Not in this window.
    Later,
}

/// The open window of a batch.
pub(super) struct Window<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> {
    core: &'t Core<K, V, M>,
    /// Operations that it takes.
    room: usize,
    staged: Vec<Staged<V::Words>>,
    writes: Vec<Write<K, V>>,
    /// Root entries, and how many records each of them will get.
    held: Vec<(Held<'t, M>, usize)>,
    /// Where log records have been written; empty between commits.
    spans: Vec<Span>,
    /// Inside the gate while anything is held; after `held`, so that the locks go first.
    pass: Option<Pass<'t>>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Window<'_, K, V, M> {
    /// Gives back what was handed out for operations that will not come to pass: a panic only leads here.
    fn drop(&mut self) {
        for write in self.writes.drain(..) {
            self.core.waste(write.place);
            self.core.finish_payload(write.record.value);
        }
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Window<'t, K, V, M> {
    pub(super) fn new(core: &'t Core<K, V, M>) -> Self {
        let room = if core.pm.fence_syncs() { SYNC_WINDOW } else { WINDOW };
        let (staged, writes) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
        let held = Vec::with_capacity(WINDOW);
        Self { core, room, staged, writes, held, spans: Vec::new(), pass: None }
    }

    /// Runs one write: in the open window or in a new one. `answer` gets what became of it and of earlier ones, in
    /// order, once they are durable. Whether there was anything to do.
    pub(super) fn run(
        &mut self,
        index: usize,
        probe: &Probe<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
        answer: &mut impl FnMut(usize, WroteOf<V>) -> Result<()>,
    ) -> Result<bool> {
        self.core.pm.writable()?;
        self.core.fits(probe, value)?;
        if self.staged.len() == self.room {
            self.commit(answer)?;
        }
        loop {
            if self.held.is_empty() {
                self.begin(probe, value)?;
            }
            match self.stage(index, probe, value, mode) {
                Ok(Step::Staged) => break,
                Ok(Step::Later) => self.commit(answer)?,
                Err(error) => {
                    // What came before the failure is made durable and told.
                    self.commit(answer)?;
                    return Err(error);
                }
            }
        }
        Ok(self.staged.last().is_some_and(|staged| staged.wrote.done))
    }

    /// Whether a record with the key's words is staged.
    pub(super) fn has(&self, probe: &Probe<'_>) -> bool {
        let wanted = self.core.key_words(probe);
        self.writes.iter().any(|write| write.record.key == wanted)
    }

    /// What must be done while nothing is held.
    fn begin(&mut self, probe: &Probe<'_>, value: &Raw<'_>) -> Result<()> {
        let core = self.core;
        if self.pass.is_none() {
            self.pass = Some(core.gate.enter());
        }
        core.make_payload_room(probe, value)?;
        let entry = core.root_entry(probe.hash);
        core.make_log_ready(core.logs.log_of(entry))?;
        self.held.push((core.root.lock(&core.pm, entry), 0));
        Ok(())
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
        let entry = core.root_entry(probe.hash);
        // Who gets the lock did not have it: few operations meet an entry again.
        let at = match core.root.try_lock(&core.pm, entry) {
            Some(held) => {
                self.held.push((held, 0));
                self.held.len() - 1
            }
            None => match self.held.iter().position(|(held, _)| held.entry == entry) {
                Some(_) if mode.looks() && self.has(probe) => return Ok(Step::Later),
                Some(at) => at,
                None => return Ok(Step::Later),
            },
        };
        let before = core.present(&self.held[at].0, probe, mode)?;
        let done = mode.applies(before);
        if done && !self.prepare(at, probe, value, mode)? {
            return Ok(Step::Later);
        }
        self.staged.push(Staged { index, wrote: Wrote { before, done } });
        Ok(Step::Staged)
    }

    /// Takes a record, its place in the log and its payload into the window; not, when there is no room while others
    /// are staged.
    fn prepare(
        &mut self,
        at: usize,
        probe: &Probe<'_>,
        value: &Raw<'_>,
        mode: ModeOf<V>,
    ) -> Result<bool> {
        let (core, (held, staged)) = (self.core, &mut self.held[at]);
        let place = match core.place(held, *staged)? {
            Attempt::Done(place) => place,
            Attempt::LogFull | Attempt::Emptied => return Ok(false),
        };
        let value = if mode.removes() { &Raw::Word(0) } else { value };
        let value = match core.write_payload(probe, value) {
            Ok(value) => value,
            Err(error) => {
                core.waste(place);
                return Err(error);
            }
        };
        if mode.looks() || *staged > 0 {
            // Else the ring has asked for it.
            core.root.prefetch_push(held.entry, *staged);
        }
        *staged += 1;
        let record = mode.record(core.key_words(probe), value);
        self.writes.push(Write { at, hash: probe.hash, record, place });
        Ok(true)
    }

    /// Writes the log records of a window and makes them durable; `spans` tells where they are.
    fn log_all(&self, writes: &[Write<K, V>], spans: &mut Vec<Span>) -> Result<()> {
        let core = self.core;
        if writes.is_empty() {
            return Ok(());
        }
        core.fence_payloads();
        let records = writes.iter().map(|write| {
            (&write.place, &write.record, core.root.epoch(self.held[write.at].0.entry))
        });
        let logged = core.logs.write_all(&core.pm, records, spans);
        // P2, commit point of all of them.
        core.commit(Mode::Put);
        // What could not be made durable nobody may see.
        logged.and_then(|()| core.pm.writable())
    }

    /// Makes the window durable and visible, lets go of everything, and gives the answers.
    pub(super) fn commit(
        &mut self,
        answer: &mut impl FnMut(usize, WroteOf<V>) -> Result<()>,
    ) -> Result<()> {
        let core = self.core;
        let mut spans = std::mem::take(&mut self.spans);
        let mut writes = std::mem::take(&mut self.writes);
        let logged = self.log_all(&writes, &mut spans);
        let (mut written, mut records) = (0, 0);
        for Write { at, hash, record, .. } in writes.drain(..) {
            if logged.is_ok() {
                core.root.push(self.held[at].0.entry, hash, record);
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
        self.pass = None;
        let mut staged = std::mem::take(&mut self.staged);
        logged?;
        staged.drain(..).try_for_each(|staged| answer(staged.index, staged.wrote))?;
        self.staged = staged;
        Ok(())
    }
}
