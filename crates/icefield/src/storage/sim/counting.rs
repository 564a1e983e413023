//! Counts each access to the medium.

use super::cost::Counters;
use super::line::LineId;
use super::state::State;
use crate::storage::arch::LINE_BYTES;

fn lines_of(slot: usize, offset: usize, bytes: usize) -> impl Iterator<Item = LineId> {
    (offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES))
        .map(move |line| LineId { region: slot as u8, line: line as u32 })
}

impl State {
    fn touched(&mut self, id: LineId) {
        if let Some(toucher) = &mut self.toucher {
            toucher(u64::from(id.region) << 32 | u64::from(id.line));
        }
    }

    pub(super) fn count_read(&mut self, slot: usize, offset: usize, bytes: usize) {
        let op = self.cost.op();
        for id in lines_of(slot, offset, bytes) {
            self.touched(id);
            let Some(line) = self.line_mut(id).filter(|line| line.read_op != op) else { continue };
            line.read_op = op;
            self.regions_mut()[slot].line_reads += 1;
            self.cost.line_read(id);
        }
    }

    pub(super) fn count_write(&mut self, slot: usize, offset: usize, bytes: usize) {
        let op = self.cost.op();
        for id in lines_of(slot, offset, bytes) {
            self.touched(id);
            let Some(line) = self.line_mut(id) else { continue };
            line.unflushed = true;
            if line.write_op != op {
                line.write_op = op;
                self.cost.line_written();
            }
        }
    }

    pub(super) fn count_flush(&mut self, slot: usize, offset: usize, bytes: usize) {
        for id in lines_of(slot, offset, bytes) {
            self.cost.line_flushed();
            let Some(line) = self.line_mut(id) else { continue };
            if std::mem::take(&mut line.unflushed) {
                self.cost.line_written_back(id);
            }
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let reads = self.regions().iter().map(|region| (region.name, region.line_reads));
        self.cost.counters(reads.collect())
    }
}
