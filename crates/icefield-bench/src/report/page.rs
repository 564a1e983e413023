//! The page: the claims, a section for each experiment, and the facts of the machine.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::RunFacts;
use super::chart::{COLOURS, short};
use super::figures::{Figure, figures, in_order};
use super::judge::{Finding, claims};
use crate::Outcome;
use crate::row::{Row, text};

const STYLE: &str = include_str!("style.css");
const TITLE: &str = "Icefield: measurements";

/// Returns the whole page, and passes each figure to `keep(name, svg)`. `what` returns the description of an
/// experiment.
pub(super) fn page(
    run: &RunFacts,
    rows: &[Row],
    keep: impl Fn(&str, &str) -> Outcome,
    what: impl Fn(&str) -> Option<&'static str>,
) -> Outcome<String> {
    let experiments = in_order(rows.iter().map(|row| row.experiment.clone()));
    let section = |experiment: &String| {
        let here: Vec<_> = rows.iter().filter(|row| row.experiment == *experiment).collect();
        section(experiment, what(experiment).unwrap_or_default(), &here, &keep)
    };
    let sections = experiments.iter().map(section).collect::<Outcome<Vec<_>>>()?;
    let claims = claims_table(rows);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (TITLE) }
                style { (PreEscaped(COLOURS)) (PreEscaped(STYLE)) }
            }
            body {
                h1 { (TITLE) }
                nav {
                    @if claims.is_some() { a href="#claims" { "claims" } " " }
                    @for name in &experiments { a href={ "#" (name) } { (name) } " " }
                    a href="#machine" { "machine" }
                }
                @if let Some(claims) = &claims { (claims) }
                @for section in &sections { (section) }
                (facts(run))
            }
        }
    };
    Ok(page.into_string())
}

fn facts(run: &RunFacts) -> Markup {
    let memory = format!("{:.1} GiB", run.memory_bytes as f64 / f64::from(1 << 30));
    let took = format!("{} min {} s", run.seconds / 60, run.seconds % 60);
    let cores = run.cores.to_string();
    let facts = [
        ("processor", run.processor.as_str()),
        ("cores", &cores),
        ("memory", &memory),
        ("system", &run.system),
        ("huge pages", &run.huge_pages),
        ("persistent memory", &run.backing),
        ("command", &run.command),
        ("took", &took),
        ("version", &run.version),
    ];
    html! {
        h2 #machine { "The machine and the run" }
        p {
            "Every comparison is within one run. A ceiling is a bare loop over the same kind of memory, measured in "
            "turns with the tables; no table can be faster. Absolute speeds belong to this machine and this hour only."
        }
        @if run.cores == 0 {
            p { "There is no " code { "run.json" } " beside the results, so the machine is unknown." }
        } @else {
            .wide { table .facts {
                @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                    tr { th { (name) } td { (value) } }
                }
            } }
        }
        p {
            "Raw rows: " a href="results.jsonl" { "results.jsonl" } ", " a href="results.csv" { "results.csv" } "."
        }
    }
}

/// Returns the table of the claims for which the run has rows; `None` if there are none.
fn claims_table(rows: &[Row]) -> Option<Markup> {
    let all = claims();
    let (mut judged, mut commands) = (Vec::new(), Vec::new());
    for claim in &all {
        match claim.judge(rows) {
            Finding::Holds(measured) => judged.push((claim, "holds", "holds", measured)),
            Finding::Fails(measured) => judged.push((claim, "fails", "does not hold", measured)),
            Finding::NotHere(why) => {
                judged.push((claim, "unknown", "cannot be measured here", why));
            }
            Finding::NotRun => commands.push(claim.command.clone()),
        }
    }
    let others = commands.len();
    (!judged.is_empty()).then(|| html! {
        h2 #claims { "Claims of the papers and measurements" }
        p {
            "The papers' machines had persistent memory and tens of cores; a claim is judged as a ratio or a count on "
            "this one."
        }
        table .claims {
            tr { th { "table" } th { "the paper says" } th { "where" } th { "measured here" } th { "verdict" } }
            @for (claim, class, verdict, measured) in &judged {
                tr {
                    td { (claim.system) } td { (claim.says) } td { (claim.source) } td { (measured) }
                    td class={ "verdict " (class) } { (verdict) }
                }
            }
        }
        @if others > 0 {
            details {
                summary { (others) " claims need other rows" }
                ul { @for command in in_order(commands.into_iter()) {
                    li { code { "icefield-bench " (command) } }
                } }
            }
        }
    })
}

fn section(
    experiment: &str,
    what: &str,
    rows: &[&Row],
    keep: &impl Fn(&str, &str) -> Outcome,
) -> Outcome<Markup> {
    let wrong = in_order(rows.iter().filter(|row| row.is_wrong()).map(|row| row.table.clone()));
    let mut pictures = Vec::new();
    for (number, figure) in figures(experiment, rows)?.iter().enumerate() {
        let name = format!("{experiment}-{}.svg", number + 1);
        keep(&name, &figure.document(experiment))?;
        pictures.push(picture(&name, figure));
    }
    Ok(html! {
        h2 id=(experiment) { (experiment) }
        p { (what) }
        @if !wrong.is_empty() { p .fails { "Wrong answers from: " (wrong.join(", ")) "." } }
        @for why in rows.iter().filter_map(|row| row.point("not_measured")) {
            p .unknown { "Cannot be measured here: " (why) "." }
        }
        .figures { @for picture in pictures { (picture) } }
        (figures_as_text(rows))
    })
}

fn picture(name: &str, figure: &Figure) -> Markup {
    // A screen reader reads only the title, because the numbers of the axes are also in the table.
    let title = html! { (figure.title) }.into_string();
    let role = format!("<svg role=\"img\" aria-label=\"{title}\" ");
    let svg = figure.svg.replacen("<svg ", &role, 1);
    html! {
        figure {
            h3 { (figure.title) }
            (PreEscaped(svg))
            figcaption {
                @for (role, name) in figure.legend() {
                    span .key .line[role == "ceiling"] style={ "--colour:var(--" (role) ")" } { (name) } " "
                }
                a href={ "figures/" (name) } { "SVG" }
            }
        }
    }
}

type Text = (&'static str, fn(&Row) -> String);

/// The columns of the table below the figures. The first ones are texts, the others numbers.
const TEXTS: [Text; 4] = [
    ("table", |row| row.table.clone()),
    ("call", |row| row.op.clone()),
    ("batch", Row::batch),
    ("medium", |row| row.medium.clone().unwrap_or_default()),
];
const NUMBERS: [(&str, &str); 11] = [
    ("threads", "threads"),
    ("keys", "keys"),
    ("M/s", "mops"),
    ("of the ceiling", "limit_ratio"),
    ("p50 ns", "p50_ns"),
    ("p99 ns", "p99_ns"),
    ("p99.9 ns", "p999_ns"),
    ("max ns", "max_ns"),
    ("bytes/key", "bytes_per_key"),
    ("lines written", "line_writes"),
    ("fences", "fences"),
];

/// Returns the rows on which the figures are based, as a table. The last column has the experiment's own figures.
fn figures_as_text(rows: &[&Row]) -> Markup {
    let mut numbers = NUMBERS.to_vec();
    numbers.retain(|(_, name)| rows.iter().any(|row| row.figure(name).is_some()));
    let mut texts = TEXTS.to_vec();
    texts.retain(|(_, of)| rows.iter().any(|row| !of(row).is_empty()));
    html! {
        details {
            summary { (rows.len()) " rows" }
            .wide { table {
                tr {
                    @for (name, _) in &texts { th { (name) } }
                    @for (name, _) in &numbers { th { (name) } }
                    th { "besides" }
                }
                @for row in rows {
                    tr {
                        @for (_, of) in &texts { td { (of(row)) } }
                        @for (_, name) in &numbers {
                            td .number { (row.figure(name).map(short).unwrap_or_default()) }
                        }
                        td { (besides(row)) }
                    }
                }
            } }
        }
    }
}

fn besides(row: &Row) -> String {
    let plain = row.extra.iter().filter(|(name, value)| {
        !value.is_array()
            && !value.is_object()
            && !matches!(name.as_str(), "backing" | "ceiling_mops" | "shape_mops")
    });
    let plain = plain.map(|(name, value)| {
        format!("{}: {}", name.replace('_', " "), value.as_f64().map_or_else(|| text(value), short))
    });
    plain.collect::<Vec<_>>().join(", ")
}
