//! Counts the cost of operations on the medium: distinct lines read and written, flushes, fences, and the 256-byte
//! blocks in which real media read and write.

use super::line::LineId;

/// Number of lines per media block.
const BLOCK_LINES: u32 = 4;
/// Number of blocks in the medium's write-combining buffer of 16 KiB, and in its read buffer.
const BUFFER_BLOCKS: usize = 64;

/// The cost of operations so far, summed over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines read, by region: a line counts once per operation ([`super::Sim::begin_op`]), as if nothing were cached
    /// between operations.
    pub line_reads: Vec<(&'static str, u64)>,
    /// Lines written, each once per operation.
    pub line_writes: u64,
    /// Lines flushed, clean ones included.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Blocks read: for loads, and to complete blocks that were only partly written.
    pub media_reads: u64,
    /// Blocks written, when the write-combining buffer evicted them.
    pub media_writes: u64,
}

/// The running counts.
#[derive(Default)]
pub(super) struct Cost {
    /// The number of the present operation; lines store the mark of the last operation that accessed them (see
    /// `Cost::op`).
    op: u32,
    line_writes: u64,
    flushes: u64,
    fences: u64,
    media_reads: u64,
    media_writes: u64,
    written: Buffer,
    read: Buffer,
}

/// The most recently used blocks, the newest last.
#[derive(Default)]
struct Buffer(Vec<Block>);

#[derive(Clone, Copy)]
struct Block {
    region: u8,
    number: u32,
    /// One bit per line that was written.
    lines: u8,
}

impl Buffer {
    /// Makes the line's block the newest. Returns whether it was present, and the block that was evicted.
    fn touch(&mut self, id: LineId) -> (bool, Option<Block>) {
        let (number, bit) = (id.line / BLOCK_LINES, 1 << (id.line % BLOCK_LINES));
        let found =
            self.0.iter().rposition(|block| block.number == number && block.region == id.region);
        let lines = found.map_or(0, |at| self.0.remove(at).lines);
        let evicted = (self.0.len() == BUFFER_BLOCKS).then(|| self.0.remove(0));
        self.0.push(Block { region: id.region, number, lines: lines | bit });
        (found.is_some(), evicted)
    }

    fn holds(&self, id: LineId) -> bool {
        self.0
            .iter()
            .rev()
            .any(|block| block.number == id.line / BLOCK_LINES && block.region == id.region)
    }
}

impl Cost {
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn begin_op(&mut self) {
        self.op = self.op.wrapping_add(1);
    }

    pub(super) fn fence(&mut self) {
        self.fences += 1;
    }

    /// Returns the mark of lines that the present operation accesses. 0 marks lines that were never accessed.
    pub(super) fn op(&self) -> u32 {
        self.op.wrapping_add(1)
    }

    /// Counts the first write of a line in this operation.
    pub(super) fn line_written(&mut self) {
        self.line_writes += 1;
    }

    pub(super) fn line_flushed(&mut self) {
        self.flushes += 1;
    }

    /// Counts the first read of a line in this operation.
    pub(super) fn line_read(&mut self, id: LineId) {
        if !self.written.holds(id) && !self.read.touch(id).0 {
            self.media_reads += 1;
        }
    }

    /// Counts the write-back of a changed line.
    pub(super) fn line_written_back(&mut self, id: LineId) {
        if let (_, Some(evicted)) = self.written.touch(id) {
            self.media_writes += 1;
            // A partly written block is read, completed and written.
            self.media_reads += u64::from(evicted.lines.count_ones() < BLOCK_LINES);
        }
    }

    pub(super) fn counters(&self, line_reads: Vec<(&'static str, u64)>) -> Counters {
        Counters {
            line_reads,
            line_writes: self.line_writes,
            flushes: self.flushes,
            fences: self.fences,
            media_reads: self.media_reads,
            media_writes: self.media_writes,
        }
    }
}
