//! Creating and opening tables: the options that Dash, IcebergHT and Plush have in common.

use std::sync::Arc;
use std::time::Instant;

use super::mending::Mending;
use super::stored_types::StoredTypes;
use crate::base::hash::{HashKind, Seed, random_seed};
use crate::report::RecoveryReport;
use crate::storage::blob::BlobParams;
use crate::storage::superblock::{Identity, SessionStart, impossible};
use crate::storage::{Durability, FaultPlan, HugePages, MappedOptions, Medium, SyncMode};
use crate::{Error, Result};

/// The superblock parameter that holds the chunk size of the blob store.
const CHUNK_BYTES: usize = 3;

/// Returns the error for a table that does not support [`Durability::Disk`].
pub(crate) fn refusal_of_disks(table: &str) -> Error {
    Error::Unsupported(format!(
        "{table} needs a medium that keeps the order of stores within a cache line; choose durability `pmem`, \
         `process` or `auto`"
    ))
}

/// The options that all designs have.
#[derive(Clone, Debug)]
pub struct Common {
    pub(crate) capacity: u64,
    pub(crate) durability: Durability,
    pub(crate) sync: SyncMode,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) huge_pages: HugePages,
    pub(crate) hash: HashKind,
    pub(crate) hash_seed: Option<Seed>,
    pub(crate) blob_chunk_bytes: u32,
    /// `true` if reads verify the checksums of blobs.
    pub(crate) verify: bool,
    /// The memory to assume, for tests.
    pub(crate) memory: Option<u64>,
    pub(crate) faults: Option<Arc<FaultPlan>>,
    pub(crate) types: StoredTypes,
    /// Set if the table is opened for salvage only.
    pub(crate) mending: Option<Mending>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            capacity: 0,
            durability: Durability::Auto,
            sync: SyncMode::Always,
            max_bytes: None,
            huge_pages: HugePages::default(),
            hash: HashKind::Strong,
            hash_seed: None,
            blob_chunk_bytes: BlobParams::default().chunk_bytes,
            verify: false,
            memory: None,
            faults: None,
            types: StoredTypes::default(),
            mending: None,
        }
    }
}

impl Common {
    /// Returns the options of a table that takes over the types of another one, with room for `records` records.
    pub(crate) fn like(identity: &Identity, records: u64) -> Self {
        Self { types: StoredTypes::stored(identity), capacity: records, ..Self::default() }
    }

    /// Returns the medium's options. `title` names the design in the error message if the design does not allow `Disk`.
    pub(crate) fn mapped(&self, title: &str, allows_disk: bool) -> Result<MappedOptions> {
        if self.durability == Durability::Disk && !allows_disk {
            return Err(refusal_of_disks(title));
        }
        Ok(MappedOptions {
            durability: self.durability,
            sync: self.sync,
            max_bytes: self.max_bytes,
            huge_pages: self.huge_pages,
            memory: self.memory,
            faults: self.faults.clone(),
            ..MappedOptions::default()
        })
    }

    /// Like [`Common::mapped`], for anonymous memory.
    pub(crate) fn anonymous(&self, title: &str, allows_disk: bool) -> Result<MappedOptions> {
        let durability = match self.durability {
            Durability::PmemForced => Durability::PmemForced,
            _ => Durability::Memory,
        };
        Ok(MappedOptions { durability, ..self.mapped(title, allows_disk)? })
    }

    /// Returns the address space that a table may use, in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.max_bytes.unwrap_or(1 << 40).clamp(1 << 20, 1 << 44)
    }

    /// Returns the identity of a new table. `own` holds the first superblock parameters, which the design defines.
    pub(crate) fn identity(&self, design: &str, own: [u32; CHUNK_BYTES]) -> Identity {
        let mut params = [0; 16];
        params[..CHUNK_BYTES].copy_from_slice(&own.map(u64::from));
        params[CHUNK_BYTES] = self.blob_chunk_bytes.into();
        let mut identity = Identity {
            design: design.into(),
            hash_id: self.hash.id(),
            hash_seed: self.hash_seed.map_or_else(random_seed, |Seed(seed)| seed),
            params,
            uuid: random_seed(),
            ..Identity::default()
        };
        self.types.inscribe(&mut identity);
        identity
    }

    /// Takes over the options that an existing table determines; returns the parameters that are specific to the
    /// design.
    pub(crate) fn adopt(
        &mut self,
        storage: &impl Medium,
        identity: &Identity,
    ) -> Result<[u32; CHUNK_BYTES]> {
        let narrow = |place: usize| u32::try_from(identity.params[place]).unwrap_or(u32::MAX);
        let chunk_bytes = narrow(CHUNK_BYTES);
        if !chunk_bytes.is_power_of_two() || !(1 << 10..=1 << 30).contains(&chunk_bytes) {
            return Err(impossible(storage, "blob chunk size"));
        }
        self.blob_chunk_bytes = chunk_bytes;
        self.hash = HashKind::from_id(identity.hash_id)
            .ok_or_else(|| impossible(storage, "hash function"))?;
        Ok(std::array::from_fn(narrow))
    }

    /// Returns the parameters of the table's blob store.
    pub(crate) fn blobs(&self, session: u64) -> BlobParams {
        BlobParams {
            chunk_bytes: self.blob_chunk_bytes,
            max_bytes: self.limit(),
            session,
            ..BlobParams::default()
        }
    }
}

/// Returns the report of an opening.
pub(crate) fn report(session: SessionStart, resolved: u64, started: Instant) -> RecoveryReport {
    RecoveryReport {
        was_clean: session.was_clean,
        generation: session.generation,
        resolved: resolved + u64::from(session.mended),
        open_time: started.elapsed(),
    }
}
