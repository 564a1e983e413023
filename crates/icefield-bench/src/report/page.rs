//! The page: the claims, a section for each experiment, and the facts of the machine.

use std::fmt::Write;

use super::RunFacts;
use super::chart::{COLOURS, escaped, short};
use super::claims::{self, Finding};
use super::figures::{Figure, figures, in_order};
use crate::Outcome;
use crate::experiments::what;
use crate::results::{Measured, text};

const STYLE: &str = include_str!("style.css");

/// Returns the whole page, and passes each figure to `keep(name, svg)`.
pub(super) fn page(
    run: &RunFacts,
    rows: &[Measured],
    keep: impl Fn(&str, &str) -> Outcome,
) -> Outcome<String> {
    let experiments = in_order(rows.iter().map(|row| row.experiment.clone()));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Icefield: what was measured</title>\n<style>{COLOURS}\n{STYLE}</style></head>\n<body>\n\
         <h1>Icefield: what was measured</h1>\n"
    );
    let claims = claims_table(rows);
    page += &navigation(&experiments, !claims.is_empty());
    page += &claims;
    for experiment in &experiments {
        let here: Vec<_> = rows.iter().filter(|row| row.experiment == *experiment).collect();
        page += &section(experiment, &here, &keep)?;
    }
    page += &facts(run);
    page += "</body></html>\n";
    Ok(page)
}

fn facts(run: &RunFacts) -> String {
    let memory = format!("{:.1} GiB", run.memory_bytes as f64 / f64::from(1 << 30));
    let took = format!("{} min {} s", run.seconds / 60, run.seconds % 60);
    let cores = run.cores.to_string();
    let known = run.cores > 0;
    let table: String = [
        ("processor", run.processor.as_str()),
        ("cores", &cores),
        ("memory", &memory),
        ("system", &run.system),
        ("huge pages", &run.huge_pages),
        ("persistent memory", &run.backing),
        ("command", &run.command),
        ("took", &took),
        ("version", &run.version),
    ]
    .iter()
    .filter(|(_, value)| known && !value.is_empty())
    .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>", escaped(value)))
    .collect();
    let unknown = match known {
        true => "",
        false => {
            "<p>There is no <code>run.json</code> beside the results: nothing is known of the machine.</p>\n"
        }
    };
    format!(
        "<h2 id=\"machine\">The machine and the run</h2>\n<p>Every comparison is within one run. A ceiling is a bare loop over the same kind of memory, measured in turns \
         with the tables; no table can be faster. Absolute speeds belong to this machine and this hour only.</p>\n\
         {unknown}<div class=\"wide\"><table class=\"facts\">{table}</table></div>\n\
         <p>Raw rows: <a href=\"results.jsonl\">results.jsonl</a>, <a href=\"results.csv\">results.csv</a>.</p>\n"
    )
}

fn navigation(experiments: &[String], has_claims: bool) -> String {
    let claims = if has_claims { "<a href=\"#claims\">claims</a> " } else { "" };
    let links: String =
        experiments.iter().map(|name| format!("<a href=\"#{name}\">{name}</a> ")).collect();
    format!("<nav>{claims}{links}<a href=\"#machine\">machine</a></nav>\n")
}

/// Returns the table of claims that the run has rows for; empty if there are none.
fn claims_table(rows: &[Measured]) -> String {
    let (mut body, mut others) = (String::new(), Vec::new());
    for claim in claims::CLAIMS {
        let (class, verdict, measured) = match (claim.judge)(rows) {
            Finding::Holds(measured) => ("holds", "holds", measured),
            Finding::Fails(measured) => ("fails", "does not hold", measured),
            Finding::NotHere(why) => ("unknown", "cannot be measured here", why),
            Finding::NotRun(command) => {
                others.push(command.to_owned());
                continue;
            }
        };
        let (system, says, source) = (claim.system, escaped(claim.says), claim.source);
        let _ = writeln!(
            body,
            "<tr><td>{system}</td><td>{says}</td><td>{source}</td><td>{}</td>\
             <td class=\"verdict {class}\">{verdict}</td></tr>",
            escaped(&measured)
        );
    }
    if body.is_empty() {
        return String::new();
    }
    let unjudged = others.len();
    let commands: String = in_order(others.into_iter())
        .iter()
        .map(|command| format!("<li><code>icefield-bench {}</code></li>", escaped(command)))
        .collect();
    let others = match unjudged {
        0 => String::new(),
        n => format!(
            "<details><summary>{n} claims need other rows</summary><ul>{commands}</ul></details>\n"
        ),
    };
    format!(
        "<h2 id=\"claims\">What the papers say, and what was measured</h2>\n\
         <p>The papers' machines had persistent memory and tens of cores; a claim is judged as a ratio or a count on this \
         one.</p>\n<table class=\"claims\"><tr><th>table</th><th>the paper says</th><th>where</th><th>measured \
         here</th><th>verdict</th></tr>\n{body}</table>\n{others}"
    )
}

fn section(
    experiment: &str,
    rows: &[&Measured],
    keep: &impl Fn(&str, &str) -> Outcome,
) -> Outcome<String> {
    let told = escaped(what(experiment).unwrap_or_default());
    let mut section = format!("<h2 id=\"{experiment}\">{experiment}</h2>\n<p>{told}</p>\n");
    let wrong = in_order(rows.iter().filter(|row| row.is_wrong()).map(|row| row.table.clone()));
    if !wrong.is_empty() {
        let _ = writeln!(
            section,
            "<p class=\"fails\">Wrong answers from: {}.</p>",
            escaped(&wrong.join(", "))
        );
    }
    for why in rows.iter().filter_map(|row| row.point("not_measured")) {
        let _ = writeln!(
            section,
            "<p class=\"unknown\">Cannot be measured here: {}.</p>",
            escaped(&why)
        );
    }
    section += "<div class=\"figures\">\n";
    for (number, figure) in figures(experiment, rows)?.iter().enumerate() {
        let name = format!("{experiment}-{}.svg", number + 1);
        keep(&name, &figure.document(experiment))?;
        section += &picture(&name, figure);
    }
    section += "</div>\n";
    section += &figures_as_text(rows);
    Ok(section)
}

fn picture(name: &str, figure: &Figure) -> String {
    let legend = figure.legend();
    let keys: Vec<_> = legend
        .iter()
        .map(|(role, name)| {
            let line = if role == "ceiling" { " line" } else { "" };
            let name = escaped(name);
            format!("<span class=\"key{line}\" style=\"--colour:var(--{role})\">{name}</span>")
        })
        .collect();
    let title = escaped(&figure.title);
    // A screen reader gets the title only: the numbers at the axes are in the table.
    let svg =
        figure.svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
    format!(
        "<figure><h3>{title}</h3>\n{svg}\n<figcaption>{} <a href=\"figures/{name}\">SVG</a></figcaption></figure>\n",
        keys.join(" ")
    )
}

/// Returns the rows behind the figures as a table; the experiment's own figures come last.
fn figures_as_text(rows: &[&Measured]) -> String {
    type Column = (&'static str, fn(&Measured) -> Option<String>);
    const COLUMNS: [Column; 15] = [
        ("table", |row| Some(row.table.clone())),
        ("call", |row| Some(row.op.clone())),
        ("threads", |row| Some(row.threads?.to_string())),
        ("keys", |row| Some(short(row.keys? as f64))),
        ("batch", |row| Some(row.batch()).filter(|batch| !batch.is_empty())),
        ("medium", |row| row.medium.clone()),
        ("M/s", |row| row.mops.map(short)),
        ("of the ceiling", |row| row.limit_ratio.map(short)),
        ("p50 ns", |row| row.p50_ns.map(short)),
        ("p99 ns", |row| row.p99_ns.map(short)),
        ("p99.9 ns", |row| row.p999_ns.map(short)),
        ("max ns", |row| row.max_ns.map(short)),
        ("bytes/key", |row| row.bytes_per_key.map(short)),
        ("lines written", |row| row.pm("line_writes").map(short)),
        ("fences", |row| row.pm("fences").map(short)),
    ];
    let shown: Vec<_> =
        COLUMNS.iter().filter(|(_, of)| rows.iter().any(|row| of(row).is_some())).collect();
    let mut table = String::from("<tr>");
    shown.iter().for_each(|(name, _)| table += &format!("<th>{name}</th>"));
    table += "<th>besides</th></tr>\n";
    for row in rows {
        table += "<tr>";
        for (at, (_, of)) in shown.iter().enumerate() {
            let class = if at < 2 { "" } else { " class=\"number\"" };
            let cell = of(row).unwrap_or_default();
            table += &format!("<td{class}>{}</td>", escaped(&cell));
        }
        table += &format!("<td>{}</td></tr>\n", escaped(&besides(row)));
    }
    format!(
        "<details><summary>{} rows</summary><div class=\"wide\"><table>{table}</table></div></details>\n",
        rows.len()
    )
}

fn besides(row: &Measured) -> String {
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
