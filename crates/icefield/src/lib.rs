//! Crash-safe, memory-aware, concurrent hash tables.
//!
//! Five published designs, implemented completely. The tables of records that threads can share implement one trait,
//! [`Table`]; those that can live in a directory also implement [`Durable`]. [`DlhtMap`] and [`DlhtSet`] implement
//! [`Collection`], the part of [`Table`] that does not depend on keys and values; [`JoinIndex`] has its own interface.
//!
//! ```
//! use icefield::DashEh;
//!
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("orders.ice");
//! let orders = DashEh::<u64, u64>::open_or_create(&path)?;
//! orders.insert(7, 70)?; // Durable when it returns.
//! orders.put_batch(&[(8, 80), (9, 90)])?; // Durable together.
//! drop(orders); // A clean shutdown; a crash instead is just as fine.
//! let again = DashEh::<u64, u64>::open(&path)?;
//! assert_eq!(again.get(7)?, Some(70));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | table | design | stored in | keys and values |
//! |---|---|---|---|
//! | [`DashEh`] | Dash, extendible hashing | a directory, or memory | any [`Key`] and [`Value`] |
//! | [`DashLh`] | Dash, linear hashing | a directory, or memory | any [`Key`] and [`Value`] |
//! | [`Iceberg`] | IcebergHT | a directory, or memory | any [`Key`] and [`Value`] |
//! | [`Plush`] | Plush | a directory, or memory | any [`Key`] and [`Value`] |
//! | [`JoinIndex`] | SPAR-HT, for joins | a directory, or memory | [`Word`] keys, duplicates allowed; `u64` payloads |
//! | [`Dlht`], [`DlhtLocal`] | DLHT, inlined | memory | any [`Word`] |
//! | [`DlhtSet`], [`DlhtSetLocal`] | DLHT, keys only | memory | any [`Word`] |
//! | [`DlhtMap`], [`DlhtMapLocal`] | DLHT, records by reference | memory | keys that are `Eq + Hash`, any values |
//!
//! The other types by purpose:
//!
//! | purpose | types |
//! |---|---|
//! | operations for generic code | [`Table`], [`Durable`], [`Collection`], [`DurableTable`] |
//! | options of new and opened tables | [`TableOptions`] ([`DashOptions`], [`IcebergOptions`], [`PlushOptions`]), [`DlhtOptions`], [`DlhtMapOptions`], [`JoinOptions`], [`Durability`], [`SyncMode`], [`HugePages`], [`Expansion`], [`Partition`], [`DlhtHash`] |
//! | keys and values | [`Key`], [`Value`], [`Word`], [`Counter`], [`Data`], [`Arg`], [`Owned`], [`RecordArg`] |
//! | results of single operations | [`TryInsert`], [`Occupied`], [`Decision`], [`Computed`], [`Exchanged`], [`Committed`], [`Error`] |
//! | batches of several kinds of operations | [`Op`], [`DlhtMapOp`], [`OnFailure`] |
//! | iteration | [`Iter`], [`Cursor`], [`Page`], [`DlhtSetPage`], [`DlhtMapPage`], [`DlhtIter`], [`DlhtKeys`], [`DlhtValues`], [`DlhtIntoIter`], [`DlhtDrain`], [`DlhtMapIter`], [`DlhtMapKeys`], [`DlhtMapValues`], [`DlhtMapIntoIter`], [`DlhtMapDrain`], [`DlhtSetIter`], [`DlhtSetIntoIter`], [`DlhtSetDrain`], [`Snapshot`], [`DlhtSetSnapshot`], [`DlhtMapSnapshot`] |
//! | changes that depend on whether a key is present | [`DlhtEntry`], [`DlhtAndModify`], [`DlhtMapEntry`], [`DlhtMapAndModify`] |
//! | single gets of one thread | [`DlhtReader`] |
//! | generic code for one thread or many | [`DlhtTable`], [`DlhtRecordMap`], [`DlhtWordSet`], [`Threading`], [`Shared`], [`Local`] |
//! | inserts that no other caller sees before their commit | [`Shadows`], [`Shadow`], [`DlhtSetShadow`], [`DlhtMapShadow`], [`HeldKeys`], [`NotShadowed`] |
//! | parts of a map, each with its own keys | [`DlhtNamespace`] |
//! | reports | [`Stats`], [`RecoveryReport`], [`CheckReport`], [`SalvageReport`], [`DamagedRecord`], [`BackupReport`] |
//! | joins | [`JoinSource`], [`HashedJoinIndex`], [`Bitmap`], [`Pairs`], [`OnFull`], [`MergeKind`], [`MergeReport`], [`JoinStats`], [`KeyHash`] |
//! | tables whose types are known at run time only | [`AnyTable`], [`AnyWords`], [`AnyOptions`], [`AnyPage`], [`AnyDamage`] |
//! | memory of [`DlhtMap`] | [`RecordAllocator`], [`Global`], [`Allocator`], [`AllocError`], [`DlhtGuard`], [`DlhtOwnedGuard`], [`DlhtBuildHasher`], [`DlhtHasher`] |
//!
//! With the feature `serde`, [`Dlht`], [`DlhtMap`] and [`DlhtSet`] can be written and read in the formats of serde. With
//! the feature `rayon`, they have parallel iterators, and can be filled in parallel. With the feature
//! `any-compiled-once`, the engines behind [`AnyTable`] are compiled with this crate, and not in each crate that opens
//! tables by name. These features are off by default.
//!
//! `docs/crash-model.md` states what a returned call guarantees on each medium; [`Durability`] lists the media. The
//! modules `base` and `storage` contain the building blocks of the tables. They are public only with the feature
//! `unstable-internals`, for this library's tests and tools. The simulated medium exists only with the feature `sim`.

/// Compiles the example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "unstable-internals")]
pub mod base;
#[cfg(feature = "unstable-internals")]
pub mod storage;

// Without `unstable-internals`, the parts of `base` and `storage` that are for tests and tools are unused.
#[cfg(not(feature = "unstable-internals"))]
#[allow(dead_code, unused_imports)]
mod base;
#[cfg(not(feature = "unstable-internals"))]
#[allow(dead_code, unused_imports)]
mod storage;

mod any;
mod dlht;
mod engine;
mod join;

mod error;
mod outcome;
mod report;
mod table;
mod types;

#[cfg(doctest)]
mod misuse;

pub use any::{AnyDamage, AnyOptions, AnyPage, AnyTable, AnyWords};
pub use dlht::{
    AllocError, Allocator, Dlht, DlhtAndModify, DlhtBuildHasher, DlhtDrain, DlhtEntry, DlhtGuard,
    DlhtHash, DlhtHasher, DlhtIntoIter, DlhtIter, DlhtKeys, DlhtLocal, DlhtMap, DlhtMapAndModify,
    DlhtMapDrain, DlhtMapEntry, DlhtMapIntoIter, DlhtMapIter, DlhtMapKeys, DlhtMapLocal, DlhtMapOp,
    DlhtMapOptions, DlhtMapPage, DlhtMapShadow, DlhtMapSnapshot, DlhtMapSnapshotIter,
    DlhtMapValues, DlhtNamespace, DlhtOptions, DlhtOwnedGuard, DlhtReader, DlhtRecordMap, DlhtSet,
    DlhtSetDrain, DlhtSetIntoIter, DlhtSetIter, DlhtSetLocal, DlhtSetPage, DlhtSetShadow,
    DlhtSetSnapshot, DlhtSetSnapshotIter, DlhtTable, DlhtValues, DlhtWordSet, Global, Local,
    RecordAllocator, Refused, Shadow, Shadows, Shared, Snapshot, SnapshotIter, Threading,
};
#[cfg(feature = "rayon")]
pub use dlht::{
    DlhtIntoParIter, DlhtMapIntoParIter, DlhtMapParIter, DlhtParIter, DlhtSetIntoParIter,
    DlhtSetParIter,
};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use dlht::{Interleaved, LinkPool, Turns};
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use engine::dash::{Ablation, Directory, Geometry, Parts, Whole};
pub use engine::dash::{Eh, Expansion, Lh};
pub use engine::iceberg::IcebergHt;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use engine::iceberg::{FrontLine, Yards};
pub use engine::plush::{Partition, PlushHt};
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub use engine::plush::{Shape, payload_checksum};
pub use error::{Error, Result};
pub use join::{
    Bitmap, HashedJoinIndex, JoinIndex, JoinOptions, JoinSource, JoinStats, KeyHash, MergeKind,
    MergeReport, OnFull, Pairs,
};
pub use outcome::{Computed, Cursor, Decision, Occupied, OnFailure};
pub use report::{BackupReport, CheckReport, DamagedRecord, RecoveryReport, SalvageReport, Stats};
#[doc(inline)]
pub use storage::{Committed, Durability, HugePages, SyncMode};
pub use table::{
    Collection, Dash, DashEh, DashLh, DashOptions, Durable, DurableTable, Exchanged, HeldKeys,
    Iceberg, IcebergOptions, Iter, NotShadowed, Op, Page, Plush, PlushOptions, Table, TableOptions,
    TryInsert,
};
pub use types::{Arg, Counter, Data, Form, Key, Owned, Raw, RecordArg, Value, Word};
