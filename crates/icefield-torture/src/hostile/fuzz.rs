//! Scenarios for fuzzers: the input bytes determine damage to a small table's files, or a history of operations.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use icefield::storage::sim::{Image, Model, Pool, Sim};
use icefield::storage::superblock::{TABLE_REGION, checksum};

use super::{Counts, NAME, Using, probe};
use crate::corrupt::{self, damage::write_word};
use crate::failure::Failure;
use crate::model::scenario_of_bytes;
use crate::place::SimPlace;
use crate::rng::{Rng, mix};
use crate::subject::Subject;

/// The tables to damage, each with its keys.
type Bases = Arc<Vec<(Image, Vec<u64>)>>;

/// The tables of each type. They are cached, because creating them takes longer than using one.
static BASES: Mutex<Option<HashMap<TypeId, Bases>>> = Mutex::new(None);

fn bases<T: Subject>() -> Result<Bases, Failure> {
    let mut known = BASES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(HashMap::new);
    if let Some(bases) = known.get(&TypeId::of::<T>()) {
        return Ok(Arc::clone(bases));
    }
    let made = corrupt::images::<T>(1, &Pool::default())
        .map_err(|error| Failure::new(NAME, 1, format!("create: {error}")))?;
    let made = made.into_iter().map(|(image, known)| (image, known.keys())).collect();
    let bases = Arc::new(made);
    known.insert(TypeId::of::<T>(), Arc::clone(&bases));
    Ok(bases)
}

fn seed_of(data: &[u8]) -> u64 {
    data.iter().fold(1, |sum, &byte| mix(sum ^ u64::from(byte)))
}

/// Opens a table whose files are changed by `data`, and uses it as [`super::scenario`] does.
///
/// The first byte selects the table. Changes follow in this form: file, offset (4 bytes), length, and that many
/// bytes.
///
/// # Errors
/// Returns a violation.
pub fn files<T: Subject>(data: &[u8]) -> Result<(), Failure> {
    let bases = bases::<T>()?;
    let Some((which, mut rest)) = data.split_first() else { return Ok(()) };
    let (image, keys) = &bases[usize::from(*which) % bases.len()];
    let mut image = image.clone();
    let names: Vec<&'static str> = image.regions().map(|(name, _)| name).collect();
    while let Some(([file, a, b, c, d, count], after)) = rest.split_first_chunk::<6>() {
        let count = usize::from(*count % 32).min(after.len());
        let (new, after) = after.split_at(count);
        rest = after;
        let Some(bytes) = image.region_mut(names[usize::from(*file) % names.len()]) else { break };
        let at = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        match (count, bytes.len()) {
            (0, len) => bytes.resize(at % (len + 4096) / 64 * 64, 0),
            (_, 0) => {}
            (_, len) => {
                let at = at % len;
                let end = (at + count).min(len);
                bytes[at..end].copy_from_slice(&new[..end - at]);
            }
        }
    }
    // A fuzzer cannot guess checksums, so half of the inputs get a correct one.
    if which & 0x80 != 0
        && let Some(bytes) = image.region_mut(TABLE_REGION).filter(|bytes| bytes.len() >= 2048)
    {
        let sum = checksum(&bytes[..1016]);
        write_word(bytes, 1016, sum);
    }
    let seed = seed_of(data);
    let sim = Sim::from_image(&image, corrupt::looking(seed, &Pool::default()));
    let budget = sim.clone();
    let use_it = |table: &T, using: &Using<'_>| using.change_and_look(table);
    let begin = || budget.begin_op();
    let outcome = probe(|| T::open_on(sim), keys, &mut Rng::new(seed), &begin, use_it);
    let mut counts = Counts::default();
    counts.count(outcome, "the fuzzer's changes");
    counts.judged(seed).map(drop)
}

/// Runs a history of the model scenario with steps determined by `data`. The first byte selects the geometry.
///
/// # Errors
/// Returns a difference between table and reference map, or an error of the table.
pub fn operations<T: Subject>(data: &[u8]) -> Result<(), Failure> {
    let Some((variant, steps)) = data.split_first() else { return Ok(()) };
    let memory = Pool::default();
    let place = || SimPlace::new(u64::from(*variant), Model::Pmem, &memory);
    scenario_of_bytes::<T, _>(steps, place).map(drop)
}
