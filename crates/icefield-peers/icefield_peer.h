/* icefield_peer.h: a table that wants to be measured by `icefield-bench`.
 *
 * Build a shared library with these functions and name it: icefield-bench get --peer-lib ./libmytable.so
 *
 * The library holds the loops, so a call costs nothing per operation. A missing symbol means: not supported; create,
 * destroy, insert and get must be there. Any word is a legal key and a legal value. All functions but create and destroy are
 * called by several threads at once. Counts and sums are checked. */
#ifndef ICEFIELD_PEER_H
#define ICEFIELD_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How it is called in results: letters, digits, '-', '_' and '.'. Absent: the file's name. */
const char *icefield_peer_name(void);

/* A table for so many records; NULL when it cannot be made. dir: a place for files, or NULL. */
void *icefield_peer_create(uint64_t capacity, const char *dir);
void icefield_peer_destroy(void *table);

/* begin = 1 before a thread's first call, 0 after its last. */
void icefield_peer_thread(void *table, int index, int begin);

/* Inserts keys that are absent: how many were. */
uint64_t icefield_peer_insert(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n);

/* How many were found; the wrapping sum of their values to *sum. */
uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum);

/* Replaces the values of keys that are present: how many were. */
uint64_t icefield_peer_update(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n);

/* How many were removed. */
uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n);

/* Inserts and then removes each: how many did both. */
uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
