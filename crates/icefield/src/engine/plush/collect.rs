//! Payloads: how records are added to the payload log, and how its chunks are freed (§4.3).
//!
//! Blind writes do not look up what they replace, so the log cannot count its garbage at once. A round of the
//! collection finds it. The round reads the newest record of every key, range by range, and counts the needed bytes of
//! each full chunk. Then it frees the emptiest chunks, whose needed records move to the end of the log. The counts can
//! only become smaller, because a record that is not the newest of its key never becomes the newest again. Before a
//! chunk is freed, each of its records is looked up again under the lock of its root entry.
//!
//! A round begins when the log takes 1.75 times the bytes needed, as estimated from the bytes needed at the end of the
//! last round and the number of records added since. In any case it begins when the log takes two and a half times the
//! bytes needed at the end of the last round. The constant below is added to both limits. A round runs in steps, one
//! for each chunk that writes take. It ends when the log has grown by an eighth; after that each step frees two chunks
//! more than it fills. So the log takes at most about three times the bytes needed, plus a constant: eight chunks, or
//! 64 bytes for each entry of the last level if that is more, because a round reads all these entries. The needed bytes
//! of a table that was just opened are unknown. Its first round begins as soon as its log exceeds the constant, and
//! until the round has ended each step also checks two chunks at an arbitrary place, and frees those of which half is
//! garbage. So sessions that end before their first round still free as much as they fill.

use std::ops::ControlFlow;

use super::core::Core;
use super::op::Attempt;
use super::payload_log::{
    Collection, Count, HINTED_AHEAD, Known, Payload, PayloadLog, PayloadRef, Purpose, Round, SPARE,
    Unflushed,
};
use super::root_lock::Held;
use super::words::{RecordOf, bytes_of, first, one_word, raw_of, words_of};
use crate::base::reclaim::Guard;
use crate::engine::{LookupKey, MAX_BYTES};
use crate::storage::Medium;
use crate::types::{Raw, RecordForm};
use crate::{Error, Result};

/// A round is due when the log takes `DUE_QUARTERS` quarters of the bytes needed, as estimated from the number of
/// records, or `LATEST_QUARTERS` quarters of the bytes that were needed at the end of the last round.
const DUE_QUARTERS: u64 = 7;
const LATEST_QUARTERS: u64 = 10;
/// A round ends when the log has grown by an eighth.
const ROUND_PARTS: u64 = 8;
/// Garbage that is always tolerated: this many chunks, or this many bytes for each range that a round reads if that is
/// more.
const TOLERATED_CHUNKS: u64 = 8;
const TOLERATED_PER_RANGE: u64 = 64;
/// Number of chunks by which a step shrinks the log, and maximum number of chunks that it frees to achieve this.
const GAINED: u64 = 2;
const MOST_FREED: usize = 8;
/// Maximum number of steps that one write takes.
const MOST_STEPS: u32 = 8;
/// Number of chunks that a step checks before the first round has ended. The step frees a chunk if at most `LOOK_WORTH`
/// percent of its bytes are needed.
const LOOKS: usize = 2;
const LOOK_WORTH: u64 = 50;

/// Turns an error into success if its only effect is that the chunk stays as it is. Lack of space is reported by the
/// following write, if that needs space too; damage is reported by reads of the damaged records.
fn unless_it_can_stay(freed: Result<()>) -> Result<()> {
    match freed {
        Err(Error::NoSpace { .. } | Error::Corrupt { .. }) => Ok(()),
        other => other,
    }
}

/// The amount of garbage that a round frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// Enough garbage to put off the next round for a while.
    Usual,
    /// All garbage.
    All,
}

impl Effort {
    /// A chunk is freed if at most this percentage of its bytes is needed.
    fn worth(self) -> u64 {
        match self {
            Self::Usual => 85,
            Self::All => 95,
        }
    }
}

impl<R: RecordForm, M: Medium> Core<R, M> {
    /// Rejects keys and values that are too long.
    #[inline]
    pub(super) fn fits(&self, probe: &LookupKey<'_>, value: &Raw<'_>) -> Result<()> {
        let (key, value) = (probe.key.bytes().len(), value.bytes().len());
        if key > MAX_BYTES {
            return Err(Error::KeyTooLong { len: key, max: MAX_BYTES });
        }
        if value > MAX_BYTES {
            return Err(Error::ValueTooLong { len: value, max: MAX_BYTES });
        }
        Ok(())
    }

    /// Writes a record to the payload log, flushed, and returns the words that represent the value. For types of fixed
    /// width, writes nothing and returns the value itself.
    #[inline]
    pub(super) fn write_payload(
        &self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
    ) -> Result<R::ValueWords> {
        let (value, unflushed) = self.append_payload(probe, value)?;
        self.flush_payloads(unflushed);
        Ok(value)
    }

    /// Does the same as [`Core::write_payload`] without the flush.
    #[inline]
    pub(super) fn append_payload(
        &self,
        probe: &LookupKey<'_>,
        value: &Raw<'_>,
    ) -> Result<(R::ValueWords, Option<Unflushed>)> {
        let Some(payloads) = self.payloads() else { return Ok((words_of(value), None)) };
        let (mut key_buffer, mut value_buffer) = ([0; 8], [0; 8]);
        let key = bytes_of(probe.key, &mut key_buffer);
        let value = bytes_of(value, &mut value_buffer);
        let (word, unflushed) =
            payloads.append(&self.storage, probe.hash, (key, value), Purpose::Write)?;
        Ok((one_word(word), Some(unflushed)))
    }

    /// Flushes appended payloads. The next fence makes them durable.
    #[inline]
    pub(super) fn flush_payloads(&self, unflushed: impl IntoIterator<Item = Unflushed>) {
        if let Some(payloads) = self.payloads() {
            unflushed.into_iter().for_each(|record| payloads.flush(&self.storage, record));
        }
    }

    /// Counts the payload of these words as no longer pending: a slot refers to it, or none ever will.
    #[inline]
    pub(super) fn finish_payload(&self, value: R::ValueWords) {
        if let Some(payloads) = self.payloads() {
            payloads.finish(PayloadRef::unpack(first(&value)).chunk);
        }
    }

    /// Takes the steps of the collection that are due, before a record is written. The caller holds no lock and is
    /// not pinned.
    #[inline]
    pub(super) fn make_payload_room(&self) -> Result<()> {
        let Some(payloads) = self.payloads() else { return Ok(()) };
        if payloads.is_step_due() { self.take_steps(payloads) } else { Ok(()) }
    }

    #[cold]
    fn take_steps(&self, payloads: &PayloadLog) -> Result<()> {
        let Some((mut collection, steps)) = payloads.lock_steps(&self.storage, MOST_STEPS) else {
            return Ok(());
        };
        for _ in 0..steps.min(MOST_STEPS) {
            unless_it_can_stay(self.take_step(payloads, &mut collection))?;
        }
        Ok(())
    }

    fn take_step(&self, payloads: &PayloadLog, collection: &mut Collection) -> Result<()> {
        if collection.round.is_none() && !collection.victims.is_empty() {
            return self.free_some(payloads, collection);
        }
        if collection.round.is_none() {
            if !self.is_round_due(payloads, collection) {
                return Ok(());
            }
            collection.round = Some(self.begin_round(payloads, collection));
        }
        if collection.known.is_none() {
            unless_it_can_stay(self.look(payloads, collection))?;
        }
        let chunks = payloads.usage(&self.storage).chunks.max(1);
        let ranges = self.ranges() * ROUND_PARTS / chunks + 1;
        if self.count_needed(payloads, collection, ranges)? {
            self.end_round(payloads, collection, Effort::Usual);
        }
        Ok(())
    }

    /// The number of narrow ranges in the table.
    fn ranges(&self) -> u64 {
        self.shape.entries(self.levels.count(&self.storage))
    }

    /// Returns the number of bytes of garbage that never cause a round.
    fn tolerated(&self, payloads: &PayloadLog) -> u64 {
        (TOLERATED_CHUNKS * payloads.chunk_size()).max(TOLERATED_PER_RANGE * self.ranges())
    }

    /// Returns whether a large part of the log may be garbage, judging by the bytes and records written since the last
    /// round.
    fn is_round_due(&self, payloads: &PayloadLog, collection: &Collection) -> bool {
        let usage = payloads.usage(&self.storage);
        let used = usage.chunks * payloads.chunk_size();
        let tolerated = self.tolerated(payloads);
        let Some(known) = &collection.known else { return used > tolerated };
        let grown = self.tallies.balance() - known.estimate;
        let [records, bytes] =
            [usage.records - known.usage.records, usage.bytes - known.usage.bytes];
        let each = match grown {
            0.. => bytes / records.max(1),
            _ => known.bytes / known.records.max(1),
        };
        let change = each.saturating_mul(grown.unsigned_abs());
        let live = match grown {
            0.. => known.bytes.saturating_add(change),
            _ => known.bytes.saturating_sub(change),
        };
        used > (live / 4 * DUE_QUARTERS + tolerated)
            .min(known.bytes / 4 * LATEST_QUARTERS + tolerated)
    }

    fn begin_round(&self, payloads: &PayloadLog, collection: &Collection) -> Round {
        let mut counts = Vec::new();
        for (chunk, _) in payloads.full(&self.storage) {
            let chunk = chunk as usize;
            counts.resize(counts.len().max(chunk + 1), None);
            counts[chunk] = Some(Count::default());
        }
        let referred = collection.gapped.iter().map(|&chunk| (chunk, Vec::new())).collect();
        Round { next: 0, records: 0, counts, referred }
    }

    /// Counts the needed bytes of each chunk in the next `ranges` narrow ranges of hashes, or some more. Returns whether
    /// these were the last ones.
    fn count_needed(
        &self,
        payloads: &PayloadLog,
        collection: &mut Collection,
        ranges: u64,
    ) -> Result<bool> {
        let Some(round) = &mut collection.round else { return Ok(true) };
        let levels = self.levels.count(&self.storage);
        let end = self.shape.index(levels, round.next).saturating_add(ranges);
        while let Some(left @ 1..) = end.checked_sub(self.shape.index(levels, round.next)) {
            let width = self.width_for_ranges(left);
            let _pin = payloads.pin();
            let (records, next) = match self.newest_at(round.next, width) {
                Ok(range) => range,
                // Records of this range are not counted. None of them is lost, because the records of a chunk are
                // looked up again before it is freed.
                Err(Error::Corrupt { .. }) => (Vec::new(), self.narrow_after(round.next)),
                Err(error) => return Err(error),
            };
            let hint = |record: &RecordOf<R>| payloads.hint(record.reference());
            records.iter().take(HINTED_AHEAD).for_each(hint);
            for (at, record) in records.iter().enumerate() {
                records.get(at + HINTED_AHEAD).into_iter().for_each(hint);
                let word = record.reference();
                let chunk = PayloadRef::unpack(word).chunk;
                let Some(Some(count)) = round.counts.get_mut(chunk as usize) else { continue };
                count.last = count.last.max(word);
                round.referred.get_mut(&chunk).into_iter().for_each(|words| words.push(word));
                if let Ok(Some(payload)) = payloads.read(&self.storage, word) {
                    count.needed += payload.needed_bytes(record.dead);
                    round.records += 1;
                }
            }
            match next {
                Some(next) => round.next = next,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Ends a round, and chooses the chunks to be freed.
    fn end_round(&self, payloads: &PayloadLog, collection: &mut Collection, effort: Effort) {
        let Some(round) = collection.round.take() else { return };
        let usage = payloads.usage(&self.storage);
        let mut bytes = usage.chunks * payloads.chunk_size();
        let (mut used, mut candidates) = (bytes, Vec::new());
        for (chunk, run) in payloads.full(&self.storage) {
            let room = u64::from(run) * payloads.chunk_size();
            if let Some(&Some(Count { needed, last })) = round.counts.get(chunk as usize) {
                let needed = needed.min(room);
                bytes = bytes.saturating_sub(room - needed);
                candidates.push((needed, room, (chunk, last)));
            }
        }
        let tolerated = self.tolerated(payloads) / 2;
        let wanted = match effort {
            Effort::Usual => bytes + (bytes / 4).max(tolerated),
            Effort::All => 0,
        };
        candidates.retain(|&(needed, room, _)| needed * 100 <= room * effort.worth());
        candidates.sort_unstable_by_key(|&(needed, room, chunk)| (needed * 1024 / room, chunk));
        let worth_it = candidates.iter().take_while(|&&(needed, room, _)| {
            let more = used > wanted;
            used = used.saturating_sub(room - needed);
            more
        });
        collection.victims = worth_it.map(|&(_, _, victim)| victim).collect();
        collection.victims.reverse();
        collection.referred = round.referred;
        let (estimate, records) = (self.tallies.balance(), round.records);
        collection.known = Some(Known { bytes, records, usage, estimate });
    }

    /// Frees the emptiest of the chosen chunks until the log takes two chunks fewer, or until `MOST_FREED` are freed.
    fn free_some(&self, payloads: &PayloadLog, collection: &mut Collection) -> Result<()> {
        let before = payloads.usage(&self.storage).chunks;
        for _ in 0..MOST_FREED {
            let Some(victim) = collection.victims.pop() else { return Ok(()) };
            self.free(payloads, collection, victim)?;
            if payloads.usage(&self.storage).chunks + GAINED <= before {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Checks the next full chunks, and frees those of which half is garbage. Used until the session's first round has
    /// ended, because the session may end earlier.
    fn look(&self, payloads: &PayloadLog, collection: &mut Collection) -> Result<()> {
        for _ in 0..LOOKS {
            let Some(chunk) = payloads.full_from(&self.storage, collection.look_at) else { break };
            collection.look_at = chunk + 1;
            let guard = payloads.pin();
            let records = payloads.records_in(&self.storage, chunk);
            let enough = payloads.run_bytes(&self.storage, chunk) / 100 * LOOK_WORTH;
            let mut needed = 0;
            self.for_each_record(&records, |(word, bytes)| {
                needed += if self.newest_is(word)? { bytes } else { 0 };
                Ok(if needed > enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if needed <= enough && !PayloadLog::has_gaps(&records) {
                self.empty_chunk(payloads, &guard, chunk, &records)?;
            }
        }
        Ok(())
    }

    /// Frees chunks because the medium is full. Returns whether it freed any. The caller holds no lock. The chunks can
    /// be written again once all currently pinned readers have left.
    pub(super) fn collect_in_need(&self) -> Result<bool> {
        let Some(payloads) = self.payloads() else { return Ok(false) };
        let mut collection = payloads.lock_collection(&self.storage);
        let before = payloads.usage(&self.storage).chunks;
        for _ in 0..2 {
            if collection.victims.is_empty() {
                payloads.close_lanes(&self.storage);
                self.whole_round(payloads, &mut collection)?;
            }
            while let Some(victim) = collection.victims.pop() {
                match self.free(payloads, &mut collection, victim) {
                    // No space even for the needed records of the emptiest chunk.
                    Err(Error::NoSpace { .. }) => break,
                    freed => unless_it_can_stay(freed)?,
                }
                if payloads.usage(&self.storage).chunks + GAINED <= before {
                    return Ok(true);
                }
            }
        }
        Ok(payloads.usage(&self.storage).chunks < before)
    }

    /// Frees all chunks with enough garbage, for a table that is to take as little space as possible.
    pub(super) fn collect_all(&self) -> Result<()> {
        let Some(payloads) = self.payloads() else { return Ok(()) };
        let mut collection = payloads.lock_collection(&self.storage);
        payloads.close_lanes(&self.storage);
        self.whole_round(payloads, &mut collection)?;
        while let Some(victim) = collection.victims.pop() {
            self.free(payloads, &mut collection, victim)?;
        }
        Ok(())
    }

    /// Gives the space of free chunks back to the file system. First waits a while for the readers that may access the
    /// chunks freed last. The caller is not pinned.
    pub(super) fn return_space(&self) -> Result<()> {
        let Some(payloads) = self.payloads() else { return Ok(()) };
        let mut rounds = 0;
        while payloads.waits_for_readers(&self.storage) && self.storage.wait_patiently(rounds) {
            payloads.pin().flush();
            rounds += 1;
        }
        payloads.give_back(&self.storage, 0).map(|_| ())
    }

    /// Gives the space of free chunks back to the file system, for levels that lack space. Returns whether any free
    /// chunk besides the spare ones still had space.
    pub(super) fn lend_space(&self) -> Result<bool> {
        match self.payloads() {
            Some(payloads) => payloads.give_back(&self.storage, SPARE),
            None => Ok(false),
        }
    }

    fn whole_round(&self, payloads: &PayloadLog, collection: &mut Collection) -> Result<()> {
        collection.round = Some(self.begin_round(payloads, collection));
        while !self.count_needed(payloads, collection, u64::MAX)? {}
        self.end_round(payloads, collection, Effort::All);
        Ok(())
    }

    /// Frees a chunk that a round has chosen.
    ///
    /// A damaged record stays where it is, with its chunk: if the chunk were freed, the record would seem to have been
    /// replaced. A record that a crash left torn looks like a damaged one, but nothing refers to it. So a chunk is kept
    /// if a reference points beyond its last whole record. A chunk with gaps between its records waits for a round that
    /// notes all references into it, and is kept if one of them points into a gap.
    fn free(
        &self,
        payloads: &PayloadLog,
        collection: &mut Collection,
        (chunk, last): (u32, u64),
    ) -> Result<()> {
        let guard = payloads.pin();
        let records = payloads.records_in(&self.storage, chunk);
        let is_whole = |word: &u64| records.binary_search_by_key(word, |&(word, _)| word).is_ok();
        let all_whole = if PayloadLog::has_gaps(&records) {
            collection.gapped.insert(chunk);
            collection.referred.get(&chunk).is_some_and(|words| words.iter().all(is_whole))
        } else {
            last <= records.last().map_or(0, |&(word, _)| word)
        };
        if all_whole {
            self.empty_chunk(payloads, &guard, chunk, &records)?;
            collection.gapped.remove(&chunk);
        }
        Ok(())
    }

    /// Moves the needed records of a chunk, and frees it.
    fn empty_chunk(
        &self,
        payloads: &PayloadLog,
        guard: &Guard<'_>,
        chunk: u32,
        records: &[(u64, u64)],
    ) -> Result<()> {
        self.for_each_record(records, |(word, _)| {
            self.retire_payload(word).map(ControlFlow::Continue)
        })?;
        // Makes durable the records that have replaced records of this chunk: they may have been acknowledged before
        // they were durable.
        self.storage.fence_deferred()?;
        payloads.release(&self.storage, guard, chunk)?;
        guard.flush();
        Ok(())
    }

    /// Calls `run` with each record of a chunk, in order, until it breaks or fails. `run` will search for the
    /// record's key, so the places of the keys of later records are prefetched. The caller is pinned.
    fn for_each_record(
        &self,
        records: &[(u64, u64)],
        mut run: impl FnMut((u64, u64)) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let hash = |word| Some(self.storage.read_unvalidated(|| self.payload(word)).ok()??.hash);
        let ahead = |at: usize| (hash(records[at].0).unwrap_or(0), true);
        self.in_order(records.len(), ahead, |at, _| run(records[at])).1
    }

    /// The hash and the key of a payload.
    fn payload_key(&self, word: u64) -> Result<Option<(u64, Raw<'_>)>> {
        let Some(payload) = self.payload(word)? else { return Ok(None) };
        Ok(raw_of(R::KEY, payload.key).map(|key| (payload.hash, key)))
    }

    /// Returns whether the newest record of a payload's key refers to the payload.
    fn newest_is(&self, word: u64) -> Result<bool> {
        let Some((hash, key)) = self.payload_key(word)? else { return Ok(false) };
        let probe = LookupKey::new(hash, &key);
        Ok(self.lookup(&probe)?.is_some_and(|record| record.reference() == word))
    }

    /// Ensures that a payload is not needed at its present place, if necessary by a move, and that readers with an
    /// outdated reference fail their validation.
    fn retire_payload(&self, word: u64) -> Result<()> {
        let Some((hash, key)) = self.payload_key(word)? else { return Ok(()) };
        let probe = LookupKey::new(hash, &key);
        let log = self.logs.log_of(self.root_entry(probe.hash));
        loop {
            self.make_log_ready(log)?;
            let held = self.hold(probe.hash);
            if self.root.has_unlogged(held.entry) {
                // The record that replaced this payload may be unlogged. The migration makes it durable.
                self.migrate_root(&held)?;
                continue;
            }
            let newest = self.search(held.entry, &probe)?.filter(|it| it.reference() == word);
            let settled = match newest {
                Some(record) => self.relocate(&held, &probe, record)?,
                None => true,
            };
            if settled {
                // Y4: a reader that searched before the newer record came now fails its validation. Otherwise it would
                // skip this record as stale without having found the newer one.
                held.begin_change();
                return Ok(());
            }
        }
    }

    /// Copies a payload, and makes the newest record of its key refer to the copy. Both are durable after the next
    /// `fence_deferred`, which precedes the release of the old chunk. Returns `false` when the log or the root entry
    /// had no room.
    fn relocate(
        &self,
        held: &Held<'_, M>,
        probe: &LookupKey<'_>,
        record: RecordOf<R>,
    ) -> Result<bool> {
        let (Some(payloads), Some(payload)) = (&self.payloads, self.payload(record.reference())?)
        else {
            return Ok(true);
        };
        let Payload { key, value, .. } = payload.needed(record.dead);
        let moved = payloads.write(&self.storage, probe.hash, (key, value), Purpose::Move)?;
        let fenced = self.fence_payloads();
        fenced.inspect_err(|_| payloads.finish(PayloadRef::unpack(moved).chunk))?;
        let relocated = match self.relocate_by_log(held, probe, record, moved) {
            Err(no_space @ Error::NoSpace { .. }) => {
                let redirected = self.redirect(held, probe, record, moved);
                redirected.and_then(|is_done| if is_done { Ok(true) } else { Err(no_space) })
            }
            relocated => relocated,
        };
        payloads.finish(PayloadRef::unpack(moved).chunk);
        relocated
    }

    fn relocate_by_log(
        &self,
        held: &Held<'_, M>,
        probe: &LookupKey<'_>,
        record: RecordOf<R>,
        moved: u64,
    ) -> Result<bool> {
        let record = RecordOf::<R> { value: one_word(moved), ..record };
        let Attempt::Done(place) = self.log(held, record)? else { return Ok(false) };
        if let Err(error) = self.storage.fence_later() {
            self.logs.finish(place);
            return Err(error);
        }
        self.admit(held, probe.hash, record, place);
        Ok(true)
    }
}
