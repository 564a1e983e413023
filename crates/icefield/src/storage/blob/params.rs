//! The parameters of a store.

use crate::{Error, Result};

/// Parameters of a store. Every opening must pass the same `chunk_bytes`: the table keeps it in its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobParams {
    /// A power of two from 1 KiB to 1 GiB.
    pub chunk_bytes: u32,
    /// The region grows by an eighth of its size, but at least by this number of chunks.
    pub growth_chunks: u32,
    /// The largest length of the blobs' region in bytes.
    pub max_bytes: u64,
    /// A number that differs from opening to opening (the generation). It determines where the scan begins.
    pub session: u64,
}

impl Default for BlobParams {
    fn default() -> Self {
        Self { chunk_bytes: 64 << 10, growth_chunks: 64, max_bytes: 1 << 40, session: 0 }
    }
}

impl BlobParams {
    pub(super) fn validate(&self) -> Result<()> {
        if !self.chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&self.chunk_bytes) {
            let detail = format!("{} is not a power of two from 1 KiB to 1 GiB", self.chunk_bytes);
            return Err(Error::InvalidOption { option: "chunk_bytes", detail });
        }
        if self.growth_chunks == 0 {
            return Err(Error::InvalidOption {
                option: "growth_chunks",
                detail: "must be at least 1".into(),
            });
        }
        Ok(())
    }
}
