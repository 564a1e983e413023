/* A durable table of texts: values of any length, batches, a scan, a check and a backup.
 *
 *     cc -std=c99 pages.c $(pkg-config --cflags --libs icefield) -o pages && ./pages DIRECTORY
 */
#include <icefield.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static icefield_slice slice(const char *text)
{
    icefield_slice bytes;
    bytes.data = (const uint8_t *)text;
    bytes.len = strlen(text);
    return bytes;
}

/* Adds the length of a value to the number at `context`. */
static void add_length(void *context, size_t index, uint8_t present, const uint8_t *value, size_t len)
{
    (void)index;
    (void)value;
    *(size_t *)context += present ? len : 0;
}

int main(int argc, char **argv)
{
    icefield_check_report report = {.struct_size = sizeof report};
    icefield_backup_report copied = {.struct_size = sizeof copied};
    icefield_table *pages = NULL;
    icefield_values *values = NULL;
    icefield_error *error = NULL;
    icefield_record records[3];
    icefield_slice keys[3];
    char path[4096], copy[4096];
    uint8_t buffer[8], *larger, present = 0, has_next = 1;
    uint64_t cursor = ICEFIELD_CURSOR_START;
    size_t len = 0, total = 0, seen = 0, i;
    icefield_status status;

    expect(argc == 2, "usage: pages DIRECTORY");
    snprintf(path, sizeof path, "%s/pages.ice", argv[1]);
    snprintf(copy, sizeof copy, "%s/copy.ice", argv[1]);
    check(icefield_table_create(path, "iceberg", "str", "bytes", NULL, &pages, &error), &error);

    keys[0] = slice("home");
    keys[1] = slice("help");
    keys[2] = slice("nowhere");
    for (i = 0; i < 2; i++) {
        records[i].key = keys[i];
        records[i].value = slice(i == 0 ? "<h1>A page with a long text</h1>" : "<p>");
    }
    check(icefield_table_put_batch(pages, records, 2, &error), &error);

    /* A value into a buffer. If the buffer is too small, the call stores the length that it needs. */
    status = icefield_table_get(pages, keys[0].data, keys[0].len, buffer, sizeof buffer, &len, &present, NULL);
    expect(status == ICEFIELD_BUFFER_TOO_SMALL && len == 32, "the length of the home page");
    larger = malloc(len);
    expect(larger != NULL, "no memory");
    check(icefield_table_get(pages, keys[0].data, keys[0].len, larger, len, &len, &present, &error), &error);
    expect(present == 1 && memcmp(larger, "<h1>", 4) == 0, "the home page");
    free(larger);

    /* Values as a list, or lent to a function. */
    check(icefield_table_get_batch(pages, keys, 3, &values, &error), &error);
    for (i = 0; i < icefield_values_len(values); i++) {
        icefield_slice value;
        check(icefield_values_get(values, i, &value, &present, &error), &error);
        expect(present == (i < 2), "two of three pages are there");
    }
    icefield_values_free(&values);
    check(icefield_table_get_batch_with(pages, keys, 3, add_length, &total, &error), &error);
    expect(total == 35, "the length of all pages");

    /* All records, in pages of about 100. */
    while (has_next) {
        icefield_page *page = NULL;
        check(icefield_table_scan(pages, cursor, 100, &page, &error), &error);
        for (i = 0; i < icefield_page_len(page); i++) {
            icefield_record record;
            check(icefield_page_record(page, i, &record, &error), &error);
            printf("pages: %.*s, %zu bytes\n", (int)record.key.len, (const char *)record.key.data, record.value.len);
            seen++;
        }
        check(icefield_page_next(page, &cursor, &has_next, &error), &error);
        icefield_page_free(&page);
    }
    expect(seen == 2, "two records");

    check(icefield_table_check(pages, &report, NULL, &error), &error);
    expect(report.is_clean == 1 && report.records == 2, "no faults");
    check(icefield_table_backup(pages, copy, &copied, &error), &error);
    check(icefield_table_close(&pages, &error), &error);

    check(icefield_table_open_read_only(copy, NULL, &pages, &error), &error);
    check(icefield_table_contains(pages, keys[1].data, keys[1].len, &present, &error), &error);
    expect(present == 1, "the copy has the page");
    expect(icefield_table_clear(pages, NULL) == ICEFIELD_READ_ONLY, "the copy is open for reading");
    check(icefield_table_close(&pages, &error), &error);
    printf("pages: %llu bytes copied\n", (unsigned long long)copied.bytes);
    return 0;
}
