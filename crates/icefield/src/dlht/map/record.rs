//! Separately allocated records, and the words that lead to them.
//!
//! A slot's key word is the whole 64-bit hash of a key and its namespace; its value word leads to the record. Keys
//! whose hashes are equal in all 64 bits share a slot. Its word then leads to a crowd: an immutable list that is
//! replaced as a whole. A lookup therefore reads a record of another key once in 2^64 times, unless the hash function
//! is broken.

use std::borrow::Borrow;
use std::fmt;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;

use super::guard::DlhtGuard;
use super::memory::{RecordAllocator, free, give_back, no_memory, retire, room};
use crate::base::pipeline::prefetch_read;
use crate::{Error, Result};

/// The bit that marks a word as leading to a [`Crowd`].
const CROWD: usize = 1;

/// A record. The key is among the first fields, because a lookup compares it first.
#[repr(C, align(8))]
pub(super) struct Record<K, V> {
    pub(super) namespace: u16,
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V> Record<K, V> {
    #[inline(always)]
    pub(super) fn is<Q: Eq + ?Sized>(&self, namespace: u16, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.namespace == namespace && self.key.borrow() == key
    }

    #[inline(always)]
    pub(super) fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }
}

pub(super) type Pointer<K, V> = NonNull<Record<K, V>>;

/// Two or more records with one hash.
#[repr(align(8))]
struct Crowd<K, V, A: Allocator>(Vec<Pointer<K, V>, A>);

/// The error of [`DlhtMap::checked_insert`](crate::DlhtMap::checked_insert): the reason of the refusal, and the record.
///
/// ```
/// let map = icefield::DlhtMap::<u64, String>::new();
/// let guard = map.pin();
/// if let Err(refused) = map.checked_insert(1, "one".to_owned(), &guard) {
///     println!("{}: {} is not in the map", refused.error, refused.value);
/// }
/// ```
pub struct Refused<K, V> {
    /// The reason of the refusal.
    pub error: Error,
    /// The key that was refused.
    pub key: K,
    /// The value that was refused.
    pub value: V,
}

impl<K, V> Refused<K, V> {
    /// Returns the reason; drops the record.
    pub(super) fn reason(self) -> Error {
        self.error
    }
}

impl<K, V> fmt::Debug for Refused<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for Refused<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<K, V> std::error::Error for Refused<K, V> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A new record that is not in the table yet. Dropping it drops the record.
pub(super) struct Fresh<'a, K, V, A: Allocator> {
    record: Pointer<K, V>,
    allocator: &'a A,
}

impl<'a, K, V, A: Allocator> Fresh<'a, K, V, A> {
    #[inline]
    pub(super) fn new(
        allocator: &'a A,
        namespace: u16,
        key: K,
        value: V,
    ) -> Result<Self, Refused<K, V>> {
        match room::<Record<K, V>>(allocator) {
            Ok(record) => {
                // SAFETY: room for one record.
                unsafe { record.write(Record { namespace, key, value }) };
                Ok(Self { record, allocator })
            }
            Err(error) => Err(Refused { error, key, value }),
        }
    }

    pub(super) fn pointer(&self) -> Pointer<K, V> {
        self.record
    }

    /// Returns the word that leads to this record alone.
    pub(super) fn word(&self) -> u64 {
        word_of_record(self.record)
    }

    pub(super) fn key(&self) -> &K {
        // SAFETY: written in `new`, and never changed.
        unsafe { &self.record.as_ref().key }
    }

    /// Passes ownership of the record to the table.
    pub(super) fn hand_over(self) {
        std::mem::forget(self);
    }

    /// Takes the record back after the table has refused it.
    pub(super) fn refused(self, error: Error) -> Refused<K, V> {
        let (key, value) = self.into_parts();
        Refused { error, key, value }
    }

    /// Takes the record apart and frees its memory.
    pub(super) fn into_parts(self) -> (K, V) {
        let (record, allocator) = (self.record, self.allocator);
        std::mem::forget(self);
        // SAFETY: the record is owned here and is not dropped; its memory is freed once, after the record has been
        // read.
        let Record { key, value, .. } = unsafe {
            let parts = record.read();
            give_back(allocator, record);
            parts
        };
        (key, value)
    }
}

impl<K, V, A: Allocator> Drop for Fresh<'_, K, V, A> {
    fn drop(&mut self) {
        // SAFETY: made in `new` and still owned here.
        unsafe { free(self.allocator, self.record) };
    }
}

/// Returns the crowd or the record that a word leads to.
///
/// # Safety
/// The word came from [`word_of`] with the same types, and neither the crowd nor its records have been freed: the
/// caller has been pinned since before it read the word, or has exclusive access to the table. `'a` ends no later than
/// the pin or the exclusive access.
#[inline(always)]
unsafe fn crowd_of<'a, K, V, A: Allocator>(
    word: u64,
) -> std::result::Result<&'a Crowd<K, V, A>, Pointer<K, V>> {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: a crowd that is alive, by the caller's contract.
        return Ok(unsafe { crowd_pointer(address).as_ref() });
    }
    let record = ptr::with_exposed_provenance_mut::<Record<K, V>>(address);
    // SAFETY: words lead to allocations, which are not null.
    Err(unsafe { NonNull::new_unchecked(record) })
}

/// Returns the records that a word leads to.
///
/// # Safety
/// As for `crowd_of`.
pub(super) unsafe fn records_of<'a, K: 'a, V: 'a, A: Allocator + 'a>(
    word: u64,
) -> impl Iterator<Item = Pointer<K, V>> + 'a {
    // SAFETY: the caller's contract.
    let (one, crowd): (_, &'a [Pointer<K, V>]) = match unsafe { crowd_of::<'a, K, V, A>(word) } {
        Ok(Crowd(records)) => (None, records.as_slice()),
        Err(record) => (Some(record), [].as_slice()),
    };
    one.into_iter().chain(crowd.iter().copied())
}

/// Returns the record of `key` among those that `word` leads to.
///
/// # Safety
/// As for `crowd_of`.
#[inline(always)]
pub(super) unsafe fn find_in<K: Borrow<Q>, V, A: Allocator, Q: Eq + ?Sized>(
    word: u64,
    namespace: u16,
    key: &Q,
) -> Option<Pointer<K, V>> {
    // SAFETY: the caller's contract, which includes the records.
    let is = |record: &Pointer<K, V>| unsafe { record.as_ref().is(namespace, key) };
    // SAFETY: the caller's contract.
    match unsafe { crowd_of::<K, V, A>(word) } {
        Err(record) => Some(record).filter(is),
        Ok(Crowd(records)) => records.iter().copied().find(is),
    }
}

fn word_of_record<K, V>(record: Pointer<K, V>) -> u64 {
    record.as_ptr().expose_provenance() as u64
}

/// Returns a word for the records that `word` leads to, minus `without`, plus `new`; `None` if no record is left.
///
/// # Errors
/// Fails if a crowd cannot be allocated.
///
/// # Safety
/// As for `crowd_of`.
pub(super) unsafe fn word_of<K, V, A: RecordAllocator>(
    allocator: &A,
    word: Option<u64>,
    without: Option<Pointer<K, V>>,
    new: Option<Pointer<K, V>>,
) -> Result<Option<u64>> {
    // SAFETY: the caller's contract.
    let old = || word.into_iter().flat_map(|word| unsafe { records_of::<K, V, A>(word) });
    let records = || old().filter(|record| Some(*record) != without).chain(new);
    let mut first = records();
    let Some(record) = first.next() else { return Ok(None) };
    if first.next().is_none() {
        return Ok(Some(word_of_record(record)));
    }
    let count = records().count();
    let mut crowd = Vec::new_in(allocator.clone());
    crowd.try_reserve_exact(count).map_err(|_| no_memory(count * size_of::<Pointer<K, V>>()))?;
    crowd.extend(records());
    let room = room(allocator)?;
    // SAFETY: room for one crowd.
    unsafe { room.write(Crowd::<K, V, A>(crowd)) };
    Ok(Some((room.as_ptr().expose_provenance() | CROWD) as u64))
}

/// Frees the crowd, if `word` leads to one, but not its records.
///
/// # Safety
/// The word came from [`word_of`], no other thread has seen it or can see it, and it is not used again.
pub(super) unsafe fn free_crowd<K, V, A: Allocator>(allocator: &A, word: u64) {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: made in `word_of`; only the caller has the word.
        unsafe { free(allocator, crowd_pointer::<K, V, A>(address)) };
    }
}

/// Frees the crowd, if `word` leads to one, after every thread that is pinned now has unpinned.
///
/// # Safety
/// The word came from [`word_of`], the table no longer holds it, and it is retired once.
pub(super) unsafe fn retire_crowd<K, V, A: RecordAllocator>(
    guard: &DlhtGuard<'_>,
    allocator: &A,
    word: u64,
) {
    let address = word as usize;
    if address & CROWD != 0 {
        // SAFETY: made in `word_of`, unreachable for threads that pin from now on, retired once. Dropping a list of
        // pointers accesses no record, and the allocator in it may be dropped on any thread.
        unsafe { retire(guard, allocator, crowd_pointer::<K, V, A>(address)) };
    }
}

/// Returns the record that a word leads to, or the list of a crowd, whose memory it frees.
///
/// # Safety
/// The word came from [`word_of`] with the same types and allocator, and only the caller has it.
pub(super) unsafe fn take_apart<K, V, A: Allocator>(
    allocator: &A,
    word: u64,
) -> std::result::Result<Vec<Pointer<K, V>, A>, Pointer<K, V>> {
    // SAFETY: the caller's contract.
    unsafe { crowd_of::<K, V, A>(word) }.map(|_| {
        // SAFETY: the word leads to a crowd that only the caller has. Its list is moved out once, and its memory freed.
        unsafe {
            let crowd = crowd_pointer::<K, V, A>(word as usize);
            let Crowd(records) = crowd.read();
            give_back(allocator, crowd);
            records
        }
    })
}

/// # Safety
/// `address` is that of a crowd.
unsafe fn crowd_pointer<K, V, A: Allocator>(address: usize) -> NonNull<Crowd<K, V, A>> {
    // SAFETY: not null, by the caller's contract.
    unsafe { NonNull::new_unchecked(ptr::with_exposed_provenance_mut(address & !CROWD)) }
}

/// Prefetches the record that `word` leads to, or the first two lines of a long record. The word may be invalid.
#[inline(always)]
pub(super) fn hint_record<K, V>(word: u64) {
    const LINE: usize = 64;
    let first = ptr::without_provenance::<u8>(word as usize);
    prefetch_read(first);
    prefetch_read(first.wrapping_add((size_of::<Record<K, V>>() - 1).min(LINE)));
}
