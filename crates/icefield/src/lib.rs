//! Crash-safe, memory-aware, concurrent hash tables.

pub mod base;
pub mod pm;

mod any;
mod dash;

mod error;
mod key;
mod table;

pub use any::{AnyOptions, AnyPage, AnyTable};
pub use dash::{Dash, DashEh, DashOptions, Eh, Iter};
#[doc(hidden)]
pub use dash::Geometry;
pub use error::{Error, Result};
pub use key::{Data, Form, Key, Raw, Value, Word};
pub use pm::Durability;
pub use table::{
    Arg, BackupReport, CheckReport, Computed, Counter, Cursor, Decision, Durable, Occupied,
    OnFailure, Op, Owned, Page, RecoveryReport, SalvageReport, Stats, Table, TryInsert,
};
