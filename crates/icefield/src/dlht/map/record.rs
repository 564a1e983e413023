//! Records in memory of their own, and the words that lead to them.
//!
//! A slot's key word is the whole 64-bit hash of a key (with its namespace), its value word leads to the record. Keys
//! whose hashes are equal in all 64 bits share a slot: its word leads to a crowd then, an immutable list that is
//! replaced as a whole. So a record of another key is looked at once in 2^64 times, unless somebody's hash function is
//! broken.

use std::borrow::Borrow;
use std::ptr::{self, NonNull};

use crate::base::reclaim::Guard;

/// Set in a word that leads to a [`Crowd`].
const CROWD: usize = 1;

/// A record.
#[repr(align(8))]
pub(super) struct Record<K, V> {
    pub(super) namespace: u16,
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V> Record<K, V> {
    pub(super) fn is<Q: Eq + ?Sized>(&self, namespace: u16, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.namespace == namespace && self.key.borrow() == key
    }
}

/// Where a record is.
pub(super) type Pointer<K, V> = NonNull<Record<K, V>>;

/// Two or more records with one hash.
#[repr(align(8))]
struct Crowd<K, V>(Vec<Pointer<K, V>>);

/// A new record that is not in the table yet. Dropping it drops the record.
pub(super) struct Fresh<K, V>(Pointer<K, V>);

impl<K, V> Fresh<K, V> {
    pub(super) fn new(namespace: u16, key: K, value: V) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Record { namespace, key, value }))))
    }

    pub(super) fn pointer(&self) -> Pointer<K, V> {
        self.0
    }

    /// The table has it now.
    pub(super) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl<K, V> Drop for Fresh<K, V> {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`, and nobody else has got it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What a word leads to.
///
/// # Safety
/// The word came from [`word_of`] with the same types, and neither the crowd nor its records have been freed: whoever
/// calls has been pinned since before it read the word, or has the table for itself. `'a` ends before that does.
unsafe fn crowd_of<'a, K, V>(word: u64) -> Result<&'a Crowd<K, V>, Pointer<K, V>> {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: a crowd that is alive, by the caller's promise.
        return Ok(unsafe { &*ptr::with_exposed_provenance::<Crowd<K, V>>(address & !CROWD) });
    }
    let record = ptr::with_exposed_provenance_mut::<Record<K, V>>(address);
    // SAFETY: words lead to boxes, which are not null.
    Err(unsafe { NonNull::new_unchecked(record) })
}

/// The records that a word leads to.
///
/// # Safety
/// As for `crowd_of`.
pub(super) unsafe fn records_of<'a, K: 'a, V: 'a>(
    word: u64,
) -> impl Iterator<Item = Pointer<K, V>> + 'a {
    // SAFETY: the caller's promise.
    let (one, crowd): (_, &'a [Pointer<K, V>]) = match unsafe { crowd_of::<'a, K, V>(word) } {
        Ok(Crowd(records)) => (None, records.as_slice()),
        Err(record) => (Some(record), [].as_slice()),
    };
    one.into_iter().chain(crowd.iter().copied())
}

/// The word for the records of `word`, less `without`, with `new`; `None` for no record at all.
///
/// # Safety
/// As for `crowd_of`.
pub(super) unsafe fn word_of<K, V>(
    word: Option<u64>,
    without: Option<Pointer<K, V>>,
    new: Option<Pointer<K, V>>,
) -> Option<u64> {
    // SAFETY: the caller's promise.
    let old = word.into_iter().flat_map(|word| unsafe { records_of::<K, V>(word) });
    let mut records = old.filter(|record| Some(*record) != without).chain(new);
    let first = records.next()?;
    let Some(second) = records.next() else {
        return Some(first.as_ptr().expose_provenance() as u64);
    };
    let crowd = Crowd([first, second].into_iter().chain(records).collect());
    Some((Box::into_raw(Box::new(crowd)).expose_provenance() | CROWD) as u64)
}

/// Frees the crowd, if `word` leads to one, but not its records.
///
/// # Safety
/// The word came from [`word_of`], nobody else has seen it or can see it any more, and it is not used again.
pub(super) unsafe fn free_crowd<K, V>(word: u64) {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: boxed in `word_of`; the caller is the last to know it.
        drop(unsafe { Box::from_raw(crowd_pointer::<K, V>(address)) });
    }
}

/// Frees the crowd, if `word` leads to one, when everybody who is pinned now has left.
///
/// # Safety
/// The word came from [`word_of`], the table does not hold it any more, and this happens once.
pub(super) unsafe fn retire_crowd<K: Send, V: Send>(guard: &Guard<'_>, word: u64) {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: boxed in `word_of`, unreachable for newcomers, retired once; records are `Send`, so lists of them may
        // be dropped anywhere.
        unsafe { guard.retire_box(crowd_pointer::<K, V>(address).cast::<SendCrowd<K, V>>()) };
    }
}

fn crowd_pointer<K, V>(address: usize) -> *mut Crowd<K, V> {
    ptr::with_exposed_provenance_mut(address & !CROWD)
}

/// A crowd that may be dropped on another thread.
#[repr(transparent)]
struct SendCrowd<K, V>(#[allow(dead_code, reason = "only to be dropped")] Crowd<K, V>);

// SAFETY: dropping a list of pointers touches no record.
unsafe impl<K: Send, V: Send> Send for SendCrowd<K, V> {}
