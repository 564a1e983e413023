//! Calls on a table as a whole.

use std::ffi::c_char;

use icefield::AnyTable;

use crate::error::icefield_error;
use crate::error::icefield_status;
use crate::pointers::{check_report, handle, optional, out, outs, path, report};
use crate::reports::{
    icefield_backup_report, icefield_check_report, icefield_counters, icefield_recovery_report,
    icefield_salvage_report, icefield_stats, icefield_texts,
};
use crate::table::icefield_table;

/// Gets the number of records. After a crash the first call may scan the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_len(
    table: *const icefield_table,
    len: *mut u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (table, mut len) = (handle(table, "table")?, out(len, "len")?);
        len.set(0, table.table.len()?);
        Ok(())
    })
}

/// Gets the 16 bytes of the table's identifier, which does not depend on its path. A backup has the same one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_uuid(
    table: *const icefield_table,
    uuid: *mut u8,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (table, mut uuid) = (handle(table, "table")?, outs(uuid, 16, "uuid")?);
        uuid.fill(0, &table.table.uuid()?.to_be_bytes());
        Ok(())
    })
}

/// Gets sizes, in constant time. stats: optional. counters: optional; the counters of the design, which the caller
/// frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_stats(
    table: *const icefield_table,
    stats: *mut icefield_stats,
    counters: *mut *mut icefield_counters,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        check_report(stats, "stats")?;
        let found = table.table.stats();
        report(stats, icefield_stats::from(&found));
        icefield_counters::store(&found.details, &mut optional(counters));
        Ok(())
    })
}

/// Removes every record at once: a crash leaves all of them or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_clear(
    table: *const icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(table, "table")?.table.clear()?) })
}

/// Makes room for `additional` more records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_reserve(
    table: *const icefield_table,
    additional: u64,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(table, "table")?.table.reserve(additional)?) })
}

/// Frees space that the records do not need, as far as the design can.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_shrink_to_fit(
    table: *const icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(table, "table")?.table.shrink_to_fit()?) })
}

/// Returns when every earlier operation is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_sync(
    table: *const icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, { Ok(handle(table, "table")?.table.sync()?) })
}

/// Gets the report of opening the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_recovery(
    table: *const icefield_table,
    recovery: *mut icefield_recovery_report,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        out(recovery, "recovery")?;
        check_report(recovery, "recovery")?;
        report(recovery, icefield_recovery_report::from(&table.table.recovery()));
        Ok(())
    })
}

/// Checks every invariant and checksum, and changes no record. A fault is not an error of the call: see `is_clean` of
/// the report. check: required. faults: optional; the faults in words, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_check(
    table: *const icefield_table,
    check: *mut icefield_check_report,
    faults: *mut *mut icefield_texts,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        out(check, "check")?;
        check_report(check, "check")?;
        let found = table.table.check()?;
        report(check, icefield_check_report::from(&found));
        icefield_texts::store(found.faults, &mut optional(faults));
        Ok(())
    })
}

/// Copies the table's directory to `path`, where the copy opens as a table. Readers continue; writers wait while
/// changed regions are copied. backup: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_backup(
    table: *const icefield_table,
    path: *const c_char,
    backup: *mut icefield_backup_report,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        check_report(backup, "backup")?;
        let made = table.table.backup(self::path(path, "path")?)?;
        report(backup, icefield_backup_report::from(&made));
        Ok(())
    })
}

/// Copies everything that can still be read to a new table at `path`. salvage: optional. lost: optional; what was not
/// copied, in words, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_salvage(
    table: *const icefield_table,
    path: *const c_char,
    salvage: *mut icefield_salvage_report,
    lost: *mut *mut icefield_texts,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let table = handle(table, "table")?;
        check_report(salvage, "salvage")?;
        let saved = table.table.salvage(self::path(path, "path")?)?;
        report(salvage, icefield_salvage_report::from(&saved));
        icefield_texts::store(saved.lost, &mut optional(lost));
        Ok(())
    })
}

/// Does the same as icefield_table_salvage for the files at `path`, which need not open as a table. Nothing at `path`
/// changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_salvage_files(
    path: *const c_char,
    new_path: *const c_char,
    salvage: *mut icefield_salvage_report,
    lost: *mut *mut icefield_texts,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let (path, new_path) = (self::path(path, "path")?, self::path(new_path, "new_path")?);
        check_report(salvage, "salvage")?;
        let saved = AnyTable::salvage_files(path, new_path)?;
        report(salvage, icefield_salvage_report::from(&saved));
        icefield_texts::store(saved.lost, &mut optional(lost));
        Ok(())
    })
}
