//! Keeps implementations of the roles of a medium inside this crate: unsafe code relies on their behaviour.

/// Cannot be named outside the crate.
pub trait Sealed {}
