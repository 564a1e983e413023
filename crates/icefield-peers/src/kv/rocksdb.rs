//! RocksDB, through its C interface: a log-structured merge tree with a write-ahead log and any number of writers.
//!
//! The options are the defaults, with these exceptions: options that RocksDB's documentation recommends for point
//! lookups, background work on all processors, and no compression, because records have only 16 bytes. Puts are write
//! batches. Calls that read before they write are optimistic transactions, which are repeated after a conflict. They
//! add no cost to puts.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::rocksdb_c as c;
use super::store::{Outcome, Store};
use crate::{Found, Writes};

/// The size of the block cache.
const CACHE_MIB: u64 = 1024;

/// Prefixes of the errors of a transaction that conflicts with another one.
const CONFLICTS: [&str; 2] = ["Resource busy", "Operation failed. Try again."];

pub(super) struct RocksDb {
    db: *mut c::TransactionDb,
    /// The same database, for calls without a transaction.
    base: *mut c::Db,
    column: *mut c::Column,
    options: *mut c::Options,
    read: *mut c::ReadOptions,
    write: *mut c::WriteOptions,
    optimistic: *mut c::TransactionOptions,
}

// SAFETY: any number of threads may use a database; its options do not change while it is open.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: the pointers come from `new` and `open`, and each is freed once. No transaction is left, because a
        // transaction borrows the store. If `open` failed, the pointers that it did not set are null.
        unsafe {
            if !self.column.is_null() {
                c::rocksdb_column_family_handle_destroy(self.column);
            }
            if !self.base.is_null() {
                c::rocksdb_optimistictransactiondb_close_base_db(self.base);
            }
            if !self.db.is_null() {
                c::rocksdb_optimistictransactiondb_close(self.db);
            }
            c::rocksdb_optimistictransaction_options_destroy(self.optimistic);
            c::rocksdb_writeoptions_destroy(self.write);
            c::rocksdb_readoptions_destroy(self.read);
            c::rocksdb_options_destroy(self.options);
        }
    }
}

/// Calls a function with a slot for its error. Returns the error if there is one, otherwise the function's result.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Outcome<T> {
    let mut error = ptr::null_mut();
    let answer = call(&raw mut error);
    told(error).map_or(Ok(answer), |text| Err(text.into()))
}

/// Returns the text of an error and frees it, or `None` for a null pointer.
fn told(error: *mut c_char) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: a string that RocksDB has allocated for the caller.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: as above; the text has been copied.
    unsafe { c::rocksdb_free(error.cast()) };
    Some(text)
}

/// Passes the value in a slice to `show` and frees it. Returns `None` if the record is absent.
fn shown<T>(slice: *mut c::Slice, show: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if slice.is_null() {
        return None;
    }
    let mut len = 0;
    // SAFETY: the slice belongs to the caller, and its bytes stay until it is destroyed.
    unsafe {
        let start = c::rocksdb_pinnableslice_value(slice, &raw mut len);
        let shown = show(std::slice::from_raw_parts(start.cast::<u8>(), len));
        c::rocksdb_pinnableslice_destroy(slice);
        Some(shown)
    }
}

/// Returns the word in a slice and frees it; `None` if the record is absent.
fn value_in(slice: *mut c::Slice) -> Outcome<Option<u64>> {
    let value = shown(slice, |bytes| <[u8; 8]>::try_from(bytes)).transpose()?;
    Ok(value.map(u64::from_be_bytes))
}

impl RocksDb {
    /// Creates the options, without a database.
    fn new(writes: Writes) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as i32);
        // SAFETY: the options are allocated here and not shared yet.
        unsafe {
            let options = c::rocksdb_options_create();
            c::rocksdb_options_set_create_if_missing(options, 1);
            c::rocksdb_options_set_compression(options, c::NO_COMPRESSION);
            c::rocksdb_options_increase_parallelism(options, threads);
            c::rocksdb_options_optimize_for_point_lookup(options, CACHE_MIB);
            let write = c::rocksdb_writeoptions_create();
            c::rocksdb_writeoptions_set_sync(write, u8::from(writes == Writes::Durable));
            Self {
                db: ptr::null_mut(),
                base: ptr::null_mut(),
                column: ptr::null_mut(),
                options,
                read: c::rocksdb_readoptions_create(),
                write,
                optimistic: c::rocksdb_optimistictransaction_options_create(),
            }
        }
    }

    /// Runs `act` with the index of each key whose presence equals `present`, in one transaction. Returns the
    /// number of these keys. Starts again after a conflict with another transaction.
    fn each(
        &self,
        keys: &[u64],
        present: bool,
        act: impl Fn(&Transaction<'_>, usize) -> Outcome<()>,
    ) -> Outcome<u64> {
        let all = |transaction: &Transaction<'_>| -> Outcome<u64> {
            let mut count = 0;
            for (at, key) in keys.iter().enumerate() {
                if transaction.get(*key)?.is_some() == present {
                    act(transaction, at)?;
                    count += 1;
                }
            }
            transaction.commit().map(|()| count)
        };
        loop {
            match all(&Transaction::begin(self)) {
                Err(error) if conflicts(&error.to_string()) => {}
                done => return done,
            }
        }
    }
}

impl RocksDb {
    /// Stores records in one write batch. Returns their number.
    fn put_all(
        &self,
        records: impl Iterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>,
    ) -> Outcome<u64> {
        let mut count = 0;
        // SAFETY: the batch is local and copies keys and values.
        checked(|error| unsafe {
            let batch = c::rocksdb_writebatch_create();
            for (key, value) in records {
                let (key, value) = (key.as_ref(), value.as_ref());
                let (start, value_start) = (key.as_ptr().cast(), value.as_ptr().cast());
                c::rocksdb_writebatch_put(batch, start, key.len(), value_start, value.len());
                count += 1;
            }
            c::rocksdb_write(self.base, self.write, batch, error);
            c::rocksdb_writebatch_destroy(batch);
        })?;
        Ok(count)
    }

    /// Looks up all keys in one call. Returns a slice for each, null if the key is absent. The caller frees the slices.
    fn get_all(&self, keys: &[impl AsRef<[u8]>]) -> Outcome<Vec<*mut c::Slice>> {
        let starts: Vec<*const c_char> =
            keys.iter().map(|key| key.as_ref().as_ptr().cast()).collect();
        let lens: Vec<usize> = keys.iter().map(|key| key.as_ref().len()).collect();
        let mut values = vec![ptr::null_mut(); keys.len()];
        let mut errors = vec![ptr::null_mut(); keys.len()];
        // SAFETY: the arrays have the length that is passed, and outlive the call.
        unsafe {
            c::rocksdb_batched_multi_get_cf(
                self.base,
                self.read,
                self.column,
                keys.len(),
                starts.as_ptr(),
                lens.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
        }
        let failed = errors.into_iter().fold(None, |other, error| told(error).or(other));
        let Some(error) = failed else { return Ok(values) };
        for slice in values {
            shown(slice, |_| ());
        }
        Err(error.into())
    }
}

fn conflicts(error: &str) -> bool {
    CONFLICTS.iter().any(|start| error.starts_with(start))
}

/// An optimistic transaction, rolled back unless it is committed.
struct Transaction<'a> {
    store: &'a RocksDb,
    transaction: *mut c::Transaction,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `begin`, destroyed once.
        unsafe { c::rocksdb_transaction_destroy(self.transaction) };
    }
}

impl<'a> Transaction<'a> {
    fn begin(store: &'a RocksDb) -> Self {
        let RocksDb { db, write, optimistic, .. } = *store;
        // SAFETY: database and options live as long as the store, which outlives the transaction.
        let transaction = unsafe {
            c::rocksdb_optimistictransaction_begin(db, write, optimistic, ptr::null_mut())
        };
        Self { store, transaction }
    }

    /// Returns the value of `key`. A change by another transaction before the end of this one is a conflict.
    fn get(&self, key: u64) -> Outcome<Option<u64>> {
        let (key, read) = (key.to_be_bytes(), self.store.read);
        // SAFETY: the key outlives the call.
        let slice = checked(|error| unsafe {
            let key = key.as_ptr().cast();
            c::rocksdb_transaction_get_pinned_for_update(self.transaction, read, key, 8, 1, error)
        })?;
        value_in(slice)
    }

    fn put(&self, key: u64, value: u64) -> Outcome<()> {
        let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
        // SAFETY: key and value outlive the call, which copies them.
        checked(|error| unsafe {
            let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
            c::rocksdb_transaction_put(self.transaction, key, 8, value, 8, error);
        })
    }

    fn delete(&self, key: u64) -> Outcome<()> {
        let key = key.to_be_bytes();
        // SAFETY: the key outlives the call, which copies it.
        checked(|error| unsafe {
            c::rocksdb_transaction_delete(self.transaction, key.as_ptr().cast(), 8, error);
        })
    }

    fn commit(&self) -> Outcome<()> {
        // SAFETY: created by `begin` and not yet destroyed.
        checked(|error| unsafe { c::rocksdb_transaction_commit(self.transaction, error) })
    }
}

impl Store for RocksDb {
    const NAME: &'static str = "rocksdb";

    fn open(dir: &Path, writes: Writes) -> Outcome<Self> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let mut store = Self::new(writes);
        let (names, options) = ([c"default".as_ptr()], [store.options.cast_const()]);
        let (path, names, columns) = (path.as_ptr(), names.as_ptr(), options.as_ptr());
        let handle = &raw mut store.column;
        // SAFETY: one name, one set of options, one slot for a handle; all outlive the call.
        store.db = checked(|error| unsafe {
            c::rocksdb_optimistictransactiondb_open_column_families(
                options[0], path, 1, names, columns, handle, error,
            )
        })?;
        // SAFETY: the database has just been opened.
        store.base = unsafe { c::rocksdb_optimistictransactiondb_get_base_db(store.db) };
        Ok(store)
    }

    fn put(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        let bytes = |word: &u64| word.to_be_bytes();
        self.put_all(keys.iter().map(bytes).zip(values.iter().map(bytes)))
    }

    fn insert(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.each(keys, false, |transaction, at| transaction.put(keys[at], values[at]))
    }

    fn get(&self, keys: &[u64]) -> Outcome<Found> {
        let words: Vec<[u8; 8]> = keys.iter().map(|key| key.to_be_bytes()).collect();
        // Convert all values, even after an error, because the conversion frees them.
        let values: Vec<_> = self.get_all(&words)?.into_iter().map(value_in).collect();
        let mut found = Found::default();
        for value in values {
            if let Some(value) = value? {
                found.take(value);
            }
        }
        Ok(found)
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.each(keys, true, |transaction, at| transaction.put(keys[at], values[at]))
    }

    fn remove(&self, keys: &[u64]) -> Outcome<u64> {
        self.each(keys, true, |transaction, at| transaction.delete(keys[at]))
    }

    fn put_bytes(&self, keys: &[&[u8]], values: &[&[u8]]) -> Outcome<u64> {
        self.put_all(keys.iter().zip(values))
    }

    fn get_bytes(&self, keys: &[&[u8]], found: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        for slice in self.get_all(keys)? {
            shown(slice, &mut *found);
        }
        Ok(())
    }
}
