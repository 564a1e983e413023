/* icefield.h: Icefield's crash-safe concurrent hash tables for C and C++. docs/c.md is the guide.
 *
 * Generated from crates/icefield-c/src by cbindgen; do not edit.
 *
 * RULES FOR ALL CALLS
 *
 * Results. A call that can fail returns an icefield_status: ICEFIELD_OK (0), or the reason. Results are stored through
 * the pointers passed for them if the call succeeds; after an error, only those that the call's comment names. A pointer to a result that is described as optional may be
 * NULL. An absent key is not an error: `present` is set to 0.
 *
 * Errors. The last parameter is NULL, or the address of an icefield_error pointer. If the call fails, it stores a new
 * error object there, which the caller frees with icefield_error_free. If the call succeeds, it leaves the pointer
 * unchanged. A panic inside the library is caught and returned as ICEFIELD_PANIC.
 *
 * Pointers. A NULL handle, a NULL pointer to a required result, and a NULL array with a count above 0 are errors
 * (ICEFIELD_NULL_POINTER). An array with a count of 0 may be NULL. Arrays of results must not overlap other arguments.
 * Strings end with a 0 byte. Paths are bytes as the system takes them; all other strings are UTF-8.
 *
 * Structs that begin with `struct_size`: set it to sizeof the struct and all other fields to 0 before a call, options
 * and results alike. This lets later versions add fields.
 *
 * Handles. A close or free function takes the address of the handle's variable and sets the variable to NULL, so a
 * second close of the same variable does nothing, and another use of it is ICEFIELD_NULL_POINTER. Copies of the handle
 * are not tracked: using one after the close, or closing during another call on the handle, is undefined behaviour.
 *
 * Threads. Handles of tables (icefield_table, icefield_dlht, icefield_join) may be used by any number of threads at
 * once, except for close. Other objects belong to one thread at a time. Handles are
 * independent of one another.
 *
 * Fork. In a forked child, changing a table on a medium is refused with ICEFIELD_FORKED; see docs/c.md.
 */


#ifndef ICEFIELD_H
#define ICEFIELD_H

#include <stddef.h>
#include <stdint.h>

/*
 `durability`: ICEFIELD_DURABILITY_PMEM where the system grants it, otherwise ICEFIELD_DURABILITY_PROCESS.
 */
#define ICEFIELD_DURABILITY_AUTO 0

/*
 `durability`: nothing survives; memory without files.
 */
#define ICEFIELD_DURABILITY_MEMORY 1

/*
 `durability`: survives the death of the process, but not a power failure.
 */
#define ICEFIELD_DURABILITY_PROCESS 2

/*
 `durability`: survives a power failure; persistent memory.
 */
#define ICEFIELD_DURABILITY_PMEM 3

/*
 `durability`: the instructions of ICEFIELD_DURABILITY_PMEM on any file, for tests and measurements.
 */
#define ICEFIELD_DURABILITY_PMEM_FORCED 4

/*
 `durability`: survives a power failure on SSDs and disks.
 */
#define ICEFIELD_DURABILITY_DISK 5

/*
 `sync_mode` with ICEFIELD_DURABILITY_DISK: a write returns after its sync.
 */
#define ICEFIELD_SYNC_ALWAYS 0

/*
 `sync_mode`: a write returns at once, and is synced at most `sync_interval_ms` milliseconds later.
 */
#define ICEFIELD_SYNC_EVERY 1

/*
 `sync_mode`: a write returns at once, and is synced by icefield_table_sync and when the table is closed.
 */
#define ICEFIELD_SYNC_NEVER 2

/*
 `hash` of an icefield_dlht: a keyed hash, which resists chosen keys.
 */
#define ICEFIELD_HASH_STRONG 0

/*
 `hash`: the key modulo the number of bins; the fastest for dense keys.
 */
#define ICEFIELD_HASH_MODULO 1

/*
 `hash`: the key times a constant; for keys that are hashes or random.
 */
#define ICEFIELD_HASH_MULTIPLIED 2

/*
 The cursor of a table's beginning.
 */
#define ICEFIELD_CURSOR_START 0

/*
 The major version of the ABI that this header describes.
 */
#define ICEFIELD_ABI_MAJOR 0

/*
 The minor version of the ABI that this header describes.
 */
#define ICEFIELD_ABI_MINOR 1

/*
 The outcome of a call. Codes keep their numbers in all versions; later versions may add codes.
 */
enum icefield_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /*
     The call succeeded.
     */
    ICEFIELD_OK = 0,
    /*
     A system call failed; icefield_error_os_code returns its errno.
     */
    ICEFIELD_IO = 1,
    /*
     The content of a file is invalid.
     */
    ICEFIELD_CORRUPT = 2,
    /*
     Another process, or another handle of this process, has the table open.
     */
    ICEFIELD_LOCKED = 3,
    /*
     The table has another design, or other key or value types.
     */
    ICEFIELD_TYPE_MISMATCH = 4,
    /*
     The table has another version of the file format.
     */
    ICEFIELD_FORMAT_VERSION = 5,
    /*
     The directory holds no table.
     */
    ICEFIELD_NOT_FOUND = 6,
    /*
     Something is at the path of a new table.
     */
    ICEFIELD_ALREADY_EXISTS = 7,
    /*
     The file system, or the table's max_bytes, has no room left.
     */
    ICEFIELD_NO_SPACE = 8,
    /*
     A table of fixed size has no slot left for the key.
     */
    ICEFIELD_FULL = 9,
    /*
     A shadow insert holds the key.
     */
    ICEFIELD_SHADOWED = 10,
    /*
     The system has no memory for a larger table.
     */
    ICEFIELD_NO_MEMORY = 11,
    /*
     The key is longer than the design can store.
     */
    ICEFIELD_KEY_TOO_LONG = 12,
    /*
     The value is longer than the design can store.
     */
    ICEFIELD_VALUE_TOO_LONG = 13,
    /*
     The table is open for reading only.
     */
    ICEFIELD_READ_ONLY = 14,
    /*
     An earlier sync failed; every change fails until the table is opened again.
     */
    ICEFIELD_POISONED = 15,
    /*
     The table was opened by the parent of this process.
     */
    ICEFIELD_FORKED = 16,
    /*
     The design, the medium or the system does not support the operation.
     */
    ICEFIELD_UNSUPPORTED = 17,
    /*
     The delta store of a join index is full, and the index may not merge it automatically.
     */
    ICEFIELD_DELTA_FULL = 18,
    /*
     The source of a join index could not be read.
     */
    ICEFIELD_SOURCE = 19,
    /*
     An argument or an option has an invalid value.
     */
    ICEFIELD_INVALID = 20,
    /*
     A handle or a pointer is NULL that may not be.
     */
    ICEFIELD_NULL_POINTER = 21,
    /*
     A buffer is too small for the result; the length that it needs has been stored.
     */
    ICEFIELD_BUFFER_TOO_SMALL = 22,
    /*
     The library panicked. The table may still be used and closed.
     */
    ICEFIELD_PANIC = 23,
    /*
     An error for which this version has no code.
     */
    ICEFIELD_OTHER = 24,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum icefield_status icefield_status;
#else
typedef int32_t icefield_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A list of named counters, which depend on the design of the table and on the library's version.
 */
typedef struct icefield_counters icefield_counters;

/*
 A map of words in memory.
 */
typedef struct icefield_dlht icefield_dlht;

/*
 An error: a status and a message.
 */
typedef struct icefield_error icefield_error;

/*
 An index for joins: pairs of a key and a payload, which is a word. Keys are words, or bytes of any length, and may
 have many pairs. Calls for keys of the other kind fail with ICEFIELD_TYPE_MISMATCH.
 */
typedef struct icefield_join icefield_join;

/*
 The records of one part of a table, and the cursor of the next part.
 */
typedef struct icefield_page icefield_page;

/*
 The pairs that a probe finds: positions of probe keys, and payloads. A list is used again by later probes, which
 saves memory allocations.
 */
typedef struct icefield_pairs icefield_pairs;

/*
 A durable table, open for reading and writing or for reading only.
 */
typedef struct icefield_table icefield_table;

/*
 A list of texts: the faults that a check found, or the parts that a salvage lost.
 */
typedef struct icefield_texts icefield_texts;

/*
 The values that a call returns, each present or absent. They belong to the caller, until icefield_values_free.
 */
typedef struct icefield_values icefield_values;

/*
 Bytes: `len` bytes from `data` on. `data` may be NULL if `len` is 0.
 */
typedef struct {
    /*
     The first byte.
     */
    const uint8_t *data;
    /*
     The number of bytes.
     */
    size_t len;
} icefield_slice;

/*
 Receives the index of a key and its value, which is valid during the call only. For an absent key, `present` is 0
 and `value` is NULL. The rules of icefield_visit hold.
 */
typedef void (*icefield_visit_each)(void *context,
                                    size_t index,
                                    uint8_t present,
                                    const uint8_t *value,
                                    size_t len);

/*
 A key and its value.
 */
typedef struct {
    /*
     The key.
     */
    icefield_slice key;
    /*
     The value.
     */
    icefield_slice value;
} icefield_record;

/*
 Receives the bytes of a value, which are valid during the call only. It may call the table, except for close. It
 must return: no exception and no longjmp may leave it.
 */
typedef void (*icefield_visit)(void *context, const uint8_t *value, size_t len);

/*
 Options of an icefield_dlht. Fields of 0 have their defaults.
 */
typedef struct {
    /*
     sizeof(icefield_dlht_options).
     */
    size_t struct_size;
    /*
     The number of records that the table takes before it must grow.
     */
    uint64_t capacity;
    /*
     The maximum memory in bytes; 0: no limit.
     */
    uint64_t max_bytes;
    /*
     ICEFIELD_HASH_...: the hash function.
     */
    uint32_t hash;
    /*
     1: the table does not grow; a full table refuses inserts with ICEFIELD_FULL.
     */
    uint32_t fixed_size;
} icefield_dlht_options;

/*
 Sizes of a table.
 */
typedef struct {
    /*
     sizeof(icefield_stats).
     */
    size_t struct_size;
    /*
     The estimated number of records.
     */
    uint64_t len_estimate;
    /*
     The number of records that fit before the table must grow.
     */
    uint64_t capacity;
    /*
     The total length of the table's files or memory regions, in bytes.
     */
    uint64_t storage_bytes;
    /*
     The memory that the table uses in addition, in bytes.
     */
    uint64_t dram_bytes;
    /*
     ICEFIELD_DURABILITY_...: the medium.
     */
    uint32_t durability;
    /*
     0.
     */
    uint32_t reserved;
} icefield_stats;

/*
 Options of an icefield_join. Fields of 0 have their defaults.
 */
typedef struct {
    /*
     sizeof(icefield_join_options).
     */
    size_t struct_size;
    /*
     The maximum size of a generation's files, in bytes; 0: no limit.
     */
    uint64_t max_bytes;
    /*
     The maximum number of changes in the delta store; 0: chosen by the index.
     */
    uint64_t delta_limit;
    /*
     The number of threads of a build, a probe or a merge; 0: all cores.
     */
    uint32_t threads;
    /*
     ICEFIELD_DURABILITY_...: the medium.
     */
    uint32_t durability;
    /*
     The bits of the filter for each key; 0: chosen by the index.
     */
    uint32_t filter_bits_per_key;
    /*
     1: a change is refused with ICEFIELD_DELTA_FULL when the delta store is full. 0: the change merges first.
     */
    uint32_t refuse_when_full;
    /*
     1: opening and probes verify checksums.
     */
    uint32_t verify;
    /*
     1: a build replaces the index that is at the path.
     */
    uint32_t replace;
} icefield_join_options;

/*
 Statistics of a join index.
 */
typedef struct {
    /*
     sizeof(icefield_join_statistics).
     */
    size_t struct_size;
    /*
     The number of pairs.
     */
    uint64_t pairs;
    /*
     The number of pairs in the sealed base.
     */
    uint64_t base_pairs;
    /*
     The number of changes in the delta store since the last merge.
     */
    uint64_t delta_changes;
    /*
     The maximum number of changes in the delta store.
     */
    uint64_t delta_limit;
    /*
     The number of the present generation.
     */
    uint64_t generation;
    /*
     The number of groups of 16 buckets.
     */
    uint64_t groups;
    /*
     The number of groups with more than 255 records.
     */
    uint64_t wide_groups;
    /*
     The bits of the filter for each key.
     */
    uint64_t filter_bits_per_key;
    /*
     The share of absent keys that pass the filter, in a sample, in parts per billion.
     */
    uint64_t filter_pass_ppb;
    /*
     The size of the base's file in bytes.
     */
    uint64_t file_bytes;
    /*
     The memory of the delta store in bytes.
     */
    uint64_t dram_bytes;
    /*
     ICEFIELD_DURABILITY_...: the medium.
     */
    uint32_t durability;
    /*
     0.
     */
    uint32_t reserved;
} icefield_join_statistics;

/*
 The result of opening a table.
 */
typedef struct {
    /*
     sizeof(icefield_recovery_report).
     */
    size_t struct_size;
    /*
     The number of times that the table has been opened, or the present generation of a join index.
     */
    uint64_t generation;
    /*
     The number of interrupted structure changes that opening completed or undid.
     */
    uint64_t resolved;
    /*
     The duration of the opening in nanoseconds.
     */
    uint64_t open_ns;
    /*
     1 if the table had been closed cleanly, else 0.
     */
    uint32_t was_clean;
    /*
     0.
     */
    uint32_t reserved;
} icefield_recovery_report;

/*
 The result of a check.
 */
typedef struct {
    /*
     sizeof(icefield_check_report).
     */
    size_t struct_size;
    /*
     The number of records seen.
     */
    uint64_t records;
    /*
     The number of blocks that belong neither to the table nor to a free list. Each is a fault.
     */
    uint64_t leaked;
    /*
     The number of faults that are listed, at most 101.
     */
    uint64_t faults;
    /*
     1 if there is no fault and no leaked block, else 0.
     */
    uint32_t is_clean;
    /*
     0.
     */
    uint32_t reserved;
} icefield_check_report;

/*
 Returns the hash of a key. The same key must have the same hash in every process. The library also calls it with the
 8 bytes `icefield`, by whose hash an opening recognizes the function, so it must accept keys of any length. The rules
 of icefield_row_has_key hold.
 */
typedef uint64_t (*icefield_hash_bytes)(void *context, const uint8_t *key, size_t len);

/*
 Returns 1 if the row of a payload has the key, otherwise 0. The library calls it for pairs whose hash is that of the
 key. `key` is valid during the call only. Several threads may call it at once; it must not change or close the
 index, and must return: no exception and no longjmp may leave it.
 */
typedef uint8_t (*icefield_row_has_key)(void *context, const uint8_t *key, size_t len, uint64_t payload);

/*
 The result of a merge.
 */
typedef struct {
    /*
     sizeof(icefield_merge_report).
     */
    size_t struct_size;
    /*
     The number of changes that the delta store had.
     */
    uint64_t changes;
    /*
     The number of pairs after the merge.
     */
    uint64_t pairs;
    /*
     The number of the generation after the merge.
     */
    uint64_t generation;
    /*
     The size of the generation's file in bytes.
     */
    uint64_t bytes;
    /*
     The duration of the merge in nanoseconds.
     */
    uint64_t time_ns;
    /*
     1 if the index was rebuilt; 0 if its groups were copied, or nothing was to be done.
     */
    uint32_t was_rebuilt;
    /*
     0.
     */
    uint32_t reserved;
} icefield_merge_report;

/*
 The result of a backup.
 */
typedef struct {
    /*
     sizeof(icefield_backup_report).
     */
    size_t struct_size;
    /*
     The number of bytes copied.
     */
    uint64_t bytes;
    /*
     The time for which writers waited, in nanoseconds.
     */
    uint64_t pause_ns;
} icefield_backup_report;

/*
 Receives the key and the payload of a pair. The rules of icefield_visit hold; the function must not change or close
 the index.
 */
typedef void (*icefield_visit_pair)(void *context, uint64_t key, uint64_t payload);

/*
 Options of an icefield_table. Fields of 0 have their defaults.
 */
typedef struct {
    /*
     sizeof(icefield_table_options).
     */
    size_t struct_size;
    /*
     The number of records that a new table takes before it must grow.
     */
    uint64_t capacity;
    /*
     The maximum total size of the table's files, in bytes; 0: no limit.
     */
    uint64_t max_bytes;
    /*
     With ICEFIELD_SYNC_EVERY: the interval in milliseconds.
     */
    uint64_t sync_interval_ms;
    /*
     ICEFIELD_DURABILITY_...: the medium.
     */
    uint32_t durability;
    /*
     ICEFIELD_SYNC_...: when a write to a disk returns.
     */
    uint32_t sync_mode;
    /*
     1: reads verify the checksums of keys and values that have one.
     */
    uint32_t verify;
    /*
     0.
     */
    uint32_t reserved;
} icefield_table_options;

/*
 The result of a salvage.
 */
typedef struct {
    /*
     sizeof(icefield_salvage_report).
     */
    size_t struct_size;
    /*
     The number of records copied to the new table.
     */
    uint64_t records;
    /*
     The number of parts that were not copied.
     */
    uint64_t lost;
} icefield_salvage_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Gets the values of `count` keys, with overlapping memory latencies. values: a list of `count` values, which the
 caller frees.
 */
icefield_status icefield_table_get_batch(const icefield_table *table,
                                         const icefield_slice *keys,
                                         size_t count,
                                         icefield_values **values,
                                         icefield_error **error);

/*
 Passes the values of `count` keys to `visit`, in order, with overlapping memory latencies. If the call fails,
 `visit` has been called for the keys before the failing one.
 */
icefield_status icefield_table_get_batch_with(const icefield_table *table,
                                              const icefield_slice *keys,
                                              size_t count,
                                              icefield_visit_each visit,
                                              void *context,
                                              icefield_error **error);

/*
 Inserts `count` records or replaces their values, in order; all are durable when the call returns. Nothing is
 changed if a key or value is not valid for the table's types; after another error, the records before the failing
 one are durable.
 */
icefield_status icefield_table_put_batch(const icefield_table *table,
                                         const icefield_record *records,
                                         size_t count,
                                         icefield_error **error);

/*
 As icefield_table_put_batch. previous: optional; a list of the `count` previous values.
 */
icefield_status icefield_table_insert_batch(const icefield_table *table,
                                            const icefield_record *records,
                                            size_t count,
                                            icefield_values **previous,
                                            icefield_error **error);

/*
 Removes `count` keys, with the guarantees of icefield_table_put_batch. previous: optional; a list of the `count`
 removed values.
 */
icefield_status icefield_table_remove_batch(const icefield_table *table,
                                            const icefield_slice *keys,
                                            size_t count,
                                            icefield_values **previous,
                                            icefield_error **error);

/*
 Gets the value of a key into the caller's buffer.

 present: 1 if the key is present, else 0. len: the length of the value; 0 if the key is absent. If the value has
 more than `capacity` bytes, the call fails with ICEFIELD_BUFFER_TOO_SMALL, `buffer` is unchanged, and `len` and
 `present` have been stored. buffer: may be NULL if `capacity` is 0.

 Keys and values of each type have one form in bytes, which docs/c.md lists: integers are little-endian. Bytes of
 another length, and bytes that are not a value of the type, cause ICEFIELD_INVALID.
 */
icefield_status icefield_table_get(const icefield_table *table,
                                   const uint8_t *key,
                                   size_t key_len,
                                   uint8_t *buffer,
                                   size_t capacity,
                                   size_t *len,
                                   uint8_t *present,
                                   icefield_error **error);

/*
 Passes the value of a key to `visit`, if the key is present. No lock is held meanwhile. present: 1 if the key is
 present, else 0.
 */
icefield_status icefield_table_get_with(const icefield_table *table,
                                        const uint8_t *key,
                                        size_t key_len,
                                        icefield_visit visit,
                                        void *context,
                                        uint8_t *present,
                                        icefield_error **error);

/*
 Checks whether a key is present. present: 1 or 0.
 */
icefield_status icefield_table_contains(const icefield_table *table,
                                        const uint8_t *key,
                                        size_t key_len,
                                        uint8_t *present,
                                        icefield_error **error);

/*
 Inserts a key only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
 optional; a list of one value, the present one if there is one.
 */
icefield_status icefield_table_try_insert(const icefield_table *table,
                                          const uint8_t *key,
                                          size_t key_len,
                                          const uint8_t *value,
                                          size_t value_len,
                                          uint8_t *present,
                                          icefield_values **previous,
                                          icefield_error **error);

/*
 Inserts a key or replaces its value. present: optional; 1 if the key was present. previous: optional; a list of one
 value, the previous one if there was one.
 */
icefield_status icefield_table_insert(const icefield_table *table,
                                      const uint8_t *key,
                                      size_t key_len,
                                      const uint8_t *value,
                                      size_t value_len,
                                      uint8_t *present,
                                      icefield_values **previous,
                                      icefield_error **error);

/*
 Inserts a key or replaces its value, without the previous value, which may be faster.
 */
icefield_status icefield_table_put(const icefield_table *table,
                                   const uint8_t *key,
                                   size_t key_len,
                                   const uint8_t *value,
                                   size_t value_len,
                                   icefield_error **error);

/*
 Replaces the value only if the key is present. present: optional; 1 if it was. previous: optional; a list of one
 value, the previous one if there was one.
 */
icefield_status icefield_table_update(const icefield_table *table,
                                      const uint8_t *key,
                                      size_t key_len,
                                      const uint8_t *value,
                                      size_t value_len,
                                      uint8_t *present,
                                      icefield_values **previous,
                                      icefield_error **error);

/*
 Removes a key. present: optional; 1 if it was present. previous: optional; a list of one value, the removed one if
 there was one.
 */
icefield_status icefield_table_remove(const icefield_table *table,
                                      const uint8_t *key,
                                      size_t key_len,
                                      uint8_t *present,
                                      icefield_values **previous,
                                      icefield_error **error);

/*
 Creates an empty map. options: optional.
 */
icefield_status icefield_dlht_create(const icefield_dlht_options *options,
                                     icefield_dlht **dlht,
                                     icefield_error **error);

/*
 Frees a map and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the handle.
 */
icefield_status icefield_dlht_close(icefield_dlht **dlht,
                                    icefield_error **error);

/*
 Gets the value of `key`. present: 1 if the key is present, else 0. value: optional; 0 if the key is absent.
 */
icefield_status icefield_dlht_get(const icefield_dlht *dlht,
                                  uint64_t key,
                                  uint64_t *value,
                                  uint8_t *present,
                                  icefield_error **error);

/*
 Inserts `key` only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
 optional; the present value, or 0.
 */
icefield_status icefield_dlht_try_insert(const icefield_dlht *dlht,
                                         uint64_t key,
                                         uint64_t value,
                                         uint64_t *previous,
                                         uint8_t *present,
                                         icefield_error **error);

/*
 Inserts `key` or replaces its value. present: optional; 1 if the key was present. previous: optional; the previous
 value, or 0.
 */
icefield_status icefield_dlht_insert(const icefield_dlht *dlht,
                                     uint64_t key,
                                     uint64_t value,
                                     uint64_t *previous,
                                     uint8_t *present,
                                     icefield_error **error);

/*
 Replaces the value only if `key` is present. present: optional; 1 if it was. previous: optional; the previous value,
 or 0.
 */
icefield_status icefield_dlht_update(const icefield_dlht *dlht,
                                     uint64_t key,
                                     uint64_t value,
                                     uint64_t *previous,
                                     uint8_t *present,
                                     icefield_error **error);

/*
 Removes `key`. present: optional; 1 if it was present. previous: optional; its value, or 0.
 */
icefield_status icefield_dlht_remove(const icefield_dlht *dlht,
                                     uint64_t key,
                                     uint64_t *previous,
                                     uint8_t *present,
                                     icefield_error **error);

/*
 Adds `delta` to the value of `key`, with wrap-around, in one atomic step; an absent key counts as 0. previous:
 optional; the value before.
 */
icefield_status icefield_dlht_fetch_add(const icefield_dlht *dlht,
                                        uint64_t key,
                                        uint64_t delta,
                                        uint64_t *previous,
                                        icefield_error **error);

/*
 Replaces the value of `key` by `value` if it is `expected`, in one atomic step. exchanged: 1 if it was replaced,
 else 0. found: optional; the value that the key had, or 0 if it is absent.
 */
icefield_status icefield_dlht_compare_exchange(const icefield_dlht *dlht,
                                               uint64_t key,
                                               uint64_t expected,
                                               uint64_t value,
                                               uint8_t *exchanged,
                                               uint64_t *found,
                                               icefield_error **error);

/*
 Gets the number of records.
 */
icefield_status icefield_dlht_len(const icefield_dlht *dlht, uint64_t *len, icefield_error **error);

/*
 Gets sizes, in constant time. stats: optional. counters: optional; further counters, which the caller frees.
 */
icefield_status icefield_dlht_stats(const icefield_dlht *dlht,
                                    icefield_stats *stats,
                                    icefield_counters **counters,
                                    icefield_error **error);

/*
 Reads about `n` records from `*cursor` on, and stores the cursor of the next part in `*cursor`. The first cursor is
 ICEFIELD_CURSOR_START.

 keys, values: arrays of `capacity` results. len: the number of records. If it exceeds `capacity`, the call fails
 with ICEFIELD_BUFFER_TOO_SMALL, and only `len` has been stored; a `capacity` of n + 64 is enough in most cases.
 has_next: 0 after the last part, else 1.
 */
icefield_status icefield_dlht_scan(const icefield_dlht *dlht,
                                   uint64_t *cursor,
                                   size_t n,
                                   uint64_t *keys,
                                   uint64_t *values,
                                   size_t capacity,
                                   size_t *len,
                                   uint8_t *has_next,
                                   icefield_error **error);

/*
 Removes every record.
 */
icefield_status icefield_dlht_clear(const icefield_dlht *dlht, icefield_error **error);

/*
 Makes room for `additional` more records.
 */
icefield_status icefield_dlht_reserve(const icefield_dlht *dlht, uint64_t additional, icefield_error **error);

/*
 Frees memory that the records do not need.
 */
icefield_status icefield_dlht_shrink_to_fit(const icefield_dlht *dlht, icefield_error **error);

/*
 Gets the values of `count` keys, with overlapping memory latencies: the fast way to read. values, present: arrays of
 `count` results as of icefield_dlht_get; `values` is optional.
 */
icefield_status icefield_dlht_get_batch(const icefield_dlht *dlht,
                                        const uint64_t *keys,
                                        size_t count,
                                        uint64_t *values,
                                        uint8_t *present,
                                        icefield_error **error);

/*
 Calls icefield_dlht_try_insert for `count` keys and values in order. previous, present: optional arrays of `count`
 results. If the call fails, some of the operations have run.
 */
icefield_status icefield_dlht_try_insert_batch(const icefield_dlht *dlht,
                                               const uint64_t *keys,
                                               const uint64_t *values,
                                               size_t count,
                                               uint64_t *previous,
                                               uint8_t *present,
                                               icefield_error **error);

/*
 Calls icefield_dlht_insert for `count` keys and values in order, as icefield_dlht_try_insert_batch does.
 */
icefield_status icefield_dlht_insert_batch(const icefield_dlht *dlht,
                                           const uint64_t *keys,
                                           const uint64_t *values,
                                           size_t count,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Calls icefield_dlht_update for `count` keys and values in order, as icefield_dlht_try_insert_batch does.
 */
icefield_status icefield_dlht_update_batch(const icefield_dlht *dlht,
                                           const uint64_t *keys,
                                           const uint64_t *values,
                                           size_t count,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Calls icefield_dlht_remove for `count` keys in order, as icefield_dlht_try_insert_batch does.
 */
icefield_status icefield_dlht_remove_batch(const icefield_dlht *dlht,
                                           const uint64_t *keys,
                                           size_t count,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Returns the status of an error; ICEFIELD_NULL_POINTER for NULL.
 */
icefield_status icefield_error_status(const icefield_error *error);

/*
 Returns the message of an error: what happened, where, and what to do. The text belongs to the error. Returns "" for
 NULL.
 */
const char *icefield_error_message(const icefield_error *error);

/*
 Returns the errno of an error with the status ICEFIELD_IO; otherwise 0.
 */
int32_t icefield_error_os_code(const icefield_error *error);

/*
 Frees an error and sets the variable to NULL. Does nothing if `error` or the variable is NULL.
 */
void icefield_error_free(icefield_error **error);

/*
 Returns the name of a status, for example "ICEFIELD_LOCKED"; "ICEFIELD_OTHER" for an unknown number.
 */
const char *icefield_status_name(int32_t status);

/*
 Builds an index of `count` pairs at `path`, where nothing but an empty directory may exist, unless `replace` is 1.
 options: optional.
 */
icefield_status icefield_join_build(const char *path,
                                    const uint64_t *keys,
                                    const uint64_t *payloads,
                                    size_t count,
                                    const icefield_join_options *options,
                                    icefield_join **join,
                                    icefield_error **error);

/*
 Builds an index of `count` pairs in memory, which is freed when the index is closed. options: optional.
 */
icefield_status icefield_join_build_in_memory(const uint64_t *keys,
                                              const uint64_t *payloads,
                                              size_t count,
                                              const icefield_join_options *options,
                                              icefield_join **join,
                                              icefield_error **error);

/*
 Opens the index at `path`, whose keys must be "u64". The first change locks it for this process. options: optional.
 */
icefield_status icefield_join_open(const char *path,
                                   const icefield_join_options *options,
                                   icefield_join **join,
                                   icefield_error **error);

/*
 Opens the index at `path` for reading only. options: optional.
 */
icefield_status icefield_join_open_read_only(const char *path,
                                             const icefield_join_options *options,
                                             icefield_join **join,
                                             icefield_error **error);

/*
 Closes an index and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the
 handle.
 */
icefield_status icefield_join_close(icefield_join **join,
                                    icefield_error **error);

/*
 Gets statistics, of which some come from a sample.
 */
icefield_status icefield_join_stats(const icefield_join *join,
                                    icefield_join_statistics *stats,
                                    icefield_error **error);

/*
 Gets the number of pairs.
 */
icefield_status icefield_join_len(const icefield_join *join, uint64_t *len, icefield_error **error);

/*
 Gets the number of the present generation: 1, and one more after each merge.
 */
icefield_status icefield_join_generation(const icefield_join *join,
                                         uint64_t *generation,
                                         icefield_error **error);

/*
 Gets the 16 bytes of the index's identifier, which all of its generations have.
 */
icefield_status icefield_join_uuid(const icefield_join *join, uint8_t *uuid, icefield_error **error);

/*
 Sets the number of threads that a probe or a merge may use; at least 1.
 */
icefield_status icefield_join_set_threads(const icefield_join *join,
                                          uint32_t threads,
                                          icefield_error **error);

/*
 Gets the number of threads that a probe or a merge may use.
 */
icefield_status icefield_join_threads(const icefield_join *join, uint32_t *threads, icefield_error **error);

/*
 Gets the report of opening the index.
 */
icefield_status icefield_join_recovery(const icefield_join *join,
                                       icefield_recovery_report *recovery,
                                       icefield_error **error);

/*
 Checks every checksum and invariant, and changes nothing. check: required. faults: optional; the faults in words,
 which the caller frees.
 */
icefield_status icefield_join_check(const icefield_join *join,
                                    icefield_check_report *check,
                                    icefield_texts **faults,
                                    icefield_error **error);

/*
 Builds an index of `count` pairs at `path`, as icefield_join_build does, with keys of any length.

 hash, has_key: required; called until the index is closed. context: their first argument. options: optional.
 */
icefield_status icefield_join_build_bytes(const char *path,
                                          const icefield_slice *keys,
                                          const uint64_t *payloads,
                                          size_t count,
                                          icefield_hash_bytes hash,
                                          icefield_row_has_key has_key,
                                          void *context,
                                          const icefield_join_options *options,
                                          icefield_join **join,
                                          icefield_error **error);

/*
 Opens the index of bytes at `path`, as icefield_join_open does. `hash` must be the function of the build; one with
 another hash of `icefield` is ICEFIELD_INVALID. The other parameters are those of icefield_join_build_bytes.
 */
icefield_status icefield_join_open_bytes(const char *path,
                                         icefield_hash_bytes hash,
                                         icefield_row_has_key has_key,
                                         void *context,
                                         const icefield_join_options *options,
                                         icefield_join **join,
                                         icefield_error **error);

/*
 Opens the index of bytes at `path` for reading only. The parameters are those of icefield_join_open_bytes.
 */
icefield_status icefield_join_open_read_only_bytes(const char *path,
                                                   icefield_hash_bytes hash,
                                                   icefield_row_has_key has_key,
                                                   void *context,
                                                   const icefield_join_options *options,
                                                   icefield_join **join,
                                                   icefield_error **error);

/*
 As icefield_join_probe_count, for keys of bytes.
 */
icefield_status icefield_join_probe_count_bytes(const icefield_join *join,
                                                const icefield_slice *keys,
                                                size_t count,
                                                uint64_t *pairs,
                                                icefield_error **error);

/*
 As icefield_join_probe_some, for keys of bytes.
 */
icefield_status icefield_join_probe_some_bytes(const icefield_join *join,
                                               const icefield_slice *keys,
                                               size_t count,
                                               uint64_t *positions,
                                               uint64_t *payloads,
                                               size_t capacity,
                                               size_t *pairs,
                                               size_t *done,
                                               icefield_error **error);

/*
 As icefield_join_probe_into, for keys of bytes.
 */
icefield_status icefield_join_probe_into_bytes(const icefield_join *join,
                                               const icefield_slice *keys,
                                               size_t count,
                                               size_t most,
                                               icefield_pairs **pairs,
                                               size_t *done,
                                               icefield_error **error);

/*
 As icefield_join_semi, for keys of bytes.
 */
icefield_status icefield_join_semi_bytes(const icefield_join *join,
                                         const icefield_slice *keys,
                                         size_t count,
                                         uint64_t *words,
                                         size_t word_count,
                                         uint64_t *ones,
                                         uint64_t *pairs,
                                         icefield_error **error);

/*
 As icefield_join_anti, for keys of bytes.
 */
icefield_status icefield_join_anti_bytes(const icefield_join *join,
                                         const icefield_slice *keys,
                                         size_t count,
                                         uint64_t *words,
                                         size_t word_count,
                                         uint64_t *ones,
                                         icefield_error **error);

/*
 As icefield_join_insert, for a key of bytes.
 */
icefield_status icefield_join_insert_bytes(const icefield_join *join,
                                           const uint8_t *key,
                                           size_t key_len,
                                           uint64_t payload,
                                           icefield_error **error);

/*
 As icefield_join_insert_batch, for keys of bytes.
 */
icefield_status icefield_join_insert_batch_bytes(const icefield_join *join,
                                                 const icefield_slice *keys,
                                                 const uint64_t *payloads,
                                                 size_t count,
                                                 icefield_error **error);

/*
 As icefield_join_remove, for a key of bytes. If another key has the same hash, a crash during the call may leave
 some of the pairs.
 */
icefield_status icefield_join_remove_bytes(const icefield_join *join,
                                           const uint8_t *key,
                                           size_t key_len,
                                           uint64_t *removed,
                                           icefield_error **error);

/*
 As icefield_join_remove_pair, for a key of bytes.
 */
icefield_status icefield_join_remove_pair_bytes(const icefield_join *join,
                                                const uint8_t *key,
                                                size_t key_len,
                                                uint64_t payload,
                                                uint8_t *removed,
                                                icefield_error **error);

/*
 Adds a pair. A pair that is already present is then present twice. Durable and visible when the call returns.
 */
icefield_status icefield_join_insert(const icefield_join *join,
                                     uint64_t key,
                                     uint64_t payload,
                                     icefield_error **error);

/*
 Adds `count` pairs, many of which share a fence. After a crash or an error, a prefix of them may have been added.
 */
icefield_status icefield_join_insert_batch(const icefield_join *join,
                                           const uint64_t *keys,
                                           const uint64_t *payloads,
                                           size_t count,
                                           icefield_error **error);

/*
 Removes all pairs of a key. removed: optional; their number.
 */
icefield_status icefield_join_remove(const icefield_join *join,
                                     uint64_t key,
                                     uint64_t *removed,
                                     icefield_error **error);

/*
 Removes all pairs of `count` keys, which are words; many removals share a fence. After a crash or an error, the pairs
 of a prefix of the keys may have been removed. removed: optional; the number of pairs.
 */
icefield_status icefield_join_remove_batch(const icefield_join *join,
                                           const uint64_t *keys,
                                           size_t count,
                                           uint64_t *removed,
                                           icefield_error **error);

/*
 Removes one pair, or one of several equal pairs. removed: optional; 1 if there was one, else 0.
 */
icefield_status icefield_join_remove_pair(const icefield_join *join,
                                          uint64_t key,
                                          uint64_t payload,
                                          uint8_t *removed,
                                          icefield_error **error);

/*
 Merges the delta store into the next generation. Probes continue meanwhile; changes wait. merge: optional.
 */
icefield_status icefield_join_merge(const icefield_join *join,
                                    icefield_merge_report *merge,
                                    icefield_error **error);

/*
 Returns when all changes are durable. Each is durable when its call returns, so this returns at once.
 */
icefield_status icefield_join_sync(const icefield_join *join, icefield_error **error);

/*
 Copies the index to a new directory at `path`. Changes through this handle wait for the copy; probes do not. backup:
 optional.
 */
icefield_status icefield_join_backup(const icefield_join *join,
                                     const char *path,
                                     icefield_backup_report *backup,
                                     icefield_error **error);

/*
 Gets the number of pairs of a probe key and an equal key of the index: the rows of an inner join. Duplicates count
 on both sides. Like every probe, the call sees one state of the index for all keys.
 */
icefield_status icefield_join_probe_count(const icefield_join *join,
                                          const uint64_t *keys,
                                          size_t count,
                                          uint64_t *pairs,
                                          icefield_error **error);

/*
 Finds the pairs of the first of `count` keys: of as many keys as have at most `capacity` pairs together.

 positions, payloads: arrays of `capacity` results: the position in `keys`, and the payload, in no order. pairs: the
 number of pairs. done: the number of keys that have been probed; pass the rest to the next call. If the first key
 alone has more than `capacity` pairs, the call fails with ICEFIELD_BUFFER_TOO_SMALL; `pairs` is then the number of
 that key's pairs, and `done` is 0.
 */
icefield_status icefield_join_probe_some(const icefield_join *join,
                                         const uint64_t *keys,
                                         size_t count,
                                         uint64_t *positions,
                                         uint64_t *payloads,
                                         size_t capacity,
                                         size_t *pairs,
                                         size_t *done,
                                         icefield_error **error);

/*
 Finds the pairs of the first of `count` keys, as icefield_join_probe_some does, and stores them in a list that
 grows.

 most: the number of pairs; SIZE_MAX for all. A single key with more is not divided. pairs: the address of a variable
 that is NULL, or has the list of an earlier call, which is overwritten. done: optional; the number of keys that have
 been probed.
 */
icefield_status icefield_join_probe_into(const icefield_join *join,
                                         const uint64_t *keys,
                                         size_t count,
                                         size_t most,
                                         icefield_pairs **pairs,
                                         size_t *done,
                                         icefield_error **error);

/*
 Passes every pair to `visit`, in no order, in the calling thread. If the keys are bytes, `key` is the hash. If the
 call fails, `visit` may have been called for some of the pairs.
 */
icefield_status icefield_join_for_each(const icefield_join *join,
                                       icefield_visit_pair visit,
                                       void *context,
                                       icefield_error **error);

/*
 Returns the number of pairs of a list; 0 for NULL.
 */
size_t icefield_pairs_len(const icefield_pairs *pairs);

/*
 Returns the positions of a list's pairs, which belong to the list until it is used again; NULL for NULL.
 */
const uint64_t *icefield_pairs_positions(const icefield_pairs *pairs);

/*
 Returns the payloads of a list's pairs, which belong to the list until it is used again; NULL for NULL.
 */
const uint64_t *icefield_pairs_payloads(const icefield_pairs *pairs);

/*
 Frees a list and sets the variable to NULL. Does nothing if `pairs` or the variable is NULL.
 */
void icefield_pairs_free(icefield_pairs **pairs);

/*
 Finds which keys are in the index: a semi-join.

 words: an array of `word_count` results, at least (count + 63) / 64: bit i % 64 of word i / 64 belongs to key i;
 bits beyond the last key are 0. ones: optional; the number of bits that are 1. pairs: optional; the number of
 pairs, as of icefield_join_probe_count.
 */
icefield_status icefield_join_semi(const icefield_join *join,
                                   const uint64_t *keys,
                                   size_t count,
                                   uint64_t *words,
                                   size_t word_count,
                                   uint64_t *ones,
                                   uint64_t *pairs,
                                   icefield_error **error);

/*
 Finds which keys are not in the index: an anti-join. The results are those of icefield_join_semi.
 */
icefield_status icefield_join_anti(const icefield_join *join,
                                   const uint64_t *keys,
                                   size_t count,
                                   uint64_t *words,
                                   size_t word_count,
                                   uint64_t *ones,
                                   icefield_error **error);

/*
 Returns the number of texts; 0 for NULL.
 */
size_t icefield_texts_len(const icefield_texts *texts);

/*
 Returns the text at `index`, which belongs to the list; NULL for a NULL list or an index beyond its end.
 */
const char *icefield_texts_get(const icefield_texts *texts, size_t index);

/*
 Frees a list and sets the variable to NULL. Does nothing if `texts` or the variable is NULL.
 */
void icefield_texts_free(icefield_texts **texts);

/*
 Returns the number of counters; 0 for NULL.
 */
size_t icefield_counters_len(const icefield_counters *counters);

/*
 Returns the name of the counter at `index`, which belongs to the list; NULL for a NULL list or an index beyond its
 end.
 */
const char *icefield_counters_name(const icefield_counters *counters,
                                   size_t index);

/*
 Returns the counter at `index`; 0 for a NULL list or an index beyond its end.
 */
uint64_t icefield_counters_value(const icefield_counters *counters, size_t index);

/*
 Frees a list and sets the variable to NULL. Does nothing if `counters` or the variable is NULL.
 */
void icefield_counters_free(icefield_counters **counters);

/*
 Reads about `n` records from `cursor` on. A cursor is ICEFIELD_CURSOR_START or comes from icefield_page_next; it
 stays valid while the table changes, and across reopening. A record that is present throughout a scan is returned
 once. page: the caller frees it.
 */
icefield_status icefield_table_scan(const icefield_table *table,
                                    uint64_t cursor,
                                    size_t n,
                                    icefield_page **page,
                                    icefield_error **error);

/*
 Returns the number of records of a page; 0 for NULL. A page without records need not be the last one.
 */
size_t icefield_page_len(const icefield_page *page);

/*
 Gets the record at `index`, whose bytes belong to the page.
 */
icefield_status icefield_page_record(const icefield_page *page,
                                     size_t index,
                                     icefield_record *record,
                                     icefield_error **error);

/*
 Stores the records of a page of words in two arrays. len: the number of records. If it exceeds `capacity`, the call
 fails with ICEFIELD_BUFFER_TOO_SMALL, and only `len` has been stored.
 */
icefield_status icefield_page_words(const icefield_page *page,
                                    uint64_t *keys,
                                    uint64_t *values,
                                    size_t capacity,
                                    size_t *len,
                                    icefield_error **error);

/*
 Gets the cursor of the next page. has_next: 0 after the last page, else 1. cursor: optional.
 */
icefield_status icefield_page_next(const icefield_page *page,
                                   uint64_t *cursor,
                                   uint8_t *has_next,
                                   icefield_error **error);

/*
 Returns the number of damaged records that the scan found in this part of the table; 0 for NULL.
 */
size_t icefield_page_damaged_len(const icefield_page *page);

/*
 Gets the damaged record at `index`. key: optional; the key's bytes. has_key: optional; 0 if the key cannot be read.
 detail: optional; the fault. The bytes and the text belong to the page.
 */
icefield_status icefield_page_damaged(const icefield_page *page,
                                      size_t index,
                                      icefield_slice *key,
                                      uint8_t *has_key,
                                      const char **detail,
                                      icefield_error **error);

/*
 Frees a page and sets the variable to NULL. Does nothing if `page` or the variable is NULL.
 */
void icefield_page_free(icefield_page **page);

/*
 Creates a table at `path`, where nothing but an empty directory may exist.

 design: "dash-eh", "dash-lh", "iceberg" or "plush". key_type, value_type: "u64", "i64", "bytes", "str" and the other
 types of docs/c.md. options: optional.
 */
icefield_status icefield_table_create(const char *path,
                                      const char *design,
                                      const char *key_type,
                                      const char *value_type,
                                      const icefield_table_options *options,
                                      icefield_table **table,
                                      icefield_error **error);

/*
 Opens the table at `path` for reading and writing, after a crash or a clean close. options: optional.
 */
icefield_status icefield_table_open(const char *path,
                                    const icefield_table_options *options,
                                    icefield_table **table,
                                    icefield_error **error);

/*
 Opens the table at `path` for reading. Nothing in its directory is modified. options: optional.
 */
icefield_status icefield_table_open_read_only(const char *path,
                                              const icefield_table_options *options,
                                              icefield_table **table,
                                              icefield_error **error);

/*
 Closes a table and sets the variable to NULL. Does nothing if the variable is NULL. No other thread may use the
 handle.
 */
icefield_status icefield_table_close(icefield_table **table,
                                     icefield_error **error);

/*
 Returns the name of the design. The text belongs to the table. Returns NULL for NULL.
 */
const char *icefield_table_design(const icefield_table *table);

/*
 Returns the name of the key type. The text belongs to the table. Returns NULL for NULL.
 */
const char *icefield_table_key_type(const icefield_table *table);

/*
 Returns the name of the value type. The text belongs to the table. Returns NULL for NULL.
 */
const char *icefield_table_value_type(const icefield_table *table);

/*
 Returns the table's directory. The text belongs to the table. Returns NULL for NULL.
 */
const char *icefield_table_path(const icefield_table *table);

/*
 Returns the number of values, one for each key of the call, absent ones included; 0 for NULL.
 */
size_t icefield_values_len(const icefield_values *values);

/*
 Gets the value at `index`. present: 1 if there is one, else 0. value: optional; the bytes, which belong to `values`.
 An index beyond the last value is like an absent key.
 */
icefield_status icefield_values_get(const icefield_values *values,
                                    size_t index,
                                    icefield_slice *value,
                                    uint8_t *present,
                                    icefield_error **error);

/*
 Frees values and sets the variable to NULL. Does nothing if `values` or the variable is NULL.
 */
void icefield_values_free(icefield_values **values);

/*
 Returns the version of the library's ABI: the major number in the upper 16 bits, the minor number in the lower 16.
 A program that was compiled with the header's ICEFIELD_ABI_MAJOR and ICEFIELD_ABI_MINOR works if the major numbers
 are equal and the library's minor number is not smaller; while the major number is 0, both must be equal.
 */
uint32_t icefield_abi_version(void);

/*
 Returns the version of the library, for example "0.1.0".
 */
const char *icefield_version(void);

/*
 Gets the number of records. After a crash the first call may scan the table.
 */
icefield_status icefield_table_len(const icefield_table *table, uint64_t *len, icefield_error **error);

/*
 Gets the 16 bytes of the table's identifier, which does not depend on its path. A backup has the same one.
 */
icefield_status icefield_table_uuid(const icefield_table *table, uint8_t *uuid, icefield_error **error);

/*
 Gets sizes, in constant time. stats: optional. counters: optional; the counters of the design, which the caller
 frees.
 */
icefield_status icefield_table_stats(const icefield_table *table,
                                     icefield_stats *stats,
                                     icefield_counters **counters,
                                     icefield_error **error);

/*
 Removes every record at once: a crash leaves all of them or none.
 */
icefield_status icefield_table_clear(const icefield_table *table, icefield_error **error);

/*
 Makes room for `additional` more records.
 */
icefield_status icefield_table_reserve(const icefield_table *table,
                                       uint64_t additional,
                                       icefield_error **error);

/*
 Frees space that the records do not need, as far as the design can.
 */
icefield_status icefield_table_shrink_to_fit(const icefield_table *table, icefield_error **error);

/*
 Returns when every earlier operation is durable.
 */
icefield_status icefield_table_sync(const icefield_table *table, icefield_error **error);

/*
 Gets the report of opening the table.
 */
icefield_status icefield_table_recovery(const icefield_table *table,
                                        icefield_recovery_report *recovery,
                                        icefield_error **error);

/*
 Checks every invariant and checksum, and changes no record. A fault is not an error of the call: see `is_clean` of
 the report. check: required. faults: optional; the faults in words, which the caller frees.
 */
icefield_status icefield_table_check(const icefield_table *table,
                                     icefield_check_report *check,
                                     icefield_texts **faults,
                                     icefield_error **error);

/*
 Copies the table's directory to `path`, where the copy opens as a table. Readers continue; writers wait while
 changed regions are copied. backup: optional.
 */
icefield_status icefield_table_backup(const icefield_table *table,
                                      const char *path,
                                      icefield_backup_report *backup,
                                      icefield_error **error);

/*
 Copies everything that can still be read to a new table at `path`. salvage: optional. lost: optional; what was not
 copied, in words, which the caller frees.
 */
icefield_status icefield_table_salvage(const icefield_table *table,
                                       const char *path,
                                       icefield_salvage_report *salvage,
                                       icefield_texts **lost,
                                       icefield_error **error);

/*
 Does the same as icefield_table_salvage for the files at `path`, which need not open as a table. Nothing at `path`
 changes.
 */
icefield_status icefield_salvage_files(const char *path,
                                       const char *new_path,
                                       icefield_salvage_report *salvage,
                                       icefield_texts **lost,
                                       icefield_error **error);

/*
 Gets the value of `key`. present: 1 if the key is present, else 0. value: optional; 0 if the key is absent.

 This and the other calls on words accept tables whose keys and values have 8 bytes ("u64", "i64", "f64", "[u8; 8]"),
 and return ICEFIELD_TYPE_MISMATCH for others. A word is the value converted to uint64_t; for "f64" it is the bits.
 */
icefield_status icefield_table_get_word(const icefield_table *table,
                                        uint64_t key,
                                        uint64_t *value,
                                        uint8_t *present,
                                        icefield_error **error);

/*
 Inserts `key` only if it is absent. present: optional; 1 if the key was present, and nothing was changed. previous:
 optional; the present value, or 0.
 */
icefield_status icefield_table_try_insert_word(const icefield_table *table,
                                               uint64_t key,
                                               uint64_t value,
                                               uint64_t *previous,
                                               uint8_t *present,
                                               icefield_error **error);

/*
 Inserts `key` or replaces its value. present: optional; 1 if the key was present. previous: optional; the previous
 value, or 0.
 */
icefield_status icefield_table_insert_word(const icefield_table *table,
                                           uint64_t key,
                                           uint64_t value,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Inserts `key` or replaces its value, without the previous value, which may be faster.
 */
icefield_status icefield_table_put_word(const icefield_table *table,
                                        uint64_t key,
                                        uint64_t value,
                                        icefield_error **error);

/*
 Replaces the value only if `key` is present. present: optional; 1 if it was. previous: optional; the previous value,
 or 0.
 */
icefield_status icefield_table_update_word(const icefield_table *table,
                                           uint64_t key,
                                           uint64_t value,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Removes `key`. present: optional; 1 if it was present. previous: optional; its value, or 0.
 */
icefield_status icefield_table_remove_word(const icefield_table *table,
                                           uint64_t key,
                                           uint64_t *previous,
                                           uint8_t *present,
                                           icefield_error **error);

/*
 Gets the values of `count` keys, with overlapping memory latencies. values, present: arrays of `count` results as of
 icefield_table_get_word; `values` is optional. If the call fails, some of the results may have been stored.
 */
icefield_status icefield_table_get_words(const icefield_table *table,
                                         const uint64_t *keys,
                                         size_t count,
                                         uint64_t *values,
                                         uint8_t *present,
                                         icefield_error **error);

/*
 Calls icefield_table_try_insert_word for `count` keys and values in order; all are durable when the call returns.
 previous, present: optional arrays of `count` results. If the call fails, the operations before the failing one are
 durable.
 */
icefield_status icefield_table_try_insert_words(const icefield_table *table,
                                                const uint64_t *keys,
                                                const uint64_t *values,
                                                size_t count,
                                                uint64_t *previous,
                                                uint8_t *present,
                                                icefield_error **error);

/*
 Calls icefield_table_insert_word for `count` keys and values in order, as icefield_table_try_insert_words does.
 */
icefield_status icefield_table_insert_words(const icefield_table *table,
                                            const uint64_t *keys,
                                            const uint64_t *values,
                                            size_t count,
                                            uint64_t *previous,
                                            uint8_t *present,
                                            icefield_error **error);

/*
 Calls icefield_table_put_word for `count` keys and values in order, as icefield_table_try_insert_words does.
 */
icefield_status icefield_table_put_words(const icefield_table *table,
                                         const uint64_t *keys,
                                         const uint64_t *values,
                                         size_t count,
                                         icefield_error **error);

/*
 Calls icefield_table_update_word for `count` keys and values in order, as icefield_table_try_insert_words does.
 */
icefield_status icefield_table_update_words(const icefield_table *table,
                                            const uint64_t *keys,
                                            const uint64_t *values,
                                            size_t count,
                                            uint64_t *previous,
                                            uint8_t *present,
                                            icefield_error **error);

/*
 Calls icefield_table_remove_word for `count` keys in order, as icefield_table_try_insert_words does.
 */
icefield_status icefield_table_remove_words(const icefield_table *table,
                                            const uint64_t *keys,
                                            size_t count,
                                            uint64_t *previous,
                                            uint8_t *present,
                                            icefield_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ICEFIELD_H */
