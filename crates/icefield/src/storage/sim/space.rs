//! Crash points and the images that a crash there can leave.
//!
//! Every line with pending stores gets one of the contents that the order of its stores allows, independently of every
//! other line. On [`Model::Pmem`] a Release store is present only together with every earlier atomic store to its
//! line; Relaxed stores after it, and the words of bulk writes, are present or absent one by one. On [`Model::Disk`]
//! every 8-byte word has any of its versions.
//!
//! Between two fences, each store only adds possible images, and a table's obligations grow only when a call returns.
//! So the images just before each fence and after each return include the images of every crash point in between, under
//! the strictest obligations.

use super::dirty_line::DirtyLine;
use super::event::{Event, Reordered};
use super::image::{Image, ImageRegion, mix};
use super::model::Model;
use super::state::State;
use crate::storage::arch::LINE_BYTES;

/// The choice of one image of a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The image with this number, if the images can be enumerated.
    Nth(u64),
    /// No pending store survived.
    AllOld,
    /// Every pending store survived.
    AllNew,
    /// Every store survived except those of one line, which has any possible content.
    OneBehind(u64),
    /// No store survived except those of one line, which has any possible content.
    OneAhead(u64),
    /// Every line has any possible content.
    Random(u64),
}

impl Pick {
    /// Returns the `n`th sample of a large space: all old, all new, then in turn one line behind, one line ahead, and
    /// random ones.
    #[must_use]
    pub fn sample(n: u64, seed: u64) -> Self {
        match n {
            0 => Self::AllOld,
            1 => Self::AllNew,
            _ if n % 4 == 2 => Self::OneBehind(mix(seed ^ n)),
            _ if n % 4 == 3 => Self::OneAhead(mix(seed ^ n)),
            _ => Self::Random(mix(seed ^ n)),
        }
    }
}

/// A moment at which a crash may happen, with all states that it can leave.
pub struct CrashPoint<'a> {
    state: &'a State,
    event: Event,
    /// `None`: the lines are those of `state`.
    reordered: Option<Reordered>,
}

impl<'a> CrashPoint<'a> {
    pub(super) fn new(state: &'a State, event: Event, reordered: Option<Reordered>) -> Self {
        Self { state, event, reordered }
    }

    /// Returns the event at this point.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// Returns whether a mutation created this point. Images should then be taken for every kind of event.
    #[must_use]
    pub fn is_reordered(&self) -> bool {
        self.reordered.is_some()
    }

    /// Returns whether the table has been published, so that from here on every image must open.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.state.published
    }

    /// Returns whether a store whose flush or fence the mutation left out is still not durable. If all are durable, the
    /// mutation adds no images.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.state.is_left_out()
    }

    /// Returns whether more than one image is possible.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_reordered() || !self.state.dirty.is_empty()
    }

    /// Returns the images of this point.
    #[must_use]
    pub fn space(&self) -> CrashSpace<'a> {
        let (mut lines, moved) = match &self.reordered {
            Some(Reordered { lines, moved }) => (lines.clone(), Some(*moved)),
            None => (self.state.dirty_lines(), None),
        };
        for (at, line) in lines.iter_mut().enumerate() {
            line.enumerate(self.state.model, moved == Some(at));
        }
        let count = lines
            .iter()
            .map(DirtyLine::count)
            .try_fold(1_u64, |product, count| product.checked_mul(count?));
        CrashSpace { state: self.state, lines, count }
    }
}

/// All images that a crash at one point can leave.
pub struct CrashSpace<'a> {
    state: &'a State,
    lines: Vec<DirtyLine>,
    count: Option<u64>,
}

impl CrashSpace<'_> {
    /// Returns the number of lines with pending stores.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns an upper bound on the number of different images; `None` when they cannot be enumerated.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// Writes one image, reusing the memory of `into`. Volatile words hold garbage that depends on the medium's seed
    /// and on the pick.
    pub fn image(&self, pick: Pick, into: &mut Image) {
        let regions = self.state.regions();
        into.regions.resize_with(regions.len(), ImageRegion::default);
        for (region, copy) in regions.iter().zip(&mut into.regions) {
            copy.name = region.name;
            copy.bytes.clear();
            copy.bytes.extend_from_slice(&region.persistent);
            copy.volatile.clear();
            copy.volatile.extend_from_slice(&region.volatile);
        }
        let mut choice = Choice::new(pick, self.lines.len());
        for (at, line) in self.lines.iter().enumerate() {
            let content = choice.content(at, line, self.state.model);
            let bytes = &mut into.regions[usize::from(line.id.region)].bytes;
            let end = bytes.len().min(line.id.offset() + LINE_BYTES);
            if let Some(target) = bytes.get_mut(line.id.offset()..end) {
                target.copy_from_slice(&content[..target.len()]);
            }
        }
        into.scramble(self.state.seed ^ choice.seed);
    }
}

/// Converts a pick into one content for each line.
struct Choice {
    pick: Pick,
    /// The part of the pick's number that is not decoded yet, or the state of the generator.
    left: u64,
    chosen: usize,
    seed: u64,
}

impl Choice {
    fn new(pick: Pick, lines: usize) -> Self {
        let seed = match pick {
            Pick::AllOld => 0,
            Pick::AllNew => 1,
            Pick::Nth(n) | Pick::OneBehind(n) | Pick::OneAhead(n) | Pick::Random(n) => n,
        };
        let chosen = (mix(seed) % lines.max(1) as u64) as usize;
        Self { pick, left: seed, chosen, seed: mix(seed) }
    }

    fn content(&mut self, at: usize, line: &DirtyLine, model: Model) -> [u8; LINE_BYTES] {
        match self.pick {
            Pick::Nth(_) => {
                let count = line.count().unwrap_or(1);
                let state = (self.left % count) as usize;
                self.left /= count;
                line.state(state)
            }
            Pick::AllOld => line.oldest(),
            Pick::AllNew => line.newest(),
            Pick::OneBehind(_) if at != self.chosen => line.newest(),
            Pick::OneAhead(_) if at != self.chosen => line.oldest(),
            Pick::OneBehind(_) | Pick::OneAhead(_) | Pick::Random(_) => {
                self.left = mix(self.left);
                line.random(self.left, model)
            }
        }
    }
}
