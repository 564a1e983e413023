//! Recommends a table for each need, from the measurements of the tour.

use super::join::Join;
use super::measure::Spread;
use super::results::{Row, grouped, milliseconds};
use icefield_console::failure::Failure;
use icefield_console::json::Output;

/// A need of users, and the figure by which tables are compared for it.
struct Wish {
    what: &'static str,
    of_durable: bool,
    figure: fn(&Row) -> Spread,
    /// True if a smaller figure is better.
    less: bool,
    told: fn(&Row) -> String,
}

const WISHES: &[Wish] = &[
    Wish {
        what: "durable puts, one by one",
        of_durable: true,
        figure: |row| row.speed.puts,
        less: false,
        told: |row| per_second(row.speed.puts.median),
    },
    Wish {
        what: "durable puts in batches",
        of_durable: true,
        figure: |row| row.speed.batched_puts,
        less: false,
        told: |row| per_second(row.speed.batched_puts.median),
    },
    Wish {
        what: "gets of durable records",
        of_durable: true,
        figure: |row| row.speed.gets,
        less: false,
        told: |row| per_second(row.speed.gets.median),
    },
    Wish {
        what: "little space on the medium",
        of_durable: true,
        figure: |row| row.speed.bytes_per_key,
        less: true,
        told: |row| format!("{:.1} bytes a record", row.speed.bytes_per_key.median),
    },
    Wish {
        what: "answers soon after a crash",
        of_durable: true,
        figure: |row| {
            let seconds = row.crash.as_ref().map(|crash| crash.recovery.as_secs_f64());
            Spread::once(seconds.unwrap_or(f64::INFINITY))
        },
        less: true,
        told: |row| row.crash.as_ref().map_or_else(String::new, |it| milliseconds(it.recovery)),
    },
    Wish {
        what: "nothing needs to be durable",
        of_durable: false,
        figure: |row| row.speed.gets,
        less: false,
        told: |row| {
            let (gets, puts) = (row.speed.gets.median, row.speed.puts.median);
            format!("{} gets, {} puts", per_second(gets), per_second(puts))
        },
    },
];

impl Wish {
    /// Returns whether `a` is better than `b` by more than the noise.
    fn prefers(&self, a: &Row, b: &Row) -> bool {
        let (a, b) = ((self.figure)(a), (self.figure)(b));
        if self.less { b.is_above(a) } else { a.is_above(b) }
    }

    /// Returns the table with the best median, and all tables that differ from it by no more than the noise.
    fn winners<'a>(&self, able: &[&'a Row]) -> Vec<&'a Row> {
        let median = |row: &Row| (self.figure)(row).median * if self.less { -1.0 } else { 1.0 };
        let mut by_median = able.to_vec();
        by_median.sort_by(|a, b| median(b).total_cmp(&median(a)));
        let Some(&best) = by_median.first() else { return Vec::new() };
        by_median.into_iter().filter(|row| !self.prefers(best, row)).collect()
    }
}

/// Prints the best tables for each need, separately for each kind of values.
pub fn print(out: &mut Output, rows: &[Row], join: &Join) -> Result<(), Failure> {
    out.say("\nRecommended tables, by these figures:")?;
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.design.values).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for wish in WISHES {
        for kind in &kinds {
            let able = rows
                .iter()
                .filter(|row| row.design.values == *kind && row.crash.is_some() == wish.of_durable);
            let text = match wish.winners(&able.collect::<Vec<_>>()).as_slice() {
                [] => continue,
                [best] => format!("{:<8} {}", best.design.name, (wish.told)(best)),
                several => {
                    let told = |row: &&Row| format!("{} {}", row.design.name, (wish.told)(row));
                    let told: Vec<String> = several.iter().map(told).collect();
                    format!("no clear winner: {}", told.join(", "))
                }
            };
            out.say(format_args!("  {:<28} {kind:<16} {text}", wish.what))?;
        }
    }
    let told = format!("{} joined", per_second(join.joined));
    out.say(format_args!("  {:<28} {:<16} {:<8} {told}", "the same join repeatedly", "-", "join"))?;
    out.say("These are a few seconds of one thread on small tables: docs/which-table.md compares the designs, and")?;
    out.say("`icefield-bench` measures with other sizes and more threads.")
}

fn per_second(figure: f64) -> String {
    format!("{}/s", grouped(figure as u64))
}
