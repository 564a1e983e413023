//! The types that a table is made of, as one parameter, and what an ablated table does without.

use std::marker::PhantomData;

use crate::key::{Key, Value};
use crate::pm::Medium;

/// The types that everything below the public face is generic over.
pub trait Kinds {
    type Key: Key + ?Sized;
    type Value: Value + ?Sized;
    type Medium: Medium;
    type Ablation: Ablation;
}

/// Such types.
pub struct Of<K: ?Sized, V: ?Sized, M, A>(PhantomData<fn(&K, &V, M, A)>);

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium, A: Ablation> Kinds for Of<K, V, M, A> {
    type Key = K;
    type Value = V;
    type Medium = M;
    type Ablation = A;
}

/// A table without some of its techniques, to measure what they are worth. Decided when it is compiled: [`Whole`]
/// tables pay nothing. The files are the same, whatever wrote them: an ablated table keeps what it does not use.
pub trait Ablation: Send + Sync + 'static {
    /// What is there, and what is not.
    const PARTS: Parts;
}

/// The techniques of §4 that a table may be without.
///
/// ```
/// assert!(icefield::Parts::ALL.fingerprints);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// A search compares fingerprints before keys, and the hash bits in a reference before it follows it (§4.2).
    /// Without: all records of a bucket.
    pub fingerprints: bool,
    /// A search learns from its home bucket that the stash has nothing for it (§4.3). Without: it looks.
    pub overflow_metadata: bool,
    /// A record may be in the bucket after its home bucket. Without: in its home bucket only.
    pub probing: bool,
    /// Of the two buckets the emptier one takes a record, and records move on to make room (§4.3). Without: the first
    /// one with room.
    pub balancing: bool,
    /// Searches take no locks (§4.4). Without: those of their buckets, as writers do.
    pub optimistic: bool,
}

impl Parts {
    /// Dash.
    pub const ALL: Self = Self {
        fingerprints: true,
        overflow_metadata: true,
        probing: true,
        balancing: true,
        optimistic: true,
    };
}

/// Nothing is left out.
pub struct Whole;

impl Ablation for Whole {
    const PARTS: Parts = Parts::ALL;
}
