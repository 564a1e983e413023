/* Read by build.rs alone: can it be read, RocksDB is installed. */
#include <rocksdb/c.h>
