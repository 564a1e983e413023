//! Programs that must not compile. Each is correct except for the marked line, and must fail with the given error code.
//! Only a nightly compiler checks the error code.
//!
//! A single-threaded table, used by two threads:
//! ```compile_fail,E0277
//! let table = icefield::DlhtLocal::<u64, u64>::new();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| table.insert(1, 10)); // Here.
//! });
//! ```
//!
//! Keys that are not words, in a table of words:
//! ```compile_fail,E0599
//! let table = icefield::Dlht::<String, u64>::new(); // Here: `DlhtMap` takes them.
//! ```
//!
//! Floats as keys: equal floats may have different bits:
//! ```compile_fail,E0080
//! let table = icefield::DashEh::<f64, u64>::in_memory()?; // Here: values only.
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! A join index with string keys:
//! ```compile_fail,E0277
//! let index = icefield::JoinIndex::<str>::in_memory(&[], &[])?; // Here: `HashedJoinIndex` takes them.
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! `fetch_add` on values that are not numbers:
//! ```compile_fail,E0277
//! let table = icefield::DashEh::<u64, char>::in_memory()?;
//! table.fetch_add(1, 'a')?; // Here.
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! A value of `DlhtMap`, used after the guard that keeps it alive:
//! ```compile_fail,E0505
//! let map = icefield::DlhtMap::<u64, String>::new();
//! let guard = map.pin();
//! let value = map.get(&1, &guard);
//! drop(guard); // Here.
//! assert!(value.is_none());
//! ```
//!
//! A guard, moved to another thread:
//! ```compile_fail,E0277
//! let map = icefield::DlhtMap::<u64, String>::new();
//! let guard = map.pin();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || map.get(&1, &guard).cloned()); // Here.
//! });
//! ```
//!
//! A value that `get_with` passes to its closure, kept after the closure returns:
//! ```compile_fail
//! let table = icefield::DashEh::<u64, [u8]>::in_memory()?;
//! let mut shown: &[u8] = &[];
//! table.get_with(1, |value| shown = value)?; // Here.
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! An iterator, used after its table is dropped:
//! ```compile_fail,E0505
//! let table = icefield::Plush::<u64, u64>::in_memory()?;
//! let records = table.iter();
//! drop(table); // Here.
//! assert_eq!(records.count(), 0);
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! A shadow insert, used after its table is dropped:
//! ```compile_fail,E0505
//! let table = icefield::Dlht::<u64, u64>::new();
//! let shadow = table.try_insert_shadow(1, 10);
//! drop(table); // Here.
//! drop(shadow);
//! ```
//!
//! A batch whose records have other types than the table's:
//! ```compile_fail,E0308
//! let table = icefield::DashEh::<str, u64>::in_memory()?;
//! table.put_batch(&[(1, 10)])?; // Here.
//! # Ok::<(), icefield::Error>(())
//! ```
//!
//! A medium implemented outside the crate, whose stores a table would have to trust:
//! ```compile_fail,E0277
//! use icefield::storage::{Durability, Properties};
//! struct Mine;
//! impl Properties for Mine { // Here: sealed.
//!     fn check_writable(&self) -> icefield::Result<()> { Ok(()) }
//!     fn durability(&self) -> Durability { Durability::Memory }
//!     fn path(&self) -> &std::path::Path { loop {} }
//! }
//! ```
//!
//! A store to the bytes of a region, without `unsafe`:
//! ```compile_fail,E0133
//! use icefield::storage::{Bytes, Mapped, MappedOptions, Regions};
//! let storage = Mapped::anonymous(MappedOptions::default())?;
//! let region = storage.region("data.ice", 4096)?;
//! storage.write_bytes(&region, 0, b"bytes that a table may have lent"); // Here: unsafe.
//! # Ok::<(), icefield::Error>(())
//! ```
