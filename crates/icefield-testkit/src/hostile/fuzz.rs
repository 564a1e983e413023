//! Scenarios that take a fuzzer's bytes: damage to a small table's files, and a history of operations.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use icefield::Cursor;
use icefield::pm::sim::{Image, Model, Pool, Sim};
use icefield::pm::superblock::{TABLE_REGION, checksum};

use super::{Counts, NAME, Using, probe};
use crate::call::{Action, Call, Rule, ask};
use crate::corrupt::{self, damage::write_word};
use crate::failure::Failure;
use crate::reference::Reference;
use crate::rng::{Rng, mix};
use crate::subject::{Sample, Subject};

/// Tables that bytes damage, with the keys that each had.
type Bases = Arc<Vec<(Image, Vec<u64>)>>;

/// Those of each type: making them takes longer than using one.
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

/// Opens a table whose files `data` changes, and uses it as [`super::scenario`] does.
///
/// The first byte chooses the table; then come changes of the form: file, offset (4 bytes), how many bytes, these.
///
/// # Errors
/// Something happened that must not.
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
    // A fuzzer finds no checksums.
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

/// Runs a history beside the reference map; three bytes of `data` make an operation.
///
/// # Errors
/// The table and the map disagree, or the table fails.
pub fn operations<T: Subject>(data: &[u8]) -> Result<(), Failure> {
    let Some((variant, calls)) = data.split_first() else { return Ok(()) };
    let seed = seed_of(data);
    let fail = |what: String| Failure::new(NAME, seed, what);
    let fine = |error: icefield::Error| fail(format!("error: {error}"));
    let mut options = corrupt::looking(seed, &Pool::default());
    options.model = Model::Pmem;
    let sim = Sim::new(options);
    let mut table = T::create_tiny(sim.clone(), u64::from(*variant)).map_err(fine)?;
    let mut right = Reference::new();
    for (at, call) in calls.as_chunks::<3>().0.iter().enumerate() {
        sim.begin_op();
        let (key, value) = (u64::from(call[1]), 256 + (u64::from(call[2]) << 4) + at as u64);
        let action = match call[0] % 24 {
            0..6 => Action::Insert(value),
            6..8 => Action::Put(value),
            8 | 9 => Action::TryInsert(value),
            10 | 11 => Action::Update(value),
            12..15 => Action::Remove,
            15 => Action::Delete,
            16 => Action::Get,
            17 => Action::Compute(Rule::PutIfAbsent(value)),
            18 => Action::Compute(Rule::RemoveEven),
            19 => {
                table.clear().map_err(fine)?;
                right.clear();
                continue;
            }
            20 => {
                table.shrink_to_fit().map_err(fine)?;
                continue;
            }
            21 => {
                table.reserve(u64::from(call[2])).map_err(fine)?;
                continue;
            }
            22 => {
                drop(table);
                table = T::open_on(sim.clone()).map_err(fine)?;
                continue;
            }
            _ => {
                agree(&table, &right).map_err(fail)?;
                continue;
            }
        };
        let call = Call { key, action };
        let (got, wanted) = (ask(&table, call).map_err(fine)?, right.ask(call));
        if got != wanted {
            return Err(fail(format!("operation {at}: {call:?} gave {got:?}, not {wanted:?}")));
        }
    }
    sim.begin_op();
    agree(&table, &right).map_err(fail)
}

/// Compares the table with the map, and checks it.
fn agree<T: Subject>(table: &T, right: &Reference) -> Result<(), String> {
    let report = table.check().map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(format!("{report:?}"));
    }
    let mut next = Some(Cursor::START);
    let mut found = 0;
    while let Some(cursor) = next {
        let page = table.scan(cursor, 100).map_err(|error| error.to_string())?;
        for (key, value) in &page.records {
            let (key, value) = (T::Key::number(key), T::Value::number(value));
            if key.is_none_or(|key| right.get(key) != value) {
                return Err(format!("the scan gives {key:?} the value {value:?}"));
            }
        }
        found += page.records.len();
        next = page.next;
    }
    let (len, known) = (table.len().map_err(|error| error.to_string())?, right.len() as u64);
    if found as u64 != known || len != known {
        return Err(format!("{found} records scanned, {len} counted, {known} expected"));
    }
    Ok(())
}
