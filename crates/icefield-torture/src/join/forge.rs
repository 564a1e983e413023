//! Damage with correct checksums. An attacker can cause it, because the hash seed is readable in the files. Words of
//! every structure get values at and beyond their limits; then every checksum is computed again.

use icefield::base::hash::{Hash, HashKind};
use icefield::storage::superblock::{ROOT_OFFSET, TABLE_REGION};

use crate::corrupt::damage::{Files, read_word, write_word};
use crate::rng::Rng;

const BASES: [&str; 2] = ["base-0.ice", "base-1.ice"];
const DELTAS: [&str; 2] = ["delta-0.ice", "delta-1.ice"];
const BLOCK: usize = 4096;
/// Offset of the hash function's seed in the superblock.
const SEED_AT: usize = 16;
/// Offsets of the last session's words, of the root's first copy and of the watermark.
const SESSION_AT: usize = 3072;
const ROOT_AT: usize = ROOT_OFFSET as usize;
const COPY_BYTES: usize = 64;
const WATERMARK_AT: usize = ROOT_AT + 2 * COPY_BYTES;
/// Sizes of a group's line, a pair, a wide group's bounds and a delta record.
const GROUP_BYTES: usize = 64;
const PAIR_BYTES: usize = 16;
const WIDE_BYTES: usize = 192;
const RECORD_BYTES: usize = 32;

/// Offsets of the areas of a base.
struct Areas {
    records: usize,
    wide: usize,
    sums: usize,
}

impl Areas {
    fn of(base: &[u8]) -> Option<Self> {
        let number = |word: usize| usize::try_from(read_word(base, word * 8)).ok();
        let align = |at: usize| at.checked_next_multiple_of(BLOCK);
        let after = |at: usize, count: usize, bytes: usize| {
            align(at.checked_add(count.checked_mul(bytes)?)?)
        };
        let records = after(BLOCK, number(5)?, GROUP_BYTES)?;
        let wide = after(records, number(4)?, PAIR_BYTES)?;
        let sums = after(wide, number(6)?, WIDE_BYTES)?;
        let end = align(sums.checked_add(sums / BLOCK * 8)?)?;
        (end <= base.len()).then_some(Self { records, wide, sums })
    }
}

/// Returns a value to replace `old`: an extreme value or a neighbour of `old`.
fn odd_value(old: u64, rng: &mut Rng) -> u64 {
    let others = [
        0,
        1,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old.wrapping_mul(2),
        old / 2,
        old ^ 1 << 48,
        255,
        256,
        (1 << 48) - 1,
        1 << 48,
        1 << 62,
        u64::MAX >> 1,
        u64::MAX,
        rng.below(64),
        rng.below(1 << 20),
        rng.word(),
    ];
    *rng.pick(&others)
}

/// Sets a random word of `range` in the file.
fn set(files: &mut impl Files, name: &str, range: std::ops::Range<usize>, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(name) else { return format!("no {name}") };
    let words = range.end.min(bytes.len()).saturating_sub(range.start) / 8;
    if words == 0 {
        return format!("nothing in {name}");
    }
    let at = range.start + rng.index(words) * 8;
    let value = odd_value(read_word(bytes, at), rng);
    write_word(bytes, at, value);
    format!("{name}: {value:#x} at {at}")
}

/// Forges an index one or more times, and describes how.
pub(super) fn forge(files: &mut impl Files, rng: &mut Rng) -> String {
    let table = files.bytes(TABLE_REGION).cloned().unwrap_or_default();
    let slot = (read_word(&table, ROOT_AT) & 1) as usize;
    let base = BASES[slot];
    let mut how = Vec::new();
    for _ in 0..=rng.below(4) {
        let areas = files.bytes(base).and_then(|bytes| Areas::of(bytes));
        let areas = areas.unwrap_or(Areas { records: BLOCK, wide: BLOCK, sums: BLOCK });
        how.push(match rng.below(20) {
            0..2 => set(files, base, 8..56, rng),
            2..4 => set(files, TABLE_REGION, ROOT_AT..ROOT_AT + 24, rng),
            4 => set(files, TABLE_REGION, SESSION_AT..SESSION_AT + 16, rng),
            5 => set(files, TABLE_REGION, WATERMARK_AT..WATERMARK_AT + 8, rng),
            6 => set_generation(files, base, rng),
            7..12 => set(files, base, BLOCK..areas.records, rng),
            12..14 => set(files, base, areas.wide..areas.sums, rng),
            14..16 => set(files, base, areas.records..areas.wide, rng),
            16 => copy_group(files, base, &areas, rng),
            _ => set(files, DELTAS[slot], 0..usize::MAX, rng),
        });
    }
    repair(files);
    format!("forged: {}", how.join(", "))
}

/// Replaces the number of the present generation in the root and the header.
fn set_generation(files: &mut impl Files, base: &str, rng: &mut Rng) -> String {
    let Some(table) = files.bytes(TABLE_REGION) else { return "no table".into() };
    let old = read_word(table, ROOT_AT);
    // The parity is kept, because it selects the files.
    let value = odd_value(old, rng) & !1 | old & 1;
    write_word(table, ROOT_AT, value);
    if let Some(base) = files.bytes(base) {
        write_word(base, 8, value);
    }
    format!("generation {value:#x}")
}

/// Replaces the line of a group by that of another, so that their records overlap.
fn copy_group(files: &mut impl Files, base: &str, areas: &Areas, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(base) else { return format!("no {base}") };
    let groups = (areas.records.min(bytes.len()) - BLOCK.min(bytes.len())) / GROUP_BYTES;
    if groups == 0 {
        return "no groups".into();
    }
    let [from, to] = [(); 2].map(|()| BLOCK + rng.index(groups) * GROUP_BYTES);
    bytes.copy_within(from..from + GROUP_BYTES, to);
    format!("{base}: the line at {from} to {to}")
}

fn words_sum(sums: &Hash, words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    sums.bytes(&bytes)
}

/// Recomputes every checksum, from the records of the log up to the root.
fn repair(files: &mut impl Files) {
    let Some(table) = files.bytes(TABLE_REGION) else { return };
    let seed = [0, 8].map(|at| !read_word(table, SEED_AT + at));
    let generation = read_word(table, ROOT_AT);
    let sums = Hash::new(HashKind::Strong, seed);
    let slot = (generation & 1) as usize;
    if let Some(log) = files.bytes(DELTAS[slot]) {
        for (number, record) in (0..).zip(log.chunks_exact_mut(RECORD_BYTES)) {
            let [key, payload, kind] = [0, 8, 16].map(|at| read_word(record, at));
            if [key, payload, kind] != [0; 3] {
                let sum = words_sum(&sums, &[key, payload, kind, number, generation]);
                write_word(record, 24, sum);
            }
        }
    }
    let mut header_sum = 0;
    if let Some(base) = files.bytes(BASES[slot]) {
        if let Some(Areas { sums: sums_at, .. }) = Areas::of(base) {
            for block in 1..sums_at / BLOCK {
                let sum = sums.bytes(&base[block * BLOCK..][..BLOCK]);
                write_word(base, sums_at + block * 8, sum);
            }
            let bytes = (sums_at / BLOCK * 8).next_multiple_of(BLOCK);
            let sum = sums.bytes(&base[sums_at..][..bytes]);
            write_word(base, 56, sum);
        }
        let words: [u64; 8] = std::array::from_fn(|word| read_word(base, word * 8));
        header_sum = words_sum(&sums, &words);
        write_word(base, 64, header_sum);
    }
    let Some(table) = files.bytes(TABLE_REGION) else { return };
    let filter_bits = read_word(table, ROOT_AT + 16);
    let words = [generation, header_sum, filter_bits, 0, 0, 0, 0];
    let sum = words_sum(&sums, &words);
    for copy in 0..2 {
        for (word, value) in words.into_iter().chain([sum]).enumerate() {
            write_word(table, ROOT_AT + copy * COPY_BYTES + word * 8, value);
        }
    }
}
