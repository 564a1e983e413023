//! The types of a table, combined into one type parameter, and the techniques that measurements can switch off.

use std::marker::PhantomData;

use crate::storage::Medium;
use crate::types::RecordForm;

/// The types that the code below the public interface is generic over.
pub trait Kinds {
    type Form: RecordForm;
    type Medium: Medium;
    type Ablation: Ablation;
}

/// The implementation of [`Kinds`].
pub struct Of<R, M, A>(PhantomData<fn(R, M, A)>);

impl<R: RecordForm, M: Medium, A: Ablation> Kinds for Of<R, M, A> {
    type Form = R;
    type Medium = M;
    type Ablation = A;
}

/// Selects the techniques of a table, to measure the effect of each. The choice is made at compile time, so [`Whole`]
/// tables pay nothing. The file format is the same for all: a table also maintains the data of techniques that are
/// switched off.
pub trait Ablation: Send + Sync + 'static {
    /// The techniques that the table uses.
    const PARTS: Parts;
}

/// The techniques of §4 that can be switched off.
///
/// ```
/// assert!(icefield::Parts::ALL.fingerprints);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// A search compares fingerprints before keys, and the hash bits in a reference before it reads the key (§4.2).
    /// If `false`, it compares all records of a bucket.
    pub fingerprints: bool,
    /// A search skips the stash if the overflow metadata of the home bucket excludes its key (§4.3). If `false`,
    /// it always searches the stash.
    pub overflow_metadata: bool,
    /// A record may be in the bucket after its home bucket. If `false`, it is in its home bucket or in the stash.
    pub probing: bool,
    /// Once the first nine slots of the home bucket are taken, the emptier of the two buckets takes a new record, and
    /// records are displaced to make room (§4.3). If `false`, the first bucket with room takes a new record.
    pub balancing: bool,
    /// Searches take no locks (§4.4). If `false`, they lock their buckets, as writers do.
    pub optimistic: bool,
}

impl Parts {
    /// All techniques.
    pub const ALL: Self = Self {
        fingerprints: true,
        overflow_metadata: true,
        probing: true,
        balancing: true,
        optimistic: true,
    };
}

/// A table with all techniques.
pub struct Whole;

impl Ablation for Whole {
    const PARTS: Parts = Parts::ALL;
}
