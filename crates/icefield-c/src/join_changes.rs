//! Changes of a join index.

use std::ffi::c_char;

use icefield::{MergeKind, MergeReport};

use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::join_handle::{any_index, icefield_join};
use crate::pointers::{Versioned, check_report, handle, optional, path, report, slice};
use crate::reports::{icefield_backup_report, nanoseconds};

/// The result of a merge.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_merge_report {
    /// sizeof(icefield_merge_report).
    pub struct_size: usize,
    /// The number of changes that the delta store had.
    pub changes: u64,
    /// The number of pairs after the merge.
    pub pairs: u64,
    /// The number of the generation after the merge.
    pub generation: u64,
    /// The size of the generation's file in bytes.
    pub bytes: u64,
    /// The duration of the merge in nanoseconds.
    pub time_ns: u64,
    /// 1 if the index was rebuilt; 0 if its groups were copied, or nothing was to be done.
    pub was_rebuilt: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_merge_report {}

impl From<MergeReport> for icefield_merge_report {
    fn from(report: MergeReport) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            changes: report.changes,
            pairs: report.pairs,
            generation: report.generation,
            bytes: report.bytes,
            time_ns: nanoseconds(report.time),
            was_rebuilt: u32::from(report.kind == MergeKind::Rebuild),
            reserved: 0,
        }
    }
}

/// Adds a pair. A pair that is already present is then present twice. Durable and visible when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_insert(
    join: *const icefield_join,
    key: u64,
    payload: u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(join, "join")?.words()?.insert(key, payload)?) })
}

/// Adds `count` pairs, many of which share a fence. After a crash or an error, a prefix of them may have been added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_insert_batch(
    join: *const icefield_join,
    keys: *const u64,
    payloads: *const u64,
    count: usize,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?.words()?;
        let (keys, payloads) = (slice(keys, count, "keys")?, slice(payloads, count, "payloads")?);
        let pairs: Vec<_> = keys.iter().copied().zip(payloads.iter().copied()).collect();
        Ok(join.insert_batch(&pairs)?)
    })
}

/// Removes all pairs of a key. removed: optional; their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_remove(
    join: *const icefield_join,
    key: u64,
    removed: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let pairs = handle(join, "join")?.words()?.remove(key)?;
        optional(removed).set(0, pairs);
        Ok(())
    })
}

/// Removes all pairs of `count` keys, which are words; many removals share a fence. After a crash or an error, the pairs
/// of a prefix of the keys may have been removed. removed: optional; the number of pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_remove_batch(
    join: *const icefield_join,
    keys: *const u64,
    count: usize,
    removed: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, keys) = (handle(join, "join")?.words()?, slice(keys, count, "keys")?);
        let pairs = join.remove_batch(keys)?;
        optional(removed).set(0, pairs);
        Ok(())
    })
}

/// Removes one pair, or one of several equal pairs. removed: optional; 1 if there was one, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_remove_pair(
    join: *const icefield_join,
    key: u64,
    payload: u64,
    removed: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let is_removed = handle(join, "join")?.words()?.remove_pair(key, payload)?;
        optional(removed).set(0, u8::from(is_removed));
        Ok(())
    })
}

/// Merges the delta store into the next generation. Probes continue meanwhile; changes wait. merge: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_merge(
    join: *const icefield_join,
    merge: *mut icefield_merge_report,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        check_report(merge, "merge")?;
        report(merge, icefield_merge_report::from(any_index!(join, |index| index.merge()?)));
        Ok(())
    })
}

/// Returns when all changes are durable. Each is durable when its call returns, so this returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_sync(
    join: *const icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(any_index!(handle(join, "join")?, |index| index.sync())?) })
}

/// Copies the index to a new directory at `path`. Changes through this handle wait for the copy; probes do not. backup:
/// optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_backup(
    join: *const icefield_join,
    path: *const c_char,
    backup: *mut icefield_backup_report,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        check_report(backup, "backup")?;
        let path = self::path(path, "path")?;
        let made = any_index!(join, |index| index.backup(path)?);
        report(backup, icefield_backup_report::from(&made));
        Ok(())
    })
}
