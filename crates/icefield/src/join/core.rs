//! An opened index: the generation that probes use, and the writer.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::delta::Change;
use super::layout::{Root, set_watermark};
use super::log::{Log, Tail, WINDOW};
use super::merge::{MergeKind, MergeReport, Next, report};
use super::plan::FilterBits;
use super::source::JoinSource;
use super::view::{ChangeEffect, Frame, View};
use crate::base::thread_pool::{ThreadPool, Workers};
use crate::storage::{Medium, Region, sound, superblock};
use crate::{Error, Result};

/// The behaviour of insertions and removals when the delta store is full.
///
/// ```
/// use icefield::{Error, JoinIndex, OnFull};
/// let options = JoinIndex::<u64>::options().delta_limit(1).on_full(OnFull::Refuse);
/// let index = options.build_in_memory(&[1, 2], &[10, 20])?;
/// index.insert(3, 30)?;
/// assert!(matches!(index.insert(4, 40), Err(Error::DeltaFull)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// Merge first, however long that takes.
    #[default]
    Merge,
    /// Return [`Error::DeltaFull`].
    Refuse,
}

/// Opens the directory of an index again, if the index was opened without the directory's lock. Uses the directory that
/// the frame holds open, because the path may name another directory by now.
pub(super) struct Reopen<M: Medium> {
    /// Loads the present generation for reading.
    pub(super) look: Box<LookAgain<M>>,
    /// Locks the directory and opens its medium for writing. `None` if the index is open for reading only.
    pub(super) take_over: Option<Box<TakeOver<M>>>,
}

/// The type of [`Reopen::look`].
type LookAgain<M> = dyn Fn(&Frame<M>) -> Result<Arc<View<M>>> + Send + Sync;
/// The type of [`Reopen::take_over`].
type TakeOver<M> = dyn Fn(&Frame<M>) -> Result<Arc<Frame<M>>> + Send + Sync;

/// An opened index.
pub(super) struct Core<M: Medium> {
    /// The generation that probes use. The lock is held only to clone the `Arc`.
    present: RwLock<Arc<View<M>>>,
    /// `None` until this handle becomes the index's writer.
    writer: Mutex<Option<Writer<M>>>,
    /// `None` for an index that was writable from the beginning, and on media other than `Mapped`.
    reopen: Option<Reopen<M>>,
    pub(super) threads: AtomicUsize,
    /// The threads that probes share.
    pool: ThreadPool,
    on_full: OnFull,
}

/// The state that a handle has if it is the index's writer.
struct Writer<M> {
    view: Arc<View<M>>,
    log: Log,
    clearing: Clearing,
}

/// Files of old generations with at least this number of bytes are freed by a separate thread.
const CLEARED_BYTES: u64 = 16 << 20;

/// A thread that frees the previous generation, and the id of the process that started the thread. The names of the
/// generation's files are removed already, but the kernel takes long to free their pages. Calls that need the space
/// wait for the thread, and so does closing the index.
#[derive(Default)]
struct Clearing(Option<(JoinHandle<()>, u32)>);

impl Clearing {
    /// Frees `old` and its log: in this thread if the file is small or `threads` is 1, otherwise in a new thread.
    fn begin<M: Medium>(old: Arc<View<M>>, log: Log, threads: usize) -> Self {
        if threads < 2 || old.base.layout().bytes() < CLEARED_BYTES {
            return Self::default();
        }
        // If no thread can be started, `spawn` drops the closure, and with it `old` and `log`.
        let thread = std::thread::Builder::new().spawn(move || drop((old, log)));
        Self(thread.ok().map(|thread| (thread, std::process::id())))
    }

    /// Waits until the thread has ended. Returns whether there was one.
    fn finish(&mut self) -> bool {
        let Some((thread, process)) = self.0.take() else { return false };
        if std::process::id() != process {
            // A forked child does not have this thread: joining it would wait forever.
            std::mem::forget(thread);
            return false;
        }
        // The thread cannot panic.
        thread.join().is_ok()
    }
}

impl Drop for Clearing {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<M: Medium> Core<M> {
    pub(super) fn new(
        view: Arc<View<M>>,
        reopen: Option<Reopen<M>>,
        threads: usize,
        on_full: OnFull,
    ) -> Self {
        Self {
            present: RwLock::new(view),
            writer: Mutex::new(None),
            reopen,
            threads: AtomicUsize::new(threads),
            pool: ThreadPool::new("icefield-probe"),
            on_full,
        }
    }

    /// Returns the present generation. Its base stays mapped, even after a merge, while the caller holds it.
    pub(super) fn view(&self) -> Arc<View<M>> {
        Arc::clone(&self.present.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn show(&self, view: &Arc<View<M>>) {
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(view);
    }

    /// Returns the number of threads that an operation may use.
    pub(super) fn threads(&self) -> usize {
        // Relaxed: no other data depends on the setting.
        self.threads.load(Relaxed)
    }

    /// Returns the threads that a probe may use.
    pub(super) fn workers(&self) -> Workers<'_> {
        self.pool.workers(self.threads())
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer<M>>> {
        // A panic in a caller's `JoinSource` may poison this lock. The writer's state is valid nevertheless, because it
        // changes only after the source has been read.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session with a generation that was loaded for writing. Returns the number of repairs after a crash.
    pub(super) fn begin(&self, view: Arc<View<M>>, region: Region, tail: &Tail) -> Result<u64> {
        let mut writer = self.writer();
        let (begun, settled) = self.begun(view, region, tail)?;
        *writer = Some(begun);
        Ok(settled)
    }

    fn begun(&self, view: Arc<View<M>>, region: Region, tail: &Tail) -> Result<(Writer<M>, u64)> {
        let frame = &view.frame;
        let stray = u64::from(tail.stray > 0);
        let settled = Root::is_settled(&frame.storage, &frame.table, &frame.sums)?;
        let session = superblock::resume_session(&frame.storage, &frame.table, &frame.identity)?;
        if !settled {
            view.root.publish(&frame.storage, &frame.table, &frame.sums)?;
        }
        view.discard_others()?;
        let log = view.log(region, tail)?;
        self.show(&view);
        Ok((
            Writer { view, log, clearing: Clearing::default() },
            stray + u64::from(!settled) + u64::from(session.mended),
        ))
    }

    /// Begins a session with a new index.
    pub(super) fn begin_new(&self, log: Log) {
        let clearing = Clearing::default();
        *self.writer() = Some(Writer { view: self.view(), log, clearing });
    }

    /// Calls `change` with the writer. If there is none yet, this handle becomes the writer.
    fn with_writer<T>(&self, change: impl FnOnce(&mut Writer<M>) -> Result<T>) -> Result<T> {
        let mut writer = self.writer();
        if writer.is_none() {
            let view = self.view();
            // A forked child must not become a writer through the parent's handle, even though the child's pages are
            // private.
            if let Err(error @ Error::Forked) = view.frame.storage.check_writable() {
                return Err(error);
            }
            let take_over = self.reopen.as_ref().and_then(|reopen| reopen.take_over.as_ref());
            let Some(take_over) = take_over else { return Err(Error::ReadOnly) };
            *writer = Some(self.take_over(take_over(&view.frame)?)?);
        }
        let writer = writer.as_mut().ok_or(Error::ReadOnly)?;
        writer.view.frame.storage.check_writable()?;
        change(writer)
    }

    /// Makes this handle the writer; `frame` is open for writing.
    fn take_over(&self, frame: Arc<Frame<M>>) -> Result<Writer<M>> {
        let (view, region, tail) = View::load(&frame, frame.root()?)?;
        self.begun(Arc::new(view), region, &tail).map(|(writer, _)| writer)
    }

    /// Makes changes durable, then visible; returns the number of pairs that were added or removed. If the call fails,
    /// a prefix of `changes` may have been made.
    pub(super) fn change(&self, changes: &[Change]) -> Result<u64> {
        self.with_writer(|writer| {
            self.change_with(writer, changes, |view, change| view.effect(change))
        })
    }

    /// Removes pairs of one key, as far as they are present; returns their number. If these are all the pairs of the
    /// key, one log record removes them.
    pub(super) fn remove_pairs(&self, key: u64, payloads: &[u64]) -> Result<u64> {
        self.with_writer(|writer| {
            let hash = writer.view.frame.hash.word(key);
            let (mut there, mut all) = (HashMap::<u64, u64>::new(), 0);
            writer.view.gather(hash, key, |payload| {
                *there.entry(payload).or_default() += 1;
                all += 1;
                true
            })?;
            let take = |payload: u64| {
                let count = there.get_mut(&payload).filter(|count| **count > 0)?;
                *count -= 1;
                Some(Change::RemovePair(key, payload))
            };
            let changes: Vec<Change> = payloads.iter().copied().filter_map(take).collect();
            if changes.len() > 1 && changes.len() == all {
                return self.change_with(writer, &[Change::Remove(key)], |view, change| {
                    view.effect(change)
                });
            }
            self.change_with(writer, &changes, |_, _| Ok(ChangeEffect::of_pair(hash)))
        })
    }

    /// Makes changes, window by window. `effect` returns the effect of a change on the present state.
    fn change_with(
        &self,
        writer: &mut Writer<M>,
        changes: &[Change],
        effect: impl Fn(&View<M>, Change) -> Result<ChangeEffect>,
    ) -> Result<u64> {
        let (mut pairs, mut rest) = (0, changes);
        while !rest.is_empty() {
            let room = writer.view.delta_limit.saturating_sub(writer.log.records());
            if room == 0 {
                match self.on_full {
                    OnFull::Merge => self.merge_with(writer).map(drop)?,
                    OnFull::Refuse => return Err(Error::DeltaFull),
                }
                continue;
            }
            let count = rest.len().min(WINDOW).min(room as usize);
            let (now, later) = rest.split_at(count);
            pairs += writer.change(now, &effect)?;
            rest = later;
        }
        Ok(pairs)
    }

    pub(super) fn merge(&self) -> Result<MergeReport> {
        self.with_writer(|writer| self.merge_with(writer))
    }

    fn merge_with(&self, writer: &mut Writer<M>) -> Result<MergeReport> {
        let started = Instant::now();
        let changes = writer.log.records();
        if changes == 0 {
            return Ok(report(MergeKind::Nothing, 0, &writer.view, started));
        }
        writer.clearing.finish();
        let (kind, next) = cleaned_up(&writer.view, writer.view.merge(self.threads()))?;
        self.go_on(writer, next);
        Ok(report(kind, changes, &writer.view, started))
    }

    /// Replaces all pairs by those of `source`.
    pub(super) fn rebuild(&self, source: &dyn JoinSource, bits: FilterBits) -> Result<()> {
        self.with_writer(|writer| {
            writer.clearing.finish();
            let view = &writer.view;
            let next = cleaned_up(view, view.replace(source, bits, self.threads()))?;
            self.go_on(writer, next);
            Ok(())
        })
    }

    /// Makes the next generation, which the root words already name, visible to probes, and removes the old one.
    fn go_on(&self, writer: &mut Writer<M>, next: Next<M>) {
        let Next { view, log } = next;
        self.show(&view);
        let old = std::mem::replace(&mut writer.view, view);
        let old_log = std::mem::replace(&mut writer.log, log);
        // The next merge or opening removes files that remain.
        let _ = writer.view.discard_others();
        writer.clearing = Clearing::begin(old, old_log, self.threads());
    }

    /// Returns an error if a sync has failed. Every change was already durable when its call returned.
    pub(super) fn sync(&self) -> Result<()> {
        let view = self.view();
        view.frame.storage.try_fence()?;
        sound(&view.frame.storage)
    }

    /// Runs `copy` with the present generation. Also returns the time during which changes through this handle waited.
    /// A handle that is not the writer first loads the present generation, because another handle may have merged.
    pub(super) fn with_present<T>(
        &self,
        copy: impl FnOnce(&View<M>) -> Result<T>,
    ) -> Result<(T, Duration)> {
        let started = Instant::now();
        let writer = self.writer();
        match (&*writer, &self.reopen) {
            (None, Some(reopen)) => {
                drop(writer);
                let view = (reopen.look)(&self.view().frame)?;
                Ok((copy(&view)?, Duration::ZERO))
            }
            _ => Ok((copy(&self.view())?, started.elapsed())),
        }
    }

    /// Runs `look` while no change is made through this handle. The second argument of `look` is `true` if this handle
    /// is the writer.
    pub(super) fn while_still<T>(
        &self,
        look: impl FnOnce(&View<M>, bool) -> Result<T>,
    ) -> Result<T> {
        let still = self.writer();
        look(&self.view(), still.is_some())
    }
}

impl<M: Medium> Writer<M> {
    /// Makes at most a window of changes. The effect of a change must not depend on the others in the window;
    /// insertions never depend on others. Changes without effect are skipped.
    fn change(
        &mut self,
        changes: &[Change],
        effect: impl Fn(&View<M>, Change) -> Result<ChangeEffect>,
    ) -> Result<u64> {
        let frame = Arc::clone(&self.view.frame);
        let mut made: Vec<(Change, ChangeEffect)> = Vec::with_capacity(changes.len());
        let mut pairs = 0;
        for &change in changes {
            let effect = effect(&self.view, change)?;
            if effect.pairs > 0 {
                made.push((change, effect));
                pairs += effect.pairs;
            }
        }
        if made.is_empty() {
            return Ok(0);
        }
        self.view.reserve(made.len())?;
        let logged: Vec<Change> = made.iter().map(|(change, _)| *change).collect();
        let appended = self.log.append(&frame.storage, &frame.sums, &logged);
        match appended {
            Err(Error::NoSpace { .. }) if self.clearing.finish() => {
                self.log.append(&frame.storage, &frame.sums, &logged)?;
            }
            answer => answer?,
        }
        let (generation, records) = (self.view.root.generation, self.log.records());
        set_watermark(&frame.storage, &frame.table, &frame.sums, generation, records)?;
        self.view.apply(&made)?;
        Ok(pairs)
    }
}

/// Frees the files of an incomplete next generation if `made` is an error.
fn cleaned_up<M: Medium, T>(present: &View<M>, made: Result<T>) -> Result<T> {
    // If the medium is poisoned, the root words may name the new generation already. The next opening then discards the
    // files of the other generation.
    if made.is_err() && present.frame.storage.check_writable().is_ok() {
        let _ = present.discard_others();
    }
    made
}

impl<M: Medium> Drop for Core<M> {
    fn drop(&mut self) {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Writer { view, log, clearing }) = writer {
            // This waits for the freeing thread, which holds the medium and thereby the directory's lock.
            drop(clearing);
            let Frame { storage, table, .. } = &*view.frame;
            if storage.check_writable().is_ok() {
                // If this fails, the next opening finds an index that was not closed.
                let _ = superblock::end_session(storage, table, log.records());
            }
            storage.close();
        }
    }
}
