/* An index for joins whose keys are texts: the index has their hashes, and the program compares the texts by row.
 *
 *     cc -std=c99 names.c $(pkg-config --cflags --libs icefield) -o names && ./names DIRECTORY
 */
#include <icefield.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUSTOMERS = 10000, ORDERS = 25000, LENGTH = 24 };

/* Ends the program with the message of an error. It takes the variable's address, because a call's arguments are
 * evaluated in no fixed order: its value could be that before the call that `status` comes from. */
static void check(icefield_status status, icefield_error **error)
{
    if (status != ICEFIELD_OK) {
        fprintf(stderr, "%s: %s\n", icefield_status_name(status), icefield_error_message(*error));
        icefield_error_free(error);
        exit(1);
    }
}

static void expect(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

/* A column of texts. */
typedef struct {
    char (*texts)[LENGTH];
    size_t count;
} column;

/* FNV-1a. The index is opened with the same function in every process. */
static uint64_t hash(void *context, const uint8_t *key, size_t len)
{
    uint64_t hash = 0xCBF29CE484222325;
    size_t i;

    (void)context;
    for (i = 0; i < len; i++) {
        hash = (hash ^ key[i]) * 0x100000001B3;
    }
    return hash;
}

/* Compares a key with the text of a row. Several threads may call it at once. */
static uint8_t has_name(void *context, const uint8_t *key, size_t len, uint64_t row)
{
    const column *names = context;

    return row < names->count && strlen(names->texts[row]) == len && memcmp(names->texts[row], key, len) == 0;
}

static char customers[CUSTOMERS][LENGTH], orders[ORDERS][LENGTH];
static icefield_slice keys[ORDERS];
static uint64_t rows[CUSTOMERS];

static void point_to(char (*texts)[LENGTH], size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        keys[i].data = (const uint8_t *)texts[i];
        keys[i].len = strlen(texts[i]);
    }
}

static void add_one(void *context, uint64_t key, uint64_t payload)
{
    (void)key;
    (void)payload;
    ++*(uint64_t *)context;
}

int main(int argc, char **argv)
{
    column names = {customers, CUSTOMERS};
    icefield_join *join = NULL;
    icefield_pairs *pairs = NULL;
    icefield_error *error = NULL;
    char path[4096];
    uint64_t visited = 0, removed = 0;
    size_t i;

    expect(argc == 2, "usage: names DIRECTORY");
    snprintf(path, sizeof path, "%s/customers.ice", argv[1]);
    for (i = 0; i < CUSTOMERS; i++) {
        snprintf(customers[i], LENGTH, "customer %u", (unsigned)i);
        rows[i] = i;
    }
    for (i = 0; i < ORDERS; i++) {
        snprintf(orders[i], LENGTH, "customer %u", (unsigned)(i * 7 % (2 * CUSTOMERS)));
    }
    point_to(customers, CUSTOMERS);
    check(icefield_join_build_bytes(path, keys, rows, CUSTOMERS, hash, has_name, &names, NULL, &join, &error), &error);
    check(icefield_join_close(&join, &error), &error);
    check(icefield_join_open_bytes(path, hash, has_name, &names, NULL, &join, &error), &error);

    point_to(orders, ORDERS);
    check(icefield_join_probe_into_bytes(join, keys, ORDERS, SIZE_MAX, &pairs, NULL, &error), &error);
    for (i = 0; i < icefield_pairs_len(pairs); i++) {
        const char *order = orders[icefield_pairs_positions(pairs)[i]];
        expect(strcmp(order, customers[icefield_pairs_payloads(pairs)[i]]) == 0, "a pair has equal texts");
    }
    printf("names: %lu of %d orders have a customer\n", (unsigned long)icefield_pairs_len(pairs), ORDERS);
    icefield_pairs_free(&pairs);

    check(icefield_join_remove_bytes(join, (const uint8_t *)"customer 7", 10, &removed, &error), &error);
    check(icefield_join_for_each(join, add_one, &visited, &error), &error);
    expect(removed == 1 && visited == CUSTOMERS - 1, "a customer has left");
    check(icefield_join_close(&join, &error), &error);
    return 0;
}
