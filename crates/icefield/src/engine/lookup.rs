//! Keys as the operations of an engine take them.

use crate::types::Raw;

/// The maximum length of a key or value.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a Raw<'a>,
}
