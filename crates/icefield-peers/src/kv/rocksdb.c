/* Used by build.rs only: if it can be preprocessed, RocksDB is installed. */
#include <rocksdb/c.h>
