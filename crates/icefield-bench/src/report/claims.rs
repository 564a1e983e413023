//! The headline claims of the five papers, and how results judge each.
//!
//! A claim that compares with another table is judged against its substitute in the run: the fastest competitor, or
//! our own ablated form. Absolute speeds are not judged, because they depend on the paper's machine.

use super::joins::{batched_join, cache_misses, index_bytes, join_times};
use super::judge::{
    Pick, at_least, at_most, beside, beside_fastest, faster, feature, fingerprints, levels,
    load_factor, occupancy, of, one_line, searches_over, transactions, written_media,
};
use crate::results::Measured;

/// A claim of a paper.
pub(super) struct Claim {
    pub system: &'static str,
    pub says: &'static str,
    /// The section or figure of the paper.
    pub source: &'static str,
    pub judge: fn(&[Measured]) -> Finding,
}

/// The result of judging a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The claim holds; with the measurement.
    Holds(String),
    /// The claim does not hold; with the measurement.
    Fails(String),
    /// This machine cannot measure it; with the reason, and what was measured instead.
    NotHere(String),
    /// The run lacks the rows; with the arguments of `icefield-bench` that produce them.
    NotRun(&'static str),
}

/// Returns why a claim about gets is not measured.
fn not_measured(rows: &[Measured], why: &str) -> Finding {
    match of(rows, "get", "dlht").next() {
        Some(_) => Finding::NotHere(why.to_owned()),
        None => Finding::NotRun("get --tables dlht"),
    }
}

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        system: "DLHT",
        says: "gets at 3.5 times the speed of the best resizable table",
        source: "Fig 3",
        judge: |rows| {
            beside_fastest(
                rows,
                &Pick::new("get", "dlht", "stream"),
                3.5,
                "get --tables dlht --peers all",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "gets at 1.7 times the speed of DRAMHiT, which neither grows nor deletes",
        source: "Fig 3",
        judge: |rows| {
            beside(
                rows,
                &Pick::new("get", "dlht", "stream"),
                "dramhit",
                1.7,
                "get --tables dlht --peer-lib libdramhit.so",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "gets for a joule, beside other tables",
        source: "Fig 4",
        judge: |rows| {
            not_measured(
                rows,
                "no experiment counts joules: no machine at hand has energy counters",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "gets from the memory of another node",
        source: "5.3.2",
        judge: |rows| {
            not_measured(rows, "no experiment places memory: no machine at hand has two nodes")
        },
    },
    Claim {
        system: "DLHT",
        says: "inserts with deletes at 12.8 times GrowT and 3 times CLHT",
        source: "Fig 5",
        judge: |rows| {
            beside_fastest(
                rows,
                &Pick::new("insdel", "dlht", "stream"),
                3.0,
                "insdel --tables dlht --peers all",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "a growing table is filled at 3.9 times GrowT and 8 times CLHT",
        source: "Fig 7",
        judge: |rows| {
            beside_fastest(
                rows,
                &Pick::new("populate", "dlht", "stream"),
                3.9,
                "populate --tables dlht --peers all",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "61 to 72 % of the slots hold records when the index grows",
        source: "5.1.5",
        judge: occupancy,
    },
    Claim {
        system: "DLHT",
        says: "batches are worth 2.2 times",
        source: "Fig 12",
        judge: |rows| {
            let pair = (Pick::new("get", "dlht", "stream"), Pick::new("get", "dlht", "none"));
            faster(rows, pair, 2.2, "get --tables dlht --batch none,stream")
        },
    },
    Claim {
        system: "DLHT",
        says: "the 99th percentile of a get stays below 1 us",
        source: "Fig 15",
        judge: |rows| {
            let row = rows.iter().filter(|row| {
                row.experiment == "latency" && row.table == "dlht" && row.op == "get"
            });
            let p99 = row.filter_map(|row| row.p99_ns).reduce(f64::max);
            at_most(p99, 1_000.0, "ns at the 99th percentile", "latency --tables dlht")
        },
    },
    Claim {
        system: "DLHT",
        says: "gets go on while all records move to a larger index",
        source: "Fig 8",
        judge: |rows| {
            let row = of(rows, "resize-timeline", "dlht")
                .find_map(|row| row.extra("get_to_control_stall"));
            at_most(
                row,
                2.0,
                "times the longest pause of a thread that only counts",
                "resize-timeline --tables dlht",
            )
        },
    },
    Claim {
        system: "DLHT",
        says: "175 M transactions of TATP a second on 64 threads",
        source: "Fig 19",
        judge: |rows| transactions(rows, "tatp"),
    },
    Claim {
        system: "DLHT",
        says: "129 M transactions of Smallbank a second on 64 threads",
        source: "Fig 19",
        judge: |rows| transactions(rows, "smallbank"),
    },
    Claim {
        system: "DLHT",
        says: "a join of 1.4 G tuples a second on 64 threads, 2.2 times the same one key at a time",
        source: "Fig 20",
        judge: batched_join,
    },
    Claim {
        system: "IcebergHT",
        says: "inserts on persistent memory at 1.5 to 3 times Dash",
        source: "Fig 3",
        judge: |rows| {
            beside(
                rows,
                &Pick { medium: Some("pmem"), ..Pick::new("insert", "iceberg", "none") },
                "dash-eh",
                1.5,
                "insert --tables iceberg,dash-eh --batch none",
            )
        },
    },
    Claim {
        system: "IcebergHT",
        says: "queries on persistent memory at 1 to 2 times Dash",
        source: "Fig 3",
        judge: |rows| {
            beside(
                rows,
                &Pick::new("get", "iceberg", "none"),
                "dash-eh",
                1.0,
                "get --tables iceberg,dash-eh --batch none",
            )
        },
    },
    Claim {
        system: "IcebergHT",
        says: "85 % of the space is data (Dash 69 or 45 %, CLHT 33 %)",
        source: "Table 3",
        judge: |rows| {
            let share = of(rows, "space", "iceberg")
                .filter_map(|row| row.extra("data_share"))
                .reduce(f64::max);
            at_least(share, 0.85, "of all bytes are data", "space --tables iceberg --fill 0.95")
        },
    },
    Claim {
        system: "IcebergHT",
        says: "at 95 % fill 91.2 % of the records are in the front yard and 0.00008 % overflow",
        source: "Table 4",
        judge: levels,
    },
    Claim {
        system: "IcebergHT",
        says: "recovery of 148 M records a second on one thread",
        source: "section 6",
        judge: |rows| {
            let rates = of(rows, "recovery", "iceberg")
                .filter(|row| row.threads == Some(1))
                .filter_map(|row| Some(row.keys? as f64 / row.extra("open_ms")? / 1e3));
            at_least(
                rates.reduce(f64::max),
                148.0,
                "M records a second",
                "recovery --tables iceberg",
            )
        },
    },
    Claim {
        system: "IcebergHT",
        says: "in DRAM inserts at 2 times libcuckoo",
        source: "Fig 4",
        judge: |rows| {
            let ours = Pick { medium: Some("memory"), ..Pick::new("insert", "iceberg", "none") };
            let theirs = Pick::new("insert", "libcuckoo", "none");
            faster(
                rows,
                (ours, theirs),
                2.0,
                "insert --tables iceberg --medium memory --peers libcuckoo --batch none",
            )
        },
    },
    Claim {
        system: "IcebergHT",
        says: "an update writes one line of persistent memory",
        source: "section 5.2",
        judge: one_line,
    },
    Claim {
        system: "Dash",
        says: "2.7 times CCEH on 20 % inserts and 80 % reads with 24 threads, and up to 3.9 times overall",
        source: "Fig 8",
        judge: |rows| match searches_over(rows, "cceh-like", "get", "8") {
            None => Finding::NotRun("filters --tables dash-eh"),
            Some(ratio) => Finding::NotHere(format!(
                "there are no 24 cores; reads are {ratio:.2} times as fast as those of a form like CCEH"
            )),
        },
    },
    Claim {
        system: "Dash",
        says: "searches for absent keys at 2.4 times CCEH and 4.4 times level hashing, one thread",
        source: "Fig 7",
        judge: |rows| {
            let ratio = searches_over(rows, "cceh-like", "get-miss", "8");
            at_least(ratio, 2.4, "times a form like CCEH", "filters --tables dash-eh")
        },
    },
    Claim {
        system: "Dash",
        says: "a load factor above 90 % with four stash buckets",
        source: "Fig 12",
        judge: |rows| load_factor(rows, "4", 0.9),
    },
    Claim {
        system: "Dash",
        says: "a load factor of 80 % with two stash buckets",
        source: "Fig 12",
        judge: |rows| load_factor(rows, "2", 0.8),
    },
    Claim {
        system: "Dash",
        says: "answers 57 ms after a crash, whatever its size (CCEH 1.67 s for 1.28 G records)",
        source: "Table 1",
        judge: |rows| {
            let slowest = of(rows, "recovery", "dash-eh")
                .filter_map(|row| row.extra("first_answer_ms"))
                .reduce(f64::max);
            at_most(slowest, 57.0, "ms to the first answer", "recovery --tables dash-eh")
        },
    },
    Claim {
        system: "Dash",
        says: "fingerprints are worth 1.72 times on searches for absent keys, 7.04 times with long keys",
        source: "Fig 9",
        judge: fingerprints,
    },
    Claim {
        system: "Plush",
        says: "inserts at 2.44 times Dash, 1.44 times Viper, 3.31 times FPTree",
        source: "Fig 5",
        judge: |rows| {
            // The paper's inserts do not search for the key.
            faster(
                rows,
                (Pick::new("put", "plush", "none"), Pick::new("insert", "dash-eh", "none")),
                2.44,
                "all --tables plush,dash-eh --batch none",
            )
        },
    },
    Claim {
        system: "Plush",
        says: "about 3 log_f(N) + 1 times its bytes reach the medium for a record, 80 % fewer than with others",
        source: "Fig 6",
        judge: written_media,
    },
    Claim {
        system: "Plush",
        says: "below 1 GB of DRAM whatever the number of records",
        source: "Fig 8",
        judge: |rows| {
            let most = of(rows, "space", "plush")
                .filter_map(|row| row.extra("dram_bytes"))
                .reduce(f64::max);
            at_most(most, 1e9, "bytes of DRAM", "space --tables plush")
        },
    },
    Claim {
        system: "Plush",
        says: "buckets allocated ahead are worth 1.36 times on inserts",
        source: "Fig 9",
        judge: |rows| feature(rows, "insert", ("prealloc", "none"), 1.36),
    },
    Claim {
        system: "Plush",
        says: "filters in DRAM are worth 1.3 times on lookups",
        source: "Fig 9",
        judge: |rows| feature(rows, "get", ("prealloc+dramfilter", "prealloc"), 1.3),
    },
    Claim {
        system: "Plush",
        says: "without a log inserts are 1.89 times as fast",
        source: "Fig 9",
        judge: |rows| {
            let ratio = of(rows, "bulk-load", "plush")
                .filter(|row| row.op == "put_unlogged")
                .filter_map(|row| row.extra("to_logged"))
                .reduce(f64::max);
            at_least(ratio, 1.89, "times the puts with a log", "bulk-load --tables plush")
        },
    },
    Claim {
        system: "Plush",
        says: "a checkpoint by 32 threads takes 69 ms, by one 840",
        source: "section 6.5",
        judge: |rows| match of(rows, "checkpoint", "plush").last() {
            None => Finding::NotRun("checkpoint --tables plush"),
            Some(row) => Finding::NotHere(format!(
                "there are no 32 cores; {} threads take {:.1} ms, {:.2} times as fast as one",
                row.threads.unwrap_or(1),
                row.extra("checkpoint_ms").unwrap_or_default(),
                row.extra("to_first").unwrap_or_default()
            )),
        },
    },
    Claim {
        system: "SPAR-HT",
        says: "is built 2.98 times as fast as CCEH, 5.18 times as fast as Dash and 9.39 times as fast as level hashing, one thread",
        source: "Fig 4",
        judge: |rows| join_times(rows, "build", [("cceh-like", 2.98), ("dash-eh", 5.18)]),
    },
    Claim {
        system: "SPAR-HT",
        says: "is probed 2 times as fast as Dash, 4.9 times as fast as CCEH and 13.4 times as fast as level hashing when a fifth matches",
        source: "Fig 6, Table 1",
        judge: |rows| join_times(rows, "warm", [("dash-eh", 2.0), ("cceh-like", 4.9)]),
    },
    Claim {
        system: "SPAR-HT",
        says: "needs 44 % less memory than CCEH",
        source: "section 6.4",
        judge: index_bytes,
    },
    Claim {
        system: "SPAR-HT",
        says: "misses the last-level cache on 44 to 50 % of its accesses",
        source: "Fig 9",
        judge: cache_misses,
    },
];
