// The interface of PiBench's wrappers, restated in the declarations that icefield_tree.cpp needs, so that the wrapper
// compiles in Icefield's checks. To run PiBench, compile the wrapper with PiBench's own `include` directory instead.
#ifndef ICEFIELD_RESTATED_TREE_API_HPP
#define ICEFIELD_RESTATED_TREE_API_HPP

#include <cstddef>
#include <string>

// Sizes in bytes of all keys and values, and the place and size of the pool file.
struct tree_options_t {
    size_t key_size = 8;
    size_t value_size = 8;
    std::string pool_path = "";
    size_t pool_size = 0;
    size_t num_threads = 1;
};

class tree_api {
public:
    virtual ~tree_api() {}

    // Copies the value to `value_out`; false if the key is absent.
    virtual bool find(const char *key, size_t key_sz, char *value_out) = 0;
    // False if the key is present.
    virtual bool insert(const char *key, size_t key_sz, const char *value, size_t value_sz) = 0;
    // False if the key is absent.
    virtual bool update(const char *key, size_t key_sz, const char *value, size_t value_sz) = 0;
    // False if the key is absent.
    virtual bool remove(const char *key, size_t key_sz) = 0;
    // Points `values_out` to at most `scan_sz` records in ascending order, from `key` on; returns their number.
    virtual int scan(const char *key, size_t key_sz, int scan_sz, char *&values_out) = 0;
};

// PiBench loads this function from the shared library.
extern "C" tree_api *create_tree(const tree_options_t &options);

#endif
