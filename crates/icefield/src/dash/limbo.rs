//! What has been freed and may still be looked at: its space goes back to the file system once everybody has left who
//! might.
//!
//! Whoever was on the way to a segment when it was freed finds out that it is the wrong place, but may have stored a
//! lock word there before: a store into a hole of a full device would be fatal. And where a hole reads as zero, a
//! lock's version would come back. So every operation is pinned, and a space that was freed waits for those who were
//! there. It may be used again meanwhile, and freed again: then only the last time counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::Pin;

/// Spaces by the numbers that the directory policy gives them.
#[derive(Default)]
pub(super) struct Limbo(Arc<Mutex<Spaces>>);

#[derive(Default)]
struct Spaces {
    /// How often each one is waiting for somebody to leave.
    waiting: HashMap<u32, u32>,
    /// Those that nobody looks at any more.
    ready: Vec<u32>,
}

impl Limbo {
    fn lock(spaces: &Mutex<Spaces>) -> MutexGuard<'_, Spaces> {
        spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A space is about to be freed.
    pub(super) fn enter(&self, pin: &Pin<'_>, space: u32) {
        *Self::lock(&self.0).waiting.entry(space).or_default() += 1;
        let spaces = Arc::clone(&self.0);
        pin.defer(move || {
            let mut spaces = Self::lock(&spaces);
            if let Some(count) = spaces.waiting.get_mut(&space) {
                *count -= 1;
                if *count == 0 {
                    spaces.waiting.remove(&space);
                    spaces.ready.push(space);
                }
            }
        });
    }

    /// The spaces that may go, each once. Ask [`Limbo::waits`] again when nobody else can free it any more.
    pub(super) fn leave(&self) -> Vec<u32> {
        std::mem::take(&mut Self::lock(&self.0).ready)
    }

    /// Whether the space has been freed again.
    pub(super) fn waits(&self, space: u32) -> bool {
        Self::lock(&self.0).waiting.contains_key(&space)
    }

    /// Whether any space is in here.
    pub(super) fn is_empty(&self) -> bool {
        let spaces = Self::lock(&self.0);
        spaces.waiting.is_empty() && spaces.ready.is_empty()
    }
}
