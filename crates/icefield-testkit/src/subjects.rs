//! The tables of this repository as subjects.

use std::path::Path;

use icefield::base::hash::HashKind;
use icefield::pm::sim::Sim;
use icefield::{
    Arg, DashEh, DashLh, DashOptions, Directory, Expansion, Form, Geometry, Iceberg,
    IcebergOptions, Key, Lh, Partition, Plush, PlushOptions, Result, Shape, Value, Yards,
};

use crate::file_subject::{FileOptions, FileSubject};
use crate::subject::{Sample, Subject};

/// Hash seeds are fixed: a seed names a history completely.
const SEED: [u64; 2] = [0x1CE_F1E1D, 0xDA5_4E4];

/// Address space for a simulated table: enough for a few hundred records with equal hashes, little enough to be cheap.
const SIM_BYTES: u64 = 1 << 23;

/// Dash geometries in which splits, displacements, stash overflow and chains are a few inserts away.
fn dash_geometry(variant: u64) -> Geometry {
    let shapes = [(2, 2, 1), (2, 5, 1), (4, 2, 1), (2, 1, 2), (4, 1, 3), (8, 1, 1), (4, 7, 2)];
    let (buckets, slots, stash) = shapes[(variant % shapes.len() as u64) as usize];
    Geometry { buckets, slots, stash }
}

/// Tiny and small segments, and the real ones: for scenarios with hundreds of records.
fn dash_file_geometry(variant: u64) -> Geometry {
    match variant % 4 {
        0 => Geometry { buckets: 4, slots: 4, stash: 1 },
        1 => Geometry { buckets: 8, slots: 14, stash: 2 },
        2 => Geometry::default(),
        _ => dash_geometry(variant / 4),
    }
}

/// The options that both ways to grow have.
fn dash_options<K: Key + ?Sized, V: Value + ?Sized, P: Directory>(
    variant: u64,
    geometry: Geometry,
) -> DashOptions<K, V, P> {
    let seed = [SEED[0] ^ variant, SEED[1]];
    // Now and then all keys have the same hash, more often crowded ones, so that chains come and go.
    let hash = match variant % 11 {
        10 => HashKind::Constant,
        7..10 => HashKind::Crowded,
        _ => HashKind::Strong,
    };
    let options = DashOptions::default().geometry(geometry).hash(hash);
    options.hash_seed(seed).blob_chunk_bytes(1 << 10)
}

/// First arrays and strides in which arrays of every size are a few expansions away; now and then a load bound.
fn linear<K: Key + ?Sized, V: Value + ?Sized>(
    variant: u64,
    options: DashOptions<K, V, Lh>,
) -> DashOptions<K, V, Lh> {
    let shapes = [(1, 1), (2, 1), (1, 2), (2, 4), (4, 2)];
    let (first, stride) = shapes[(variant / 7 % shapes.len() as u64) as usize];
    let expansion = match variant % 5 {
        3 => Expansion::Load { percent: 50 },
        4 => Expansion::Load { percent: 90 },
        _ => Expansion::ChainedBucket,
    };
    options.first_array(first).stride(stride).expansion(expansion)
}

/// Both ways to grow as subjects: what differs is the name, the exempt regions and the options of a new table.
macro_rules! dash_subjects {
    ($table:ident, $name:literal, $exempt:expr, $new:expr) => {
        impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> Subject for $table<K, V, Sim> {
            const NAME: &'static str = $name;
            const EXEMPT: &'static [&'static str] = $exempt;

            fn create_tiny(sim: Sim, variant: u64) -> Result<Self> {
                let options = dash_options(variant, dash_geometry(variant));
                $new(variant, options).max_bytes(SIM_BYTES).create_on(sim)
            }

            fn open_on(sim: Sim) -> Result<Self> {
                dash_options(0, dash_geometry(0)).max_bytes(SIM_BYTES).open_on(sim)
            }
        }

        impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> FileSubject for $table<K, V> {
            const NAME: &'static str = $name;

            fn create_at(path: &Path, how: FileOptions) -> Result<Self> {
                let options = dash_options(how.variant, dash_file_geometry(how.variant));
                with_file_options($new(how.variant, options), how).create(path)
            }

            fn open_at(path: &Path, how: FileOptions) -> Result<Self> {
                let options = dash_options(how.variant, dash_file_geometry(how.variant));
                with_file_options(options, how).open(path)
            }

            fn open_to_read(path: &Path) -> Result<Self> {
                Self::open_read_only(path)
            }

            fn in_memory(variant: u64) -> Result<Self> {
                $new(variant, dash_options(variant, dash_file_geometry(variant))).in_memory()
            }
        }
    };
}

// An entry leads to a whole and durable segment, and the split that stores it is rolled forward (`dash::eh`).
dash_subjects!(DashEh, "dash-eh", &["directory-0.ice", "directory-1.ice"], |_, options| options);
dash_subjects!(DashLh, "dash-lh", &[], linear);

fn with_file_options<K: Key + ?Sized, V: Value + ?Sized, P: Directory>(
    options: DashOptions<K, V, P>,
    how: FileOptions,
) -> DashOptions<K, V, P> {
    let options = options.durability(how.durability);
    let options = match how.max_bytes {
        Some(bytes) => options.max_bytes(bytes),
        None => options,
    };
    match how.faults {
        Some(faults) => options.faults(faults),
        None => options,
    }
}

/// Iceberg buckets so small that the back yard, the overflow yard and doublings are a few inserts away.
fn iceberg_yards(variant: u64) -> Yards {
    let shapes = [(2, 1), (1, 1), (4, 2), (3, 1), (2, 3), (8, 1), (5, 8)];
    let (front, back) = shapes[(variant % shapes.len() as u64) as usize];
    Yards { front, back }
}

/// Tiny and small buckets, and the real ones: for scenarios with hundreds of records.
fn iceberg_file_yards(variant: u64) -> Yards {
    match variant % 4 {
        0 => Yards { front: 4, back: 2 },
        1 => Yards { front: 32, back: 4 },
        2 => Yards::default(),
        _ => iceberg_yards(variant / 4),
    }
}

fn iceberg_options<K: Key + ?Sized, V: Value + ?Sized>(variant: u64) -> IcebergOptions<K, V> {
    let seed = [SEED[0] ^ variant, SEED[1]];
    // Now and then all keys have the same hash, more often few fingerprints, so that the overflow yard is in use.
    let hash = match variant % 11 {
        10 => HashKind::Constant,
        7..10 => HashKind::Crowded,
        _ => HashKind::Strong,
    };
    // Sometimes a table doubles early, sometimes when it is full to the last slot.
    let load = [0.85, 0.5, 1.0][(variant / 7 % 3) as usize];
    let options = Iceberg::<K, V>::options().yards(iceberg_yards(variant)).hash(hash);
    options.hash_seed(seed).blob_chunk_bytes(1 << 10).max_load(load)
}

fn iceberg_file_options<K: Key + ?Sized, V: Value + ?Sized>(variant: u64) -> IcebergOptions<K, V> {
    iceberg_options(variant).yards(iceberg_file_yards(variant))
}

/// Of the simulated tables, which are many: no more address space than they use.
const ICEBERG_SIM_DEPTH: u32 = 10;

impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> Subject for Iceberg<K, V, Sim> {
    const NAME: &'static str = "iceberg";

    fn create_tiny(sim: Sim, variant: u64) -> Result<Self> {
        iceberg_options(variant).max_bytes(SIM_BYTES).max_depth(ICEBERG_SIM_DEPTH).create_on(sim)
    }

    fn open_on(sim: Sim) -> Result<Self> {
        iceberg_options(0).max_bytes(SIM_BYTES).max_depth(ICEBERG_SIM_DEPTH).open_on(sim)
    }
}

impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> FileSubject for Iceberg<K, V> {
    const NAME: &'static str = "iceberg";

    fn create_at(path: &Path, how: FileOptions) -> Result<Self> {
        iceberg_with(iceberg_file_options(how.variant), how).create(path)
    }

    fn open_at(path: &Path, how: FileOptions) -> Result<Self> {
        iceberg_with(iceberg_file_options(how.variant), how).open(path)
    }

    fn open_to_read(path: &Path) -> Result<Self> {
        Self::open_read_only(path)
    }

    fn in_memory(variant: u64) -> Result<Self> {
        iceberg_file_options(variant).in_memory()
    }
}

fn iceberg_with<K: Key + ?Sized, V: Value + ?Sized>(
    options: IcebergOptions<K, V>,
    how: FileOptions,
) -> IcebergOptions<K, V> {
    let options = options.durability(how.durability);
    let options = match how.max_bytes {
        Some(bytes) => options.max_bytes(bytes),
        None => options,
    };
    match how.faults {
        Some(faults) => options.faults(faults),
        None => options,
    }
}

/// Plush tables whose entries hold so little that migrations, compactions, new levels, chains and the log's next rounds
/// are a few writes away.
fn plush_shape(variant: u64) -> Shape {
    let [root_bits, first_bits, fan_bits, slots, log_bits, log_chunks, log_records] = [
        [0, 0, 1, 1, 0, 2, 3],
        [1, 0, 1, 2, 1, 3, 4],
        [0, 1, 1, 1, 0, 2, 4],
        [1, 0, 2, 1, 0, 2, 8],
        [0, 0, 1, 2, 0, 3, 2],
        [2, 0, 1, 1, 1, 2, 2],
        [1, 1, 2, 2, 1, 2, 8],
    ][(variant % 7) as usize];
    Shape { root_bits, first_bits, fan_bits, slots, log_bits, log_chunks, log_records }
}

/// Tiny and small tables, and the real ones: for scenarios with hundreds of records.
fn plush_file_shape(variant: u64) -> Shape {
    match variant % 4 {
        0 => Shape { root_bits: 1, slots: 4, log_bits: 1, log_records: 40, ..Shape::default() },
        1 => Shape { root_bits: 2, fan_bits: 2, log_records: 64, ..Shape::default() },
        2 => Shape::default(),
        _ => plush_shape(variant / 4),
    }
}

fn plush_options<K: Key + Sample + ?Sized, V: Value + ?Sized>(variant: u64) -> PlushOptions<K, V> {
    let seed = [SEED[0] ^ variant, SEED[1]];
    // Now and then all keys have the same hash, more often crowded ones, so that entries are continued.
    let hash = match variant % 11 {
        10 => HashKind::Constant,
        7..10 => HashKind::Crowded,
        _ => HashKind::Strong,
    };
    let options = Plush::<K, V>::options().shape(plush_shape(variant)).hash(hash);
    let options = options.hash_seed(seed).blob_chunk_bytes(1 << 10);
    let options = match variant % 5 {
        // Among the keys of the scenarios, most of which are low numbers.
        4 if K::FORM == Form::Word => {
            let (first, last) = (K::sample(0), K::sample(1023));
            options.partition(Partition::Range).key_range(K::arg(&first), K::arg(&last))
        }
        4 => options.partition(Partition::Range),
        _ => options,
    };
    // Most begin as tables do; some when the log epochs are about to wrap around, or to fill a round.
    let options = match variant % 4 {
        2 => options.first_epoch((1 << 48) - 1 - variant / 4 % 16),
        3 => options.first_epoch((1 << 20) - 1 - variant / 4 % 16),
        _ => options,
    };
    // Filters in DRAM of no level, of some and of all; now and then all buckets at once.
    options.dram_filters(variant as usize % 3).preallocate(usize::from(variant % 13 == 12))
}

fn plush_file_options<K: Key + Sample + ?Sized, V: Value + ?Sized>(
    variant: u64,
) -> PlushOptions<K, V> {
    plush_options(variant).shape(plush_file_shape(variant))
}

impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> Subject for Plush<K, V, Sim> {
    const NAME: &'static str = "plush";

    fn create_tiny(sim: Sim, variant: u64) -> Result<Self> {
        plush_options(variant).max_bytes(SIM_BYTES).create_on(sim)
    }

    fn open_on(sim: Sim) -> Result<Self> {
        plush_options(0).max_bytes(SIM_BYTES).open_on(sim)
    }

    fn put_relaxed(&self, key: Arg<'_, K>, value: Arg<'_, V>, way: u64) -> Result<()> {
        match way % 3 {
            0 => self.put(key, value),
            1 => self.put_unlogged(key, value),
            // Who does not await it learns nothing from it.
            _ => {
                drop(self.put_async(key, value));
                Ok(())
            }
        }
    }
}

impl<K: Key + Sample + ?Sized, V: Value + Sample + ?Sized> FileSubject for Plush<K, V> {
    const NAME: &'static str = "plush";
    const DISKS: bool = true;

    fn create_at(path: &Path, how: FileOptions) -> Result<Self> {
        plush_with(plush_file_options(how.variant), how).create(path)
    }

    fn open_at(path: &Path, how: FileOptions) -> Result<Self> {
        plush_with(plush_file_options(how.variant), how).open(path)
    }

    fn open_to_read(path: &Path) -> Result<Self> {
        Self::open_read_only(path)
    }

    fn in_memory(variant: u64) -> Result<Self> {
        plush_file_options(variant).in_memory()
    }
}

fn plush_with<K: Key + ?Sized, V: Value + ?Sized>(
    options: PlushOptions<K, V>,
    how: FileOptions,
) -> PlushOptions<K, V> {
    let options = options.durability(how.durability).sync(how.sync);
    let options = match how.max_bytes {
        Some(bytes) => options.max_bytes(bytes),
        None => options,
    };
    match how.faults {
        Some(faults) => options.faults(faults),
        None => options,
    }
}
