//! Events of a simulated medium: the moments at which a crash is examined.

use std::panic::Location;

use super::dirty_line::DirtyLine;

/// The kind of a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A store has just happened.
    Store,
    /// A flush has just begun.
    Flush,
    /// A fence is about to take effect.
    Fence,
    /// A region is about to grow.
    Grow,
    /// Pages are about to be punched.
    Punch,
    /// The harness requested the point ([`Sim::crash_point`](super::Sim::crash_point)).
    Asked,
}

/// One crash point.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The kind of the event.
    pub kind: EventKind,
    /// Its number on this medium, from 1.
    pub number: u64,
    /// The number of the thread, by the order of first use of the medium.
    pub thread: usize,
    /// The position in the code.
    pub site: &'static Location<'static>,
}

/// The lines at a crash point that a mutation creates: their state before a fence, plus one store that the code makes
/// after it.
pub(super) struct Reordered {
    pub(super) lines: Vec<DirtyLine>,
    /// The index of the line whose newest store must be present. Images without this store were presented at the fence.
    pub(super) moved: usize,
}
