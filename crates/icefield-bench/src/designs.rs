//! Every table that can be measured. A new one is a [`Design`] here and a line in [`DESIGNS`].
//!
//! Some designs are forms of Dash-EH that lack a technique, to measure its gain (Dash Figs 9 to 11 and 13). One of them
//! replaces the paper's baseline, CCEH. Each form is the same table, compiled without the technique in its searches and
//! in its choice of buckets. Writers still maintain fingerprints and overflow metadata, so inserts are not compared.

use std::sync::Mutex;

use icefield::{
    Ablation, Dash, DashOptions, Directory, Dlht, DlhtHash, DlhtLocal, DlhtOptions, DlhtSet, Eh,
    Geometry, Iceberg, Key, Lh, Parts, Plush, Result, Stats, Table, Whole,
};

use crate::adapter::{Shared, Single, Wide, Words};
use crate::args::Hashing;
use crate::index::JOIN;
use crate::limit::Pages;
use crate::map::{self, Keys, SET_CALLS};
use crate::prelude::*;

/// All designs, in the order in which results list them.
pub(crate) static DESIGNS: &[DesignRef] = &[
    &DASH_EH,
    &DASH_LH,
    &NO_FINGERPRINTS,
    &NO_OVERFLOW,
    &NO_FILTERS,
    &READ_LOCKS,
    &CCEH_LIKE,
    &ICEBERG,
    &PLUSH,
    &DLHT,
    &DLHT_LOCAL,
    &DLHT_SET,
    &DLHT_MAP,
    &JOIN,
];

/// Opens or creates a table at `$place`. A macro, because the options types have no common trait.
macro_rules! at {
    ($place:expr, $options:expr, $in_dir:ident, $on_medium:ident, $keys:ident) => {
        Ok(match $place {
            Place::Memory => Box::new(Shared($keys($options.in_memory()?))),
            Place::Dir { path, durability, huge_pages } => {
                let options = $options.durability(*durability).huge_pages(*huge_pages);
                Box::new(Shared($keys(options.$in_dir(path)?)))
            }
            Place::Simulated(sim) => Box::new(Shared($keys($options.$on_medium(sim.clone())?))),
        })
    };
}

/// Compares keys without fingerprints, and reads keys stored by reference without comparing hash bits first.
pub(crate) struct NoFingerprints;
/// Searches the stash whenever a key is in neither bucket.
pub(crate) struct NoOverflow;
/// Searches without fingerprints and without overflow metadata.
pub(crate) struct NoFilters;
/// Searches lock their buckets, as writers do. Like reader-writer locks, this writes to the lines that hold the locks,
/// but searches in the same bucket exclude each other.
pub(crate) struct ReadLocks;
/// A record has a single possible bucket.
pub(crate) struct HomeOnly;
/// A record is in its home bucket, or in the next one if the home bucket was full.
pub(crate) struct Probing;
/// Each key has four consecutive lines: no fingerprints, no second bucket, no stash. Searches take locks.
pub(crate) struct CcehLike;

/// Defines each form by the parts that it lacks.
macro_rules! without {
    ($($form:ident: $($part:ident)*;)*) => {
        $(impl Ablation for $form {
            const PARTS: Parts = Parts { $($part: false,)* ..Parts::ALL };
        })*
    };
}

without! {
    NoFingerprints: fingerprints;
    NoOverflow: overflow_metadata;
    NoFilters: fingerprints overflow_metadata;
    ReadLocks: optimistic;
    HomeOnly: probing balancing;
    Probing: balancing;
    CcehLike: fingerprints probing balancing optimistic;
}

/// The size in bytes of the keys that are stored by reference.
pub(crate) const WIDE_BYTES: usize = 16;

/// The costs in the header of `icefield::dash`: lines read, lines written and fences, for each call in the order of
/// `Design::cost`. At our sizes the directory and the segment headers stay in the cache and are not counted.
const DASH_COSTS: &[(usize, usize, usize)] = &[
    // The first lines of two buckets, and the record's line.
    (3, 0, 0),
    // No fingerprint matches in 99 of 100 cases, so no record is read.
    (2, 0, 0),
    // The record, then the metadata.
    (2, 2, 2),
    (2, 2, 2),
    // The update of one word in place.
    (3, 1, 1),
    // Both writes; the remove finds the insert's lines in the cache.
    (3, 3, 3),
    // Half reads, half updates: the mean of both costs, rounded up.
    (3, 1, 1),
];

/// Returns a design of Dash whose directory is `P`. Disks are not supported, because Dash relies on the order of stores
/// within a line, which a disk does not preserve.
const fn dash<P: Directory>(name: &'static str) -> Design {
    let maker = Maker::Ours { create: create_dash::<P>, open: open_dash::<P>, build: None };
    Design {
        regions: regions! {
            "table.ice" "root", "directory-0.ice" "directory", "directory-1.ice" "directory",
            "headers.ice" "segment-header", "segments.ice" "bucket", "chains.ice" "chain",
            "blobs.ice" "blob", "blobmap.ice" "blob",
        },
        ..Design::new(name, maker)
    }
}

/// Returns a form of Dash-EH that lacks some techniques, with keys of 8 or 16 bytes. It has no documented costs.
const fn ablated<A: Ablation>(name: &'static str) -> Design {
    Design {
        is_usual: false,
        holds: |records| {
            let key_bytes = if records.key_bytes == WIDE_BYTES { WIDE_BYTES } else { 8 };
            records == Records { key_bytes, ..Records::WORDS }
        },
        ..dash::<Eh<A>>(name)
    }
}

static DASH_EH: Design =
    Design { gives_space_back: true, costs: DASH_COSTS, ..dash::<Eh>("dash-eh") };
static DASH_LH: Design =
    Design { gives_space_back: true, costs: DASH_COSTS, ..dash::<Lh>("dash-lh") };
/// The complete table, with which the other forms are compared.
pub(crate) static WHOLE: Design = ablated::<Whole>("dash-eh");
pub(crate) static NO_FINGERPRINTS: Design = ablated::<NoFingerprints>("dash-eh-no-fingerprints");
pub(crate) static NO_OVERFLOW: Design = ablated::<NoOverflow>("dash-eh-no-overflow");
pub(crate) static NO_FILTERS: Design = ablated::<NoFilters>("dash-eh-no-filters");
pub(crate) static READ_LOCKS: Design = ablated::<ReadLocks>("dash-eh-read-locks");
pub(crate) static CCEH_LIKE: Design = Design {
    maker: Maker::Ours {
        create: |place, setup| {
            create_dash::<Eh<CcehLike>>(place, Setup { stash_buckets: Some(0), ..setup })
        },
        open: open_dash::<Eh<CcehLike>>,
        build: None,
    },
    ..ablated::<CcehLike>("cceh-like")
};

fn dash_options<K: Key, P: Directory>(setup: Setup) -> DashOptions<K, u64, P> {
    let options =
        DashOptions::default().capacity(setup.capacity).hash_seed([setup.seed, !setup.seed]);
    match setup.stash_buckets {
        Some(stash) => options.stash_buckets(stash),
        None => options,
    }
}

fn create_dash<P: Directory>(place: &Place, setup: Setup) -> Made {
    if setup.records.key_bytes == WIDE_BYTES {
        at!(place, dash_options::<u128, P>(setup), create, create_on, Wide)
    } else {
        at!(place, dash_options::<u64, P>(setup), create, create_on, Words)
    }
}

fn open_dash<P: Directory>(place: &Place, _threads: usize) -> Made {
    at!(place, Dash::<u64, u64, P>::options(), open, open_on, Words)
}

/// Inserts `keys` into a table of this geometry and returns its statistics, which include the fill of segments at
/// their split.
///
/// # Errors
/// The errors of the table's calls.
pub(crate) fn fill_segments<A: Ablation>(geometry: Geometry, keys: &[u64]) -> Result<Stats> {
    let options = Dash::<u64, u64, Eh<A>>::options().geometry(geometry);
    let table = options.hash_seed([1, 2]).in_memory()?;
    for &key in keys {
        Table::put(&table, key, key)?;
    }
    Ok(Table::stats(&table))
}

static ICEBERG: Design = iceberg(&[Medium::Pmem, Medium::Memory, Medium::Process, Medium::Sim]);
/// IcebergHT with DRAM as its usual medium, on which its paper measures it too.
pub(crate) static ICEBERG_IN_MEMORY: Design =
    iceberg(&[Medium::Memory, Medium::Pmem, Medium::Process, Medium::Sim]);

/// Returns a design of IcebergHT. Disks are not supported, because IcebergHT relies on the order of stores within a
/// line, which a disk does not preserve.
const fn iceberg(media: &'static [Medium]) -> Design {
    let maker = Maker::Ours { create: create_iceberg, open: open_iceberg, build: None };
    Design {
        media,
        offers_yards: true,
        recovers_on_threads: true,
        // The costs in the header of `icefield::iceberg`, plus the line of front-yard fingerprints in DRAM. The
        // fingerprints of the back yard take an eighth of the memory of those of the front yard and are not counted.
        costs: &[
            // The fingerprints, and the record's line.
            (2, 0, 0),
            // No fingerprint matches in seven of ten cases, so no record is read.
            (1, 0, 0),
            // One line of fingerprints is read, and the record's line is written.
            (1, 1, 1),
            (1, 1, 1),
            // The update of one word in place.
            (2, 1, 1),
            // Both writes; the remove finds the insert's lines in the cache.
            (1, 2, 2),
            // Half reads, half updates: the mean of both costs, rounded up.
            (2, 1, 1),
        ],
        regions: regions! {
            "table.ice" "root", "front.ice" "front", "back.ice" "back", "overflow.ice" "overflow",
            "blobs.ice" "blob", "blobmap.ice" "blob",
        },
        ..Design::new("iceberg", maker)
    }
}

fn create_iceberg(place: &Place, setup: Setup) -> Made {
    let mut options = Iceberg::<u64, u64>::options()
        .capacity(setup.capacity)
        .hash_seed([setup.seed, !setup.seed])
        .yards(setup.yards.unwrap_or_default());
    if setup.filled_up {
        options = options.max_load(1.0);
    }
    at!(place, options, create, create_on, Words)
}

fn open_iceberg(place: &Place, threads: usize) -> Made {
    at!(place, Iceberg::<u64, u64>::options().threads(threads), open, open_on, Words)
}

static PLUSH: Design = Design {
    media: &[Medium::Pmem, Medium::Memory, Medium::Process, Medium::Disk, Medium::Sim],
    offers_levels: true,
    // The costs in the header of `icefield::plush` for a table with two levels, plus the lines of the root entry.
    costs: &[
        // Read: the root entry's line and fingerprints, two filters, a state word, and the bucket.
        (7, 0, 0),
        // No filter contains the key, so no bucket is read.
        (4, 0, 0),
        (4, 1, 1),
        // Only the log record is written; a blind put does not search the levels.
        (2, 1, 1),
        (7, 1, 1),
        // Both writes; the remove finds the insert's record in the root.
        (4, 2, 2),
        // Half reads, half updates: the mean of both costs, rounded up.
        (7, 1, 1),
    ],
    regions: regions! {
        "table.ice" "root", "levels.ice" "entry", "chains.ice" "entry", "buckets-1.ice" "bucket",
        "buckets-2.ice" "bucket", "buckets-4.ice" "bucket", "buckets-8.ice" "bucket",
        "log.ice" "log", "journals.ice" "journal", "payload.ice" "payload",
        "payloadmap.ice" "payload",
    },
    ..Design::new(
        "plush",
        Maker::Ours {
            create: create_plush,
            open: |place, _threads| at!(place, Plush::<u64, u64>::options(), open, open_on, Words),
            build: None,
        },
    )
};

fn create_plush(place: &Place, setup: Setup) -> Made {
    let mut options = Plush::<u64, u64>::options()
        .capacity(setup.capacity)
        .sync(setup.sync)
        .helper_thread(setup.helper)
        .hash_seed([setup.seed, !setup.seed]);
    if let Some(levels) = setup.levels {
        options = options.dram_filters(levels.dram_filters).preallocate(levels.preallocated);
    }
    at!(place, options, create, create_on, Words)
}

/// Applies `setup` to the options of a DLHT table.
fn with<T>(options: DlhtOptions<T>, setup: Setup) -> DlhtOptions<T> {
    let Setup { capacity, seed, hash, link_ratio, fixed_size, .. } = setup;
    let options = options.capacity(capacity as usize).hash_seed([seed, !seed]).hash(match hash {
        Hashing::Strong => DlhtHash::Strong,
        Hashing::Modulo => DlhtHash::Modulo,
    });
    let options = match link_ratio {
        Some(ratio) => options.link_ratio(ratio),
        None => options,
    };
    if fixed_size { options.fixed_size() } else { options }
}

/// Returns DLHT in one of its modes.
const fn dlht(name: &'static str, create: fn(&Place, Setup) -> Made) -> Design {
    let open = |_: &Place, _| Err(unsupported("medium", "DLHT does not survive its process"));
    Design {
        media: &[Medium::Memory],
        is_usual: false,
        pages: Pages::Huge,
        // The costs in the header of `icefield::dlht`: each call reads one line, and a write changes that line.
        costs: &[(1, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 0)],
        ..Design::new(name, Maker::Ours { create, open, build: None })
    }
}

/// DLHT for any number of threads.
static DLHT: Design = Design {
    is_usual: true,
    offers_hashes: true,
    ..dlht("dlht", |_, setup| {
        Ok(Box::new(Shared(Words(with(Dlht::<u64, u64>::options(), setup).build()?))))
    })
};
static DLHT_LOCAL: Design = Design {
    is_for_one_thread: true,
    offers_hashes: true,
    ..dlht("dlht-local", |_, setup| {
        let table = with(DlhtLocal::<u64, u64>::options(), setup).build()?;
        Ok(Box::new(Mutex::new(Single(table))))
    })
};
/// Keys only.
static DLHT_SET: Design = Design {
    calls: Some(SET_CALLS),
    ..dlht("dlht-set", |_, setup| {
        Ok(Box::new(Shared(Keys(DlhtSet::with_capacity(setup.capacity as usize)))))
    })
};
/// Keys and values of any size, in separately allocated records.
static DLHT_MAP: Design = Design {
    holds: map::holds,
    // Calls that find the key also read a line of its record. The lines of new records are not counted: where records
    // are also freed, new ones lie in recently freed memory, which is probably still cached.
    costs: &[(2, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 1, 0), (2, 1, 0)],
    ..dlht("dlht-map", |_, setup| map::create(setup))
};
