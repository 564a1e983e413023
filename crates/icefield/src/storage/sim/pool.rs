//! The pool that recycles used arenas, because a new mapping would cost more than a whole crash image.

use std::sync::{Arc, Mutex, PoisonError};

use super::arena::Arena;
use super::state::State;

/// Arenas with more used bytes are returned to the system: zeroing them would cost more than a new mapping.
const RECYCLED_BYTES: usize = 1 << 20;

/// Used arenas and logs for the next medium. Clones share the pool, and so should all [`super::SimOptions`] of a run.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<(Arena, State)>>>);

impl Pool {
    /// Returns an arena with slots of `slot_bytes` and an empty state, recycled if possible.
    pub(super) fn take(&self, slot_bytes: usize) -> Option<(Arena, State)> {
        {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) =
                waiting.iter().rposition(|(arena, _)| arena.slot_bytes() == slot_bytes)
            {
                return Some(waiting.swap_remove(at));
            }
        }
        Some((Arena::reserve(slot_bytes)?, State::default()))
    }

    /// Takes back the result of [`Pool::take`], after wiping and emptying it.
    pub(super) fn put(&self, mut arena: Arena, mut state: State) {
        if state.used_bytes().sum::<usize>() > RECYCLED_BYTES {
            return;
        }
        for (slot, used) in state.used_bytes().enumerate() {
            arena.wipe(slot, used);
        }
        state.reset();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < 16 {
            waiting.push((arena, state));
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}
