//! Captures one crash image while a history runs.

use icefield::storage::sim::{CrashPoint, EventKind, Image, Pick};

/// Captures the image from which a history continues.
pub(crate) struct Capture<T> {
    /// Events until the capture.
    left: u64,
    pick: u64,
    pub(crate) taken: Option<T>,
}

impl<T> Capture<T> {
    pub(crate) fn after(left: u64, pick: u64) -> Self {
        Self { left, pick, taken: None }
    }

    /// Counts down the events. Returns an image at the chosen event, or at the call's return if that comes first.
    pub(crate) fn due(&mut self, point: &CrashPoint<'_>) -> Option<Image> {
        if self.taken.is_some() || point.is_reordered() {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        let is_due = self.left == 0 || point.event().kind == EventKind::Asked;
        is_due.then(|| {
            let mut image = Image::default();
            point.space().image(Pick::sample(self.pick % 16, self.pick), &mut image);
            image
        })
    }
}
