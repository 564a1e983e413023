//! Extends the files of a damaged table that is opened for salvage, in private memory: zeros take the place of segments
//! and chained buckets that are missing.

use super::kinds::Kinds;
use super::layout::{ChainBlock, Header};
use super::segment::Core;
use crate::Result;
use crate::record::mending::Mending;

impl<T: Kinds> Core<T> {
    /// Zeros for chained buckets that are not there: they hold nothing, and end their chains.
    pub(super) fn mend_chains(&self, mending: &Mending) -> Result<()> {
        let words = &self.root()?.chains;
        words.forget(&self.pm);
        let used = self.chain_blocks.used(&self.pm, words);
        let bytes = size_of::<ChainBlock>() as u64;
        let used = mending.lengthen_blocks(&self.pm, &self.chains, used, bytes)?;
        words.bound(&self.pm, used);
        Ok(())
    }

    /// Zeros for segments that are not there: they hold nothing. How many there are then.
    pub(super) fn mend_segments(&self, segments: u64, mending: &Mending) -> Result<u64> {
        let (pm, bytes) = (&self.pm, size_of::<Header>() as u64);
        let segments = mending.lengthen_blocks(pm, &self.headers, segments, bytes)?;
        mending.lengthen_blocks(pm, &self.segments, segments, self.geometry.segment_bytes())
    }
}
