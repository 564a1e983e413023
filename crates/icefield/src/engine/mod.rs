//! The persistent designs. They work on words, byte strings, hashes and storage, and depend on no type of the user's.
//!
//! `interface` has the traits through which the tables above use a design. `slots` has the code that Dash and IcebergHT
//! share, whose slots hold the two words of a record. The designs do not import one another.

pub(crate) mod dash;
pub(crate) mod exclusion;
pub(crate) mod iceberg;
mod interface;
pub(crate) mod length;
mod lookup;
pub(crate) mod mending;
pub(crate) mod new_table;
pub(crate) mod opening;
pub(crate) mod plush;
pub(crate) mod slots;
pub(crate) mod stored_types;

pub(crate) use interface::{
    Design, Engine, Maintenance, Mixed, OnDamage, Operations, Scanned, WriteKind,
};
pub(crate) use lookup::{LookupKey, MAX_BYTES};
