//! The handle of a join index, whose keys are words or bytes.

use std::ffi::c_void;

use icefield::{HashedJoinIndex, JoinIndex};

use crate::error::Failure;
use crate::error::icefield_status::ICEFIELD_TYPE_MISMATCH;
use crate::pointers::is_null;

/// An index for joins: pairs of a key and a payload, which is a word. Keys are words, or bytes of any length, and may
/// have many pairs. Calls for keys of the other kind fail with ICEFIELD_TYPE_MISMATCH.
pub struct icefield_join(pub(crate) Index);

/// An index of either kind.
pub(crate) enum Index {
    Words(JoinIndex<u64>),
    Bytes(ByteIndex),
}

/// Evaluates an expression for the index of either kind. The keys of an index of bytes are their hashes.
macro_rules! any_index {
    ($join:expr, |$index:ident| $call:expr) => {
        match &$join.0 {
            $crate::join_handle::Index::Words($index) => $call,
            $crate::join_handle::Index::Bytes(index) => {
                let $index = index.hashes();
                $call
            }
        }
    };
}
pub(crate) use any_index;

impl icefield_join {
    pub(crate) fn new(index: Index) -> *mut Self {
        Box::into_raw(Box::new(Self(index)))
    }

    /// Returns the index, if its keys are words.
    pub(crate) fn words(&self) -> Result<&JoinIndex<u64>, Failure> {
        match &self.0 {
            Index::Words(index) => Ok(index),
            Index::Bytes(_) => Err(Failure::new(
                ICEFIELD_TYPE_MISMATCH,
                "the keys of this index are bytes; use the calls whose names end with `_bytes`",
            )),
        }
    }

    /// Returns the index, if its keys are bytes.
    pub(crate) fn bytes(&self) -> Result<&ByteIndex, Failure> {
        match &self.0 {
            Index::Bytes(index) => Ok(index),
            Index::Words(_) => Err(Failure::new(
                ICEFIELD_TYPE_MISMATCH,
                "the keys of this index are words; use the calls without `_bytes` in their names",
            )),
        }
    }
}

/// Returns the hash of a key. The same key must have the same hash in every process. The library also calls it with the
/// 8 bytes `icefield`, by whose hash an opening recognizes the function, so it must accept keys of any length. The rules
/// of icefield_row_has_key hold.
pub type icefield_hash_bytes =
    Option<unsafe extern "C" fn(context: *mut c_void, key: *const u8, len: usize) -> u64>;

/// Returns 1 if the row of a payload has the key, otherwise 0. The library calls it for pairs whose hash is that of the
/// key. `key` is valid during the call only. Several threads may call it at once; it must not change or close the
/// index, and must return: no exception and no longjmp may leave it.
pub type icefield_row_has_key = Option<
    unsafe extern "C" fn(context: *mut c_void, key: *const u8, len: usize, payload: u64) -> u8,
>;

pub(crate) type Hash = Box<dyn Fn(&[u8]) -> u64 + Send + Sync>;
pub(crate) type Verify = Box<dyn Fn(&[u8], u64) -> bool + Send + Sync>;
/// An index that calls the caller's functions.
pub(crate) type ByteIndex = HashedJoinIndex<Hash, Verify>;

/// The caller's first argument of its functions.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the header requires that several threads may call the functions at once with this argument.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A method, so that closures capture the whole struct and not the pointer in it.
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// Returns the caller's functions as Rust's.
pub(crate) fn functions(
    hash: icefield_hash_bytes,
    has_key: icefield_row_has_key,
    context: *mut c_void,
) -> Result<(Hash, Verify), Failure> {
    let hash = hash.ok_or_else(|| is_null("hash"))?;
    let has_key = has_key.ok_or_else(|| is_null("has_key"))?;
    let context = Context(context);
    // SAFETY: the caller passed a function of this type, which follows the rules of its type.
    let hash = move |key: &[u8]| unsafe { hash(context.get(), key.as_ptr(), key.len()) };
    let verify = move |key: &[u8], payload: u64| {
        // SAFETY: as above.
        unsafe { has_key(context.get(), key.as_ptr(), key.len(), payload) != 0 }
    };
    Ok((Box::new(hash), Box::new(verify)))
}
