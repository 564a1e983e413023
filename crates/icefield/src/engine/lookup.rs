//! The form in which the operations of an engine take keys.

use crate::types::Raw;

/// The maximum length of a key or value.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey<'a> {
    pub(crate) hash: u64,
    /// The key if it is a word, otherwise 0. A copy, because the compiler would load a word behind the reference again
    /// after every acquire load.
    pub(crate) word: u64,
    pub(crate) key: &'a Raw<'a>,
}

impl<'a> LookupKey<'a> {
    #[inline(always)]
    pub(crate) fn new(hash: u64, key: &'a Raw<'a>) -> Self {
        Self { hash, word: key.word(), key }
    }
}
