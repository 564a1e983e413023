//! Passes mixed batches to the engines.

use super::op::Op;
use crate::engine::{Mixed, WriteKind};
use crate::types::{Key, Own, Owned, Raw, Value};

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
    fn kind(&self, index: usize) -> Option<WriteKind> {
        Some(match &self.0[index] {
            Op::Get(..) | Op::Shadow(..) => return None,
            Op::TryInsert(..) => WriteKind::TryInsert,
            Op::Insert(..) => WriteKind::Insert,
            Op::Put(..) => WriteKind::Put,
            Op::Update(..) => WriteKind::Update,
            Op::Remove(..) => WriteKind::Remove,
        })
    }

    #[inline]
    fn value(&self, index: usize) -> Raw<'a> {
        match &self.0[index] {
            Op::TryInsert(_, value, _)
            | Op::Insert(_, value, _)
            | Op::Put(_, value)
            | Op::Update(_, value, _) => V::raw(*value),
            Op::Get(..) | Op::Shadow(..) | Op::Remove(..) => Raw::NONE,
        }
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
