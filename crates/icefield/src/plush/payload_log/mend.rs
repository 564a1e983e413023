//! The words of chunks that a damaged table has lost, made anew by the records in the chunks.

use std::sync::atomic::Ordering::Relaxed;

use super::chunks::{CHUNK_BITS, ChunkWord, LAST_EPOCH, PayloadRef, UNIT_BYTES};
use super::{HEAD_BYTES, PayloadLog, Seal, WORD_BYTES, lengths, stored_bytes, word_at};
use crate::Result;
use crate::pm::Medium;
use crate::record::MAX_BYTES;
use crate::record::mending::Mending;

/// So many records of a chunk are looked at. Only after a crash are the first ones not of its present epoch, or none.
const LOOKED_AT: usize = 8;

impl PayloadLog {
    /// Makes words for the chunks that have records and no words: the map ends too early, or has lost some. Of a table that
    /// is opened for salvage, in private copies of its pages.
    pub(in crate::plush) fn mend(&self, pm: &impl Medium, mending: &Mending) -> Result<()> {
        let chunks = (self.region.len() / self.chunk_bytes).min(1 << CHUNK_BITS) as u32;
        let known = (self.map.len() / WORD_BYTES).min(chunks.into()) as u32;
        let mut words = Vec::new();
        let mut chunk = 0;
        while chunk < chunks {
            // Nothing was ever written to a chunk without a word (Y1).
            let has_word = chunk < known && self.word(pm, chunk)?.load(pm, Relaxed) != 0;
            let found = if has_word { None } else { self.find(pm, chunk) };
            let Some((epoch, run)) = found else {
                chunk += 1;
                continue;
            };
            let run = chunk..chunk.saturating_add(run).min(chunks);
            words.extend(run.clone().map(|it| {
                let continues = it != chunk;
                // Which epoch a chunk has that continues another, nobody asks.
                let epoch = if continues { LAST_EPOCH } else { epoch };
                (it, ChunkWord { epoch, used: true, continues })
            }));
            chunk = run.end;
        }
        let Some(&(last, _)) = words.last() else { return Ok(()) };
        mending.lengthen(pm, &self.map, (u64::from(last) + 1) * WORD_BYTES)?;
        for (chunk, word) in &words {
            self.word(pm, *chunk)?.store(pm, word.pack(), Relaxed);
        }
        mending.note(format!("the words of {} chunks made anew by their records", words.len()));
        Ok(())
    }

    /// The epoch of a chunk by its first records, and how many chunks the first of them takes.
    fn find(&self, pm: &impl Medium, chunk: u32) -> Option<(u64, u32)> {
        let (mut found, mut offset, mut looked_at) = (None, 0, 0);
        while offset < self.chunk_bytes && looked_at < LOOKED_AT {
            let Some(record) = self.record_at(pm, chunk, offset) else {
                offset += UNIT_BYTES;
                continue;
            };
            looked_at += 1;
            let Some(epoch) = record.epoch() else {
                offset += UNIT_BYTES;
                continue;
            };
            let run = record.bytes.div_ceil(self.chunk_bytes) as u32;
            found = found.max(Some((epoch, run)));
            offset += record.bytes;
        }
        found
    }

    /// What may be a record: it lies in its chunk, or begins it and lies in the file.
    fn record_at(&self, pm: &impl Medium, chunk: u32, offset: u64) -> Option<Candidate> {
        let place = PayloadRef { chunk, epoch: 0, offset };
        let at = self.offset_of(place);
        // SAFETY: the table is being opened: nobody writes.
        let head = unsafe { pm.read_bytes(&self.region, at, HEAD_BYTES) }?;
        let [words, hash, sum] = [0, 8, 16].map(|at| word_at(head, at));
        let [key, value] = lengths(head);
        let bytes = stored_bytes(key, value);
        let is_inside = match offset {
            0 => key.max(value) <= MAX_BYTES,
            _ => offset + bytes <= self.chunk_bytes,
        };
        if sum == 0 || !is_inside {
            return None;
        }
        // SAFETY: as above.
        let content = unsafe { pm.read_bytes(&self.region, at + HEAD_BYTES as u64, key + value) }?;
        let seal = Seal::new();
        let wanted = (sum ^ seal.of_content(content)).wrapping_sub(hash);
        Some(Candidate { place, bytes, lengths: words, wanted, seal })
    }
}

/// What may be a record.
struct Candidate {
    place: PayloadRef,
    bytes: u64,
    lengths: u64,
    /// What its place, epoch included, must give.
    wanted: u64,
    seal: Seal,
}

impl Candidate {
    /// The epoch in which it was written. Tries them all: most chunks have one of the first.
    fn epoch(&self) -> Option<u64> {
        (0..LAST_EPOCH).find(|&epoch| {
            let word = PayloadRef { epoch, ..self.place }.pack();
            self.seal.of_place(word, self.lengths) == self.wanted
        })
    }
}
