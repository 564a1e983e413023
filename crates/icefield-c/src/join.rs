//! `JoinIndex`: building, opening, closing, reports.

use std::ffi::c_char;

use icefield::JoinStats;

use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::join_handle::{Index, any_index, icefield_join};
use crate::options::{durability_code, icefield_join_options};
use crate::pointers::{Versioned, check_report, handle, options, out, outs, path, report, slice};
use crate::reports::{icefield_check_report, icefield_recovery_report, icefield_texts};

/// Builds an index of `count` pairs at `path`, where nothing but an empty directory may exist, unless `replace` is 1.
/// options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_build(
    path: *const c_char,
    keys: *const u64,
    payloads: *const u64,
    count: usize,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let (keys, payloads) = (slice(keys, count, "keys")?, slice(payloads, count, "payloads")?);
        let options = self::options(options, "options")?.checked()?;
        join.set(0, icefield_join::new(Index::Words(options.build(path, keys, payloads)?)));
        Ok(())
    })
}

/// Builds an index of `count` pairs in memory, which is freed when the index is closed. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_build_in_memory(
    keys: *const u64,
    payloads: *const u64,
    count: usize,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let mut join = out(join, "join")?;
        let (keys, payloads) = (slice(keys, count, "keys")?, slice(payloads, count, "payloads")?);
        let options = self::options(options, "options")?.checked()?;
        join.set(0, icefield_join::new(Index::Words(options.build_in_memory(keys, payloads)?)));
        Ok(())
    })
}

/// Opens the index at `path`, whose keys must be "u64". The first change locks it for this process. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_open(
    path: *const c_char,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let options = self::options(options, "options")?.checked()?;
        join.set(0, icefield_join::new(Index::Words(options.open(path)?)));
        Ok(())
    })
}

/// Opens the index at `path` for reading only. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_open_read_only(
    path: *const c_char,
    options: *const icefield_join_options,
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, mut join) = (self::path(path, "path")?, out(join, "join")?);
        let options = self::options(options, "options")?.checked()?;
        join.set(0, icefield_join::new(Index::Words(options.open_read_only(path)?)));
        Ok(())
    })
}

/// Closes an index and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_close(
    join: *mut *mut icefield_join,
    error: *mut *mut icefield_error,
) -> icefield_status {
    // SAFETY: the caller passes the address of a handle's variable.
    unsafe { crate::objects::close(join, error) }
}

/// Statistics of a join index.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_join_statistics {
    /// sizeof(icefield_join_statistics).
    pub struct_size: usize,
    /// The number of pairs.
    pub pairs: u64,
    /// The number of pairs in the sealed base.
    pub base_pairs: u64,
    /// The number of changes in the delta store since the last merge.
    pub delta_changes: u64,
    /// The maximum number of changes in the delta store.
    pub delta_limit: u64,
    /// The number of the present generation.
    pub generation: u64,
    /// The number of groups of 16 buckets.
    pub groups: u64,
    /// The number of groups with more than 255 records.
    pub wide_groups: u64,
    /// The bits of the filter for each key.
    pub filter_bits_per_key: u64,
    /// The share of absent keys that pass the filter, in a sample, in parts per billion.
    pub filter_pass_ppb: u64,
    /// The size of the base's file in bytes.
    pub file_bytes: u64,
    /// The memory of the delta store in bytes.
    pub dram_bytes: u64,
    /// ICEFIELD_DURABILITY_...: the medium.
    pub durability: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_join_statistics {}

impl From<&JoinStats> for icefield_join_statistics {
    fn from(stats: &JoinStats) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            pairs: stats.pairs,
            base_pairs: stats.base_pairs,
            delta_changes: stats.delta_changes,
            delta_limit: stats.delta_limit,
            generation: stats.generation,
            groups: stats.groups,
            wide_groups: stats.wide_groups,
            filter_bits_per_key: stats.filter_bits_per_key,
            filter_pass_ppb: (stats.filter_pass_rate * 1e9) as u64,
            file_bytes: stats.file_bytes,
            dram_bytes: stats.dram_bytes,
            durability: durability_code(stats.durability),
            reserved: 0,
        }
    }
}

/// Gets statistics, of which some come from a sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_stats(
    join: *const icefield_join,
    stats: *mut icefield_join_statistics,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        out(stats, "stats")?;
        check_report(stats, "stats")?;
        report(stats, icefield_join_statistics::from(&any_index!(join, |index| index.stats()?)));
        Ok(())
    })
}

/// Gets the number of pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_len(
    join: *const icefield_join,
    len: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut len) = (handle(join, "join")?, out(len, "len")?);
        len.set(0, any_index!(join, |index| index.len()));
        Ok(())
    })
}

/// Gets the number of the present generation: 1, and one more after each merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_generation(
    join: *const icefield_join,
    generation: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut generation) = (handle(join, "join")?, out(generation, "generation")?);
        generation.set(0, any_index!(join, |index| index.generation()));
        Ok(())
    })
}

/// Gets the 16 bytes of the index's identifier, which all of its generations have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_uuid(
    join: *const icefield_join,
    uuid: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut uuid) = (handle(join, "join")?, outs(uuid, 16, "uuid")?);
        uuid.fill(0, &any_index!(join, |index| index.uuid()).to_be_bytes());
        Ok(())
    })
}

/// Sets the number of threads that a probe or a merge may use; at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_set_threads(
    join: *const icefield_join,
    threads: u32,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        any_index!(join, |index| index.set_threads(threads as usize));
        Ok(())
    })
}

/// Gets the number of threads that a probe or a merge may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_threads(
    join: *const icefield_join,
    threads: *mut u32,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (join, mut threads) = (handle(join, "join")?, out(threads, "threads")?);
        let count = any_index!(join, |index| index.threads());
        threads.set(0, u32::try_from(count).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Gets the report of opening the index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_recovery(
    join: *const icefield_join,
    recovery: *mut icefield_recovery_report,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        out(recovery, "recovery")?;
        check_report(recovery, "recovery")?;
        report(
            recovery,
            icefield_recovery_report::from(any_index!(join, |index| index.recovery())),
        );
        Ok(())
    })
}

/// Checks every checksum and invariant, and changes nothing. check: required. faults: optional; the faults in words,
/// which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_join_check(
    join: *const icefield_join,
    check: *mut icefield_check_report,
    faults: *mut *mut icefield_texts,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let join = handle(join, "join")?;
        out(check, "check")?;
        check_report(check, "check")?;
        let found = any_index!(join, |index| index.check()?);
        report(check, icefield_check_report::from(&found));
        icefield_texts::store(found.faults, &mut crate::pointers::optional(faults));
        Ok(())
    })
}
