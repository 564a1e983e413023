//! Keys as the operations of an engine take them.

use crate::types::Raw;

/// The maximum length of a key or value.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey<'a> {
    pub(crate) hash: u64,
    /// The word of a key that is one, otherwise 0. It is copied because a value behind a reference is loaded again after
    /// every acquire load.
    pub(crate) word: u64,
    pub(crate) key: &'a Raw<'a>,
}

impl<'a> LookupKey<'a> {
    #[inline(always)]
    pub(crate) fn new(hash: u64, key: &'a Raw<'a>) -> Self {
        Self { hash, word: key.word(), key }
    }
}
