//! The part of RocksDB's C interface (`rocksdb/c.h`) that is used here.

use std::ffi::{c_char, c_int, c_uchar, c_void};

/// Declares opaque types of RocksDB.
macro_rules! opaque {
    ($($name:ident),+) => {
        $(
            #[repr(C)]
            pub struct $name {
                _inside: [u8; 0],
            }
        )+
    };
}

opaque!(
    Batch,
    Column,
    Db,
    Options,
    ReadOptions,
    Slice,
    Transaction,
    TransactionDb,
    TransactionOptions,
    WriteOptions
);

pub const NO_COMPRESSION: c_int = 0;

// SAFETY: the declarations match those of the header, including `const`. An error is null, or the caller frees it with
// `rocksdb_free`.
unsafe extern "C" {
    pub fn rocksdb_options_create() -> *mut Options;
    pub fn rocksdb_options_destroy(options: *mut Options);
    pub fn rocksdb_options_set_create_if_missing(options: *mut Options, yes: c_uchar);
    pub fn rocksdb_options_set_compression(options: *mut Options, kind: c_int);
    pub fn rocksdb_options_increase_parallelism(options: *mut Options, threads: c_int);
    pub fn rocksdb_options_optimize_for_point_lookup(options: *mut Options, cache_mib: u64);

    pub fn rocksdb_optimistictransactiondb_open_column_families(
        options: *const Options,
        name: *const c_char,
        columns: c_int,
        column_names: *const *const c_char,
        column_options: *const *const Options,
        handles: *mut *mut Column,
        error: *mut *mut c_char,
    ) -> *mut TransactionDb;
    pub fn rocksdb_optimistictransactiondb_close(db: *mut TransactionDb);
    pub fn rocksdb_optimistictransactiondb_get_base_db(db: *mut TransactionDb) -> *mut Db;
    pub fn rocksdb_optimistictransactiondb_close_base_db(base: *mut Db);
    pub fn rocksdb_column_family_handle_destroy(column: *mut Column);

    pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, yes: c_uchar);
    pub fn rocksdb_optimistictransaction_options_create() -> *mut TransactionOptions;
    pub fn rocksdb_optimistictransaction_options_destroy(options: *mut TransactionOptions);

    pub fn rocksdb_writebatch_create() -> *mut Batch;
    pub fn rocksdb_writebatch_destroy(batch: *mut Batch);
    pub fn rocksdb_writebatch_put(
        batch: *mut Batch,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    pub fn rocksdb_write(
        db: *mut Db,
        options: *const WriteOptions,
        batch: *mut Batch,
        error: *mut *mut c_char,
    );

    pub fn rocksdb_batched_multi_get_cf(
        db: *mut Db,
        options: *const ReadOptions,
        column: *mut Column,
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut Slice,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    pub fn rocksdb_pinnableslice_value(slice: *const Slice, len: *mut usize) -> *const c_char;
    pub fn rocksdb_pinnableslice_destroy(slice: *mut Slice);

    pub fn rocksdb_optimistictransaction_begin(
        db: *mut TransactionDb,
        write: *const WriteOptions,
        options: *const TransactionOptions,
        old: *mut Transaction,
    ) -> *mut Transaction;
    pub fn rocksdb_transaction_get_pinned_for_update(
        transaction: *mut Transaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut Slice;
    pub fn rocksdb_transaction_put(
        transaction: *mut Transaction,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_transaction_delete(
        transaction: *mut Transaction,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_transaction_commit(transaction: *mut Transaction, error: *mut *mut c_char);
    pub fn rocksdb_transaction_destroy(transaction: *mut Transaction);

    pub fn rocksdb_free(memory: *mut c_void);
}
