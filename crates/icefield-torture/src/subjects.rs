//! Implements the scenario traits for the tables of this repository.

use std::path::Path;

use icefield::base::hash::HashKind;
use icefield::storage::sim::Sim;
use icefield::{
    Arg, DashEh, DashLh, DashOptions, Directory, Durability, Error, Expansion, Form, Geometry,
    Iceberg, IcebergOptions, Key, Lh, Partition, Plush, PlushOptions, Result, Shape, Value, Yards,
};

use crate::file_subject::{FileOptions, FileSubject, TINY};
use crate::subject::{FOREIGN, Sample, Seen, Subject};

/// Hash seeds are fixed, so that a seed identifies a history completely.
const SEED: [u64; 2] = [0x1CE_F1E1D, 0xDA5_4E4];

/// Address space for a simulated table: enough for a few hundred records with equal hashes, and small enough to be
/// cheap.
const SIM_BYTES: u64 = 1 << 23;

/// The variant of an opened table. It determines only options that are not stored: a Plush has a helper.
const OPENED: u64 = 9;

/// Implements the traits for a persistent table, given its name, its exempt regions, and the options of a variant: tiny
/// for the simulated medium and larger for files. An opened table keeps the geometry of its creation, whatever the
/// options say. For designs that support disks, the relaxed put, the name of the sync option, the design's own pass
/// over all records, and the call that does the work of a helper are given, too.
macro_rules! subjects {
    (
        $table:ident, name: $name:literal, exempt: $exempt:expr, tiny: $tiny:expr, larger: $larger:expr,
        $(relaxed: $put:path, option: $sync:ident, pass: $pass:path, help: $help:path,)?
    ) => {
        impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> Subject for $table<K, V, Sim> {
            const NAME: &'static str = $name;
            const EXEMPT: &'static [&'static str] = $exempt;
            $(const DISKS: bool = !stringify!($put).is_empty();)?

            fn create_tiny(sim: Sim, variant: u64) -> Result<Self> {
                $tiny(variant).max_bytes(SIM_BYTES).create_on(sim)
            }

            fn open_on(sim: Sim) -> Result<Self> {
                $tiny(OPENED).max_bytes(SIM_BYTES).open_on(sim)
            }

            $(fn put_relaxed(&self, key: Arg<'_, K>, value: Arg<'_, V>, way: u64) -> Result<()> {
                $put(self, key, value, way)
            }

            fn own_pass(&self) -> Result<Option<Seen>> {
                $pass(self)
            }

            fn help(&self) {
                $help(self);
            })?
        }

        impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> FileSubject for $table<K, V> {
            const NAME: &'static str = $name;
            $(const DISKS: bool = !stringify!($put).is_empty();)?

            fn create_at(path: &Path, how: FileOptions) -> Result<Self> {
                with_file_options!($larger(how.variant)$(.$sync(how.sync))?, how).create(path)
            }

            fn create_whole(path: &Path) -> Result<Self> {
                Self::options().durability(Durability::Process).create(path)
            }

            fn open_at(path: &Path, how: FileOptions) -> Result<Self> {
                with_file_options!($larger(how.variant)$(.$sync(how.sync))?, how).open(path)
            }

            fn open_to_read(path: &Path) -> Result<Self> {
                Self::open_read_only(path)
            }

            fn in_memory(variant: u64) -> Result<Self> {
                $larger(variant).in_memory()
            }
        }
    };
}

/// Adds the file options to the options of any table.
macro_rules! with_file_options {
    ($options:expr, $how:ident) => {{
        let options = $options.durability($how.durability);
        let options = match $how.max_bytes {
            Some(bytes) => options.max_bytes(bytes),
            None => options,
        };
        match $how.faults {
            Some(faults) => options.faults(faults),
            None => options,
        }
    }};
}

subjects! {
    DashEh,
    name: "dash-eh",
    // A directory entry always leads to a complete and durable segment, and recovery completes the split that stores
    // the entry (`dash::eh`).
    exempt: &["directory-0.ice", "directory-1.ice"],
    tiny: |variant| dash_options(variant, dash_geometry(variant)),
    larger: |variant| dash_options(variant, dash_file_geometry(variant)),
}

subjects! {
    DashLh,
    name: "dash-lh",
    exempt: &[],
    tiny: |variant| linear(variant, dash_geometry(variant)),
    larger: |variant| linear(variant, dash_file_geometry(variant)),
}

subjects! {
    Iceberg,
    name: "iceberg",
    exempt: &[],
    // There are many simulated tables, so each reserves little address space.
    tiny: |variant| iceberg_options(variant, iceberg_yards(variant)).max_depth(10),
    larger: |variant| iceberg_options(variant, iceberg_file_yards(variant)),
}

subjects! {
    Plush,
    name: "plush",
    exempt: &[],
    // Some tables have a helper: their callers in the simulator, a thread otherwise.
    tiny: |variant| {
        let options = plush_options(variant, plush_shape(variant));
        if is_helped(variant) { options.helped_by_callers() } else { options }
    },
    larger: |variant| {
        plush_options(variant, plush_file_shape(variant)).helper_thread(is_helped(variant))
    },
    relaxed: put_relaxed,
    option: sync,
    pass: all_in_order,
    help: Plush::help,
}

/// Selects the hash function. Some variants give all keys the same hash; others clear five high bits of every hash, so
/// that several splits in a row do not separate the records. Thus chains are created and freed, and the overflow yard
/// is used.
fn hash_kind(variant: u64) -> HashKind {
    match variant % 11 {
        10 => HashKind::Constant,
        7..10 => HashKind::Crowded,
        _ => HashKind::Strong,
    }
}

fn hash_seed(variant: u64) -> [u64; 2] {
    [SEED[0] ^ variant, SEED[1]]
}

/// Returns Dash geometries in which splits, displacements, stash overflow and chains occur after a few inserts.
fn dash_geometry(variant: u64) -> Geometry {
    let shapes = [(2, 2, 1), (2, 5, 1), (4, 2, 1), (2, 1, 2), (4, 1, 3), (8, 1, 1), (4, 7, 2)];
    let (buckets, slots, stash) = shapes[(variant % shapes.len() as u64) as usize];
    Geometry { buckets, slots, stash }
}

/// Returns tiny, small and default segments, for scenarios with hundreds of records.
fn dash_file_geometry(variant: u64) -> Geometry {
    match variant % 4 {
        0 => Geometry { buckets: 4, slots: 4, stash: 1 },
        1 => Geometry { buckets: 8, slots: 14, stash: 2 },
        2 => Geometry::default(),
        _ => dash_geometry(variant / 4),
    }
}

/// Returns the options that both Dash designs share.
fn dash_options<K: Key + ?Sized, V: Value + ?Sized, P: Directory>(
    variant: u64,
    geometry: Geometry,
) -> DashOptions<K, V, P> {
    let options = DashOptions::default().geometry(geometry).hash(hash_kind(variant));
    options.hash_seed(hash_seed(variant)).blob_chunk_bytes(1 << 10)
}

/// Selects the first array and the stride so that arrays of every size are a few expansions away. Some variants have
/// a load bound.
fn linear<K: Key + ?Sized, V: Value + ?Sized>(
    variant: u64,
    geometry: Geometry,
) -> DashOptions<K, V, Lh> {
    let shapes = [(1, 1), (2, 1), (1, 2), (2, 4), (4, 2)];
    let (first, stride) = shapes[(variant / 7 % shapes.len() as u64) as usize];
    let expansion = match variant % 5 {
        3 => Expansion::Load { percent: 50 },
        4 => Expansion::Load { percent: 90 },
        _ => Expansion::ChainedBucket,
    };
    let options = dash_options(variant, geometry).first_array(first).stride(stride);
    options.expansion(expansion)
}

/// Returns Iceberg buckets so small that the back yard, the overflow yard and doublings are a few inserts away.
fn iceberg_yards(variant: u64) -> Yards {
    let shapes = [(2, 1), (1, 1), (4, 2), (3, 1), (2, 3), (8, 1), (5, 8)];
    let (front, back) = shapes[(variant % shapes.len() as u64) as usize];
    Yards { front, back }
}

/// Returns tiny, small and default buckets, for scenarios with hundreds of records.
fn iceberg_file_yards(variant: u64) -> Yards {
    match variant % 4 {
        0 => Yards { front: 4, back: 2 },
        1 => Yards { front: 32, back: 4 },
        2 => Yards::default(),
        _ => iceberg_yards(variant / 4),
    }
}

fn iceberg_options<K: Key + ?Sized, V: Value + ?Sized>(
    variant: u64,
    yards: Yards,
) -> IcebergOptions<K, V> {
    // Some tables double early, some only when they are completely full.
    let load = [0.85, 0.5, 1.0][(variant / 7 % 3) as usize];
    let options = Iceberg::<K, V>::options().yards(yards).hash(hash_kind(variant));
    let options = options.hash_seed(hash_seed(variant)).blob_chunk_bytes(1 << 10).max_load(load);
    // Histories have too few reads to change the ring.
    options.expects_misses(variant / 21 % 2 == 1)
}

/// Returns Plush shapes with entries so small that migrations, compactions, new levels, chains and further turns of the
/// log are a few writes away.
fn plush_shape(variant: u64) -> Shape {
    let [root_bits, first_bits, fan_bits, slots, log_bits, log_chunks, log_records] = [
        [0, 0, 1, 1, 0, 2, 3],
        [1, 0, 1, 2, 1, 3, 4],
        [0, 1, 1, 1, 0, 2, 4],
        [1, 0, 2, 1, 0, 2, 8],
        [0, 0, 1, 2, 0, 3, 2],
        [2, 0, 1, 1, 1, 2, 2],
        [1, 1, 2, 2, 1, 2, 8],
        [1, 2, 2, 2, 1, 4, 4],
        [0, 3, 2, 4, 0, 4, 8],
    ][(variant % 9) as usize];
    Shape { root_bits, first_bits, fan_bits, slots, log_bits, log_chunks, log_records }
}

/// Returns tiny, small and default tables, for scenarios with hundreds of records.
fn plush_file_shape(variant: u64) -> Shape {
    if let Some(variant) = variant.checked_sub(TINY) {
        return plush_shape(variant);
    }
    match variant % 5 {
        0 => Shape { root_bits: 1, slots: 4, log_bits: 1, log_records: 40, ..Shape::default() },
        1 => Shape { root_bits: 2, fan_bits: 2, log_records: 64, ..Shape::default() },
        2 => Shape::default(),
        3 => Shape { root_bits: 2, first_bits: 3, log_records: 256, ..Shape::default() },
        _ => plush_shape(variant / 5),
    }
}

fn plush_options<K: Key + Sample + ?Sized, V: Value + ?Sized>(
    variant: u64,
    shape: Shape,
) -> PlushOptions<K, V> {
    let options = Plush::<K, V>::options().shape(shape).hash(hash_kind(variant));
    let options = options.hash_seed(hash_seed(variant)).blob_chunk_bytes(1 << 10);
    let options = match variant % 5 {
        // Most keys of the scenarios are low numbers, so the range lies among them.
        4 if K::FORM == Form::Word => {
            let (first, last) = (K::sample(0), K::sample(1023));
            options.partition(Partition::Range).key_range(K::arg(&first), K::arg(&last))
        }
        4 => options.partition(Partition::Range),
        _ => options,
    };
    // Half of the variants start with the default epoch, the others shortly before the log epoch wraps around or
    // reaches the next round (`LogEpoch::is_round`).
    let options = match variant % 4 {
        2 => options.first_epoch((1 << 48) - 1 - variant / 4 % 16),
        3 => options.first_epoch((1 << 20) - 1 - variant / 4 % 16),
        _ => options,
    };
    // Use DRAM filters for none, some or all of the levels. Some variants also preallocate all buckets.
    options.dram_filters(variant as usize % 3).preallocate(usize::from(variant % 13 == 12))
}

/// Returns whether a Plush has a helper.
fn is_helped(variant: u64) -> bool {
    variant / 9 % 2 == 1
}

/// Puts a record, by one of the calls whose write need not be durable before the next `sync`.
fn put_relaxed<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized>(
    table: &Plush<K, V, Sim>,
    key: Arg<'_, K>,
    value: Arg<'_, V>,
    way: u64,
) -> Result<()> {
    match way % 3 {
        0 => table.put(key, value),
        1 => table.put_unlogged(key, value),
        // The future is dropped without being awaited.
        _ => {
            drop(table.put_async(key, value));
            Ok(())
        }
    }
}

/// Returns all records by `range`, if the table has ranges.
fn all_in_order<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized>(
    table: &Plush<K, V, Sim>,
) -> Result<Option<Seen>> {
    let least = K::least();
    let records = match table.range(K::arg(&least), usize::MAX) {
        Err(Error::Unsupported(_)) => return Ok(None),
        records => records?,
    };
    let number = |(key, value): &(K::Owned, V::Owned)| {
        (K::number(key).unwrap_or(FOREIGN), V::number(value).unwrap_or(FOREIGN))
    };
    Ok(Some(records.iter().map(number).collect()))
}
