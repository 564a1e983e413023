/* icefield_peer.h: the interface of a table that `icefield-bench` can measure.
 *
 * Build a shared library with these functions and pass it: icefield-bench get --peer-lib ./libmytable.so
 *
 * The library contains the loops, so a call costs nothing per operation. create, destroy, insert and get are required; any
 * other function may be missing, and is then not supported. Any word is a valid key and a valid value. Several threads call
 * the functions at once, except create and destroy. Counts and sums are checked. */
#ifndef ICEFIELD_PEER_H
#define ICEFIELD_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the name for results: letters, digits, '-', '_' and '.'. Default: the file's name. */
const char *icefield_peer_name(void);

/* Returns a table for `capacity` records; NULL on failure. dir: a directory for files, or NULL. */
void *icefield_peer_create(uint64_t capacity, const char *dir);
void icefield_peer_destroy(void *table);

/* Called with begin = 1 before a thread's first call, with 0 after its last. */
void icefield_peer_thread(void *table, int index, int begin);

/* Inserts keys that are absent. Returns the number inserted. */
uint64_t icefield_peer_insert(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n);

/* Returns the number of keys found; stores the wrapping sum of their values in *sum. */
uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum);

/* Replaces the values of keys that are present. Returns the number replaced. */
uint64_t icefield_peer_update(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n);

/* Removes keys. Returns the number removed. */
uint64_t icefield_peer_remove(void *table, const uint64_t *keys, uint64_t n);

/* Inserts and then removes each key. Returns the number of keys for which both succeeded. */
uint64_t icefield_peer_insdel(void *table, const uint64_t *keys, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
