//! Bytes of a mapping that other threads may be storing to: loaded and stored word by word, never lent as a slice.
//!
//! A damaged file may have a reference that leads to any bytes. A `&[u8]` to them would promise that no thread stores
//! there while it lives, and no check of a file can keep that promise. So such bytes are reached as atomic words only:
//! a store that comes meanwhile makes the copy a mixture, and nothing worse.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::Overlay;

const WORD: usize = size_of::<u64>();

/// A word of such bytes.
#[repr(transparent)]
pub(in crate::pm) struct ByteWord(AtomicU64);

// SAFETY: transparent over an atomic integer.
unsafe impl Overlay for ByteWord {}

impl ByteWord {
    // Relaxed, here and in `set`: what makes the bytes of a sound file complete is the Acquire load of the reference
    // that led here, which pairs with the Release store of that reference.
    #[inline(always)]
    fn get(&self) -> [u8; WORD] {
        self.0.load(Ordering::Relaxed).to_ne_bytes()
    }

    #[inline(always)]
    pub(super) fn set(&self, bytes: [u8; WORD]) {
        self.0.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Bytes of a mapping, to be copied out or compared. From [`Medium::shared_bytes`](super::Medium::shared_bytes).
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    /// All that hold any of them.
    words: &'a [ByteWord],
    len: usize,
}

impl<'a> SharedBytes<'a> {
    /// The first `len` bytes of `words`, which has as many words as they take.
    pub(super) fn new(words: &'a [ByteWord], len: usize) -> Self {
        debug_assert_eq!(words.len(), len.div_ceil(WORD));
        Self { words, len }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first ones to `to`, as many as fit, and gives the copy.
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
        // SAFETY: all `len` of them have just been written: `words` holds at least as many. `MaybeUninit<u8>` has the
        // layout of `u8`.
        unsafe { &mut *(std::ptr::from_mut(to) as *mut [u8]) }
    }

    /// A copy.
    #[inline]
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len);
        let len = self.copy_to(&mut copy.spare_capacity_mut()[..self.len]).len();
        // SAFETY: that many bytes have just been written.
        unsafe { copy.set_len(len) };
        copy
    }

    /// Whether they are `bytes`.
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

/// Stores `bytes` to `words`, as many as they take; behind them, in the last word, zeros.
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
