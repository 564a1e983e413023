//! Rebuilds lost words of the payload map of a damaged table, from the records in the chunks.

use std::sync::atomic::Ordering::Relaxed;

use super::chunks::{CHUNK_BITS, ChunkWord, LAST_EPOCH, PayloadRef, UNIT_BYTES};
use super::{HEAD_BYTES, PayloadLog, Seal, WORD_BYTES, lengths, stored_bytes, word_at};
use crate::Result;
use crate::engine::MAX_BYTES;
use crate::engine::mending::Mending;
use crate::storage::Medium;

/// Number of records of a chunk that are examined. The first one has the chunk's epoch, unless a crash lost it.
const LOOKED_AT: usize = 8;
/// Number of failed searches over all epochs, of a million hashes each, after which only epochs of other chunks are
/// tried.
const MOST_FAILURES: usize = 2000;
/// Zeros are skipped in steps of this many bytes.
const ZEROS: u64 = 4096;

impl PayloadLog {
    /// Makes words for chunks that have records and no word, because the map ends too early or parts of it are zero.
    /// For tables that are opened for salvage: the words are stored to private copies of the pages.
    pub(in crate::engine::plush) fn mend(
        &self,
        storage: &impl Medium,
        mending: &Mending,
    ) -> Result<()> {
        let chunks = (self.region.len() / self.chunk_bytes).min(1 << CHUNK_BITS) as u32;
        let known = (self.map.len() / WORD_BYTES).min(chunks.into()) as u32;
        let word_of = |chunk: u32| -> Result<u64> {
            // A chunk beyond the end of the map has no word.
            if chunk < known {
                Ok(self.word(storage, chunk)?.load(storage, Relaxed))
            } else {
                Ok(0)
            }
        };
        let mut search = Search { epochs: Vec::new(), failures: 0 };
        let mut words = Vec::new();
        let mut chunk = 0;
        while chunk < chunks {
            let word = word_of(chunk)?;
            let ChunkWord { epoch, used, continues } = ChunkWord::unpack(word);
            let run = match word {
                0 => self.find(storage, chunk, &mut search),
                _ if used && !continues => {
                    self.run_of(storage, chunk, epoch).map(|run| (epoch, run))
                }
                _ => None,
            };
            let Some((epoch, run)) = run else {
                chunk += 1;
                continue;
            };
            let run = chunk..chunk.saturating_add(run).min(chunks);
            for it in run.clone() {
                if word_of(it)? == 0 {
                    let continues = it != chunk;
                    // The epoch of a chunk that continues another is never compared.
                    let epoch = if continues { LAST_EPOCH } else { epoch };
                    words.push((it, ChunkWord { epoch, used: true, continues }));
                }
            }
            chunk = run.end;
        }
        let Some(&(last, _)) = words.last() else { return Ok(()) };
        mending.lengthen(storage, &self.map, (u64::from(last) + 1) * WORD_BYTES)?;
        for (chunk, word) in &words {
            self.word(storage, *chunk)?.store(storage, word.pack(), Relaxed);
        }
        mending.note(format!("the words of {} chunks rebuilt from their records", words.len()));
        Ok(())
    }

    /// The number of chunks that the first record of a chunk spans, if its checksum fits the epoch.
    fn run_of(&self, storage: &impl Medium, chunk: u32, epoch: u64) -> Option<u32> {
        let record = self.record_at(storage, chunk, 0)?;
        record.is_of(epoch).then(|| record.bytes.div_ceil(self.chunk_bytes) as u32)
    }

    /// Returns the latest epoch among a chunk's first records, and the number of chunks that the longest record of this
    /// epoch spans.
    fn find(&self, storage: &impl Medium, chunk: u32, search: &mut Search) -> Option<(u64, u32)> {
        let (mut found, mut offset, mut looked_at) = (None, 0, 0);
        while offset < self.chunk_bytes && looked_at < LOOKED_AT {
            if offset.is_multiple_of(ZEROS) && self.is_zero(storage, chunk, offset) {
                offset += ZEROS;
                continue;
            }
            let mut step = UNIT_BYTES;
            if let Some(record) = self.record_at(storage, chunk, offset) {
                looked_at += 1;
                if let Some(epoch) = search.epoch_of(&record) {
                    let run = record.bytes.div_ceil(self.chunk_bytes) as u32;
                    found = found.max(Some((epoch, run)));
                    step = record.bytes;
                }
            }
            offset += step;
        }
        found
    }

    fn is_zero(&self, storage: &impl Medium, chunk: u32, offset: u64) -> bool {
        let at = self.offset_of(PayloadRef { chunk, epoch: 0, offset });
        let bytes = ZEROS.min(self.chunk_bytes - offset) as usize;
        // SAFETY: no thread writes to the region while the table is being opened.
        let content = unsafe { storage.read_bytes(&self.region, at, bytes) };
        content.is_some_and(|content| content.iter().all(|&byte| byte == 0))
    }

    /// Reads a possible record: one that ends inside its chunk, or begins at the chunk's start and ends inside the
    /// file.
    fn record_at(&self, storage: &impl Medium, chunk: u32, offset: u64) -> Option<Candidate> {
        let place = PayloadRef { chunk, epoch: 0, offset };
        let at = self.offset_of(place);
        // SAFETY: no thread writes to the region while the table is being opened.
        let head = unsafe { storage.read_bytes(&self.region, at, HEAD_BYTES) }?;
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
        let content =
            unsafe { storage.read_bytes(&self.region, at + HEAD_BYTES as u64, key + value) }?;
        let seal = Seal::new();
        let wanted = (sum ^ seal.of_content(content)).wrapping_sub(hash);
        Some(Candidate { place, bytes, lengths: words, wanted, seal })
    }
}

/// A possible record: its checksum has not been compared.
struct Candidate {
    place: PayloadRef,
    bytes: u64,
    lengths: u64,
    /// The part of the checksum that depends on the place and the epoch.
    wanted: u64,
    seal: Seal,
}

impl Candidate {
    fn is_of(&self, epoch: u64) -> bool {
        let word = PayloadRef { epoch, ..self.place }.pack();
        self.seal.of_place(word, self.lengths) == self.wanted
    }
}

/// The search for epochs, over all chunks.
struct Search {
    /// Epochs found so far.
    epochs: Vec<u64>,
    failures: usize,
}

impl Search {
    /// Returns the epoch in which a record was written. First tries the epochs of other chunks, because many chunks
    /// have the same epoch.
    fn epoch_of(&mut self, record: &Candidate) -> Option<u64> {
        let known = self.epochs.iter().copied().find(|&epoch| record.is_of(epoch));
        if known.is_some() || self.failures >= MOST_FAILURES {
            return known;
        }
        let found = (0..LAST_EPOCH).find(|&epoch| record.is_of(epoch));
        match found {
            Some(epoch) => self.epochs.push(epoch),
            None => self.failures += 1,
        }
        found
    }
}
