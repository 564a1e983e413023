//! Bytes of a mapping that other threads may store to meanwhile: loaded and stored word by word, never lent as a
//! slice.
//!
//! In a damaged file a reference may lead to any bytes. A `&[u8]` to them would assert that no thread stores there
//! during the slice's lifetime, and no check of a file can guarantee that. So such bytes are accessed as atomic words
//! only: a concurrent store makes the copy a mixture, but causes no undefined behaviour.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::overlay::Overlay;

const WORD: usize = size_of::<u64>();

#[repr(transparent)]
pub(crate) struct ByteWord(AtomicU64);

// SAFETY: transparent over an atomic integer.
unsafe impl Overlay for ByteWord {}

impl ByteWord {
    // Relaxed, also in `set`: in a sound file, the reference to these bytes was stored with Release and loaded with
    // Acquire, so all of the bytes are visible.
    #[inline(always)]
    fn get(&self) -> [u8; WORD] {
        self.0.load(Ordering::Relaxed).to_ne_bytes()
    }

    #[inline(always)]
    pub(super) fn set(&self, bytes: [u8; WORD]) {
        self.0.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Bytes of a mapping, to be copied out or compared. [`Bytes::shared_bytes`](super::Bytes::shared_bytes) returns them.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    /// The words that contain the bytes.
    words: &'a [ByteWord],
    len: usize,
}

impl<'a> SharedBytes<'a> {
    /// Returns the first `len` bytes of `words`; `words` has exactly the words that contain them.
    pub(super) fn new(words: &'a [ByteWord], len: usize) -> Self {
        debug_assert_eq!(words.len(), len.div_ceil(WORD));
        Self { words, len }
    }

    /// Returns the number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes to `to`, as far as they fit, and returns the copy.
    #[inline]
    pub fn copy_to<'t>(&self, to: &'t mut [MaybeUninit<u8>]) -> &'t mut [u8] {
        let len = self.len.min(to.len());
        let to = &mut to[..len];
        let (whole, rest) = to.as_chunks_mut::<WORD>();
        for (target, word) in whole.iter_mut().zip(self.words) {
            *target = word.get().map(MaybeUninit::new);
        }
        if let Some(last) = self.words.get(whole.len()) {
            for (target, byte) in rest.iter_mut().zip(last.get()) {
                target.write(byte);
            }
        }
        // SAFETY: all `len` bytes have just been written: `words` holds at least that many. `MaybeUninit<u8>` has the
        // layout of `u8`.
        unsafe { &mut *(std::ptr::from_mut(to) as *mut [u8]) }
    }

    /// Returns a copy of the bytes.
    #[inline]
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len);
        let len = self.copy_to(&mut copy.spare_capacity_mut()[..self.len]).len();
        // SAFETY: that many bytes have just been written.
        unsafe { copy.set_len(len) };
        copy
    }

    /// Returns whether the bytes equal `bytes`.
    #[inline]
    #[must_use]
    pub fn equal(&self, bytes: &[u8]) -> bool {
        if self.len != bytes.len() {
            return false;
        }
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let same = whole.iter().zip(self.words).all(|(bytes, word)| word.get() == *bytes);
        same && self.words.get(whole.len()).is_none_or(|last| last.get().starts_with(rest))
    }
}

/// Stores `bytes` to `words`, and zeros in the rest of the last word.
#[inline]
pub(super) fn store(words: &[ByteWord], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, bytes) in words.iter().zip(whole) {
        word.set(*bytes);
    }
    if let (Some(last), false) = (words.get(whole.len()), rest.is_empty()) {
        let mut bytes = [0; WORD];
        bytes[..rest.len()].copy_from_slice(rest);
        last.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_come_back() {
        let words: Vec<ByteWord> = (0..5).map(|_| ByteWord(AtomicU64::new(u64::MAX))).collect();
        for len in 0..=40_usize {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let taken = &words[..len.div_ceil(WORD)];
            store(taken, &bytes);
            let stored = SharedBytes::new(taken, len);
            assert_eq!((stored.len(), stored.is_empty()), (len, len == 0));
            assert_eq!(stored.to_vec(), bytes);
            assert_eq!(stored.copy_to(&mut [MaybeUninit::uninit(); 3]), &bytes[..len.min(3)]);
            assert!(stored.equal(&bytes));
            assert!(!stored.equal(&[&bytes[..], &[0]].concat()));
            for wrong in 0..len {
                let mut other = bytes.clone();
                other[wrong] ^= 0x80;
                assert!(!stored.equal(&other) && !stored.equal(&bytes[..wrong]), "byte {wrong}");
            }
        }
    }
}
