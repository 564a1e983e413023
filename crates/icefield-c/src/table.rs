//! Durable tables of any design and types: creation, opening, closing, names.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use icefield::{AnyTable, AnyWords};

use crate::error::icefield_status::{self, ICEFIELD_TYPE_MISMATCH};
use crate::error::{Failure, c_string, icefield_error};
use crate::options::icefield_table_options;
use crate::pointers::{options, out, path, text};

/// A durable table, open for reading and writing or for reading only.
pub struct icefield_table {
    pub(crate) table: AnyTable,
    /// The texts that the functions at the end of this file return.
    design: CString,
    key_type: CString,
    value_type: CString,
    path: CString,
}

impl icefield_table {
    fn new(table: AnyTable) -> *mut Self {
        let (design, key_type, value_type) =
            (c_string(table.design()), c_string(table.key_type()), c_string(table.value_type()));
        let path = c_string(table.path().as_os_str().as_bytes());
        Box::into_raw(Box::new(Self { table, design, key_type, value_type, path }))
    }

    /// Returns the table's calls on words.
    #[inline(always)]
    pub(crate) fn words(&self) -> Result<AnyWords<'_>, Failure> {
        self.table.words().ok_or_else(|| self.not_of_words())
    }

    #[cold]
    fn not_of_words(&self) -> Failure {
        let (key, value) = (self.table.key_type(), self.table.value_type());
        let text = format!("this is a table of {key} and {value}, not of words of 8 bytes");
        Failure::new(ICEFIELD_TYPE_MISMATCH, format!("{text}; use the calls that take bytes"))
    }
}

/// Creates a table at `path`, where nothing but an empty directory may exist.
///
/// design: "dash-eh", "dash-lh", "iceberg" or "plush". key_type, value_type: "u64", "i64", "bytes", "str" and the other
/// types of docs/c.md. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_create(
    path: *const c_char,
    design: *const c_char,
    key_type: *const c_char,
    value_type: *const c_char,
    options: *const icefield_table_options,
    table: *mut *mut icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let mut table = out(table, "table")?;
        let (path, design) = (self::path(path, "path")?, text(design, "design")?);
        let (key, value) = (text(key_type, "key_type")?, text(value_type, "value_type")?);
        let options = self::options(options, "options")?.checked()?;
        let made = AnyTable::create(path, design, key, value, &options)?;
        table.set(0, icefield_table::new(made));
        Ok(())
    })
}

/// Opens the table at `path` for reading and writing, after a crash or a clean close. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_open(
    path: *const c_char,
    options: *const icefield_table_options,
    table: *mut *mut icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let mut table = out(table, "table")?;
        let options = self::options(options, "options")?.checked()?;
        let opened = AnyTable::open_with(self::path(path, "path")?, &options)?;
        table.set(0, icefield_table::new(opened));
        Ok(())
    })
}

/// Opens the table at `path` for reading. Nothing in its directory is modified. options: optional.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_open_read_only(
    path: *const c_char,
    options: *const icefield_table_options,
    table: *mut *mut icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    guarded!(error, {
        let mut table = out(table, "table")?;
        let options = self::options(options, "options")?.checked()?;
        let opened = AnyTable::open_read_only_with(self::path(path, "path")?, &options)?;
        table.set(0, icefield_table::new(opened));
        Ok(())
    })
}

/// Closes a table and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_close(
    table: *mut *mut icefield_table,
    error: *mut *mut icefield_error,
) -> icefield_status {
    // SAFETY: the caller passes the address of a handle's variable.
    unsafe { crate::objects::close(table, error) }
}

/// Returns a text of a table, or null.
///
/// # Safety
/// `table` is null or an open table.
unsafe fn text_of(
    table: *const icefield_table,
    text: impl FnOnce(&icefield_table) -> &CString,
) -> *const c_char {
    // SAFETY: as this function.
    unsafe { table.as_ref() }.map_or(ptr::null(), |table| text(table).as_ptr())
}

/// Returns the name of the design. The text belongs to the table. Returns NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_design(table: *const icefield_table) -> *const c_char {
    // SAFETY: the caller passes an open table or null.
    unsafe { text_of(table, |table| &table.design) }
}

/// Returns the name of the key type. The text belongs to the table. Returns NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_key_type(table: *const icefield_table) -> *const c_char {
    // SAFETY: the caller passes an open table or null.
    unsafe { text_of(table, |table| &table.key_type) }
}

/// Returns the name of the value type. The text belongs to the table. Returns NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_value_type(table: *const icefield_table) -> *const c_char {
    // SAFETY: the caller passes an open table or null.
    unsafe { text_of(table, |table| &table.value_type) }
}

/// Returns the table's directory. The text belongs to the table. Returns NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn icefield_table_path(table: *const icefield_table) -> *const c_char {
    // SAFETY: the caller passes an open table or null.
    unsafe { text_of(table, |table| &table.path) }
}
