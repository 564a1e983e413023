/* A durable map of words: single calls, batches, counters in memory.
 *
 *     cc -std=c99 words.c $(pkg-config --cflags --libs icefield) -o words && ./words DIRECTORY
 */
#include <icefield.h>

#include <stdio.h>
#include <stdlib.h>

enum { ORDERS = 100000 };

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

static uint64_t numbers[ORDERS], prices[ORDERS], found[ORDERS];
static uint8_t present[ORDERS];

int main(int argc, char **argv)
{
    icefield_table_options options = {.struct_size = sizeof options, .capacity = ORDERS};
    icefield_recovery_report recovery = {.struct_size = sizeof recovery};
    icefield_table *orders = NULL;
    icefield_dlht *visits = NULL;
    icefield_error *error = NULL;
    char path[4096];
    uint64_t price = 0, count = 0;
    uint8_t is_present = 0;
    size_t i;

    expect(argc == 2, "usage: words DIRECTORY");
    expect(icefield_abi_version() >> 16 == ICEFIELD_ABI_MAJOR, "another major version of the library");
    snprintf(path, sizeof path, "%s/orders.ice", argv[1]);
    check(icefield_table_create(path, "dash-eh", "u64", "u64", &options, &orders, &error), &error);

    /* A single call is durable when it returns. */
    check(icefield_table_put_word(orders, 7, 70, &error), &error);
    check(icefield_table_get_word(orders, 7, &price, &is_present, &error), &error);
    expect(is_present == 1 && price == 70, "the price of order 7");
    check(icefield_table_get_word(orders, 8, &price, &is_present, &error), &error);
    expect(is_present == 0, "order 8 is absent");

    /* A batch is durable when it returns; its operations share fences. */
    for (i = 0; i < ORDERS; i++) {
        numbers[i] = i;
        prices[i] = 10 * i;
    }
    check(icefield_table_put_words(orders, numbers, prices, ORDERS, &error), &error);
    check(icefield_table_get_words(orders, numbers, ORDERS, found, present, &error), &error);
    for (i = 0; i < ORDERS; i++) {
        expect(present[i] == 1 && found[i] == prices[i], "a price of the batch");
    }

    /* An error is an object, or a code alone. The handle of a closed table is NULL. */
    expect(icefield_table_open(path, NULL, &orders, NULL) == ICEFIELD_LOCKED, "the table is open here");
    check(icefield_table_close(&orders, &error), &error);
    expect(icefield_table_put_word(orders, 7, 71, &error) == ICEFIELD_NULL_POINTER, "the table is closed");
    icefield_error_free(&error);

    check(icefield_table_open(path, NULL, &orders, &error), &error);
    check(icefield_table_recovery(orders, &recovery, &error), &error);
    check(icefield_table_len(orders, &count, &error), &error);
    expect(recovery.was_clean == 1 && count == ORDERS, "the table after a restart");
    check(icefield_table_close(&orders, &error), &error);

    /* A map in memory. */
    check(icefield_dlht_create(NULL, &visits, &error), &error);
    for (i = 0; i < 1000; i++) {
        check(icefield_dlht_fetch_add(visits, i % 10, 1, NULL, &error), &error);
    }
    check(icefield_dlht_get(visits, 3, &count, &is_present, &error), &error);
    expect(is_present == 1 && count == 100, "the visits of page 3");
    check(icefield_dlht_close(&visits, &error), &error);
    printf("words: %d orders\n", ORDERS);
    return 0;
}
