//! The blob store's part of a table's `check`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::BlobStore;
use super::block::BlobRef;
use super::chunk::Chunk;
use super::class::{Extent, FREE};
use super::report::BlobReport;
use super::space::map_word;
use crate::storage::Medium;
use crate::storage::mutex::lock;

/// The blocks of an extent to which the table refers, one bit for each.
struct Referred {
    words: Vec<u64>,
    blocks: u32,
    is_empty: bool,
}

impl Referred {
    fn none_of(blocks: u32) -> Self {
        Self { words: vec![0; blocks.div_ceil(64) as usize], blocks, is_empty: true }
    }

    fn contains(&self, block: u32) -> bool {
        self.words.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Adds a block; returns whether it was missing.
    fn insert(&mut self, block: u32) -> bool {
        let new = !self.contains(block);
        self.words[block as usize / 64] |= 1 << (block % 64);
        self.is_empty = false;
        new
    }
}

/// Maps each chunk at which an extent begins, according to the map words, to the extent and to the set of its blocks
/// that the table refers to.
type Layout = BTreeMap<u32, (Extent, Referred)>;

impl BlobStore {
    /// Compares the store with `live`: all references that the table holds, each with the owner of its blob. The
    /// result is meaningful only while no other operation runs. Reads every blob; keeps one bit for each block in DRAM.
    ///
    /// Verifies the invariants I1 to I5 (see the header of `blob`).
    pub fn check<M: Medium>(
        &self,
        storage: &M,
        live: impl IntoIterator<Item = (u64, BlobRef)>,
    ) -> BlobReport {
        // Otherwise a spare block that the table refers to would be neither owned nor free (I5).
        self.shared.free_spares();
        let mut report = BlobReport::default();
        let mut layout = self.read_map(storage, &mut report);
        for (owner, blob) in live {
            report.blobs += 1;
            self.check_blob(storage, owner, blob, &mut layout, &mut report);
        }
        for (&number, (extent, referred)) in &layout {
            self.check_dram(number, *extent, referred, &mut report);
        }
        report
    }

    /// Verifies I1: every map word is one that the store wrote, and the words inside runs are FREE.
    fn read_map<M: Medium>(&self, storage: &M, report: &mut BlobReport) -> Layout {
        let shared = &self.shared;
        let mut layout = Layout::new();
        let end = lock(&shared.space).end;
        let mut run_end = 0;
        for number in 0..end {
            let word = map_word(&shared.map, number)
                .map_or(FREE, |word| word.load(storage, Ordering::Relaxed));
            if number < run_end {
                if word != FREE {
                    report.fault(|| {
                        format!(
                            "blob I1: chunk {number} is inside a run, but the map has a word for it"
                        )
                    });
                }
                continue;
            }
            match shared.classes.decode(number, word) {
                Ok(None) => {}
                Ok(Some(extent)) => {
                    let (blocks, chunks) = match extent {
                        Extent::Small(class) => (shared.classes.blocks(class), 1),
                        Extent::Large(chunks) => (1, chunks),
                    };
                    run_end = number.saturating_add(chunks);
                    if run_end > end {
                        report.fault(|| {
                            format!("blob I1: the run at chunk {number} reaches beyond the region")
                        });
                    }
                    layout.insert(number, (extent, Referred::none_of(blocks)));
                }
                Err(_) => report
                    .fault(|| format!("blob I1: the map's word for chunk {number} is damaged")),
            }
        }
        layout
    }

    /// Verifies I2 to I4: the reference names a block of the right size, no other slot refers to that block, and the
    /// block holds the content that was written for this owner.
    fn check_blob<M: Medium>(
        &self,
        storage: &M,
        owner: u64,
        blob: BlobRef,
        layout: &mut Layout,
        report: &mut BlobReport,
    ) {
        let shared = &self.shared;
        let word = blob.word();
        let place = shared.locate(blob).and_then(|(number, inside)| {
            let (extent, referred) = layout.get_mut(&number)?;
            let size = match *extent {
                Extent::Small(class) => shared.classes.size(class),
                // A run holds one block, which begins at the run's first byte.
                Extent::Large(_) => shared.params.chunk_bytes,
            };
            let whole = inside.is_multiple_of(size) && inside / size < referred.blocks;
            whole.then_some((*extent, referred, inside / size))
        });
        let Some((extent, referred, block)) = place else {
            return report.fault(|| format!("blob I2: reference {word:#x} names no block"));
        };
        if !referred.insert(block) {
            report.fault(|| format!("blob I3: two slots refer to block {word:#x}"));
        }
        match self.verify(storage, owner, blob) {
            Ok(content) => {
                report.content_bytes += content.len() as u64;
                if shared.classes.extent(content.len()) != extent {
                    report.fault(|| {
                        format!(
                            "blob I2: {} bytes at {word:#x} do not belong in {extent:?}",
                            content.len()
                        )
                    });
                }
            }
            Err(error) => report.fault(|| format!("blob I4: {word:#x}: {error}")),
        }
    }

    /// Verifies I5: no block that DRAM records as free is referenced. Counts owned blocks without a reference as
    /// leaked.
    fn check_dram(
        &self,
        number: u32,
        extent: Extent,
        referred: &Referred,
        report: &mut BlobReport,
    ) {
        let shared = &self.shared;
        let length = if let Extent::Large(chunks) = extent { chunks } else { 1 };
        let in_use = !referred.is_empty;
        if in_use && lock(&shared.space).runs.overlaps(number, length) {
            report.fault(|| format!("blob I5: chunk {number} is free, but referred to"));
        }
        let Some(chunk) = shared.chunks.peek(number) else { return };
        match &*lock(chunk) {
            Chunk::Unscanned | Chunk::Vacant => {}
            Chunk::Large { owned, .. } => report.leaked += u64::from(*owned && !in_use),
            Chunk::Small(small) => {
                report.leaked +=
                    small.owned().filter(|&block| !referred.contains(block)).count() as u64;
                for block in small.free_blocks().filter(|&block| referred.contains(block)) {
                    report.fault(|| {
                        format!("blob I5: block {block} of chunk {number} is free, but referred to")
                    });
                }
            }
        }
    }
}
