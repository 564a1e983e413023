// The wrapper of Icefield's durable tables for the evaluation framework of persistent hash tables.
// bench/pibench/README.md shows how to build it.
#include "table.hpp"

#include <hash_api.h>

namespace {

class Hash : public hash_api {
public:
    Hash(const hashtable_options_t &options, unsigned size)
        : table(options.pool_path, options.key_size, options.value_size, size, options.pool_size), options(options)
    {
    }

    std::string hash_name() override { return "icefield-" + table.design(); }

    hash_Utilization utilization() override
    {
        const icefield_stats stats = table.stats();
        const double records = static_cast<double>(stats.len_estimate);
        hash_Utilization shares = {};
        shares.load_factor = stats.capacity ? static_cast<float>(records / static_cast<double>(stats.capacity)) : 0;
        const double bytes = records * static_cast<double>(options.key_size + options.value_size);
        shares.utilization =
            stats.storage_bytes ? static_cast<float>(bytes / static_cast<double>(stats.storage_bytes)) : 0;
        return shares;
    }

    // Opening the table has recovered it.
    bool recovery() override { return true; }

    bool find(const char *key, size_t key_sz, char *value_out, unsigned) override
    {
        return table.find(key, key_sz, value_out, options.value_size);
    }

    bool insert(const char *key, size_t key_sz, const char *value, size_t value_sz, unsigned, unsigned) override
    {
        return table.insert(key, key_sz, value, value_sz);
    }

    bool insertResize(const char *key, size_t key_sz, const char *value, size_t value_sz, unsigned, unsigned) override
    {
        return table.insert(key, key_sz, value, value_sz);
    }

    bool update(const char *key, size_t key_sz, const char *value, size_t value_sz) override
    {
        return table.update(key, key_sz, value, value_sz);
    }

    bool remove(const char *key, size_t key_sz, unsigned) override { return table.remove(key, key_sz); }

    int scan(const char *, size_t, int, char *&values_out) override
    {
        values_out = nullptr;
        return 0;
    }

private:
    icefield_bench::Table table;
    hashtable_options_t options;
};

} // namespace

extern "C" hash_api *create_hashtable(const hashtable_options_t &options, unsigned size, unsigned)
{
    return new Hash(options, size);
}
