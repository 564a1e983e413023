//! The load factor at which an index must grow, and the number of lines that a get reads at that moment (DLHT 5.1.5).
//!
//! The expected load factor follows from the Poisson distribution: with a perfect hash function, the number of records
//! per bin varies randomly, and the link buckets are used up when enough bins have more than three records. The lines
//! per get are computed from the number of actual keys in each bin.

use icefield::base::hash::{Hash, HashKind};

use crate::args::Hashing;
use crate::prelude::*;

/// Link buckets per bin without `--link-ratio`: the table's default, and the paper's.
const RATIOS: [f64; 2] = [0.125, 0.2];

/// The paper's load factors at growth, for one link bucket per five bins.
const PAPER: &str = "0.63 to 0.72 at 1/5";

const SLOTS: (u64, u64) = (3, 4);

/// The state of an index just before it grew.
#[derive(Clone, Copy)]
struct Full {
    bins: u64,
    links: u64,
    records: u64,
    bytes: u64,
}

impl Full {
    fn occupancy(&self) -> f64 {
        self.records as f64 / (self.bins * SLOTS.0 + self.links * SLOTS.1) as f64
    }
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.link_ratio.clone();
    let ratios = if asked.is_empty() { RATIOS.to_vec() } else { asked };
    let mut designs = session.ours_on(Medium::Memory)?;
    // Keeps only the tables that report their bins.
    designs.retain(|design| design.offers_hashes);
    for design in designs {
        for ratio in &ratios {
            grow(session, design, *ratio)?;
        }
    }
    Ok(())
}

fn grow(session: &mut Session, design: DesignRef, ratio: f64) -> Outcome {
    let keys = session.keys(Medium::Memory);
    let setup = Setup { link_ratio: Some(ratio), ..session.setup(1) };
    let placed = session.create(design, Medium::Memory, setup)?;
    let mut resizes: Vec<Full> = Vec::new();
    let (mut inserted, mut last) = (0, describe(&*placed, 0));
    while inserted < keys {
        // Small steps, so that the load factor at growth is precise.
        let step = (last.bins / 1024).max(1).min(keys - inserted);
        let new = session.space.keys(inserted..inserted + step);
        let found = placed.run(Call::TryInsert, &new, Batch::None)?;
        session.check_call(&placed, Call::TryInsert, &new, found);
        let now = describe(&*placed, inserted + step);
        if now.bins != last.bins {
            // `last` describes the index before this step. The index may have grown only after some records of this
            // step; these are not counted, at most a thousandth of a record per bin.
            resizes.push(Full { records: inserted, ..last });
            session.progress(&format!("occupancy {}: {inserted} of {keys}", design.name));
        }
        (inserted, last) = (inserted + step, now);
    }
    let mut row = session.row(design, Medium::Memory);
    row.at(1, Batch::None, keys, keys);
    row.extra("link_ratio", ratio);
    row.extra("resizes", resizes.len());
    let same_hash = detail(&placed.stats(), "hash-functions-before") == Some(0);
    if let Some(full) = resizes.last() {
        describe_full(&mut row, full, &resizes);
        row.extra("grown_bytes_per_key", rounded(last.bytes as f64 / full.records as f64));
        if same_hash && session.args.hash.unwrap_or_default() == Hashing::Strong {
            let (hits, misses) = lines(session, full);
            let lines = [("lines_per_get", hits), ("lines_per_get_miss", misses)];
            row.extras(lines.map(|(name, lines)| (name, rounded(lines))));
        }
    }
    session.put(row)
}

fn describe(table: &dyn BenchTable, records: u64) -> Full {
    let stats = table.stats();
    let of = |name| detail(&stats, name).unwrap_or(0);
    Full { bins: of("bins"), links: of("link-buckets"), records, bytes: stats.dram_bytes }
}

fn describe_full(row: &mut Row, full: &Full, resizes: &[Full]) {
    let mean = resizes.iter().map(Full::occupancy).sum::<f64>() / resizes.len() as f64;
    row.bytes_per_key = Some(rounded(full.bytes as f64 / full.records as f64));
    row.load_factor = Some(rounded(full.occupancy()));
    let figures = [
        ("occupancy", full.occupancy()),
        ("mean_occupancy", mean),
        ("poisson_occupancy", poisson(full)),
        ("records_per_bin", full.records as f64 / full.bins as f64),
    ];
    row.extras(figures.map(|(name, figure)| (name, rounded(figure))));
    row.extra("paper_occupancy", PAPER);
}

/// Returns the mean number of link buckets per bin when bins have `mean` records on average. A bin with four to seven
/// records uses one link bucket, a bin with eight or more uses three.
fn links_used(mean: f64) -> f64 {
    let (mut term, mut used) = ((-mean).exp(), 0.0);
    for records in 1..64 {
        term *= mean / f64::from(records);
        used += term * if records > 7 { 3.0 } else { f64::from(u8::from(records > 3)) };
    }
    used
}

/// Returns the load factor at which an index with the bins and link buckets of `full` has used up its link buckets.
fn poisson(full: &Full) -> f64 {
    let wanted = full.links.max(1) as f64 / full.bins as f64;
    let (mut low, mut high) = (0.0, 15.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if links_used(middle) < wanted { low = middle } else { high = middle }
    }
    let records = (low * full.bins as f64) as u64;
    Full { records, ..*full }.occupancy()
}

/// Returns the mean number of lines that a get reads, for a present key and for an absent one: the bin's line, and
/// those of the link buckets that the search reads.
fn lines(session: &Session, full: &Full) -> (f64, f64) {
    let seed = session.args.seed;
    let hash = Hash::new(HashKind::Strong, [seed, !seed]);
    let mut counts = vec![0_u8; full.bins as usize];
    for index in 0..full.records {
        let hash = u128::from(hash.word(session.space.key(index)));
        let bin = (hash * u128::from(full.bins)) >> 64;
        counts[bin as usize] = counts[bin as usize].saturating_add(1);
    }
    let buckets = |records: u64| records.saturating_sub(SLOTS.0).div_ceil(SLOTS.1);
    let (mut hits, mut misses) = (0, 0);
    for records in counts.into_iter().map(u64::from) {
        misses += 1 + buckets(records);
        hits += (1..=records).map(|place| 1 + buckets(place)).sum::<u64>();
    }
    (hits as f64 / full.records.max(1) as f64, misses as f64 / full.bins as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_is_where_the_paper_has_it() {
        let full = Full { bins: 1 << 20, links: (1 << 20) / 5, records: 0, bytes: 0 };
        assert!((0.595..0.60).contains(&poisson(&full)), "{}", poisson(&full));
    }
}
