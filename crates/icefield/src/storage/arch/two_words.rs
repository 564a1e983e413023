//! The type [`TwoWords`].

use std::sync::atomic::AtomicU64;

/// Two words in one line, aligned for one load of both.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct TwoWords(pub(crate) [AtomicU64; 2]);
