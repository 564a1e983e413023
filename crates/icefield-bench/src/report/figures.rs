//! The figures of each experiment.

use std::cmp::Ordering::Equal;
use std::collections::BTreeSet;

use serde_json::Value;

use super::chart::{Chart, SERIES, Style, Timeline, standalone};
use crate::Outcome;
use crate::results::Measured;

/// A figure and its legend.
pub(super) struct Figure {
    pub title: String,
    pub svg: String,
    /// The names of series in the order of their colours; empty if the lines are labelled in the picture.
    pub series: Vec<String>,
    /// The meaning of the dashed line, if there is one.
    pub ceiling: Option<String>,
}

impl Figure {
    fn of(chart: Chart) -> Outcome<Option<Self>> {
        if chart.is_empty() {
            return Ok(None);
        }
        let has_names = chart.style == Some(Style::Lines);
        let named = chart.series.iter().filter(|_| !has_names);
        let series = named.map(|(name, _)| name.clone()).collect();
        let ceiling = chart.ceiling.as_ref().map(|(name, _)| name.clone());
        Ok(Some(Self { svg: chart.svg()?, title: chart.title, series, ceiling }))
    }

    /// Returns each role of a colour with its name.
    pub fn legend(&self) -> Vec<(String, &str)> {
        let series = self.series.iter().enumerate();
        let series = series.map(|(number, name)| (format!("s{}", number % SERIES), name.as_str()));
        series
            .chain(self.ceiling.iter().map(|name| ("ceiling".to_owned(), name.as_str())))
            .collect()
    }

    /// Returns the figure as a separate document; `of` is its subject.
    pub fn document(&self, of: &str) -> String {
        let told = self.title.split(',').next() == Some(of);
        let of = if told { String::new() } else { format!("{of}: ") };
        standalone(&self.svg, &format!("{of}{}", self.title), &self.legend())
    }
}

/// Returns the figures of one experiment.
pub(super) fn figures(experiment: &str, rows: &[&Measured]) -> Outcome<Vec<Figure>> {
    if experiment == "resize-timeline" {
        return timelines(rows);
    }
    let charts = match experiment {
        "latency" => percentiles(rows),
        "amplification" => costs(rows),
        "recovery" => by_point(
            rows,
            &Plot {
                figure: first_answer,
                up: "ms to the first answer",
                logarithmic: true,
                ..keys()
            },
        ),
        "space" => by_point(
            rows,
            &Plot { figure: |row| row.bytes_per_key, up: "bytes per record", ..tables() },
        ),
        "levels" => by_point(rows, &extra("yards", "front_yard", "share in the front yard")),
        "cache-misses" => by_point(
            rows,
            &extra("selectivity", "llc_misses", "misses of the last level, per probing row"),
        ),
        "occupancy" => {
            by_point(rows, &extra("link_ratio", "occupancy", "records over slots when it grows"))
        }
        "load-factor" => by_point(
            rows,
            &extra("stash_buckets", "peak_load_factor", "records over slots, at most"),
        ),
        _ => by_point(rows, &speed(rows)),
    };
    charts.into_iter().map(Figure::of).filter_map(Outcome::transpose).collect()
}

/// Describes the charts of a sweep, one for each call and batch.
struct Plot {
    /// The field, or the experiment's own figure, on the horizontal axis.
    across: &'static str,
    figure: fn(&Measured) -> Option<f64>,
    /// A figure in `extra` that is drawn instead of `figure`.
    own: Option<&'static str>,
    up: &'static str,
    style: Style,
    logarithmic: bool,
}

impl Plot {
    fn value(&self, row: &Measured) -> Option<f64> {
        self.own.map_or_else(|| (self.figure)(row), |name| row.extra(name))
    }

    fn place(&self, row: &Measured) -> String {
        let number =
            |field: Option<u64>| field.map(|n| super::chart::short(n as f64)).unwrap_or_default();
        match self.across {
            "threads" => number(row.threads),
            "keys" => number(row.keys),
            "batch" => row.batch(),
            "table" => String::new(),
            "loop" => row.ceiling.clone().unwrap_or_default(),
            own => row.point(own).unwrap_or_default(),
        }
    }
}

fn tables() -> Plot {
    Plot {
        across: "table",
        figure: |row| row.mops,
        own: None,
        up: "million operations a second",
        style: Style::Bars,
        logarithmic: false,
    }
}

fn keys() -> Plot {
    Plot { across: "keys", ..tables() }
}

fn extra(across: &'static str, own: &'static str, up: &'static str) -> Plot {
    Plot { across, own: Some(own), up, ..tables() }
}

fn first_answer(row: &Measured) -> Option<f64> {
    row.extra("first_answer_ms")
}

/// The fields of `extra` that name the point of a sweep.
const SWEEPS: [&str; 12] = [
    "hot_percent",
    "value_bytes",
    "key_bytes",
    "features",
    "filters",
    "locks",
    "insert_ratio",
    "fill",
    "prefault",
    "segment_bytes",
    "selectivity",
    "phase",
];

/// Plots throughput over the field in which the rows differ: the point of a sweep, the batch, the number of
/// records, else threads.
fn speed(rows: &[&Measured]) -> Plot {
    let differ = |of: &dyn Fn(&Measured) -> String| {
        rows.iter().map(|row| of(row)).collect::<BTreeSet<_>>().len() > 1
    };
    let swept = SWEEPS.iter().find(|name| rows.iter().any(|row| row.extra.contains_key(**name)));
    let first = rows.first().map(|row| row.experiment.clone()).unwrap_or_default();
    let across = match first.as_str() {
        "limit" => "loop",
        "batch-size" => "batch",
        "index-size" => "keys",
        "single-thread" => "table",
        _ => swept.copied().unwrap_or("threads"),
    };
    let named = matches!(
        across,
        "features" | "filters" | "locks" | "prefault" | "phase" | "table" | "loop"
    );
    let several = match across {
        "threads" => differ(&|row| format!("{:?}", row.threads)),
        _ => true,
    };
    let style = if named || !several { Style::Bars } else { Style::Lines };
    // The label is short for bare loops, because their long names need the space.
    let up = if across == "loop" { "million a second" } else { tables().up };
    Plot { across, style, up, ..tables() }
}

/// Returns a chart for each call, batch and number of threads, without the field on the horizontal axis.
fn by_point(rows: &[&Measured], plot: &Plot) -> Vec<Chart> {
    let apart = |row: &Measured| {
        let mut words = match plot.across {
            "loop" => vec!["bare loops".to_owned()],
            _ => vec![row.op.clone()],
        };
        let batch = row.batch();
        if !batch.is_empty() && !matches!(plot.across, "batch" | "loop") {
            words.push(if batch == "none" {
                "one by one".to_owned()
            } else {
                format!("batch {batch}")
            });
        }
        if plot.across != "threads" {
            words.extend(row.threads.map(|_| row.told_threads()));
        }
        words.extend(row.point("reads").map(|what| format!("reads the {what}")));
        if plot.across != "phase" {
            words.extend(row.point("phase"));
        }
        words.extend(row.point("counted_by"));
        words.join(", ")
    };
    in_order(rows.iter().map(|row| apart(row)))
        .into_iter()
        .map(|title| {
            let here: Vec<_> = rows.iter().filter(|row| apart(row) == title).copied().collect();
            chart(title, &here, plot)
        })
        .collect()
}

fn chart(title: String, rows: &[&Measured], plot: &Plot) -> Chart {
    let places = in_order(rows.iter().map(|row| plot.place(row)));
    let name = |row: &Measured| {
        let alike = |other: &&&Measured| other.table == row.table && other.medium != row.medium;
        match &row.medium {
            Some(medium) if rows.iter().any(|other| alike(&other)) => {
                format!("{} ({medium})", row.table)
            }
            _ => row.table.clone(),
        }
    };
    let at = |place: &String, table: Option<&String>, value: &dyn Fn(&Measured) -> Option<f64>| {
        let here = rows.iter().filter(|row| plot.place(row) == *place);
        let here = here.filter(|row| table.is_none_or(|table| name(row) == *table));
        here.filter_map(|row| value(row))
            .fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))))
    };
    let names = in_order(rows.iter().map(|row| name(row)));
    let series: Vec<_> = names
        .into_iter()
        .take(SERIES)
        .map(|table| {
            let values = places.iter().map(|place| at(place, Some(&table), &|row| plot.value(row)));
            let values = values.collect();
            (table, values)
        })
        .collect();
    let speed = plot.own.is_none() && plot.up == tables().up;
    let limit: Vec<_> =
        places.iter().map(|place| at(place, None, &Measured::ceiling_mops)).collect();
    // Where rows have different media, the ceiling of the fastest is drawn.
    let fastest =
        rows.iter().max_by(|a, b| a.ceiling_mops().partial_cmp(&b.ceiling_mops()).unwrap_or(Equal));
    let named = fastest.and_then(|row| row.ceiling.clone());
    let ceiling = named.filter(|_| speed).map(|name| (format!("ceiling: {name}"), limit));
    let across = plot.across.replace('_', " ");
    Chart {
        title,
        across: if plot.across == "table" { String::new() } else { across },
        up: plot.up.to_owned(),
        places,
        series,
        ceiling,
        style: Some(plot.style),
        logarithmic: plot.logarithmic,
    }
}

/// Returns a chart for each call, with percentiles on the horizontal axis.
fn percentiles(rows: &[&Measured]) -> Vec<Chart> {
    let of = |row: &Measured| {
        vec![row.p50_ns, row.p95_ns, row.p99_ns, row.p999_ns, row.p9999_ns, row.max_ns]
    };
    let title = |row: &Measured| format!("{}, {}", row.op, row.told_threads());
    in_order(rows.iter().map(|row| title(row)))
        .into_iter()
        .map(|of_all| Chart {
            across: "percentile".to_owned(),
            up: "ns".to_owned(),
            places: ["50", "95", "99", "99.9", "99.99", "max"].map(str::to_owned).to_vec(),
            series: rows
                .iter()
                .filter(|row| title(row) == of_all)
                .take(SERIES)
                .map(|row| (row.table.clone(), of(row)))
                .collect(),
            title: of_all,
            ceiling: None,
            style: Some(Style::Lines),
            logarithmic: true,
        })
        .collect()
}

/// Returns a chart for each call and batch, of its accesses to the medium.
fn costs(rows: &[&Measured]) -> Vec<Chart> {
    let counts = ["line_reads", "line_writes", "flushes", "fences", "media_writes"];
    let title = |row: &Measured| match row.batch().as_str() {
        "" | "none" => row.op.clone(),
        batch => format!("{}, batch {batch}", row.op),
    };
    in_order(rows.iter().map(|row| title(row)))
        .into_iter()
        .map(|of_all| Chart {
            across: String::new(),
            up: "per operation".to_owned(),
            places: counts.map(|name| name.replace('_', " ")).to_vec(),
            series: rows
                .iter()
                .filter(|row| title(row) == of_all)
                .take(SERIES)
                .map(|row| (row.table.clone(), counts.map(|name| row.pm(name)).to_vec()))
                .collect(),
            title: of_all,
            ceiling: None,
            style: Some(Style::Bars),
            logarithmic: false,
        })
        .collect()
}

/// Returns a chart for each table, of reads and inserts over time.
fn timelines(rows: &[&Measured]) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for row in rows {
        let points = row.extra.get("timeline").and_then(Value::as_array);
        let Some(points) = points else { continue };
        let series = ["get_mops", "insert_mops"].map(|name| {
            let of = |point: &Value| Some((point.get("ms")?.as_f64()?, point.get(name)?.as_f64()?));
            (name.trim_end_matches("_mops").to_owned(), points.iter().filter_map(of).collect())
        });
        let title = format!("{}, {}", row.table, row.told_threads());
        let timeline = Timeline {
            across: "ms; shaded while records move".to_owned(),
            up: "million operations a second".to_owned(),
            series: series.into(),
            marked: row.extra("moving_from_ms").zip(row.extra("moving_until_ms")),
        };
        if timeline.is_empty() {
            continue;
        }
        figures.push(Figure { svg: timeline.svg()?, title, series: Vec::new(), ceiling: None });
    }
    Ok(figures)
}

/// Returns the distinct words in the order of their first occurrence.
pub(super) fn in_order(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    seen
}
