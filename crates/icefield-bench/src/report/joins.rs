//! Judges the claims about joins.

use super::chart::short;
use super::claims::Finding;
use super::judge::{at_least, at_most, of};
use crate::results::Measured;

/// The command that produces the rows of an index and of the tables in its paper.
const JOIN: &str = "join --tables join,dash-eh,cceh-like";

fn is(row: &Measured, name: &str, at: &str) -> bool {
    row.point(name).as_deref() == Some(at)
}

/// A kind of join: an `op`, and the percentage of matching rows.
type Joined = (&'static str, &'static str);
/// The paper's join, in which a fifth of the rows match.
const FIFTH: Joined = ("join", "20");
/// The join of TPC-H's line items with their orders.
const TPCH: Joined = ("tpch", "100");

/// Returns the rows of a phase of a join, with `stream` batches.
fn phase<'a>(
    rows: &'a [Measured],
    (op, selectivity): Joined,
    table: &'a str,
    phase: &'a str,
) -> impl Iterator<Item = &'a Measured> {
    of(rows, "join", table).filter(move |row| {
        row.op == op
            && row.batch() == "stream"
            && is(row, "phase", phase)
            && is(row, "selectivity", selectivity)
    })
}

/// Returns the least speedup of an index over `other` in a phase; builds count with one thread only.
fn ratio(rows: &[Measured], joined: Joined, of_phase: &str, other: &str) -> Option<f64> {
    let ours = phase(rows, joined, "join", of_phase)
        .filter(|row| of_phase != "build" || row.threads == Some(1));
    let ratios = ours.filter_map(|row| {
        let alike = |rival: &&Measured| (rival.threads, rival.keys) == (row.threads, row.keys);
        let mut rivals = phase(rows, joined, other, of_phase).filter(alike);
        let rival = rivals.find(|rival| !rival.is_wrong())?;
        Some(row.mops? / rival.mops.filter(|mops| *mops > 0.0)?)
    });
    ratios.reduce(f64::min)
}

/// Returns the same speedups for TPC-H, which the paper does not claim, as text.
fn beside_tpch(rows: &[Measured], of_phase: &str, others: [&str; 2]) -> String {
    match others.map(|other| ratio(rows, TPCH, of_phase, other)) {
        [Some(one), Some(two)] => format!("; with TPC-H's orders {one:.2} and {two:.2} times"),
        _ => String::new(),
    }
}

/// Judges an index against the paper's competitors, with the wanted speedup over each.
pub(super) fn join_times(
    rows: &[Measured],
    of_phase: &str,
    wanted: [(&'static str, f64); 2],
) -> Finding {
    let others = wanted.map(|(other, _)| other);
    let ratios = others.map(|other| ratio(rows, FIFTH, of_phase, other));
    let [Some(one), Some(two)] = ratios else { return Finding::NotRun(JOIN) };
    let tpch = beside_tpch(rows, of_phase, others);
    let told = format!("{one:.2} times {}, {two:.2} times {}{tpch}", others[0], others[1]);
    let holds = one >= wanted[0].1 && two >= wanted[1].1;
    if holds { Finding::Holds(told) } else { Finding::Fails(told) }
}

pub(super) fn index_bytes(rows: &[Measured]) -> Finding {
    let bytes = |table| {
        let told = phase(rows, FIFTH, table, "build").filter_map(|row| row.bytes_per_key);
        told.reduce(f64::max)
    };
    let saved = bytes("join").zip(bytes("cceh-like")).map(|(ours, theirs)| 1.0 - ours / theirs);
    at_least(saved.map(|share| share * 100.0), 44.0, "% less than a form like CCEH", JOIN)
}

/// Judges DLHT's workload A in batches against the same workload one key at a time.
pub(super) fn batched_join(rows: &[Measured]) -> Finding {
    let here = |batch: &'static str| {
        of(rows, "join", "dlht").filter(move |row| {
            row.op == "workload-a" && row.batch() == batch && is(row, "phase", "cold")
        })
    };
    let pairs = here("stream").filter_map(|row| {
        let alike = |other: &&Measured| (other.threads, other.keys) == (row.threads, row.keys);
        let (ours, alone) = (row.extra("tuples_mops")?, here("none").find(alike)?);
        Some((ours / alone.extra("tuples_mops").filter(|mops| *mops > 0.0)?, ours, row))
    });
    let Some((ratio, mops, row)) = pairs.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Finding::NotRun("join --tables dlht");
    };
    let told = format!(
        "{ratio:.2} times one key at a time; {} M tuples a second with {}",
        short(mops),
        row.told_threads()
    );
    if ratio >= 2.2 { Finding::Holds(told) } else { Finding::Fails(told) }
}

pub(super) fn cache_misses(rows: &[Measured]) -> Finding {
    let told = |table, by: &'static str, name: &'static str| {
        of(rows, "cache-misses", table)
            .filter(move |row| is(row, "counted_by", by))
            .filter_map(move |row| row.extra(name))
            .reduce(f64::max)
    };
    if let Some(rate) = told("join", "processor", "llc_miss_rate") {
        return at_most(Some(rate * 100.0), 50.2, "% at most", "cache-misses");
    }
    let simulated = |table| told(table, "simulated caches", "llc_misses");
    let Some(ours) = simulated("join") else { return Finding::NotRun("cache-misses") };
    let beside = simulated("dash-eh").map(|dash| format!(", Dash-EH {dash:.2}"));
    Finding::NotHere(format!(
        "the machine keeps its counters; in simulated caches {ours:.2} lines a probe miss the last level at most{}",
        beside.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &str, op: &str, batch: &str, extra: &[(&str, serde_json::Value)]) -> Measured {
        Measured {
            experiment: "join".to_owned(),
            table: table.to_owned(),
            op: op.to_owned(),
            threads: Some(1),
            batch: Some(batch.into()),
            mops: Some(10.0),
            extra: extra.iter().map(|(name, at)| ((*name).to_owned(), at.clone())).collect(),
            ..Measured::default()
        }
    }

    #[test]
    fn an_index_is_judged_beside_both_competitors() {
        let of_phase = |table: &str, mops| {
            let point = [("phase", "warm".into()), ("selectivity", 20.into())];
            Measured { mops: Some(mops), ..row(table, "join", "stream", &point) }
        };
        let mut rows =
            vec![of_phase("join", 50.0), of_phase("dash-eh", 20.0), of_phase("cceh-like", 10.0)];
        let wanted = [("dash-eh", 2.0), ("cceh-like", 4.9)];
        let told = "2.50 times dash-eh, 5.00 times cceh-like".to_owned();
        assert_eq!(join_times(&rows, "warm", wanted), Finding::Holds(told));
        assert_eq!(join_times(&rows[..2], "warm", wanted), Finding::NotRun(JOIN));
        assert_eq!(join_times(&rows, "build", wanted), Finding::NotRun(JOIN));
        for (table, mops) in [("join", 60.0), ("dash-eh", 40.0), ("cceh-like", 30.0)] {
            let point = [("phase", "warm".into()), ("selectivity", 100.into())];
            rows.push(Measured { mops: Some(mops), ..row(table, "tpch", "stream", &point) });
        }
        let told =
            "2.50 times dash-eh, 5.00 times cceh-like; with TPC-H's orders 1.50 and 2.00 times";
        assert_eq!(join_times(&rows, "warm", wanted), Finding::Holds(told.to_owned()));
    }

    #[test]
    fn batches_are_judged_by_tuples() {
        let cold = |batch, tuples: f64| {
            row(
                "dlht",
                "workload-a",
                batch,
                &[("phase", "cold".into()), ("tuples_mops", tuples.into())],
            )
        };
        let rows = [cold("stream", 44.0), cold("none", 22.0)];
        let told = "2.00 times one key at a time; 44 M tuples a second with 1 thread".to_owned();
        assert_eq!(batched_join(&rows), Finding::Fails(told));
        assert!(matches!(batched_join(&rows[..1]), Finding::NotRun(_)));
    }
}
