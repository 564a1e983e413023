//! Creates and opens tables.

use std::mem::offset_of;
use std::sync::Mutex;
use std::time::Instant;

use super::Dash;
use super::deferred_free::DeferredFree;
use super::directory::Directory;
use super::kinds::{Ablation, Of};
use super::layout::{ChainBlock, Geometry, Header, Root};
use super::marks::Marks;
use super::segment::{Core, Counts};
use super::still::Still;
use crate::base::hash::Hash;
use crate::engine::Design;
use crate::engine::length::Length;
use crate::engine::opening::{Common, report};
use crate::engine::slots::Records;
use crate::report::RecoveryReport;
use crate::storage::alloc::{Allocator, Pool};
use crate::storage::superblock::{self, Identity, SessionStart, impossible};
use crate::storage::{Medium, Region};
use crate::types::{Forms, RecordForm, StoredForm};
use crate::{Error, Result};

/// Chained buckets get a sixteenth of the segments' address space: only many equal hashes need more than a few of them.
const CHAIN_SHARE: u64 = 16;
/// Indices of the superblock parameters that belong to the directory policy.
const POLICY: std::ops::Range<usize> = 6..9;
/// The value that a clean shutdown writes if the record count is unknown.
const UNCOUNTED: u64 = superblock::MOST_RECORDS;

type CoreOf<R, P, M> = Core<Of<R, M, <P as Directory>::Ablation>>;

/// The options that only Dash has.
#[derive(Clone, Debug, Default)]
pub struct DashSettings<O> {
    pub(crate) geometry: Geometry,
    pub(crate) policy: O,
}

impl<P: Directory> Design for P {
    const NAME: &'static str = P::DESIGN;
    const TITLE: &'static str = "Dash";
    type Settings = DashSettings<P::Options>;
    type Form<K: StoredForm, V: StoredForm> = Forms<K::InSlot, V::InSlot>;
    type Engine<R: RecordForm, M: Medium> = Dash<R, P, M>;

    fn create<R: RecordForm, M: Medium>(
        common: Common,
        settings: Self::Settings,
        storage: M,
    ) -> Result<(Dash<R, P, M>, RecoveryReport)> {
        Opening::<P> { common, settings }.create(storage)
    }

    fn open<R: RecordForm, M: Medium>(
        common: Common,
        settings: Self::Settings,
        storage: M,
    ) -> Result<(Dash<R, P, M>, RecoveryReport)> {
        Opening::<P> { common, settings }.open(storage)
    }
}

/// The options of a new or opened table: the common ones and those of the design.
struct Opening<P: Directory> {
    common: Common,
    settings: DashSettings<P::Options>,
}

impl<P: Directory> Opening<P> {
    fn create<R: RecordForm, M: Medium>(
        self,
        storage: M,
    ) -> Result<(Dash<R, P, M>, RecoveryReport)> {
        let started = Instant::now();
        self.validate()?;
        let identity = self.identity();
        let storage = storage.claimed()?;
        let table = superblock::create(&storage)?;
        let core = self.core::<R, M>(storage, table.clone(), &identity, 0)?;
        let directory =
            <P as Directory>::create(&core, self.settings.policy, self.common.capacity)?;
        superblock::seal(&core.storage, &table, &identity)?;
        core.storage.publish_created()?;
        let session = superblock::begin_session(&core.storage, &table)?;
        // A new table has nothing to recover.
        let recovery = report(SessionStart { was_clean: true, ..session }, 0, started);
        Ok((Dash { length: Length::new(0, Some(0)), core, directory }, recovery))
    }

    fn open<R: RecordForm, M: Medium>(self, storage: M) -> Result<(Dash<R, P, M>, RecoveryReport)> {
        let started = Instant::now();
        let storage = storage.claimed()?;
        let (table, identity) = superblock::read(&storage)?;
        self.common.types.check(&storage, &identity, P::DESIGN)?;
        let opened = self.with_identity(&storage, &identity)?;
        let root = superblock::root_words::<Root>(&storage, &table)?;
        let generation =
            P::generation_in(root.directory.load(&storage, std::sync::atomic::Ordering::Acquire));
        let core = opened.core::<R, M>(storage, table.clone(), &identity, generation)?;
        if let Some(mending) = &opened.common.mending {
            mending.lengthen_pool(&core.storage, &core.chains, &core.root()?.chains)?;
            P::mend(&core, opened.settings.policy, mending)?;
        }
        core.chains.check_used(&core.storage, &core.root()?.chains)?;
        // This precedes the start of the session: a crash here leaves only work that the next opening repeats.
        let (directory, resolved) = <P as Directory>::open(&core, opened.settings.policy)?;
        let session = superblock::resume_session(&core.storage, &table, &identity)?;
        let records =
            (session.was_clean && session.records != UNCOUNTED).then_some(session.records);
        let recovery = report(session, resolved, started);
        Ok((Dash { length: Length::new(generation, records), core, directory }, recovery))
    }

    fn validate(&self) -> Result<()> {
        if P::options(P::params(self.settings.policy)).is_none() {
            return Err(Error::InvalidOption {
                option: "stride, first_array, expansion",
                detail: format!("{:?} is not possible", self.settings.policy),
            });
        }
        if !self.settings.geometry.is_valid() {
            return Err(Error::InvalidOption {
                option: "stash_buckets",
                detail: format!("{:?} is not possible", self.settings.geometry),
            });
        }
        if self.common.capacity > 1 << 40 {
            return Err(Error::InvalidOption {
                option: "capacity",
                detail: format!("{} records are more than 2^40", self.common.capacity),
            });
        }
        Ok(())
    }

    fn identity(&self) -> Identity {
        let Geometry { buckets, slots, stash } = self.settings.geometry;
        let mut identity = self.common.identity(P::DESIGN, [buckets, slots, stash]);
        identity.params[POLICY].copy_from_slice(&P::params(self.settings.policy));
        identity
    }

    /// Replaces the options that an existing table determines by the values in its superblock.
    fn with_identity(mut self, storage: &impl Medium, identity: &Identity) -> Result<Self> {
        let [buckets, slots, stash] = self.common.adopt(storage, identity)?;
        self.settings.geometry = Geometry { buckets, slots, stash };
        let [a, b, c] = [0, 1, 2].map(|place| identity.params[POLICY.start + place]);
        self.settings.policy =
            P::options([a, b, c]).ok_or_else(|| impossible(storage, "way to grow"))?;
        if self.settings.geometry.is_valid() {
            Ok(self)
        } else {
            Err(impossible(storage, "segment geometry"))
        }
    }

    fn core<R: RecordForm, M: Medium>(
        &self,
        storage: M,
        table: Region,
        identity: &Identity,
        generation: u64,
    ) -> Result<CoreOf<R, P, M>> {
        let limit = self.common.limit();
        let segment_bytes = self.settings.geometry.segment_bytes();
        let most_segments = (limit / segment_bytes).clamp(64, u64::from(u32::MAX - 1));
        let headers = storage.region(
            "headers.ice",
            (most_segments * size_of::<Header>() as u64).next_multiple_of(4096),
        )?;
        let segment_space = (most_segments * segment_bytes).next_multiple_of(4096);
        let segments = storage.region_with_holes("segments.ice", segment_space)?;
        let chains = storage.region("chains.ice", (limit / CHAIN_SHARE).next_multiple_of(4096))?;
        let marks = Marks::new((segments.max_bytes() / segment_bytes) as usize)
            .map_err(|source| Error::io(storage.path(), source))?;
        let still = match storage.check_writable() {
            Err(Error::ReadOnly) => {
                let there = (segments.len() / segment_bytes) as usize;
                Some(
                    Still::new(there, self.settings.geometry)
                        .map_err(|source| Error::io(storage.path(), source))?,
                )
            }
            _ => None,
        };
        let params = self.common.blobs(generation);
        let hash = Hash::new(self.common.hash, identity.hash_seed);
        let records =
            Records::open(&storage, hash, params)?.always_pinned().verifying(self.common.verify);
        let set = (generation & 1) as usize;
        let link = offset_of!(ChainBlock, next) as u64;
        let core = Core {
            geometry: self.settings.geometry,
            own_slots: if P::Ablation::PARTS.balancing {
                self.settings.geometry.own_slots()
            } else {
                self.settings.geometry.slot_mask()
            },
            records,
            table,
            headers,
            segments,
            chains: Pool::new(chains, set, size_of::<ChainBlock>() as u64, link),
            segment_blocks: Allocator::new(set),
            marks,
            still,
            deferred_free: DeferredFree::default(),
            chained_split: Mutex::new(()),
            counts: Counts::default(),
            storage,
        };
        core.reach()?;
        Ok(core)
    }
}

impl<R: RecordForm, P: Directory, M: Medium> Drop for Dash<R, P, M> {
    /// Ends the session. All acknowledged operations are already durable, so only the record count and the clean mark
    /// are written.
    fn drop(&mut self) {
        if self.core.storage.check_writable().is_ok() {
            let records = self.length.known(self.directory.generation()).unwrap_or(UNCOUNTED);
            // A failure leaves the table unclean; the next opening recovers it.
            let _ = superblock::end_session(&self.core.storage, &self.core.table, records);
        }
        self.core.storage.close();
    }
}

/// Creates a table of words with the default options, for tests.
#[cfg(test)]
pub(super) fn table_of_words<P: Directory, M: Medium>(
    storage: M,
) -> Result<Dash<Forms<crate::types::InWord, crate::types::InWord>, P, M>> {
    let settings = DashSettings::default();
    <P as Design>::create(Common::default(), settings, storage).map(|(table, _)| table)
}
