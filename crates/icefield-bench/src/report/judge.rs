//! Judges claims: by ratios between rows of one run, and by figures of single rows.

use super::chart::short;
use super::claims::Finding;
use crate::results::Measured;

/// A selection of rows: those of `experiment` and `table` whose other fields are equal to the given ones.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub experiment: &'static str,
    pub table: &'static str,
    pub batch: &'static str,
    pub medium: Option<&'static str>,
    /// A figure that is specific to the experiment, as text.
    pub point: Option<(&'static str, &'static str)>,
}

impl Pick {
    pub fn new(experiment: &'static str, table: &'static str, batch: &'static str) -> Self {
        Self { experiment, table, batch, medium: None, point: None }
    }

    fn takes(&self, row: &Measured) -> bool {
        row.table == self.table && self.takes_of_any_table(row)
    }

    fn takes_of_any_table(&self, row: &Measured) -> bool {
        let point = self.point.is_none_or(|(name, at)| row.point(name).as_deref() == Some(at));
        let medium = self.medium.is_none_or(|medium| row.medium.as_deref() == Some(medium));
        row.experiment == self.experiment && row.batch() == self.batch && point && medium
    }
}

pub(super) fn of<'a>(
    rows: &'a [Measured],
    experiment: &'a str,
    table: &'a str,
) -> impl Iterator<Item = &'a Measured> {
    rows.iter().filter(move |row| row.experiment == experiment && row.table == table)
}

/// Returns the least ratio of the speed of `ours` to the best of `theirs`, with equal threads and records.
fn least_ratio<'a>(
    rows: &'a [Measured],
    ours: &Pick,
    theirs: impl Fn(&Measured) -> bool,
) -> Option<(f64, &'a Measured)> {
    let ratios = rows.iter().filter(|row| ours.takes(row)).filter_map(|row| {
        let alike = |rival: &&Measured| (rival.threads, rival.keys) == (row.threads, row.keys);
        let rivals = rows.iter().filter(alike).filter(|rival| theirs(rival) && !rival.is_wrong());
        let best = rivals.max_by(|a, b| a.mops.unwrap_or(0.0).total_cmp(&b.mops.unwrap_or(0.0)))?;
        Some((row.mops? / best.mops.filter(|mops| *mops > 0.0)?, best))
    });
    ratios.min_by(|a, b| a.0.total_cmp(&b.0))
}

fn judged((ratio, best): (f64, &Measured), wanted: f64) -> Finding {
    let measured = format!("{ratio:.2} times {} ({})", best.table, best.told_threads());
    if ratio >= wanted { Finding::Holds(measured) } else { Finding::Fails(measured) }
}

/// Judges `ours` against the fastest competitor in the run.
pub(super) fn beside_fastest(
    rows: &[Measured],
    ours: &Pick,
    wanted: f64,
    command: &'static str,
) -> Finding {
    least_ratio(rows, ours, |row| row.peer && ours.takes_of_any_table(row))
        .map_or(Finding::NotRun(command), |best| judged(best, wanted))
}

/// Judges `ours` against the same measurement of another table.
pub(super) fn beside(
    rows: &[Measured],
    ours: &Pick,
    other: &'static str,
    wanted: f64,
    command: &'static str,
) -> Finding {
    faster(rows, (ours.clone(), Pick { table: other, ..ours.clone() }), wanted, command)
}

/// Judges the first selection against the second.
pub(super) fn faster(
    rows: &[Measured],
    (ours, theirs): (Pick, Pick),
    wanted: f64,
    command: &'static str,
) -> Finding {
    least_ratio(rows, &ours, |row| theirs.takes(row))
        .map_or(Finding::NotRun(command), |best| judged(best, wanted))
}

pub(super) fn at_most(
    value: Option<f64>,
    wanted: f64,
    unit: &str,
    command: &'static str,
) -> Finding {
    told(value, |value| value <= wanted, unit, command)
}

pub(super) fn at_least(
    value: Option<f64>,
    wanted: f64,
    unit: &str,
    command: &'static str,
) -> Finding {
    told(value, |value| value >= wanted, unit, command)
}

fn told(
    value: Option<f64>,
    holds: impl Fn(f64) -> bool,
    unit: &str,
    command: &'static str,
) -> Finding {
    let Some(value) = value else { return Finding::NotRun(command) };
    let measured = format!("{} {unit}", short(value));
    if holds(value) { Finding::Holds(measured) } else { Finding::Fails(measured) }
}

pub(super) fn occupancy(rows: &[Measured]) -> Finding {
    let row = of(rows, "occupancy", "dlht").find(|row| row.extra("link_ratio") == Some(0.2));
    let Some((most, chance)) =
        row.and_then(|row| Some((row.extra("occupancy")?, row.extra("poisson_occupancy")?)))
    else {
        return Finding::NotRun("occupancy --tables dlht --link-ratio 0.2");
    };
    let told = format!(
        "{:.1} %; random keys allow {:.1} % with a link bucket for each five bins",
        most * 100.0,
        chance * 100.0
    );
    if most >= 0.61 { Finding::Holds(told) } else { Finding::Fails(told) }
}

pub(super) fn transactions(rows: &[Measured], experiment: &'static str) -> Finding {
    let best = of(rows, experiment, "dlht")
        .filter(|row| row.threads.is_some())
        .max_by_key(|row| row.threads);
    match best.and_then(|row| Some((row.mops?, row.threads?))) {
        Some((mops, threads)) if threads >= 64 => {
            at_least(Some(mops), if experiment == "tatp" { 175.0 } else { 129.0 }, "M/s", "")
        }
        Some((mops, threads)) => {
            Finding::NotHere(format!("there are no 64 cores; {} M/s with {threads}", short(mops)))
        }
        None => Finding::NotRun(if experiment == "tatp" { "tatp" } else { "smallbank" }),
    }
}

pub(super) fn levels(rows: &[Measured]) -> Finding {
    let row =
        of(rows, "levels", "iceberg").find(|row| row.point("yards").as_deref() == Some("64/8"));
    let Some((front, overflow)) =
        row.and_then(|row| Some((row.extra("front_yard")?, row.extra("overflow")?)))
    else {
        return Finding::NotRun("levels");
    };
    let told = format!("{:.2} % and {:.6} %", front * 100.0, overflow * 100.0);
    if front >= 0.91 && overflow <= 2e-6 { Finding::Holds(told) } else { Finding::Fails(told) }
}

pub(super) fn one_line(rows: &[Measured]) -> Finding {
    let writes = ["try_insert", "update", "remove"];
    let usual = of(rows, "amplification", "iceberg")
        .filter(|row| row.batch() == "none" && writes.contains(&row.op.as_str()))
        .filter_map(|row| row.extra.get("usual")?.as_object().cloned());
    let shares: Vec<_> = usual
        .map(|usual| {
            let one = usual.get("line_writes").and_then(serde_json::Value::as_f64) == Some(1.0);
            let share = usual.get("share").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            if one { share } else { 0.0 }
        })
        .collect();
    let least = shares.into_iter().reduce(f64::min);
    at_least(
        least.map(|share| share * 100.0),
        99.9,
        "% of inserts, updates and removals",
        "amplification --tables iceberg",
    )
}

pub(super) fn load_factor(rows: &[Measured], stash_buckets: &str, wanted: f64) -> Finding {
    let here = of(rows, "load-factor", "dash-eh")
        .filter(|row| row.point("stash_buckets").as_deref() == Some(stash_buckets));
    let peak = here.filter_map(|row| row.extra("peak_load_factor")).reduce(f64::max);
    at_least(peak, wanted, "of the slots at most", "load-factor --tables dash-eh")
}

pub(super) fn written_media(rows: &[Measured]) -> Finding {
    let of_table = |table, calls: &[&str]| {
        let one = |row: &&Measured| row.batch() == "none" && calls.contains(&row.op.as_str());
        of(rows, "amplification", table).find(one).and_then(|row| row.pm("media_writes"))
    };
    match of_table("plush", &["put"]).zip(of_table("dash-eh", &["try_insert"])) {
        None => Finding::NotRun("amplification --tables plush,dash-eh"),
        Some((ours, theirs)) => {
            let percent = (ours / theirs - 1.0) * 100.0;
            let than = if percent > 0.0 { "more" } else { "fewer" };
            let told = format!("{:.0} % {than} than Dash-EH", percent.abs());
            if ours <= 0.2 * theirs { Finding::Holds(told) } else { Finding::Fails(told) }
        }
    }
}

/// Returns the least speedup of Dash-EH over an ablated form in searches.
pub(super) fn searches_over(
    rows: &[Measured],
    form: &str,
    call: &str,
    key_bytes: &str,
) -> Option<f64> {
    let here = of(rows, "filters", form).filter(|row| {
        let is = |name, at: &str| row.point(name).as_deref() == Some(at);
        is("call", call) && is("key_bytes", key_bytes)
    });
    here.filter_map(|row| row.extra("whole_speed_ratio")).reduce(f64::min)
}

/// Judges the gain from fingerprints in searches for absent keys: words, and keys stored by reference.
pub(super) fn fingerprints(rows: &[Measured]) -> Finding {
    let worth = |key_bytes| searches_over(rows, "dash-eh-no-fingerprints", "get-miss", key_bytes);
    match worth("8").zip(worth("16")) {
        None => Finding::NotRun("filters --tables dash-eh"),
        Some((short, long)) => {
            let told = format!("{short:.2} times, {long:.2} times with keys of 16 bytes");
            let holds = short >= 1.72 && long >= 7.04;
            if holds { Finding::Holds(told) } else { Finding::Fails(told) }
        }
    }
}

/// Judges a call of Plush with a feature against the same call without it.
pub(super) fn feature(
    rows: &[Measured],
    op: &str,
    (with, without): (&'static str, &'static str),
    wanted: f64,
) -> Finding {
    let rate = |name: &str| {
        let here = of(rows, "filters", "plush")
            .filter(|row| row.op == op && row.point("filters").as_deref() == Some(name));
        here.filter_map(|row| row.mops).reduce(f64::max)
    };
    match rate(with).zip(rate(without)) {
        None => Finding::NotRun("filters --tables plush"),
        Some((with, without)) => at_least(Some(with / without), wanted, "times", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::CLAIMS;
    use super::*;

    fn row(experiment: &str, table: &str, mops: f64) -> Measured {
        Measured {
            experiment: experiment.to_owned(),
            table: table.to_owned(),
            op: experiment.to_owned(),
            peer: table == "papaya",
            threads: Some(1),
            batch: Some("stream".into()),
            mops: Some(mops),
            ..Measured::default()
        }
    }

    fn judge(says: &str, rows: &[Measured]) -> Finding {
        let claim = CLAIMS.iter().find(|claim| claim.says.contains(says)).expect("a claim");
        (claim.judge)(rows)
    }

    #[test]
    fn without_results_no_claim_is_judged() {
        for claim in CLAIMS {
            assert!(matches!((claim.judge)(&[]), Finding::NotRun(_)), "{}", claim.says);
        }
    }

    #[test]
    fn a_claim_is_judged_by_the_least_favourable_number_of_threads() {
        let two = |row: Measured| Measured { threads: Some(2), ..row };
        let rows = [
            row("get", "dlht", 40.0),
            row("get", "papaya", 10.0),
            two(row("get", "dlht", 60.0)),
            two(row("get", "papaya", 20.0)),
        ];
        let told = "3.00 times papaya (2 threads)".to_owned();
        assert_eq!(judge("best resizable", &rows), Finding::Fails(told));
        assert_eq!(
            judge("best resizable", &rows[..2]),
            Finding::Holds("4.00 times papaya (1 thread)".to_owned())
        );
    }

    #[test]
    fn a_competitor_that_answers_wrongly_is_none() {
        let mut wrong = row("get", "papaya", 100.0);
        wrong.extra.insert("wrong_answers".to_owned(), true.into());
        let finding = judge("best resizable", &[row("get", "dlht", 40.0), wrong]);
        assert!(matches!(finding, Finding::NotRun(_)));
    }

    #[test]
    fn counts_and_shares_are_judged() {
        let mut latency = Measured { p99_ns: Some(800.0), ..row("latency", "dlht", 1.0) };
        latency.op = "get".to_owned();
        assert_eq!(
            judge("99th", &[latency]),
            Finding::Holds("800 ns at the 99th percentile".to_owned())
        );
        let mut full = row("occupancy", "dlht", 1.0);
        full.extra = [("link_ratio", 0.2), ("occupancy", 0.597), ("poisson_occupancy", 0.598)]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into_iter()
            .collect();
        assert!(
            matches!(judge("61 to 72", &[full]), Finding::Fails(told) if told.starts_with("59.7 %"))
        );
        assert!(matches!(judge("TATP", &[row("tatp", "dlht", 8.0)]), Finding::NotHere(_)));
    }
}
