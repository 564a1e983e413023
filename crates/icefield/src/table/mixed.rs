//! Mixed batches as engines see them.

use super::op::Op;
use crate::engine::{Mixed, WriteKind};
use crate::types::{Key, Own, Owned, Raw, Value};

/// The value of a removal.
pub(super) const NO_VALUE: Raw<'static> = Raw::Word(0);

/// The operations of a mixed batch. They include no shadow insert.
pub(super) struct Ops<'o, 'a, K: Key + ?Sized, V: Value + ?Sized>(
    pub(super) &'o mut [Op<'a, K, V>],
);

impl<'a, K: Key + ?Sized, V: Value + ?Sized> Mixed<'a> for Ops<'_, 'a, K, V> {
    type Take = Own<V>;

    fn take(&self) -> Own<V> {
        Own::NEW
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn key(&self, index: usize) -> Raw<'a> {
        K::raw(self.0[index].key())
    }

    #[inline]
    fn write(&self, index: usize) -> Option<(WriteKind, Raw<'a>)> {
        Some(match &self.0[index] {
            Op::Get(..) | Op::Shadow(..) => return None,
            Op::TryInsert(_, value, _) => (WriteKind::TryInsert, V::raw(*value)),
            Op::Insert(_, value, _) => (WriteKind::Insert, V::raw(*value)),
            Op::Put(_, value) => (WriteKind::Put, V::raw(*value)),
            Op::Update(_, value, _) => (WriteKind::Update, V::raw(*value)),
            Op::Remove(..) => (WriteKind::Remove, NO_VALUE),
        })
    }

    #[inline]
    fn fill(&mut self, index: usize, before: Option<Owned<V>>) {
        self.0[index].fill(before);
    }

    #[inline]
    fn failed(&self, index: usize) -> bool {
        self.0[index].failed()
    }
}
