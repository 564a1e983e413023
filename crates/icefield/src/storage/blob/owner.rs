//! The calls that a blob store makes to its table.

use super::block::BlobRef;
use crate::Result;

/// The calls that the scan and [`BlobStore::compact`](super::BlobStore::compact) make to the table.
pub trait Owner {
    /// Checks whether a slot refers to `blob`, which was written for `owner`. Calls `mark` once with the answer,
    /// *while holding the locks that keep the answer true*: those under which a record with this `owner` would be
    /// linked, moved or unlinked. Slots are compared by [`BlobRef::same_block`].
    ///
    /// `owner` is read from the block's header. It is arbitrary if the block holds no blob; then no slot refers to the
    /// block. When the table cannot decide (a damaged segment), it does not call `mark`, and the block is left alone
    /// for this session. Before the table calls `mark(false)`, the unlinking must be durable; the locks ensure this if
    /// writers hold them over their fence.
    ///
    /// The store calls this without holding any of its short locks; `mark` takes one of them.
    fn is_live(&self, owner: u64, blob: BlobRef, mark: &mut dyn FnMut(bool));

    /// If a slot refers to `blob`, makes it refer to `copy`, which is durable. Keeps the tag of the reference; the
    /// change is durable before another thread acts on it. Returns whether there was such a slot. Like every change of
    /// a slot, this one is made under the locks that [`Owner::is_live`] describes.
    ///
    /// # Errors
    /// The fence failed, or the table cannot decide. It is then undefined which block the slot refers to after a
    /// crash.
    fn relink(&self, owner: u64, blob: BlobRef, copy: BlobRef) -> Result<bool>;
}
