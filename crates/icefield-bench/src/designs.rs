//! Every table that can be measured. A new one is a [`Design`] here and a line in [`DESIGNS`].

use icefield::{
    DashEh, DashLh, DashOptions, Directory, Dlht, DlhtHash, DlhtLocal, DlhtSet, Eh, Error, Iceberg,
    Key, Lh, Plush, Result,
};

use crate::ablated;
use crate::args::{Hashing, Medium};
use crate::index::SparHt;
use crate::limit::Pages;
use crate::map;
use crate::ours::{OneThread, Ours, Single};
use crate::set::Keys;
use crate::table::{BenchTable, Call, Cost, Design, Place, Records, Setup};

/// All designs, in the order in which results list them.
pub(crate) const DESIGNS: &[&dyn Design] = &[
    &Dash::Extendible,
    &Dash::Linear,
    &ablated::NO_FINGERPRINTS,
    &ablated::NO_OVERFLOW,
    &ablated::NO_FILTERS,
    &ablated::READ_LOCKS,
    &ablated::CCEH_LIKE,
    &IcebergHt { usual: Medium::Pmem },
    &PlushHt,
    &InMemory::Shared,
    &InMemory::Local,
    &InMemory::Set,
    &InMemory::Map,
    &SparHt,
];

/// Opens or creates a table at `place`. A macro, because the options types have no common trait.
macro_rules! at {
    ($place:expr, $options:expr, $in_dir:ident, $on_medium:ident) => {
        at!($place, $options, $in_dir, $on_medium, ::std::convert::identity)
    };
    ($place:expr, $options:expr, $in_dir:ident, $on_medium:ident, $as:path) => {
        Ok(match $place {
            Place::Memory => Box::new(Ours($as($options.in_memory()?))),
            Place::Dir { path, durability, huge_pages } => {
                let options = $options.durability(*durability).huge_pages(*huge_pages);
                Box::new(Ours($as(options.$in_dir(path)?)))
            }
            Place::Simulated(sim) => Box::new(Ours($as($options.$on_medium(sim.clone())?))),
        })
    };
}
pub(crate) use at;

/// Dash, in both ways of growing.
pub(crate) enum Dash {
    Extendible,
    Linear,
}

/// Returns the options of a new table, for either way of growing.
pub(crate) fn dash_options<K: Key, P: Directory>(setup: Setup) -> DashOptions<K, u64, P> {
    let options =
        DashOptions::default().capacity(setup.capacity).hash_seed([setup.seed, !setup.seed]);
    match setup.stash_buckets {
        Some(stash) => options.stash_buckets(stash),
        None => options,
    }
}

impl Design for Dash {
    fn name(&self) -> &str {
        match self {
            Self::Extendible => "dash-eh",
            Self::Linear => "dash-lh",
        }
    }

    fn gives_space_back(&self) -> bool {
        true
    }

    /// Dash relies on the order of stores within a line, which `Disk` does not keep.
    fn lives_in(&self, medium: Medium) -> bool {
        medium != Medium::Disk
    }

    fn usual_medium(&self) -> Medium {
        Medium::Pmem
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        match self {
            Self::Extendible => at!(place, dash_options::<u64, Eh>(setup), create, create_on),
            Self::Linear => at!(place, dash_options::<u64, Lh>(setup), create, create_on),
        }
    }

    fn open(&self, place: &Place, _threads: usize) -> Result<Box<dyn BenchTable>> {
        match self {
            Self::Extendible => at!(place, DashEh::<u64, u64>::options(), open, open_on),
            Self::Linear => at!(place, DashLh::<u64, u64>::options(), open, open_on),
        }
    }

    /// The costs in the header of `icefield::dash`. At our sizes the directory and the segment headers stay in the
    /// cache and are not counted.
    fn cost(&self, call: Call) -> Option<Cost> {
        Some(match call {
            // The first lines of two buckets, and the record's line.
            Call::Get => Cost { reads: 3, writes: 0, fences: 0 },
            // No fingerprint matches in 99 of 100 cases.
            Call::GetMiss => Cost { reads: 2, writes: 0, fences: 0 },
            // The record, then the metadata.
            Call::TryInsert | Call::Insert | Call::Put => Cost { reads: 2, writes: 2, fences: 2 },
            // One word in place.
            Call::Update | Call::Remove => Cost { reads: 3, writes: 1, fences: 1 },
            // Both writes; the remove finds the insert's lines in the cache.
            Call::InsDel => Cost { reads: 3, writes: 3, fences: 3 },
            // The mean of the two, rounded up.
            Call::PutHeavy => Cost { reads: 3, writes: 1, fences: 1 },
        })
    }

    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table.ice", "root"),
            ("directory-0.ice", "directory"),
            ("directory-1.ice", "directory"),
            ("headers.ice", "segment-header"),
            ("segments.ice", "bucket"),
            ("chains.ice", "chain"),
            ("blobs.ice", "blob"),
            ("blobmap.ice", "blob"),
        ]
    }
}

/// IcebergHT in DRAM, as measured in its paper too.
pub(crate) const ICEBERG_IN_MEMORY: &dyn Design = &IcebergHt { usual: Medium::Memory };

struct IcebergHt {
    usual: Medium,
}

impl Design for IcebergHt {
    fn name(&self) -> &str {
        "iceberg"
    }

    /// IcebergHT relies on the order of stores within a line, which `Disk` does not keep.
    fn lives_in(&self, medium: Medium) -> bool {
        medium != Medium::Disk
    }

    fn usual_medium(&self) -> Medium {
        self.usual
    }

    fn offers_yards(&self) -> bool {
        true
    }

    fn recovers_on_threads(&self) -> bool {
        true
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let mut options = Iceberg::<u64, u64>::options()
            .capacity(setup.capacity)
            .hash_seed([setup.seed, !setup.seed])
            .yards(setup.yards.unwrap_or_default());
        if setup.filled_up {
            options = options.max_load(1.0);
        }
        at!(place, options, create, create_on)
    }

    fn open(&self, place: &Place, threads: usize) -> Result<Box<dyn BenchTable>> {
        let options = Iceberg::<u64, u64>::options().threads(threads);
        at!(place, options, open, open_on)
    }

    /// The costs in the header of `icefield::iceberg`, plus the line of fingerprints in DRAM. The fingerprints of
    /// the back buckets take an eighth of that memory and are not counted.
    fn cost(&self, call: Call) -> Option<Cost> {
        Some(match call {
            // The fingerprints, and the record's line.
            Call::Get => Cost { reads: 2, writes: 0, fences: 0 },
            // No fingerprint matches in seven of ten cases.
            Call::GetMiss => Cost { reads: 1, writes: 0, fences: 0 },
            // The fingerprints; the record.
            Call::TryInsert | Call::Insert | Call::Put => Cost { reads: 1, writes: 1, fences: 1 },
            // One word in place.
            Call::Update | Call::Remove => Cost { reads: 2, writes: 1, fences: 1 },
            // Both writes; the remove finds the insert's lines in the cache.
            Call::InsDel => Cost { reads: 1, writes: 2, fences: 2 },
            // The mean of the two, rounded up.
            Call::PutHeavy => Cost { reads: 2, writes: 1, fences: 1 },
        })
    }

    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table.ice", "root"),
            ("front.ice", "front"),
            ("back.ice", "back"),
            ("overflow.ice", "overflow"),
            ("blobs.ice", "blob"),
            ("blobmap.ice", "blob"),
        ]
    }
}

struct PlushHt;

impl Design for PlushHt {
    fn name(&self) -> &str {
        "plush"
    }

    fn lives_in(&self, _medium: Medium) -> bool {
        true
    }

    fn usual_medium(&self) -> Medium {
        Medium::Pmem
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let options = Plush::<u64, u64>::options()
            .capacity(setup.capacity)
            .sync(setup.sync)
            .hash_seed([setup.seed, !setup.seed]);
        let options = match setup.levels {
            Some(levels) => {
                options.dram_filters(levels.dram_filters).preallocate(levels.preallocated)
            }
            None => options,
        };
        at!(place, options, create, create_on)
    }

    fn offers_levels(&self) -> bool {
        true
    }

    fn open(&self, place: &Place, _threads: usize) -> Result<Box<dyn BenchTable>> {
        let options = Plush::<u64, u64>::options();
        at!(place, options, open, open_on)
    }

    /// The costs in the header of `icefield::plush` for a table with two levels, plus the lines of the root entry.
    fn cost(&self, call: Call) -> Option<Cost> {
        Some(match call {
            // The root entry's line and fingerprints; two filters, a state word, and the bucket.
            Call::Get => Cost { reads: 7, writes: 0, fences: 0 },
            // No filter contains the key.
            Call::GetMiss => Cost { reads: 4, writes: 0, fences: 0 },
            // The log record; a blind put does not search.
            Call::Put => Cost { reads: 2, writes: 1, fences: 1 },
            Call::TryInsert | Call::Insert => Cost { reads: 4, writes: 1, fences: 1 },
            Call::Update | Call::Remove => Cost { reads: 7, writes: 1, fences: 1 },
            // Both writes; the remove finds the insert's record in the root.
            Call::InsDel => Cost { reads: 4, writes: 2, fences: 2 },
            // The mean of the two, rounded up.
            Call::PutHeavy => Cost { reads: 7, writes: 1, fences: 1 },
        })
    }

    fn regions(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table.ice", "root"),
            ("levels.ice", "entry"),
            ("chains.ice", "entry"),
            ("buckets-1.ice", "bucket"),
            ("buckets-2.ice", "bucket"),
            ("buckets-4.ice", "bucket"),
            ("buckets-8.ice", "bucket"),
            ("log.ice", "log"),
            ("journals.ice", "journal"),
            ("payload.ice", "payload"),
            ("payloadmap.ice", "payload"),
        ]
    }
}

/// Applies `$setup` to the options. A macro, because the trait of the table's modes is private to the library.
macro_rules! with {
    ($options:expr, $setup:expr) => {{
        let Setup { capacity, seed, hash, link_ratio, fixed_size, .. } = $setup;
        let options = $options.capacity(capacity).hash_seed([seed, !seed]).hash(match hash {
            Hashing::Strong => DlhtHash::Strong,
            Hashing::Modulo => DlhtHash::Modulo,
        });
        let options = match link_ratio {
            Some(ratio) => options.link_ratio(ratio),
            None => options,
        };
        if fixed_size { options.fixed_size() } else { options }
    }};
}

/// DLHT, in its modes.
#[derive(Clone, Copy)]
enum InMemory {
    /// For any number of threads.
    Shared,
    /// Single-threaded.
    Local,
    /// Keys only.
    Set,
    /// Keys and values of any size, in separately allocated records.
    Map,
}

impl Design for InMemory {
    fn name(&self) -> &str {
        match self {
            Self::Shared => "dlht",
            Self::Local => "dlht-local",
            Self::Set => "dlht-set",
            Self::Map => "dlht-map",
        }
    }

    fn is_usual(&self) -> bool {
        matches!(self, Self::Shared)
    }

    fn is_for_one_thread(&self) -> bool {
        matches!(self, Self::Local)
    }

    fn lives_in(&self, medium: Medium) -> bool {
        medium == Medium::Memory
    }

    fn usual_medium(&self) -> Medium {
        Medium::Memory
    }

    fn offers_hashes(&self) -> bool {
        matches!(self, Self::Shared | Self::Local)
    }

    fn offers(&self, call: Call) -> bool {
        !matches!(self, Self::Set) || Keys::offers(call)
    }

    fn holds(&self, records: Records) -> bool {
        match self {
            Self::Map => map::holds(records),
            _ => records == Records::default(),
        }
    }

    fn pages(&self) -> Pages {
        Pages::Huge
    }

    fn create(&self, _place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        Ok(match self {
            Self::Shared => Box::new(Ours(with!(Dlht::<u64, u64>::options(), setup).build()?)),
            Self::Local => {
                let table = with!(DlhtLocal::<u64, u64>::options(), setup).build()?;
                Box::new(OneThread::new(Single(table)))
            }
            Self::Set => Box::new(Keys(DlhtSet::with_capacity(setup.capacity))),
            Self::Map => map::create(setup)?,
        })
    }

    fn open(&self, _place: &Place, _threads: usize) -> Result<Box<dyn BenchTable>> {
        let detail = format!("{} does not outlive its process", self.name());
        Err(Error::InvalidOption { option: "medium", detail })
    }

    /// The costs in the header of `icefield::dlht`: one line, and compare-and-swaps in it; for a map that finds the
    /// key, also a line of the record. New records lie in recently freed memory and are not counted.
    fn cost(&self, call: Call) -> Option<Cost> {
        let finds = matches!(call, Call::Get | Call::Update | Call::Remove | Call::PutHeavy);
        let reads = if matches!(self, Self::Map) && finds { 2 } else { 1 };
        let writes = usize::from(!matches!(call, Call::Get | Call::GetMiss));
        Some(Cost { reads, writes, fences: 0 })
    }
}
