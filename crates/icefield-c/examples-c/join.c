/* An index for joins: built once, then probed for pairs in pieces, counts, and semi- and anti-joins.
 *
 *     cc -std=c99 join.c $(pkg-config --cflags --libs icefield) -o join && ./join DIRECTORY
 */
#include <icefield.h>

#include <stdio.h>
#include <stdlib.h>

enum { ORDERS = 20000, ITEMS = 60000, PIECE = 4096 };

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

static uint64_t orders[ORDERS], rows[ORDERS], items[ITEMS];
static uint64_t positions[PIECE], payloads[PIECE], bits[(ITEMS + 63) / 64];

int main(int argc, char **argv)
{
    icefield_merge_report merge = {.struct_size = sizeof merge};
    icefield_join *join = NULL;
    icefield_error *error = NULL;
    char path[4096];
    uint64_t expected = 0, orphans = 0, removed = 0, sum = 0;
    size_t at, pairs, done, i;

    expect(argc == 2, "usage: join DIRECTORY");
    snprintf(path, sizeof path, "%s/orders.ice", argv[1]);
    for (i = 0; i < ORDERS; i++) {
        orders[i] = i * 2; /* The even numbers. */
        rows[i] = i;
    }
    for (i = 0; i < ITEMS; i++) {
        items[i] = i;
    }
    check(icefield_join_build(path, orders, rows, ORDERS, NULL, &join, &error), &error);
    check(icefield_join_close(&join, &error), &error);
    check(icefield_join_open(path, NULL, &join, &error), &error);

    check(icefield_join_probe_count(join, items, ITEMS, &expected, &error), &error);
    expect(expected == ORDERS, "each order has one item");

    /* The rows of the join, at most PIECE at a time. */
    for (at = 0, sum = 0; at < ITEMS; at += done) {
        check(icefield_join_probe_some(join, items + at, ITEMS - at, positions, payloads, PIECE, &pairs, &done,
                                       &error),
              &error);
        for (i = 0; i < pairs; i++) {
            expect(items[at + positions[i]] == orders[payloads[i]], "a pair has equal keys");
        }
        sum += pairs;
    }
    expect(sum == expected, "all rows of the join");

    check(icefield_join_anti(join, items, ITEMS, bits, (ITEMS + 63) / 64, &orphans, &error), &error);
    expect(orphans == ITEMS - ORDERS, "items without an order");
    expect((bits[0] & 3) == 2, "item 0 has an order, item 1 has none");

    /* Changes go to a delta store, which a merge includes in the index. */
    check(icefield_join_insert(join, 1, ORDERS, &error), &error);
    check(icefield_join_remove(join, 0, &removed, &error), &error);
    check(icefield_join_merge(join, &merge, &error), &error);
    expect(removed == 1 && merge.pairs == ORDERS && merge.generation == 2, "the merged index");
    check(icefield_join_close(&join, &error), &error);
    printf("join: %llu rows\n", (unsigned long long)sum);
    return 0;
}
