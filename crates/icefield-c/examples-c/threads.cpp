// Handles that close themselves, errors as exceptions, and a table that several threads use.
//
//     c++ -std=c++17 threads.cpp $(pkg-config --cflags --libs icefield) -pthread -o threads && ./threads DIRECTORY
#include <icefield.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

// An error with the library's status and message.
class Error : public std::runtime_error {
public:
    Error(icefield_status status, icefield_error *&error)
        : std::runtime_error(icefield_error_message(error)), status(status)
    {
        icefield_error_free(&error);
    }

    icefield_status status;
};

// Takes a reference, because a call's arguments are evaluated in no fixed order: a copy of the pointer could be that of
// before the call that `status` comes from.
void check(icefield_status status, icefield_error *&error)
{
    if (status != ICEFIELD_OK) {
        throw Error(status, error);
    }
}

class Words {
public:
    static Words create(const std::string &path, const char *design)
    {
        icefield_table *table = nullptr;
        icefield_error *error = nullptr;
        check(icefield_table_create(path.c_str(), design, "u64", "u64", nullptr, &table, &error), error);
        return Words(table);
    }

    static Words open(const std::string &path)
    {
        icefield_table *table = nullptr;
        icefield_error *error = nullptr;
        check(icefield_table_open(path.c_str(), nullptr, &table, &error), error);
        return Words(table);
    }

    std::optional<uint64_t> get(uint64_t key) const
    {
        icefield_error *error = nullptr;
        uint64_t value = 0;
        uint8_t present = 0;
        check(icefield_table_get_word(table.get(), key, &value, &present, &error), error);
        return present ? std::optional<uint64_t>(value) : std::nullopt;
    }

    bool try_insert(uint64_t key, uint64_t value) const
    {
        icefield_error *error = nullptr;
        uint8_t present = 0;
        check(icefield_table_try_insert_word(table.get(), key, value, nullptr, &present, &error), error);
        return !present;
    }

    void put(const std::vector<uint64_t> &keys, const std::vector<uint64_t> &values) const
    {
        icefield_error *error = nullptr;
        check(icefield_table_put_words(table.get(), keys.data(), values.data(), keys.size(), &error), error);
    }

    uint64_t len() const
    {
        icefield_error *error = nullptr;
        uint64_t len = 0;
        check(icefield_table_len(table.get(), &len, &error), error);
        return len;
    }

private:
    // An error of a close that runs in a destructor has no caller, so it is dropped.
    struct Close {
        void operator()(icefield_table *table) const { icefield_table_close(&table, nullptr); }
    };

    explicit Words(icefield_table *table) : table(table) {}

    std::unique_ptr<icefield_table, Close> table;
};

void expect(bool is_right, const char *what)
{
    if (!is_right) {
        throw std::logic_error(what);
    }
}

void run(const std::string &path)
{
    constexpr uint64_t threads = 4, each = 5000;
    {
        const Words words = Words::create(path, "dash-lh");
        std::vector<std::thread> workers;
        std::vector<uint64_t> won(threads);
        for (uint64_t worker = 0; worker < threads; worker++) {
            workers.emplace_back([&, worker] {
                // All threads insert the same keys, and one of them wins each.
                for (uint64_t key = 0; key < each; key++) {
                    won[worker] += words.try_insert(key, worker);
                }
                const uint64_t first = each * (worker + 1);
                words.put({first, first + 1}, {worker, worker});
            });
        }
        for (std::thread &worker : workers) {
            worker.join();
        }
        uint64_t all = 0;
        for (uint64_t count : won) {
            all += count;
        }
        expect(all == each, "each key is inserted once");
    }
    const Words words = Words::open(path);
    expect(words.len() == each + 2 * threads, "all records are there after a restart");
    expect(words.get(each * 2) == std::optional<uint64_t>(1) && !words.get(1 << 30), "two keys");
    try {
        Words::open(path);
        expect(false, "a second writer");
    } catch (const Error &error) {
        expect(error.status == ICEFIELD_LOCKED, "a second writer is refused");
        expect(std::string(error.what()).find(path) == 0, "the message names the table");
    }
    std::printf("threads: %llu records\n", static_cast<unsigned long long>(words.len()));
}

} // namespace

int main(int argc, char **argv)
{
    try {
        expect(argc == 2, "usage: threads DIRECTORY");
        run(std::string(argv[1]) + "/threads.ice");
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
