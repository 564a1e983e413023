//! Runs the tests of `src/guard.rs`, without the tables.

#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(clippy::missing_safety_doc, dead_code, unused_macros, reason = "for the library")]

#[path = "../src/error.rs"]
mod error;
#[macro_use]
#[path = "../src/guard.rs"]
mod guard;
#[path = "../src/pointers.rs"]
mod pointers;
