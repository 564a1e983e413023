//! The progress of the scan.

/// The progress of the scan over the chunks that former sessions used.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The ranges of chunks that the sweep has not visited yet. The next range is the last element.
    pub(super) ranges: Vec<(u32, u32)>,
    /// The small chunk that the sweep is examining.
    pub(super) swept: Option<Examination>,
    /// One hunt for each class, by its index.
    pub(super) hunts: Vec<Hunt>,
}

/// The hunt for room in one class.
#[derive(Debug)]
pub(super) struct Hunt {
    /// The hunt moves down the map: it has passed the words of this chunk and of all later ones.
    pub(super) next: u32,
    pub(super) at: Option<Examination>,
}

/// A small chunk that is being examined, block by block.
#[derive(Debug)]
pub(super) struct Examination {
    pub(super) chunk: u32,
    pub(super) class: usize,
    pub(super) next_block: u32,
}
