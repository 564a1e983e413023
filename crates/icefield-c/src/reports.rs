//! Reports: structs of numbers, lists of texts and of counters.

use std::ffi::{CString, c_char};
use std::ptr;
use std::time::Duration;

use icefield::{BackupReport, CheckReport, RecoveryReport, SalvageReport, Stats};

use crate::error::c_string;
use crate::options::durability_code;
use crate::pointers::{Out, Versioned};

/// Sizes of a table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_stats {
    /// sizeof(icefield_stats).
    pub struct_size: usize,
    /// The estimated number of records.
    pub len_estimate: u64,
    /// The number of records that fit before the table must grow.
    pub capacity: u64,
    /// The total length of the table's files or memory regions, in bytes.
    pub storage_bytes: u64,
    /// The memory that the table uses in addition, in bytes.
    pub dram_bytes: u64,
    /// ICEFIELD_DURABILITY_...: the medium.
    pub durability: u32,
    /// 0.
    pub reserved: u32,
}

/// The result of opening a table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_recovery_report {
    /// sizeof(icefield_recovery_report).
    pub struct_size: usize,
    /// The number of times that the table has been opened, or the present generation of a join index.
    pub generation: u64,
    /// The number of interrupted structure changes that opening completed or undid.
    pub resolved: u64,
    /// The duration of the opening in nanoseconds.
    pub open_ns: u64,
    /// 1 if the table had been closed cleanly, else 0.
    pub was_clean: u32,
    /// 0.
    pub reserved: u32,
}

/// The result of a check.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_check_report {
    /// sizeof(icefield_check_report).
    pub struct_size: usize,
    /// The number of records seen.
    pub records: u64,
    /// The number of blocks that belong neither to the table nor to a free list. Each is a fault.
    pub leaked: u64,
    /// The number of faults that are listed, at most 101.
    pub faults: u64,
    /// 1 if there is no fault and no leaked block, else 0.
    pub is_clean: u32,
    /// 0.
    pub reserved: u32,
}

/// The result of a backup.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_backup_report {
    /// sizeof(icefield_backup_report).
    pub struct_size: usize,
    /// The number of bytes copied.
    pub bytes: u64,
    /// The time for which writers waited, in nanoseconds.
    pub pause_ns: u64,
}

/// The result of a salvage.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct icefield_salvage_report {
    /// sizeof(icefield_salvage_report).
    pub struct_size: usize,
    /// The number of records copied to the new table.
    pub records: u64,
    /// The number of parts that were not copied.
    pub lost: u64,
}

// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_stats {}
// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_recovery_report {}
// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_check_report {}
// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_backup_report {}
// SAFETY: integers without padding, first a `usize`.
unsafe impl Versioned for icefield_salvage_report {}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl From<&Stats> for icefield_stats {
    fn from(stats: &Stats) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            len_estimate: stats.len_estimate,
            capacity: stats.capacity,
            storage_bytes: stats.storage_bytes,
            dram_bytes: stats.dram_bytes,
            durability: durability_code(stats.durability),
            reserved: 0,
        }
    }
}

impl From<&RecoveryReport> for icefield_recovery_report {
    fn from(report: &RecoveryReport) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            generation: report.generation,
            resolved: report.resolved,
            open_ns: nanoseconds(report.open_time),
            was_clean: u32::from(report.was_clean),
            reserved: 0,
        }
    }
}

impl From<&CheckReport> for icefield_check_report {
    fn from(report: &CheckReport) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            records: report.records,
            leaked: report.leaked,
            faults: report.faults.len() as u64,
            is_clean: u32::from(report.is_clean()),
            reserved: 0,
        }
    }
}

impl From<&BackupReport> for icefield_backup_report {
    fn from(report: &BackupReport) -> Self {
        let (bytes, pause_ns) = (report.bytes, nanoseconds(report.pause));
        Self { struct_size: size_of::<Self>(), bytes, pause_ns }
    }
}

impl From<&SalvageReport> for icefield_salvage_report {
    fn from(report: &SalvageReport) -> Self {
        let (records, lost) = (report.records, report.lost.len() as u64);
        Self { struct_size: size_of::<Self>(), records, lost }
    }
}

/// A list of texts: the faults that a check found, or the parts that a salvage lost.
pub struct icefield_texts(Vec<CString>);

impl icefield_texts {
    /// Stores a new list in the caller's variable if the caller wants one.
    pub(crate) fn store(texts: Vec<String>, place: &mut Out<'_, *mut Self>) {
        if place.is_wanted() {
            let texts = texts.into_iter().map(c_string).collect();
            place.set(0, Box::into_raw(Box::new(Self(texts))));
        }
    }
}

/// Returns the number of texts; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_texts_len(texts: *const icefield_texts) -> usize {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    unsafe { texts.as_ref() }.map_or(0, |texts| texts.0.len())
}

/// Returns the text at `index`, which belongs to the list; NULL for a NULL list or an index beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_texts_get(
    texts: *const icefield_texts,
    index: usize,
) -> *const c_char {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    let texts = unsafe { texts.as_ref() };
    texts.and_then(|texts| texts.0.get(index)).map_or(ptr::null(), |text| text.as_ptr())
}

/// Frees a list and sets the variable to NULL. Does nothing if `texts` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_texts_free(texts: *mut *mut icefield_texts) {
    // SAFETY: the caller passes the address of a variable, or null.
    unsafe { crate::objects::free(texts) };
}

/// A list of named counters, which depend on the design of the table and on the library's version.
pub struct icefield_counters(Vec<(CString, u64)>);

impl icefield_counters {
    /// Stores a new list in the caller's variable if the caller wants one.
    pub(crate) fn store(counters: &[(&'static str, u64)], place: &mut Out<'_, *mut Self>) {
        if place.is_wanted() {
            let counters = counters.iter().map(|&(name, count)| (c_string(name), count)).collect();
            place.set(0, Box::into_raw(Box::new(Self(counters))));
        }
    }
}

/// Returns the number of counters; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_counters_len(counters: *const icefield_counters) -> usize {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    unsafe { counters.as_ref() }.map_or(0, |counters| counters.0.len())
}

/// Returns the name of the counter at `index`, which belongs to the list; NULL for a NULL list or an index beyond its
/// end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_counters_name(
    counters: *const icefield_counters,
    index: usize,
) -> *const c_char {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    let counters = unsafe { counters.as_ref() };
    counters
        .and_then(|counters| counters.0.get(index))
        .map_or(ptr::null(), |(name, _)| name.as_ptr())
}

/// Returns the counter at `index`; 0 for a NULL list or an index beyond its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_counters_value(
    counters: *const icefield_counters,
    index: usize,
) -> u64 {
    // SAFETY: the pointer is null or that of a list that has not been freed.
    let counters = unsafe { counters.as_ref() };
    counters.and_then(|counters| counters.0.get(index)).map_or(0, |&(_, count)| count)
}

/// Frees a list and sets the variable to NULL. Does nothing if `counters` or the variable is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_counters_free(counters: *mut *mut icefield_counters) {
    // SAFETY: the caller passes the address of a variable, or null.
    unsafe { crate::objects::free(counters) };
}
