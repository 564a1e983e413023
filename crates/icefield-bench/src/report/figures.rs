//! The figures of each experiment.

use std::cmp::Ordering::Equal;
use std::collections::BTreeSet;

use serde_json::Value;

use super::chart::{Chart, SERIES, Style, points, short, standalone};
use crate::Outcome;
use crate::row::Row;

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
        let has_names = chart.style == Style::Lines;
        let named = chart.series.iter().filter(|_| !has_names);
        let series = named.map(|(name, _)| name.clone()).collect();
        let ceiling = chart.ceiling.as_ref().map(|(name, _)| name.clone());
        Ok(Some(Self { svg: chart.svg()?, title: chart.title, series, ceiling }))
    }

    /// Returns the names in the legend, each with the role of its colour.
    pub fn legend(&self) -> Vec<(String, &str)> {
        let series = self.series.iter().enumerate();
        let series = series.map(|(number, name)| (format!("s{}", number % SERIES), name.as_str()));
        series
            .chain(self.ceiling.iter().map(|name| ("ceiling".to_owned(), name.as_str())))
            .collect()
    }

    /// Returns the figure as a separate document. Its title starts with `of`, the figure's subject.
    pub fn document(&self, of: &str) -> String {
        let told = self.title.split(',').next() == Some(of);
        let of = if told { String::new() } else { format!("{of}: ") };
        standalone(&self.svg, &format!("{of}{}", self.title), &self.legend())
    }
}

/// Returns the figures of one experiment.
pub(super) fn figures(experiment: &str, rows: &[&Row]) -> Outcome<Vec<Figure>> {
    let charts = match (experiment, FIGURES.iter().find(|(name, ..)| *name == experiment)) {
        ("resize-timeline", _) => timelines(rows),
        ("latency", _) => percentiles(rows),
        ("amplification", _) => costs(rows),
        (_, Some((_, across, figure, up))) => {
            let logarithmic = experiment == "recovery";
            by_point(rows, &Plot { across, figure, up, style: Style::Bars, logarithmic })
        }
        _ => by_point(rows, &speed(rows)),
    };
    charts.into_iter().map(Figure::of).filter_map(Outcome::transpose).collect()
}

/// Experiments whose charts show a figure other than throughput: the experiment, the field on the horizontal axis, the
/// figure, and its name.
const FIGURES: [(&str, &str, &str, &str); 7] = [
    ("recovery", "keys", "first_answer_ms", "ms to the first answer"),
    ("latency-by-load", "load_percent", "p99_ns", "ns, 99th percentile"),
    ("space", "table", "bytes_per_key", "bytes per record"),
    ("levels", "yards", "front_yard", "share in the front yard"),
    ("cache-misses", "selectivity", "llc_misses", "misses of the last level, per probing row"),
    ("occupancy", "link_ratio", "occupancy", "records over slots when it grows"),
    ("load-factor", "stash_buckets", "peak_load_factor", "records over slots, at most"),
];

/// Describes the charts of a sweep, one for each call and batch.
struct Plot {
    /// The field, or the experiment's own figure, on the horizontal axis.
    across: &'static str,
    /// The figure on the vertical axis, by [`Row::figure`].
    figure: &'static str,
    up: &'static str,
    style: Style,
    logarithmic: bool,
}

impl Plot {
    fn place(&self, row: &Row) -> String {
        match self.across {
            "batch" => row.batch(),
            "table" => String::new(),
            "loop" => row.ceiling.clone().unwrap_or_default(),
            own @ ("threads" | "keys") => row.figure(own).map(short).unwrap_or_default(),
            own => row.point(own).unwrap_or_default(),
        }
    }
}

/// The fields of `extra` that may name the position of a row in a sweep.
const SWEEPS: [&str; 13] = [
    "hot_percent",
    "value_bytes",
    "key_bytes",
    "features",
    "resizing",
    "filters",
    "locks",
    "insert_ratio",
    "fill",
    "prefault",
    "segment_bytes",
    "selectivity",
    "phase",
];

/// Plots throughput over the field in which the rows differ: the position in a sweep, the batch, the number of records,
/// the table or the loop; otherwise over the number of threads.
fn speed(rows: &[&Row]) -> Plot {
    let differ = |of: &dyn Fn(&Row) -> String| {
        rows.iter().map(|row| of(row)).collect::<BTreeSet<_>>().len() > 1
    };
    let swept = SWEEPS.iter().find(|name| rows.iter().any(|row| row.extra.contains_key(**name)));
    let first = rows.first().map(|row| row.experiment.clone()).unwrap_or_default();
    let across = match first.as_str() {
        "limit" => "loop",
        "batch-size" => "batch",
        "index-size" => "keys",
        _ => swept.copied().unwrap_or("threads"),
    };
    let named = matches!(
        across,
        "features" | "resizing" | "filters" | "locks" | "prefault" | "phase" | "table" | "loop"
    );
    let several = match across {
        "threads" => differ(&|row| format!("{:?}", row.threads)),
        _ => true,
    };
    let style = if named || !several { Style::Bars } else { Style::Lines };
    // For bare loops the label is short, because their long names need the space.
    let up = if across == "loop" { "million a second" } else { "million operations a second" };
    Plot { across, figure: "mops", up, style, logarithmic: false }
}

/// Returns a chart for each combination of call, batch and number of threads, except that the field on the horizontal
/// axis does not separate charts.
fn by_point(rows: &[&Row], plot: &Plot) -> Vec<Chart> {
    let apart = |row: &Row| {
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

fn chart(title: String, rows: &[&Row], plot: &Plot) -> Chart {
    let places = in_order(rows.iter().map(|row| plot.place(row)));
    let name = |row: &Row| {
        let alike = |other: &&&Row| other.table == row.table && other.medium != row.medium;
        match &row.medium {
            Some(medium) if rows.iter().any(|other| alike(&other)) => {
                format!("{} ({medium})", row.table)
            }
            _ => row.table.clone(),
        }
    };
    let most = |table: Option<&String>, value: &dyn Fn(&Row) -> Option<f64>| {
        let of = |row: &&&Row| table.is_none_or(|table| name(row) == *table);
        points(places.iter().map(|place| {
            let here = rows.iter().filter(of).filter(|row| plot.place(row) == *place);
            here.filter_map(|row| value(row)).reduce(f64::max)
        }))
    };
    let names = in_order(rows.iter().map(|row| name(row)));
    let one = |table: String| {
        let points = most(Some(&table), &|row| row.figure(plot.figure));
        (table, points)
    };
    let series = names.into_iter().take(SERIES).map(one).collect();
    let speed = plot.figure == "mops" && plot.across != "loop";
    let limit = most(None, &Row::ceiling_mops);
    // If the rows have several ceilings, the highest is drawn, with the name of its loop.
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
        marked: None,
        style: plot.style,
        logarithmic: plot.logarithmic,
    }
}

/// Returns a chart for each call, with percentiles on the horizontal axis.
fn percentiles(rows: &[&Row]) -> Vec<Chart> {
    let title = |row: &Row| format!("{}, {}", row.op, row.told_threads());
    let places = ["50", "95", "99", "99.9", "99.99", "max"];
    let values =
        |row: &Row| vec![row.p50_ns, row.p95_ns, row.p99_ns, row.p999_ns, row.p9999_ns, row.max_ns];
    let chart = Chart {
        across: "percentile".to_owned(),
        up: "ns".to_owned(),
        places: places.map(str::to_owned).to_vec(),
        style: Style::Lines,
        logarithmic: true,
        ..Chart::default()
    };
    by_title(rows, title, values, &chart)
}

/// Returns a chart for each call and batch, of its accesses to the medium.
fn costs(rows: &[&Row]) -> Vec<Chart> {
    let counts = ["line_reads", "line_writes", "flushes", "fences", "media_writes"];
    let title = |row: &Row| match row.batch().as_str() {
        "" | "none" => row.op.clone(),
        batch => format!("{}, batch {batch}", row.op),
    };
    let chart = Chart {
        up: "per operation".to_owned(),
        places: counts.map(|name| name.replace('_', " ")).to_vec(),
        style: Style::Bars,
        ..Chart::default()
    };
    by_title(rows, title, |row| counts.map(|name| row.figure(name)).to_vec(), &chart)
}

/// Copies the template `chart` for each title among the rows. Each row adds a series, the result of `values`.
fn by_title(
    rows: &[&Row],
    title: impl Fn(&Row) -> String,
    values: impl Fn(&Row) -> Vec<Option<f64>>,
    chart: &Chart,
) -> Vec<Chart> {
    let of = |of_all: String| {
        let here = rows.iter().filter(|row| title(row) == of_all).take(SERIES);
        let series = here.map(|row| (row.table.clone(), points(values(row)))).collect();
        Chart { title: of_all, series, ..chart.clone() }
    };
    in_order(rows.iter().map(|row| title(row))).into_iter().map(of).collect()
}

/// Returns a chart for each table, of reads and inserts over time.
fn timelines(rows: &[&Row]) -> Vec<Chart> {
    let timeline = |row: &&Row| {
        let points = row.extra.get("timeline")?.as_array()?;
        let series = ["get_mops", "insert_mops"].map(|name| {
            let of = |point: &Value| Some((point.get("ms")?.as_f64()?, point.get(name)?.as_f64()?));
            (name.trim_end_matches("_mops").to_owned(), points.iter().filter_map(of).collect())
        });
        Some(Chart {
            title: format!("{}, {}", row.table, row.told_threads()),
            across: "ms; shaded while records move".to_owned(),
            up: "million operations a second".to_owned(),
            series: series.into(),
            marked: row.figure("moving_from_ms").zip(row.figure("moving_until_ms")),
            ..Chart::default()
        })
    };
    rows.iter().filter_map(timeline).collect()
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
