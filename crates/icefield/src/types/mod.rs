//! Key and value types, and their conversion to and from stored words and bytes.
//!
//! Every type has one of three [`Form`]s: a 64-bit word that is stored in the slot itself, a fixed number of bytes, or
//! bytes of any length. Engines handle forms only; all conversions are in this module.

mod builtin;
mod data;
mod form;
mod take;

pub use data::{Arg, Counter, Data, Key, Owned, Raw, RecordArg, Value, Word};
pub use form::Form;
#[cfg(test)]
pub(crate) use form::InWords;
pub(crate) use form::{Forms, InAnyBytes, InBytes, InWord, RecordForm, StoredForm, WordArray};
pub(crate) use take::{Copied, CopiedAs, Ignore, Item, Keep, Kind, Own, Show, Take, Types, Visit};
