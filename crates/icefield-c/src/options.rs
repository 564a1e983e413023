//! Options of new and opened tables.

use icefield::{AnyOptions, Dlht, DlhtHash, Durability, JoinIndex, JoinOptions, OnFull, SyncMode};

use crate::error::Failure;
use crate::error::icefield_status::ICEFIELD_INVALID;
use crate::pointers::Versioned;

/// `durability`: ICEFIELD_DURABILITY_PMEM where the system grants it, otherwise ICEFIELD_DURABILITY_PROCESS.
pub const ICEFIELD_DURABILITY_AUTO: u32 = 0;
/// `durability`: nothing survives; memory without files.
pub const ICEFIELD_DURABILITY_MEMORY: u32 = 1;
/// `durability`: survives the death of the process, but not a power failure.
pub const ICEFIELD_DURABILITY_PROCESS: u32 = 2;
/// `durability`: survives a power failure; persistent memory.
pub const ICEFIELD_DURABILITY_PMEM: u32 = 3;
/// `durability`: the instructions of ICEFIELD_DURABILITY_PMEM on any file, for tests and measurements.
pub const ICEFIELD_DURABILITY_PMEM_FORCED: u32 = 4;
/// `durability`: survives a power failure on SSDs and disks.
pub const ICEFIELD_DURABILITY_DISK: u32 = 5;

/// `sync_mode` with ICEFIELD_DURABILITY_DISK: a write returns after its sync.
pub const ICEFIELD_SYNC_ALWAYS: u32 = 0;
/// `sync_mode`: a write returns at once, and is synced at most `sync_interval_ms` milliseconds later.
pub const ICEFIELD_SYNC_EVERY: u32 = 1;
/// `sync_mode`: a write returns at once, and is synced by icefield_table_sync and when the table is closed.
pub const ICEFIELD_SYNC_NEVER: u32 = 2;

/// `hash` of an icefield_dlht: a keyed hash, which resists chosen keys.
pub const ICEFIELD_HASH_STRONG: u32 = 0;
/// `hash`: the key modulo the number of bins; the fastest for dense keys.
pub const ICEFIELD_HASH_MODULO: u32 = 1;
/// `hash`: the key times a constant; for keys that are hashes or random.
pub const ICEFIELD_HASH_MULTIPLIED: u32 = 2;

/// Options of an icefield_table. Fields of 0 have their defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_table_options {
    /// sizeof(icefield_table_options).
    pub struct_size: usize,
    /// The number of records that a new table takes before it must grow.
    pub capacity: u64,
    /// The maximum total size of the table's files, in bytes; 0: no limit.
    pub max_bytes: u64,
    /// With ICEFIELD_SYNC_EVERY: the interval in milliseconds.
    pub sync_interval_ms: u64,
    /// ICEFIELD_DURABILITY_...: the medium.
    pub durability: u32,
    /// ICEFIELD_SYNC_...: when a write to a disk returns.
    pub sync_mode: u32,
    /// 1: reads verify the checksums of keys and values that have one.
    pub verify: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_table_options {}

/// Options of an icefield_dlht. Fields of 0 have their defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_dlht_options {
    /// sizeof(icefield_dlht_options).
    pub struct_size: usize,
    /// The number of records that the table takes before it must grow.
    pub capacity: u64,
    /// The maximum memory in bytes; 0: no limit.
    pub max_bytes: u64,
    /// ICEFIELD_HASH_...: the hash function.
    pub hash: u32,
    /// 1: the table does not grow; a full table refuses inserts with ICEFIELD_FULL.
    pub fixed_size: u32,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_dlht_options {}

/// Options of an icefield_join. Fields of 0 have their defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_join_options {
    /// sizeof(icefield_join_options).
    pub struct_size: usize,
    /// The maximum size of a generation's files, in bytes; 0: no limit.
    pub max_bytes: u64,
    /// The maximum number of changes in the delta store; 0: chosen by the index.
    pub delta_limit: u64,
    /// The number of threads of a build, a probe or a merge; 0: all cores.
    pub threads: u32,
    /// ICEFIELD_DURABILITY_...: the medium.
    pub durability: u32,
    /// The bits of the filter for each key; 0: chosen by the index.
    pub filter_bits_per_key: u32,
    /// 1: a change is refused with ICEFIELD_DELTA_FULL when the delta store is full. 0: the change merges first.
    pub refuse_when_full: u32,
    /// 1: opening and probes verify checksums.
    pub verify: u32,
    /// 1: a build replaces the index that is at the path.
    pub replace: u32,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_join_options {}

fn invalid(option: &str, value: u32) -> Failure {
    Failure::new(ICEFIELD_INVALID, format!("{option}: {value} is not a value of this option"))
}

/// Returns an option that is 0 or 1.
fn flag(option: &str, value: u32) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid(option, value)),
    }
}

/// Returns a limit, for which 0 is none.
fn limit(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

const DURABILITIES: [Durability; 6] = [
    Durability::Auto,
    Durability::Memory,
    Durability::Process,
    Durability::Pmem,
    Durability::PmemForced,
    Durability::Disk,
];

fn durability(value: u32) -> Result<Durability, Failure> {
    let known = DURABILITIES.get(value as usize).copied();
    known.ok_or_else(|| invalid("durability", value))
}

/// Returns the number of a durability; that of [`Durability::Memory`] for a table without a medium.
pub(crate) fn durability_code(durability: Option<Durability>) -> u32 {
    let code = DURABILITIES.iter().position(|&known| Some(known) == durability);
    code.map_or(ICEFIELD_DURABILITY_MEMORY, |code| code as u32)
}

impl icefield_table_options {
    pub(crate) fn checked(self) -> Result<AnyOptions, Failure> {
        let sync = match self.sync_mode {
            ICEFIELD_SYNC_ALWAYS => SyncMode::Always,
            ICEFIELD_SYNC_EVERY => SyncMode::Every(self.sync_interval_ms),
            ICEFIELD_SYNC_NEVER => SyncMode::Never,
            other => return Err(invalid("sync_mode", other)),
        };
        if self.reserved != 0 {
            return Err(invalid("reserved", self.reserved));
        }
        Ok(AnyOptions {
            capacity: limit(self.capacity),
            durability: durability(self.durability)?,
            sync,
            max_bytes: limit(self.max_bytes),
            verify: flag("verify", self.verify)?,
        })
    }
}

impl icefield_dlht_options {
    pub(crate) fn build(self) -> Result<Dlht<u64, u64>, Failure> {
        let hash = match self.hash {
            ICEFIELD_HASH_STRONG => DlhtHash::Strong,
            ICEFIELD_HASH_MODULO => DlhtHash::Modulo,
            ICEFIELD_HASH_MULTIPLIED => DlhtHash::Multiplied,
            other => return Err(invalid("hash", other)),
        };
        let capacity = usize::try_from(self.capacity).unwrap_or(usize::MAX);
        let mut options = Dlht::<u64, u64>::options().capacity(capacity).hash(hash);
        if flag("fixed_size", self.fixed_size)? {
            options = options.fixed_size();
        }
        if let Some(bytes) = limit(self.max_bytes) {
            options = options.max_bytes(bytes);
        }
        Ok(options.build()?)
    }
}

impl icefield_join_options {
    pub(crate) fn checked(self) -> Result<JoinOptions<u64>, Failure> {
        let full = flag("refuse_when_full", self.refuse_when_full)?;
        let mut options = JoinIndex::<u64>::options()
            .durability(durability(self.durability)?)
            .on_full(if full { OnFull::Refuse } else { OnFull::Merge })
            .verify(flag("verify", self.verify)?)
            .replace(flag("replace", self.replace)?);
        if let Some(bytes) = limit(self.max_bytes) {
            options = options.max_bytes(bytes);
        }
        if let Some(changes) = limit(self.delta_limit) {
            options = options.delta_limit(changes);
        }
        if self.threads > 0 {
            options = options.threads(self.threads as usize);
        }
        if self.filter_bits_per_key > 0 {
            options = options.filter_bits_per_key(self.filter_bits_per_key);
        }
        Ok(options)
    }
}
