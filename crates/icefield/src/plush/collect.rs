//! Payloads: how records come into the payload log, and how its chunks are freed (§4.3).
//!
//! The oldest chunk is looked at when a new one is needed. Where at most half of it is needed, that moves to the end of
//! the log, each record by a write of its own; else the chunk stays, and the next look comes later.

use super::core::Core;
use super::op::Attempt;
use super::payload_log::{PayloadLog, PayloadRef};
use super::root::Held;
use super::words::{RecordOf, bytes_of, first, one_word, raw_of, words_of};
use crate::key::{Key, Raw, Value};
use crate::pm::Medium;
use crate::record::{MAX_BYTES, Probe};
use crate::{Error, Result};

/// Chunks that are looked at before a new one is taken.
const LOOKS: usize = 2;

/// Percent of a chunk that may be needed for it to be worth freeing.
const WORTH: u64 = 50;
/// The same when there is no space.
const WORTH_IN_NEED: u64 = 90;

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Core<K, V, M> {
    /// Refuses keys and values that are too long.
    #[inline]
    pub(super) fn fits(&self, probe: &Probe<'_>, value: &Raw<'_>) -> Result<()> {
        let (key, value) = (probe.key.bytes().len(), value.bytes().len());
        if key > MAX_BYTES {
            return Err(Error::KeyTooLong { len: key, max: MAX_BYTES });
        }
        if value > MAX_BYTES {
            return Err(Error::ValueTooLong { len: value, max: MAX_BYTES });
        }
        Ok(())
    }

    /// Writes a record to the payload log, flushed, and gives the value's words. Values of fixed width are their own
    /// payload.
    #[inline]
    pub(super) fn write_payload(&self, probe: &Probe<'_>, value: &Raw<'_>) -> Result<V::Words> {
        let Some(payloads) = self.payloads() else { return Ok(words_of(value)) };
        self.append_payload(payloads, probe, value)
    }

    fn append_payload(
        &self,
        payloads: &PayloadLog,
        probe: &Probe<'_>,
        value: &Raw<'_>,
    ) -> Result<V::Words> {
        let (mut key_buffer, mut value_buffer) = ([0; 8], [0; 8]);
        let key = bytes_of(&probe.key, &mut key_buffer);
        let value = bytes_of(value, &mut value_buffer);
        Ok(one_word(payloads.write(&self.pm, probe.hash, key, value)?))
    }

    /// A slot refers to the payload that a value's words stand for, or never will.
    #[inline]
    pub(super) fn finish_payload(&self, value: V::Words) {
        if let Some(payloads) = self.payloads() {
            payloads.finish(&self.pm, PayloadRef::unpack(first(&value)).chunk);
        }
    }

    /// Frees chunks when it is time to, before a record is written. The caller holds no lock.
    pub(super) fn make_payload_room(&self, probe: &Probe<'_>, value: &Raw<'_>) -> Result<()> {
        let Some(payloads) = self.payloads() else { return Ok(()) };
        if !payloads.is_collection_due(&self.pm, probe.key.bytes().len(), value.bytes().len()) {
            return Ok(());
        }
        let _collecting = payloads.lock_collecting(&self.pm);
        for _ in 0..LOOKS {
            let Some(chunk) = payloads.oldest(&self.pm) else { return Ok(()) };
            let freed = self.collect(chunk, WORTH);
            if !matches!(freed, Ok(true)) {
                payloads.keep(&self.pm, chunk);
                // For want of space the chunk stays as it is: the write to come will tell whether there is any.
                return match freed {
                    Ok(_) | Err(Error::NoSpace { .. }) => Ok(()),
                    Err(error) => Err(error),
                };
            }
        }
        Ok(())
    }

    /// Frees what can be freed when there is no space. Whether there was anything. The caller holds no lock; what it
    /// frees can be written again when everybody has left who is pinned.
    #[cold]
    pub(super) fn collect_in_need(&self) -> Result<bool> {
        let Some(payloads) = &self.payloads else { return Ok(false) };
        let _collecting = payloads.lock_collecting(&self.pm);
        let mut freed = false;
        for _ in 0..payloads.full_chunks(&self.pm) {
            let Some(chunk) = payloads.oldest(&self.pm) else { break };
            match self.collect(chunk, WORTH_IN_NEED) {
                Ok(true) => freed = true,
                Ok(false) | Err(Error::NoSpace { .. }) => payloads.keep(&self.pm, chunk),
                Err(error) => {
                    payloads.keep(&self.pm, chunk);
                    return Err(error);
                }
            }
        }
        Ok(freed)
    }

    /// Frees a chunk if at most so many percent of it are needed. Whether it did.
    fn collect(&self, chunk: u32, worth: u64) -> Result<bool> {
        let Some(payloads) = &self.payloads else { return Ok(false) };
        let guard = payloads.pin();
        let records = payloads.records_in(&self.pm, chunk)?;
        let mut needed = 0;
        for &(word, bytes) in &records {
            needed += if self.newest_is(word)? { bytes } else { 0 };
        }
        if needed * 100 > payloads.chunk_bytes(&self.pm, chunk) * worth {
            return Ok(false);
        }
        for &(word, _) in &records {
            self.settle(word)?;
        }
        // What has taken the place of the others may have been acknowledged before it was durable.
        self.pm.settle()?;
        payloads.release(&self.pm, &guard, chunk)?;
        guard.flush();
        Ok(true)
    }

    /// The key of a payload.
    fn payload_probe(&self, word: u64) -> Result<Option<Probe<'_>>> {
        let Some(payload) = self.payload(word)? else { return Ok(None) };
        Ok(raw_of(K::FORM, payload.key).map(|key| Probe { hash: payload.hash, key }))
    }

    /// Whether the newest record of a payload's key refers to it.
    fn newest_is(&self, word: u64) -> Result<bool> {
        let Some(probe) = self.payload_probe(word)? else { return Ok(false) };
        Ok(self.lookup(&probe)?.is_some_and(|record| record.reference() == word))
    }

    /// Sees to it that a payload is not needed where it is, and that readers who do not know that yet notice.
    fn settle(&self, word: u64) -> Result<()> {
        let Some(probe) = self.payload_probe(word)? else { return Ok(()) };
        let log = self.logs.log_of(self.root_entry(probe.hash));
        loop {
            self.make_log_ready(log)?;
            let held = self.hold(probe.hash);
            if self.root.has_unlogged(held.entry) {
                // What has taken its place must be durable, too.
                self.migrate_root(&held)?;
                continue;
            }
            let newest = self.search(held.entry, &probe)?.filter(|it| it.reference() == word);
            let settled = match newest {
                Some(record) => self.relocate(&held, &probe, record)?,
                None => true,
            };
            if settled {
                // Y4: who has looked for newer records before they came must not take this one for stale.
                held.begin_change();
                return Ok(());
            }
        }
    }

    /// Writes a payload anew and lets the newest record of its key refer to that; durable when it is settled, which
    /// comes before the old one goes. Not, when the log or the root entry had no room.
    fn relocate(
        &self,
        held: &Held<'_, M>,
        probe: &Probe<'_>,
        record: RecordOf<K, V>,
    ) -> Result<bool> {
        let (Some(payloads), Some(payload)) = (&self.payloads, self.payload(record.reference())?)
        else {
            return Ok(true);
        };
        let moved = payloads.write(&self.pm, probe.hash, payload.key, payload.value)?;
        let fenced = self.fence_payloads();
        fenced.inspect_err(|_| payloads.finish(&self.pm, PayloadRef::unpack(moved).chunk))?;
        let record = RecordOf::<K, V> { value: one_word(moved), ..record };
        let place = self.log(held, record);
        if let Ok(Attempt::Done(place)) = place {
            let left = self.pm.fence_later();
            if let Err(error) = left {
                self.logs.finish(place);
                payloads.finish(&self.pm, PayloadRef::unpack(moved).chunk);
                return Err(error);
            }
            self.admit(held, probe.hash, record, place);
            payloads.finish(&self.pm, PayloadRef::unpack(moved).chunk);
            return Ok(true);
        }
        payloads.finish(&self.pm, PayloadRef::unpack(moved).chunk);
        place.map(|_| false)
    }
}
