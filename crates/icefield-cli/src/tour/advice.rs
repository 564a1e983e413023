//! Which table for whom, by what the tour has measured.

use super::join::Join;
use super::{Row, grouped, milliseconds};
use crate::failure::Failure;
use crate::json::Output;

/// What somebody may want most, and how it is told of a table; the greatest figure is the best.
struct Wish {
    what: &'static str,
    of_durable: bool,
    worth: fn(&Row) -> f64,
    told: fn(&Row) -> String,
}

const WISHES: &[Wish] = &[
    Wish {
        what: "durable puts, one by one",
        of_durable: true,
        worth: |row| row.speed.puts,
        told: |row| per_second(row.speed.puts),
    },
    Wish {
        what: "durable puts in batches",
        of_durable: true,
        worth: |row| row.speed.batched_puts,
        told: |row| per_second(row.speed.batched_puts),
    },
    Wish {
        what: "gets of durable records",
        of_durable: true,
        worth: |row| row.speed.gets,
        told: |row| per_second(row.speed.gets),
    },
    Wish {
        what: "little space on the medium",
        of_durable: true,
        worth: |row| -row.speed.bytes_per_key,
        told: |row| format!("{:.1} bytes a record", row.speed.bytes_per_key),
    },
    Wish {
        what: "answers soon after a crash",
        of_durable: true,
        worth: |row| row.crash.as_ref().map_or(0.0, |crash| -crash.recovery.as_secs_f64()),
        told: |row| row.crash.as_ref().map_or_else(String::new, |it| milliseconds(it.recovery)),
    },
    Wish {
        what: "nothing needs to be durable",
        of_durable: false,
        worth: |row| row.speed.gets,
        told: |row| {
            format!("{} gets, {} puts", per_second(row.speed.gets), per_second(row.speed.puts))
        },
    },
];

/// Names the best table for each wish, by values of each kind.
pub fn print(out: &mut Output, rows: &[Row], join: &Join) -> Result<(), Failure> {
    out.say("\nWhich table for you, by these figures:")?;
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.design.values).collect();
    kinds.dedup();
    kinds.sort_unstable();
    kinds.dedup();
    for wish in WISHES {
        for kind in &kinds {
            let able = rows
                .iter()
                .filter(|row| row.design.values == *kind && row.crash.is_some() == wish.of_durable);
            if let Some(best) = able.max_by(|a, b| (wish.worth)(a).total_cmp(&(wish.worth)(b))) {
                let (name, told) = (best.design.name, (wish.told)(best));
                out.say(format_args!("  {:<28} {kind:<16} {name:<8} {told}", wish.what))?;
            }
        }
    }
    let told = format!("{} joined", per_second(join.joined));
    out.say(format_args!(
        "  {:<28} {:<16} {:<8} {told}",
        "the same join again and again", "-", "join"
    ))?;
    out.say("A minute of one thread on small tables decides little: docs/which-table.md says what each is made for, and")?;
    out.say("`icefield bench` measures with your sizes and threads.")
}

fn per_second(figure: f64) -> String {
    format!("{}/s", grouped(figure as u64))
}
