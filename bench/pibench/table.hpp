// A table of Icefield with the operations that benchmark wrappers have in common.
#ifndef ICEFIELD_BENCH_TABLE_HPP
#define ICEFIELD_BENCH_TABLE_HPP

#include <icefield.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace icefield_bench {

// Benchmarks have no way to receive an error: it ends the program with the library's message.
inline void check(icefield_status status, icefield_error *&error)
{
    if (status != ICEFIELD_OK) {
        std::fprintf(stderr, "icefield: %s: %s\n", icefield_status_name(status), icefield_error_message(error));
        std::exit(1);
    }
}

inline std::string variable(const char *name, const char *otherwise)
{
    const char *value = std::getenv(name);
    return value && *value ? value : otherwise;
}

// Keys and values of 8 bytes are words, which the tables hold in place; other sizes are byte strings.
class Table {
public:
    // Opens the table at `path`, or creates it there. ICEFIELD_TABLE is the design; ICEFIELD_CAPACITY the number of
    // records of a new table, if the framework passes none.
    Table(const std::string &path, size_t key_size, size_t value_size, uint64_t capacity, uint64_t max_bytes)
        : words(key_size == 8 && value_size == 8)
    {
        icefield_error *error = nullptr;
        icefield_table_options options = {};
        options.struct_size = sizeof options;
        options.max_bytes = max_bytes;
        options.capacity =
            capacity ? capacity : std::strtoull(variable("ICEFIELD_CAPACITY", "0").c_str(), nullptr, 10);
        const std::string place = path.empty() ? "pibench.ice" : path;
        if (std::filesystem::exists(place)) {
            check(icefield_table_open(place.c_str(), &options, &table, &error), error);
            return;
        }
        const std::string design = variable("ICEFIELD_TABLE", "dash-eh");
        const char *type = words ? "u64" : "bytes";
        check(icefield_table_create(place.c_str(), design.c_str(), type, type, &options, &table, &error), error);
    }

    Table(const Table &) = delete;
    Table &operator=(const Table &) = delete;

    ~Table()
    {
        icefield_error *error = nullptr;
        check(icefield_table_close(&table, &error), error);
    }

    std::string design() const { return icefield_table_design(table); }

    bool find(const char *key, size_t key_len, char *value, size_t value_size) const
    {
        icefield_error *error = nullptr;
        uint8_t present = 0;
        if (words) {
            uint64_t word = 0;
            check(icefield_table_get_word(table, load(key), &word, &present, &error), error);
            if (present) {
                std::memcpy(value, &word, sizeof word);
            }
        } else {
            size_t len = 0;
            check(icefield_table_get(table, bytes(key), key_len, reinterpret_cast<uint8_t *>(value), value_size, &len,
                                     &present, &error),
                  error);
        }
        return present;
    }

    bool insert(const char *key, size_t key_len, const char *value, size_t value_len) const
    {
        icefield_error *error = nullptr;
        uint8_t present = 0;
        check(words ? icefield_table_try_insert_word(table, load(key), load(value), nullptr, &present, &error)
                    : icefield_table_try_insert(table, bytes(key), key_len, bytes(value), value_len, &present, nullptr,
                                                &error),
              error);
        return !present;
    }

    bool update(const char *key, size_t key_len, const char *value, size_t value_len) const
    {
        icefield_error *error = nullptr;
        uint8_t present = 0;
        check(words ? icefield_table_update_word(table, load(key), load(value), nullptr, &present, &error)
                    : icefield_table_update(table, bytes(key), key_len, bytes(value), value_len, &present, nullptr,
                                            &error),
              error);
        return present;
    }

    bool remove(const char *key, size_t key_len) const
    {
        icefield_error *error = nullptr;
        uint8_t present = 0;
        check(words ? icefield_table_remove_word(table, load(key), nullptr, &present, &error)
                    : icefield_table_remove(table, bytes(key), key_len, &present, nullptr, &error),
              error);
        return present;
    }

    icefield_stats stats() const
    {
        icefield_error *error = nullptr;
        icefield_stats stats = {};
        stats.struct_size = sizeof stats;
        check(icefield_table_stats(table, &stats, nullptr, &error), error);
        return stats;
    }

private:
    // The benchmarks pass pointers without alignment.
    static uint64_t load(const char *word)
    {
        uint64_t value;
        std::memcpy(&value, word, sizeof value);
        return value;
    }

    static const uint8_t *bytes(const char *text) { return reinterpret_cast<const uint8_t *>(text); }

    icefield_table *table = nullptr;
    bool words;
};

} // namespace icefield_bench

#endif
