//! `icefield tour`: loads every table, kills the loading process, reopens and verifies the table, and recommends a
//! table for each need. The results are one text table, printed in less than a minute.

mod advice;
mod child;
mod crash;
mod design;
mod designs;
mod join;
mod measure;
mod orders;
mod results;
mod stage;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::create;
use design::{Crash, Design};
use designs::designs;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{JsonArgs, Line, Output, with_output};
use icefield_console::terminal::shown_path;
use join::Join;
use measure::Speeds;
use results::{Row, grouped, milliseconds};
use stage::Stage;

pub use child::{CHILD, ChildArgs};

/// Examples for `--help`.
pub const EXAMPLES: &str = "\
Examples:
  icefield tour
  icefield tour --scale 1
  icefield tour --dir /mnt/pmem

Exit status: 0 nothing was lost, 1 something was";

/// Show every table: load it, kill the loading process, reopen, verify
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Use this TPC-H scale factor: 1 is 1,500,000 orders
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = scale)]
    scale: f64,
    /// Work in this directory, in a subdirectory that is removed at the end; without it in /dev/shm if that is
    /// writable, else in the system's temporary directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

/// Parses a scale factor whose orders fit into memory.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.001..=10.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.001 to 10".to_owned()),
    }
}

/// The number of measurements of each table.
const RUNS: usize = 3;

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    with_output(&args.json, &[], |out| {
        let interrupt = Interrupt::listen()?;
        let dir = work_dir(args.dir.as_deref())?;
        introduce(out, args.scale, dir.path())?;
        let orders = orders::generate(args.scale)?;
        let file = dir.path().join("orders.tbl");
        orders::write(&orders, &file)?;
        let stage = Stage { orders: &orders, file: &file, dir: dir.path(), interrupt: &interrupt };

        let mut crashes = Vec::new();
        let designs = designs();
        for (index, design) in designs.iter().enumerate() {
            stage.go_on()?;
            let crash = match &design.outlives {
                Some(outlives) => Some((outlives.crash)(&stage, design, index)?),
                None => None,
            };
            if let Some(crash) = &crash {
                tell(out, design, crash, orders.len())?;
            }
            crashes.push(crash);
        }
        // The tables are measured in turns, so that a temporary slowdown of the machine affects all of them.
        let mut runs: Vec<Vec<measure::Speed>> = designs.iter().map(|_| Vec::new()).collect();
        for _ in 0..RUNS {
            for (design, runs) in designs.iter().zip(&mut runs) {
                stage.go_on()?;
                runs.push((design.measure)(&stage, design)?);
            }
        }
        let measured = designs.into_iter().zip(runs.iter().map(|runs| Speeds::of(runs)));
        let rows: Vec<Row> = measured
            .zip(crashes)
            .map(|((design, speed), crash)| Row { design, speed, crash })
            .collect();
        stage.go_on()?;
        let join = join::join(&stage)?;
        tell_join(out, &join)?;
        let lost = rows.iter().map(Row::lost).sum();
        print(out, &rows, lost)?;
        advice::print(out, &rows, &join)?;
        dir.close().map_err(|error| {
            Failure::Problem(format!("cannot remove the tour's directory: {error}"))
        })?;
        Ok(lost == 0 && !rows.iter().any(Row::has_faults) && join.found == join.items)
    })
}

/// Runs the hidden subcommand.
pub fn child(args: &ChildArgs) -> Outcome {
    let design = designs().into_iter().nth(args.index);
    let design = design.ok_or_else(|| Failure::Usage("--index: no such table".to_owned()))?;
    let outlives = design.outlives;
    let outlives =
        outlives.ok_or_else(|| Failure::Usage("--index: a table in memory".to_owned()))?;
    (outlives.child)(args)?;
    Ok(true)
}

/// Creates a working directory, which is removed on drop.
fn work_dir(asked: Option<&Path>) -> Result<TempDir, Failure> {
    let make = |parent: &Path| tempfile::Builder::new().prefix("icefield-tour-").tempdir_in(parent);
    match asked {
        Some(parent) => make(parent).map_err(|error| Failure::io(parent, &error)),
        None => make(Path::new("/dev/shm")).or_else(|_| {
            let parent = std::env::temp_dir();
            make(&parent).map_err(|error| Failure::io(&parent, &error))
        }),
    }
}

fn introduce(out: &mut Output, scale: f64, dir: &Path) -> Result<(), Failure> {
    out.say("Icefield keeps records in hash tables that survive a crash at any instruction.")?;
    out.say(format_args!(
        "The tour generates the orders of the TPC-H benchmark at scale {scale}, stores them by order key, kills the",
    ))?;
    out.say("process while it stores them, opens the table again, and checks that every order that was reported")?;
    out.say("as stored is present.")?;
    out.say(format_args!("Working in {} (removed at the end).\n", shown_path(dir)))?;
    out.flush()
}

fn tell(out: &mut Output, design: &Design, crash: &Crash, orders: usize) -> Result<(), Failure> {
    out.say(format_args!(
        "{} ({}): killed after {} of {} orders; open again in {}; {} lost. The rest is stored now.",
        design.name,
        design.values,
        grouped(crash.acknowledged),
        grouped(orders as u64),
        milliseconds(crash.recovery),
        grouped(crash.lost),
    ))?;
    for fault in &crash.faults {
        out.say(format_args!("  fault: {fault}"))?;
    }
    out.flush()
}

fn tell_join(out: &mut Output, join: &Join) -> Result<(), Failure> {
    out.say(format_args!(
        "join: an index of the orders, built at {} a second; open again in {}; {} of {} line items found their order, {} \
         a second.",
        grouped(join.built as u64),
        milliseconds(join.open),
        grouped(join.found),
        grouped(join.items),
        grouped(join.joined as u64),
    ))?;
    if join.found != join.items {
        out.say("  fault: some line items did not find their order")?;
    }
    out.line(
        Line::new()
            .field("design", "join")
            .field("built_per_second", &join.built.round())
            .field("open_ms", &(join.open.as_secs_f64() * 1e3))
            .field("joined_per_second", &join.joined.round())
            .field("items", &join.items)
            .field("found", &join.found)
            .field("bytes_per_key", &join.bytes_per_key),
    )
}

fn print(out: &mut Output, rows: &[Row], lost: u64) -> Result<(), Failure> {
    let title = [
        "design",
        "values",
        "puts/s",
        "in batches",
        "gets/s",
        "bytes/key",
        "recovery",
        "acknowledged",
        "lost",
    ];
    let mut cells = vec![title.map(str::to_owned)];
    cells.extend(rows.iter().map(cells_of));
    out.say("")?;
    for line in &cells {
        let mut text = format!("{:<10} {:<16}", line[0], line[1]);
        for (cell, title) in line[2..].iter().zip(&title[2..]) {
            text.push_str(&format!(" {cell:>width$}", width = title.len().max(10)));
        }
        out.say(text)?;
    }
    out.say(format_args!("\nMedians of {RUNS} runs of one thread, growing from an empty table; every put is durable when it returns, a batch"))?;
    out.say("of 32 when the batch does; dlht lives in memory. `icefield-bench` measures precisely; `icefield-torture` \
             also simulates power cuts.")?;
    if let Some(warning) = rows.iter().find_map(|row| create::warning(row.speed.durability?)) {
        out.say(warning)?;
    }
    out.say(if lost == 0 {
        "Lost: nothing."
    } else {
        "Acknowledged orders were LOST: this is a bug."
    })?;
    for row in rows {
        out.line(line_of(row))?;
    }
    Ok(())
}

fn cells_of(row: &Row) -> [String; 9] {
    let Row { design, speed, crash } = row;
    [
        design.name.to_owned(),
        design.values.to_owned(),
        grouped(speed.puts.median as u64),
        grouped(speed.batched_puts.median as u64),
        grouped(speed.gets.median as u64),
        format!("{:.1}", speed.bytes_per_key.median),
        crash.as_ref().map_or_else(nothing, |crash| milliseconds(crash.recovery)),
        crash.as_ref().map_or_else(nothing, |crash| grouped(crash.acknowledged)),
        crash.as_ref().map_or_else(nothing, |crash| grouped(crash.lost)),
    ]
}

/// Returns the placeholder for a figure that does not apply to a table in memory.
fn nothing() -> String {
    "-".to_owned()
}

fn line_of(row: &Row) -> Line {
    let Row { design, speed, crash } = row;
    let line = Line::new()
        .field("design", design.name)
        .field("values", design.values)
        .field("runs", &RUNS)
        .field("puts_per_second", &speed.puts.median.round())
        .field("batched_puts_per_second", &speed.batched_puts.median.round())
        .field("gets_per_second", &speed.gets.median.round())
        .field("bytes_per_key", &speed.bytes_per_key.median);
    let (Some(durability), Some(crash)) = (speed.durability, crash) else { return line };
    line.field("durability", &durability.to_string())
        .field("recovery_ms", &(crash.recovery.as_secs_f64() * 1e3))
        .field("acknowledged", &crash.acknowledged)
        .field("lost", &crash.lost)
        .field("faults", &crash.faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_no_winner() {
        use measure::Spread;
        let spread = |values: [f64; 3]| Spread::of(values.to_vec());
        let fast = spread([100.0, 130.0, 110.0]);
        assert_eq!((fast.least, fast.median, fast.most), (100.0, 110.0, 130.0));
        assert!(fast.is_above(spread([80.0, 90.0, 70.0])));
        assert!(!fast.is_above(spread([99.0, 90.0, 70.0])), "less apart than the margin");
        assert!(!fast.is_above(spread([80.0, 101.0, 70.0])), "runs overlap");
        assert!(Spread::once(10.0).is_above(Spread::once(4.0)));
        assert!(!Spread::once(10.0).is_above(Spread::once(5.0)));
    }

    #[test]
    fn scales_out_of_reach_are_refused() {
        assert!(scale("0.1").is_ok());
        assert!(scale("0").is_err() && scale("NaN").is_err() && scale("11").is_err());
    }
}
