//! Read-modify-write operations on a record: a closure of the user, or a comparison of values, decides.

use std::hash::{BuildHasher, Hash};

use super::memory::RecordAllocator;
use super::record::{Fresh, Refused};
use super::{DlhtGuard, DlhtRecordMap};
use crate::Result;
use crate::dlht::mode::Threading;
use crate::outcome::{Computed, Decision};

impl<K: Hash + Eq + Send, V: Send, S: BuildHasher, A: RecordAllocator, M: Threading>
    DlhtRecordMap<K, V, S, A, M>
{
    /// Returns the value of `key`; if there is none, puts the value that `f` returns.
    pub(super) fn find_or_put<'g>(
        &self,
        namespace: u16,
        key: K,
        f: impl FnOnce(&K) -> V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<&'g V, Refused<K, V>>
    where
        K: 'g,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        let mut seen = self.look(&spot, namespace, &key);
        // SAFETY: seen under the guard.
        if let Some(value) = unsafe { seen.value() } {
            return Ok(value);
        }
        let value = f(&key);
        let fresh = Fresh::new(&self.allocator, namespace, key, value)?;
        let put = fresh.pointer();
        let mut fresh = Some(fresh);
        loop {
            match (self.change(&spot, seen, &mut fresh, pinned), fresh) {
                (Err(error), Some(unused)) => return Err(unused.refused(error)),
                (Ok(false), Some(unused)) => {
                    seen = self.look(&spot, namespace, unused.key());
                    // SAFETY: seen under the guard.
                    if let Some(value) = unsafe { seen.value() } {
                        return Ok(value);
                    }
                    fresh = Some(unused);
                }
                // SAFETY: the record was put under the guard.
                (_, _) => return Ok(unsafe { &put.as_ref().value }),
            }
        }
    }

    /// If `key` is present, replaces its value by a copy that `modify` has changed. Otherwise inserts the value that
    /// `make` returns, which is called at most once; without `make`, returns the key. Returns the new value. One of the
    /// two takes effect, atomically: if the record changes meanwhile, the copy is made again.
    #[allow(clippy::type_complexity, reason = "a refusal, or the key of an absent record")]
    pub(super) fn modify_or<'g>(
        &self,
        namespace: u16,
        mut key: K,
        mut modify: impl FnMut(&mut V),
        mut make: Option<impl FnOnce(&K) -> V>,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Result<&'g V, K>, Refused<K, V>>
    where
        K: 'g,
        V: Clone,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        let mut made = None;
        loop {
            let seen = self.look(&spot, namespace, &key);
            // SAFETY: seen under the guard.
            let present = unsafe { seen.value::<'g>() };
            let new = match present {
                Some(value) => {
                    let mut new = value.clone();
                    modify(&mut new);
                    new
                }
                None => match made.take().or_else(|| make.take().map(|make| make(&key))) {
                    Some(new) => new,
                    None => return Ok(Err(key)),
                },
            };
            let fresh = Fresh::new(&self.allocator, namespace, key, new)?;
            let put = fresh.pointer();
            let mut fresh = Some(fresh);
            match (self.change(&spot, seen, &mut fresh, pinned), fresh) {
                (Err(error), Some(unused)) => return Err(unused.refused(error)),
                (Ok(false), Some(unused)) => {
                    let (unused_key, value) = unused.into_parts();
                    key = unused_key;
                    if present.is_none() {
                        made = Some(value);
                    }
                }
                // SAFETY: the record was put under the guard.
                (_, _) => return Ok(Ok(unsafe { &put.as_ref().value })),
            }
        }
    }

    /// Passes the value to `f`, and executes its decision if the value has not changed meanwhile; otherwise calls `f`
    /// again. Only the caller's guard is held while `f` runs.
    pub(super) fn compute_one<'g>(
        &self,
        namespace: u16,
        mut key: K,
        mut f: impl FnMut(Option<&V>) -> Decision<V>,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<Computed<&'g V>>
    where
        K: 'g,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        loop {
            let seen = self.look(&spot, namespace, &key);
            // SAFETY: seen under the guard.
            let value = unsafe { seen.value::<'g>() };
            let mut fresh = match f(value) {
                Decision::Keep => return Ok(Computed::Kept(value)),
                Decision::Remove if value.is_none() => return Ok(Computed::Removed(None)),
                Decision::Remove => {
                    if self.change(&spot, seen, &mut None, pinned)? {
                        return Ok(Computed::Removed(value));
                    }
                    continue;
                }
                Decision::Put(new) => Fresh::new(&self.allocator, namespace, key, new)
                    .map(Some)
                    .map_err(Refused::reason)?,
            };
            let done = self.change(&spot, seen, &mut fresh, pinned)?;
            match fresh {
                Some(unused) if !done => (key, _) = unused.into_parts(),
                _ => return Ok(Computed::Put(value)),
            }
        }
    }

    /// Replaces the value by `new` if it is `current`; otherwise returns the present value.
    pub(super) fn exchange_one<'g>(
        &self,
        namespace: u16,
        mut key: K,
        current: &V,
        mut new: V,
        guard: &'g DlhtGuard<'_>,
    ) -> Result<std::result::Result<(), Option<&'g V>>>
    where
        K: 'g,
        V: PartialEq,
    {
        let (pinned, spot) = (self.checked(guard), self.alone(namespace, &key));
        loop {
            let seen = self.look(&spot, namespace, &key);
            // SAFETY: seen under the guard.
            let value = unsafe { seen.value::<'g>() };
            if value != Some(current) {
                return Ok(Err(value));
            }
            let fresh = Fresh::new(&self.allocator, namespace, key, new);
            let mut fresh = Some(fresh.map_err(Refused::reason)?);
            let done = self.change(&spot, seen, &mut fresh, pinned)?;
            match fresh {
                Some(unused) if !done => (key, new) = unused.into_parts(),
                _ => return Ok(Ok(())),
            }
        }
    }
}
