// The interface of the wrappers of the evaluation framework for persistent hash tables, which is derived from PiBench's,
// restated in the declarations that icefield_hash.cpp needs. To run the framework, compile the wrapper with the
// framework's own header instead.
#ifndef ICEFIELD_RESTATED_HASH_API_H
#define ICEFIELD_RESTATED_HASH_API_H

#include <cstddef>
#include <string>

struct hashtable_options_t {
    size_t key_size = 8;
    size_t value_size = 8;
    std::string pool_path = "";
    size_t pool_size = 0;
    size_t num_threads = 1;
};

// Shares between 0 and 1: of the slots that are used, and of the memory that holds records.
struct hash_Utilization {
    float load_factor;
    float utilization;
};

class hash_api {
public:
    // Called by each thread before its first operation.
    virtual void thread_ini(int) {}
    virtual void forsoft() {}
    virtual std::string hash_name() { return ""; }
    virtual ~hash_api() {}
    virtual hash_Utilization utilization() { return hash_Utilization(); }
    virtual void print_util() {}
    // Opens the table again after a crash; false if that is not supported.
    virtual bool recovery() { return false; }
    virtual void vmem_print_api() {}

    virtual bool find(const char *key, size_t key_sz, char *value_out, unsigned thread) = 0;
    virtual bool insert(const char *key, size_t key_sz, const char *value, size_t value_sz, unsigned thread,
                        unsigned time) = 0;
    virtual bool insertResize(const char *, size_t, const char *, size_t, unsigned, unsigned) { return false; }
    virtual bool update(const char *key, size_t key_sz, const char *value, size_t value_sz) = 0;
    virtual bool remove(const char *key, size_t key_sz, unsigned thread) = 0;
    virtual int scan(const char *key, size_t key_sz, int scan_sz, char *&values_out) = 0;
};

// The framework loads this function from the shared library. `size`: the initial number of records.
extern "C" hash_api *create_hashtable(const hashtable_options_t &options, unsigned size, unsigned threads);

#endif
