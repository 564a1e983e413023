//! The headline claims of the five papers, and a judgement of each claim by figures of the results, or by ratios
//! between rows of one run.
//!
//! The papers compare with other tables. In the run, the fastest competitor or our own ablated form takes their place.
//! Absolute speeds are not judged, because they depend on the paper's machine. The claims are data, in `claims.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::chart::short;
use crate::row::Row;

/// A claim of a paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub system: String,
    pub says: String,
    /// The section or figure of the paper.
    pub source: String,
    /// The arguments of `icefield-bench` that produce the rows.
    pub command: String,
    #[serde(default)]
    figures: Vec<Figure>,
    /// The measurement in words. `{0}`, `{1}`, ... are replaced by the figures, `{table}` and `{threads}` by the table
    /// and the number of threads of the row with which the first figure is compared, or else of the figure's own row.
    #[serde(default)]
    text: String,
    /// The measurement to report if this machine cannot measure the claim itself.
    otherwise: Option<Measurement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measurement {
    figures: Vec<Figure>,
    text: String,
}

/// The result of judging a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The claim holds. The text is the measurement.
    Holds(String),
    /// The claim does not hold. The text is the measurement.
    Fails(String),
    /// This machine cannot measure the claim. The text has the reason, and the measurement made in its place.
    NotHere(String),
    /// The run has no rows from which the claim could be judged.
    NotRun,
}

/// A selection of rows by the values of their fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Pick {
    experiment: String,
    /// `None` selects every competitor if `peer` is set, and otherwise every table of ours.
    table: Option<String>,
    peer: bool,
    ops: Vec<String>,
    batch: Option<String>,
    medium: Option<String>,
    threads: Option<usize>,
    least_threads: Option<usize>,
    extra: BTreeMap<String, Value>,
}

/// Selects one of several rows.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fold {
    Min,
    Max,
    First,
    MostThreads,
}

/// A number computed from rows, and its bounds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    of: Pick,
    name: String,
    /// Divides the figure by that of the best of these rows with the same number of threads and of records, and with
    /// the same batch unless `over` names one.
    over: Option<Pick>,
    /// Divides the figure by this other figure of the same row.
    by: Option<String>,
    /// Selects one of several values. By default the least if `over` is set, otherwise the largest.
    fold: Option<Fold>,
    scale: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// Returns all claims, in the order of the report.
pub(super) fn claims() -> Vec<Claim> {
    serde_json::from_str(include_str!("claims.json")).expect("the claims are well-formed")
}

impl Claim {
    pub fn judge(&self, rows: &[Row]) -> Finding {
        let Some((measured, holds)) = measured(&self.figures, &self.text, rows) else {
            let instead = self.otherwise.as_ref();
            let told = instead.and_then(|instead| measured(&instead.figures, &instead.text, rows));
            return told.map_or(Finding::NotRun, |(told, _)| Finding::NotHere(told));
        };
        if holds { Finding::Holds(measured) } else { Finding::Fails(measured) }
    }
}

/// Returns `text` with the figures filled in, and whether all figures are within their bounds; `None` if the rows lack
/// a figure.
fn measured(figures: &[Figure], text: &str, rows: &[Row]) -> Option<(String, bool)> {
    let found: Vec<_> = figures.iter().map(|figure| figure.find(rows)).collect::<Option<_>>()?;
    let (_, first) = found.first()?;
    let mut told =
        text.replace("{table}", &first.table).replace("{threads}", &first.told_threads());
    for (at, (value, _)) in found.iter().enumerate() {
        told = told.replace(&format!("{{{at}}}"), &short(*value));
    }
    let within = |(figure, (value, _)): (&Figure, &(f64, &Row))| {
        figure.at_least.is_none_or(|least| *value >= least)
            && figure.at_most.is_none_or(|most| *value <= most)
    };
    Some((told, figures.iter().zip(&found).all(within)))
}

impl Pick {
    fn takes(&self, row: &Row) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, own: Option<T>) -> bool {
            wanted.is_none() || *wanted == own
        }
        row.experiment == self.experiment
            && self.table.as_ref().map_or(row.peer == self.peer, |table| *table == row.table)
            && (self.ops.is_empty() || self.ops.contains(&row.op))
            && is(&self.batch, Some(row.batch()))
            && is(&self.medium, row.medium.clone())
            && is(&self.threads, row.threads)
            && self.least_threads.is_none_or(|least| row.threads >= Some(least))
            && self.extra.iter().all(|(name, at)| row.extra.get(name) == Some(at))
    }
}

impl Figure {
    /// Returns the figure, and the row with which it is compared; if there is none, the figure's own row.
    fn find<'a>(&self, rows: &'a [Row]) -> Option<(f64, &'a Row)> {
        let mut found: Vec<_> = rows
            .iter()
            .filter(|row| self.of.takes(row))
            .filter_map(|row| {
                let (value, other) = self.value(row, rows)?;
                Some((value * self.scale.unwrap_or(1.0), other))
            })
            .collect();
        let usual = if self.over.is_some() { Fold::Min } else { Fold::Max };
        match self.fold.unwrap_or(usual) {
            Fold::First => {}
            Fold::Min => found.sort_by(|a, b| a.0.total_cmp(&b.0)),
            Fold::Max => found.sort_by(|a, b| b.0.total_cmp(&a.0)),
            Fold::MostThreads => found.sort_by_key(|(_, row)| std::cmp::Reverse(row.threads)),
        }
        found.into_iter().next()
    }

    fn value<'a>(&self, row: &'a Row, rows: &'a [Row]) -> Option<(f64, &'a Row)> {
        let own = row.figure(&self.name)?;
        if let Some(by) = &self.by {
            return Some((own / row.figure(by)?, row));
        }
        let Some(over) = &self.over else { return Some((own, row)) };
        let of = |row: &Row| row.figure(&self.name).unwrap_or(0.0);
        let alike = |rival: &&Row| {
            (rival.threads, rival.keys) == (row.threads, row.keys)
                && (over.batch.is_some() || rival.batch == row.batch)
        };
        let rivals = rows.iter().filter(|rival| over.takes(rival) && !rival.is_wrong());
        let best = rivals.filter(alike).max_by(|a, b| of(a).total_cmp(&of(b)))?;
        (of(best) > 0.0).then(|| (own / of(best), best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Batch;

    fn row(experiment: &str, table: &str, mops: f64) -> Row {
        Row {
            peer: table == "papaya",
            threads: Some(1),
            batch: Some(Batch::Stream),
            mops: Some(mops),
            ..Row::new(experiment, table)
        }
    }

    fn judge(says: &str, rows: &[Row]) -> Finding {
        let all = claims();
        all.iter().find(|claim| claim.says.contains(says)).expect("a claim").judge(rows)
    }

    #[test]
    fn without_results_no_claim_is_judged() {
        for claim in claims() {
            assert_eq!(claim.judge(&[]), Finding::NotRun, "{}", claim.says);
            let experiments = ["all", "join", "cache-misses", "levels", "tatp", "smallbank"];
            let first = claim.command.split(' ').next().expect("a word");
            assert!(experiments.contains(&first) || claim.command.contains("--tables"));
        }
    }

    #[test]
    fn a_claim_is_judged_by_the_least_favourable_number_of_threads() {
        let two = |row: Row| Row { threads: Some(2), ..row };
        let rows = [
            row("get", "dlht", 40.0),
            row("get", "papaya", 10.0),
            two(row("get", "dlht", 60.0)),
            two(row("get", "papaya", 20.0)),
        ];
        let told = |told: &str| told.to_owned();
        let fails = Finding::Fails(told("3 times papaya (2 threads)"));
        assert_eq!(judge("best resizable", &rows), fails);
        let holds = Finding::Holds(told("4 times papaya (1 thread)"));
        assert_eq!(judge("best resizable", &rows[..2]), holds);
    }

    #[test]
    fn a_competitor_that_answers_wrongly_is_none() {
        let mut wrong = row("get", "papaya", 100.0);
        wrong.extra("wrong_answers", true);
        let finding = judge("best resizable", &[row("get", "dlht", 40.0), wrong]);
        assert_eq!(finding, Finding::NotRun);
    }

    #[test]
    fn counts_and_shares_are_judged() {
        let latency =
            Row { p99_ns: Some(800.0), op: "get".to_owned(), ..row("latency", "dlht", 1.0) };
        let told = "800 ns at the 99th percentile".to_owned();
        assert_eq!(judge("99th", &[latency]), Finding::Holds(told));
        let mut full = row("occupancy", "dlht", 1.0);
        full.extras([("link_ratio", 0.2), ("occupancy", 0.597), ("poisson_occupancy", 0.598)]);
        let finding = judge("61 to 72", &[full]);
        assert!(matches!(finding, Finding::Fails(told) if told.starts_with("59.7 %")));
        let told = "there are no 64 cores; 8 M/s with 1 thread".to_owned();
        assert_eq!(judge("TATP", &[row("tatp", "dlht", 8.0)]), Finding::NotHere(told));
        let mut update = Row { op: "update".to_owned(), ..row("amplification", "iceberg", 1.0) };
        update.batch = Some(Batch::None);
        update.extra("usual", serde_json::json!({ "line_writes": 1, "share": 1.0 }));
        assert!(matches!(judge("one line", &[update]), Finding::Holds(_)));
    }

    #[test]
    fn joins_are_judged_beside_both_competitors() {
        let probed = |(table, mops)| {
            let mut row = Row { op: "join".to_owned(), ..row("join", table, mops) };
            row.extra("phase", "warm");
            row.extra("selectivity", 20);
            row
        };
        let rows = [("join", 50.0), ("dash-eh", 20.0), ("cceh-like", 10.0)].map(probed);
        let told = "2.5 times dash-eh, 5 times cceh-like".to_owned();
        assert_eq!(judge("is probed 2", &rows), Finding::Holds(told));
        assert_eq!(judge("is probed 2", &rows[..2]), Finding::NotRun);
        let cold = |batch, tuples: f64| {
            let op = "workload-a".to_owned();
            let mut row = Row { op, batch: Some(batch), ..row("join", "dlht", 1.0) };
            row.extra("phase", "cold");
            row.extra("tuples_mops", tuples);
            row
        };
        let rows = [cold(Batch::Stream, 44.0), cold(Batch::None, 22.0)];
        let told = "2 times one key at a time; 44 M tuples a second at most".to_owned();
        assert_eq!(judge("1.4 G", &rows), Finding::Fails(told));
    }
}
