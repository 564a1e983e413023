// Makes each call of a wrapper once, as a benchmark does: compiled with WRAPPER_IS_HASH for icefield_hash.cpp, otherwise
// for icefield_tree.cpp.
#ifdef WRAPPER_IS_HASH
#include <hash_api.h>
#else
#include <tree_api.hpp>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace {

void expect(bool is_right, const char *what)
{
    if (!is_right) {
        std::fprintf(stderr, "wrong: %s\n", what);
        std::exit(1);
    }
}

#ifdef WRAPPER_IS_HASH
struct Wrapper {
    std::unique_ptr<hash_api> table;

    Wrapper(const std::string &path, size_t size)
    {
        hashtable_options_t options;
        options.pool_path = path;
        options.key_size = options.value_size = size;
        table.reset(create_hashtable(options, 1000, 1));
        expect(table->hash_name().rfind("icefield-", 0) == 0 && table->recovery(), "the name");
        expect(table->utilization().load_factor <= 1, "the load factor");
    }
    bool find(const char *key, size_t size, char *value) { return table->find(key, size, value, 0); }
    bool insert(const char *key, const char *value, size_t size)
    {
        return table->insert(key, size, value, size, 0, 0);
    }
    bool remove(const char *key, size_t size) { return table->remove(key, size, 0); }
};
#else
struct Wrapper {
    std::unique_ptr<tree_api> table;

    Wrapper(const std::string &path, size_t size)
    {
        tree_options_t options;
        options.pool_path = path;
        options.key_size = options.value_size = size;
        table.reset(create_tree(options));
    }
    bool find(const char *key, size_t size, char *value) { return table->find(key, size, value); }
    bool insert(const char *key, const char *value, size_t size) { return table->insert(key, size, value, size); }
    bool remove(const char *key, size_t size) { return table->remove(key, size); }
};
#endif

void run(const std::string &path, size_t size)
{
    char key[16] = "key", value[16] = "value", other[16] = "other", found[16] = {};
    {
        Wrapper wrapper(path, size);
        expect(!wrapper.find(key, size, found), "an absent key");
        expect(!wrapper.table->update(key, size, value, size), "an update of an absent key");
        expect(wrapper.insert(key, value, size) && !wrapper.insert(key, value, size), "inserts");
        expect(wrapper.table->update(key, size, other, size), "an update");
        char *records = key;
        expect(wrapper.table->scan(key, size, 10, records) == 0, "a scan");
    }
    Wrapper wrapper(path, size);
    expect(wrapper.find(key, size, found) && std::memcmp(found, other, size) == 0, "the key after a restart");
    expect(wrapper.remove(key, size) && !wrapper.remove(key, size), "removals");
}

} // namespace

int main(int argc, char **argv)
{
    expect(argc == 2, "usage: smoke DIRECTORY");
    run(std::string(argv[1]) + "/words", 8);
    run(std::string(argv[1]) + "/bytes", 16);
    return 0;
}
