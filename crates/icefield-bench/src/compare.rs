//! `icefield-bench compare`: differences beyond the noise between two runs.
//!
//! Two rows are compared when all their parameters are equal (experiment, table, call, threads, keys, operations,
//! batch, medium, distribution). Rows with equal parameters, such as the points of a sweep, are paired in file
//! order. Three kinds of figures are compared:
//!
//! - **Speed.** If both rows have a ceiling, speeds are compared as shares of it, because a slower machine slows both;
//!   otherwise in operations per second. The noise band is the largest of [`LEAST_NOISE`] and the spread of each row's
//!   repeats. A difference outside the band is a change.
//! - **Counts** of lines, flushes, fences and blocks are free of noise: any difference beyond rounding is a change.
//! - **Space**: bytes per record, likewise.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::results::read;
use crate::row::{PM_FIELDS, Row};

/// The least noise band. Two runs may differ by this share even if the repeats within each run agree better.
const LEAST_NOISE: f64 = 0.05;
/// The noise band of counts, which are means over operations, rounded to four decimals.
const COUNT_NOISE: f64 = 0.002;

/// A figure of two paired rows.
#[derive(Debug)]
struct Change {
    row: String,
    figure: String,
    before: f64,
    after: f64,
    /// The largest relative difference that counts as noise.
    noise: f64,
    /// True if a larger value is better.
    more_is_better: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Same,
    Better,
    Worse,
}

impl Change {
    fn ratio(&self) -> f64 {
        if self.before == self.after { 1.0 } else { self.after / self.before }
    }

    fn verdict(&self) -> Verdict {
        let ratio = self.ratio();
        if ratio <= 1.0 + self.noise && ratio >= 1.0 / (1.0 + self.noise) {
            return Verdict::Same;
        }
        if (ratio > 1.0) == self.more_is_better { Verdict::Better } else { Verdict::Worse }
    }

    fn json(&self) -> Value {
        let Self { row, figure, before, after, noise, .. } = self;
        json!({"row": row, "figure": figure, "before": before, "after": after, "noise": noise, "verdict": self.verdict()})
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = format!("{:?}", self.verdict()).to_lowercase();
        let Self { row, figure, before, after, noise, .. } = self;
        let (percent, noise) = ((self.ratio() - 1.0) * 100.0, noise * 100.0);
        write!(f, "{verdict:6} {row}: {figure} {before:.4} to {after:.4}")?;
        write!(f, " ({percent:+.1} %, noise {noise:.1} %)")
    }
}

/// The changes between two runs, and the rows that are in only one of them.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    changes: Vec<Change>,
    only_before: Vec<String>,
    only_after: Vec<String>,
}

impl Comparison {
    /// Compares two files of results.
    ///
    /// # Errors
    /// A file cannot be read or is not a file of results.
    pub fn of_files(before: &Path, after: &Path) -> Outcome<Self> {
        Ok(Self::of(&read(before)?, &read(after)?))
    }

    fn of(before: &[Row], after: &[Row]) -> Self {
        let mut comparison = Self::default();
        let mut later: HashMap<_, _> = identified(after).collect();
        for (identity, row) in identified(before) {
            match later.remove(&identity) {
                Some(other) => comparison.changes.extend(changes(&identity, row, other)),
                None => comparison.only_before.push(identity),
            }
        }
        // The rows that only the second run has, in the order of its file.
        let left = identified(after).map(|(identity, _)| identity);
        comparison.only_after.extend(left.filter(|identity| later.contains_key(identity)));
        comparison
    }

    /// Returns whether no figure is worse beyond the noise.
    pub fn is_no_worse(&self) -> bool {
        self.changes.iter().all(|change| change.verdict() != Verdict::Worse)
    }

    /// Returns each compared figure as JSON.
    pub fn lines(&self) -> impl Iterator<Item = Value> {
        self.changes.iter().map(Change::json)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict() == verdict).count()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in [Verdict::Worse, Verdict::Better] {
            for change in self.changes.iter().filter(|change| change.verdict() == verdict) {
                writeln!(f, "{change}")?;
            }
        }
        for (rows, run) in [(&self.only_before, "first"), (&self.only_after, "second")] {
            for row in rows {
                writeln!(f, "alone  {row}: only in the {run} run")?;
            }
        }
        let counts = [Verdict::Worse, Verdict::Better, Verdict::Same].map(|v| self.count(v));
        write!(
            f,
            "{} figures compared: {} worse, {} better, {} within the noise; {} rows in one run only",
            self.changes.len(),
            counts[0],
            counts[1],
            counts[2],
            self.only_before.len() + self.only_after.len()
        )
    }
}

/// Returns each row with its identity: the text by which rows of two runs are paired.
fn identified(rows: &[Row]) -> impl Iterator<Item = (String, &Row)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    rows.iter().map(move |row| {
        let mut words = vec![row.experiment.clone(), row.table.clone()];
        if row.op != row.experiment {
            words.push(row.op.clone());
        }
        let threads = row.threads.map(|threads| threads as u64);
        let numbers = [("threads", threads), ("keys", row.keys), ("ops", row.ops)];
        words.extend(numbers.iter().filter_map(|(name, n)| Some(format!("{} {name}", (*n)?))));
        words.extend(row.batch.map(|batch| format!("batch {batch}")));
        words.extend([&row.medium, &row.dist].into_iter().flatten().cloned());
        let words = words.join(", ");
        let nth = seen.entry(words.clone()).or_default();
        *nth += 1;
        (if *nth == 1 { words } else { format!("{words}, #{nth}") }, row)
    })
}

/// Returns the figures that both rows have.
fn changes(identity: &str, before: &Row, after: &Row) -> Vec<Change> {
    let change = |figure: &str, pair: (Option<f64>, Option<f64>), noise, more_is_better| {
        let (before, after) = (pair.0?, pair.1?);
        let (row, figure) = (identity.to_owned(), figure.to_owned());
        Some(Change { row, figure, before, after, noise, more_is_better })
    };
    let noise = spread(before).max(spread(after)).max(LEAST_NOISE);
    let shares = (before.limit_ratio, after.limit_ratio);
    let mut all = match shares {
        (Some(_), Some(_)) => vec![change("share of the ceiling", shares, noise, true)],
        _ => vec![change("mops", (before.mops, after.mops), noise, true)],
    };
    let space = (before.bytes_per_key, after.bytes_per_key);
    all.push(change("bytes per key", space, COUNT_NOISE, false));
    for name in PM_FIELDS {
        all.push(change(name, (before.figure(name), after.figure(name)), COUNT_NOISE, false));
    }
    all.into_iter().flatten().collect()
}

/// Returns the range of a row's repeats as a share of their median.
fn spread(row: &Row) -> f64 {
    let spread = |row: &Row| Some((row.mops_max? - row.mops_min?) / row.mops?);
    spread(row).filter(|spread| spread.is_finite()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Counts;

    fn row(mops: f64, limit_ratio: Option<f64>) -> Row {
        Row {
            experiment: "get".to_owned(),
            table: "dlht".to_owned(),
            op: "get".to_owned(),
            mops: Some(mops),
            limit_ratio,
            ..Row::default()
        }
    }

    fn verdicts(before: &[Row], after: &[Row]) -> Vec<Verdict> {
        Comparison::of(before, after).changes.iter().map(Change::verdict).collect()
    }

    #[test]
    fn speed_is_compared_as_a_share_where_there_is_one() {
        use Verdict::{Better, Same, Worse};
        assert_eq!(verdicts(&[row(10.0, None)], &[row(9.0, None)]), [Worse]);
        assert_eq!(verdicts(&[row(10.0, None)], &[row(11.0, None)]), [Better]);
        assert_eq!(verdicts(&[row(10.0, None)], &[row(10.4, None)]), [Same]);
        let (fast, slow) = (row(10.0, Some(0.5)), row(5.0, Some(0.5)));
        assert_eq!(verdicts(&[fast], &[slow]), [Same], "the machine is slower, the table is not");
    }

    #[test]
    fn repeats_that_lie_apart_widen_the_band() {
        let wide = Row { mops_min: Some(8.0), mops_max: Some(10.5), ..row(10.0, None) };
        assert_eq!(verdicts(&[wide], &[row(9.0, None)]), [Verdict::Same]);
    }

    #[test]
    fn counts_have_no_noise_and_less_of_them_is_better() {
        let fences = |fences: f64| {
            let pm = Some(Counts([("fences".into(), fences)].into()));
            Row { mops: None, pm, ..row(0.0, None) }
        };
        assert_eq!(verdicts(&[fences(1.0)], &[fences(1.01)]), [Verdict::Worse]);
        assert_eq!(verdicts(&[fences(1.0)], &[fences(0.5)]), [Verdict::Better]);
        assert_eq!(verdicts(&[fences(0.0)], &[fences(0.0)]), [Verdict::Same]);
        assert_eq!(verdicts(&[fences(0.0)], &[fences(1.0)]), [Verdict::Worse]);
    }

    #[test]
    fn rows_meet_their_own_kind_in_order() {
        let before = [row(10.0, None), row(20.0, None), row(1.0, None)];
        let other = Row { table: "papaya".to_owned(), ..row(5.0, None) };
        let comparison = Comparison::of(&before, &[row(10.0, None), row(10.0, None), other]);
        assert_eq!((comparison.count(Verdict::Same), comparison.count(Verdict::Worse)), (1, 1));
        assert_eq!(comparison.only_before, ["get, dlht, #3"]);
        assert_eq!(comparison.only_after, ["get, papaya"]);
        assert!(!comparison.is_no_worse());
        let told = comparison.to_string();
        assert!(
            told.starts_with("worse  get, dlht, #2: mops 20.0000 to 10.0000 (-50.0 %"),
            "{told}"
        );
        assert!(told.ends_with(
            "2 figures compared: 1 worse, 0 better, 1 within the noise; 2 rows in one run only"
        ));
    }
}
