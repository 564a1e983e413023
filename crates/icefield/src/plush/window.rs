//! Batches of writes (the paper has none): windows of up to 32 records that share a fence.
//!
//! Each operation of a window locks its root entry and gets a place in its log. Only the first lock of a window is
//! waited for; every other one is tried, and a failure closes the window: a thread never waits while it holds
//! something, so no order of locking is needed. Closing writes all log records (after a fence for the payloads, where
//! there are any), fences, and lets the root entries have them.

use super::collect::Written;
use super::core::Core;
use super::op::{Attempt, Mode, Wrote};
use super::recovery_log::Place;
use super::root::{Held, Record};
use crate::Result;
use crate::base::gate::Pass;
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::Probe;

/// Records that share a fence.
const WINDOW: usize = 32;

/// An operation of the window.
struct Staged {
    /// Its number in the batch.
    index: usize,
    hash: u64,
    wrote: Wrote,
    /// What it will write.
    write: Option<(Record, Place, Written)>,
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
    staged: Vec<Staged>,
    held: Vec<Held<'t, M>>,
    /// Inside the gate while anything is held; after `held`, so that the locks go first.
    pass: Option<Pass<'t>>,
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Drop for Window<'_, K, V, M> {
    /// Gives back what was handed out for operations that will not come to pass: a panic only leads here.
    fn drop(&mut self) {
        for staged in self.staged.drain(..) {
            if let Some((_, place, written)) = staged.write {
                self.core.waste(place);
                self.core.finish_payload(written);
            }
        }
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized, M: Medium> Window<'t, K, V, M> {
    pub(super) fn new(core: &'t Core<K, V, M>) -> Self {
        Self { core, staged: Vec::with_capacity(WINDOW), held: Vec::new(), pass: None }
    }

    /// Runs one write: in the open window or in a new one. `answer` gets what became of it and of earlier ones, in
    /// order, once they are durable. Whether there was anything to do.
    pub(super) fn run(
        &mut self,
        index: usize,
        probe: &Probe<'_>,
        value: Raw<'_>,
        mode: Mode,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<bool> {
        self.core.pm.writable()?;
        self.core.fits(probe, value)?;
        if self.staged.len() == WINDOW || (mode.looks() && self.has(probe)) {
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

    /// Whether a record with the key's word is staged.
    pub(super) fn has(&self, probe: &Probe<'_>) -> bool {
        let wanted = self.core.key_word(probe);
        let mut writes = self.staged.iter().filter_map(|staged| staged.write.as_ref());
        writes.any(|(record, ..)| record.key == wanted)
    }

    /// What must be done while nothing is held.
    fn begin(&mut self, probe: &Probe<'_>, value: Raw<'_>) -> Result<()> {
        let core = self.core;
        if self.pass.is_none() {
            self.pass = Some(core.gate.enter());
        }
        core.make_payload_room(probe, value)?;
        let entry = core.root_entry(probe.hash);
        core.make_log_ready(core.logs.log_of(entry))?;
        self.held.push(core.root.lock(&core.pm, entry));
        Ok(())
    }

    fn stage(
        &mut self,
        index: usize,
        probe: &Probe<'_>,
        value: Raw<'_>,
        mode: Mode,
    ) -> Result<Step> {
        let core = self.core;
        let entry = core.root_entry(probe.hash);
        let at = match self.held.iter().position(|held| held.entry == entry) {
            Some(at) => at,
            None => match core.root.try_lock(&core.pm, entry) {
                Some(held) => {
                    self.held.push(held);
                    self.held.len() - 1
                }
                None => return Ok(Step::Later),
            },
        };
        let before = core.present(&self.held[at], probe, mode)?;
        let mut staged =
            Staged { index, hash: probe.hash, wrote: Wrote { before, done: false }, write: None };
        if mode.applies(before) {
            let Some(write) = self.prepare(at, probe, value, mode)? else { return Ok(Step::Later) };
            staged.wrote.done = true;
            staged.write = Some(write);
        }
        self.staged.push(staged);
        Ok(Step::Staged)
    }

    /// A record, its place in the log and its payload; `None` when there is no room while others are staged.
    fn prepare(
        &self,
        at: usize,
        probe: &Probe<'_>,
        value: Raw<'_>,
        mode: Mode,
    ) -> Result<Option<(Record, Place, Written)>> {
        let (core, held) = (self.core, &self.held[at]);
        let is_here =
            |staged: &&Staged| staged.write.is_some() && core.root_entry(staged.hash) == held.entry;
        let staged = self.staged.iter().filter(is_here).count();
        let place = match core.place(held, staged)? {
            Attempt::Done(place) => place,
            Attempt::LogFull | Attempt::Emptied => return Ok(None),
        };
        match core.write_payload(probe, if mode.removes() { Raw::Word(0) } else { value }) {
            Ok(written) => {
                Ok(Some((mode.record(core.key_word(probe), written.word), place, written)))
            }
            Err(error) => {
                core.waste(place);
                Err(error)
            }
        }
    }

    /// Writes the log records of a window and makes them durable.
    fn log_all(&self, staged: &[Staged]) -> Result<()> {
        let core = self.core;
        let mut writes = staged.iter().filter_map(|staged| staged.write.as_ref()).peekable();
        if writes.peek().is_none() {
            return Ok(());
        }
        if core.payloads.is_some() {
            // P0: the payloads, before a log refers to them.
            core.pm.fence();
        }
        let mut logged = Ok(());
        for (record, place, _) in writes {
            let epoch = core.root.epoch(core.root_entry(core.hash_of(*record)));
            logged = logged.and(core.logs.write(&core.pm, place, *record, epoch));
        }
        // P2, commit point of all of them.
        core.pm.fence();
        // What could not be made durable nobody may see.
        logged.and_then(|()| core.pm.writable())
    }

    /// Makes the window durable and visible, lets go of everything, and gives the answers.
    pub(super) fn commit(
        &mut self,
        answer: &mut impl FnMut(usize, Wrote) -> Result<()>,
    ) -> Result<()> {
        let core = self.core;
        let mut staged = std::mem::take(&mut self.staged);
        let logged = self.log_all(&staged);
        for staged in &mut staged {
            let Some((record, place, written)) = staged.write.take() else { continue };
            let entry = core.root_entry(staged.hash);
            if let Some(held) = self.held.iter().find(|held| held.entry == entry)
                && logged.is_ok()
            {
                core.admit(held, staged.hash, record, place);
            } else {
                core.logs.finish(place);
            }
            core.finish_payload(written);
        }
        self.held.clear();
        self.pass = None;
        logged?;
        staged.iter().try_for_each(|staged| answer(staged.index, staged.wrote))
    }
}
