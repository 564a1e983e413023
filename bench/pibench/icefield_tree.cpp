// PiBench's wrapper of Icefield's durable tables. bench/pibench/README.md shows how to build it.
#include "table.hpp"

#include <tree_api.hpp>

namespace {

class Tree : public tree_api {
public:
    explicit Tree(const tree_options_t &options)
        : table(options.pool_path, options.key_size, options.value_size, 0, options.pool_size),
          value_size(options.value_size)
    {
    }

    bool find(const char *key, size_t key_sz, char *value_out) override
    {
        return table.find(key, key_sz, value_out, value_size);
    }

    bool insert(const char *key, size_t key_sz, const char *value, size_t value_sz) override
    {
        return table.insert(key, key_sz, value, value_sz);
    }

    bool update(const char *key, size_t key_sz, const char *value, size_t value_sz) override
    {
        return table.update(key, key_sz, value, value_sz);
    }

    bool remove(const char *key, size_t key_sz) override { return table.remove(key, key_sz); }

    // Hash tables have no order of keys, so a scan in ascending order finds no records.
    int scan(const char *, size_t, int, char *&values_out) override
    {
        values_out = nullptr;
        return 0;
    }

private:
    icefield_bench::Table table;
    size_t value_size;
};

} // namespace

extern "C" tree_api *create_tree(const tree_options_t &options)
{
    return new Tree(options);
}
