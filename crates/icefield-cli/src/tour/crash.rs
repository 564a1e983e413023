//! The heart of the tour: a process that loads a table is killed, and everything it acknowledged must be there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use icefield::Data;

use super::Stage;
use super::designs::{Design, Shown, designs};
use super::measure::{remove, step};
use super::orders::{self, Order, Stored};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::progress;

/// The hidden subcommand.
pub const CHILD: &str = "tour-child";

/// Loads orders until it is killed (a part of `tour`)
#[derive(clap::Args, Debug)]
pub struct ChildArgs {
    /// Which of the tour's tables
    #[arg(long)]
    index: usize,
    /// The table to make
    #[arg(long)]
    table: PathBuf,
    /// The orders
    #[arg(long)]
    orders: PathBuf,
    /// Where to write how many orders are durable, after each
    #[arg(long)]
    acknowledged: PathBuf,
}

/// What the crash did.
pub struct Crash {
    /// Orders that the process had reported as stored when it was killed.
    pub acknowledged: u64,
    /// How many of them were missing or wrong afterwards.
    pub lost: u64,
    /// From the beginning of `open` to the first answer.
    pub recovery: Duration,
    /// Whatever else was wrong.
    pub faults: Vec<String>,
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

/// The child's work: puts order after order and acknowledges each.
pub fn load<T: Shown>(args: &ChildArgs) -> Result<(), Failure>
where
    T::Value: Stored,
{
    let orders = orders::read(&args.orders)?;
    let io = |error: io::Error| Failure::io(&args.acknowledged, &error);
    let acknowledged = File::options().write(true).open(&args.acknowledged).map_err(io)?;
    let table = T::create(&args.table)?;
    for (order, count) in orders.iter().zip(1_u64..) {
        table.put(order.key, T::Value::of(order))?;
        acknowledged.write_all_at(&count.to_le_bytes(), 0).map_err(io)?;
    }
    // Should the kill come late, it still finds an open table; should the parent be dead, we are not for ever.
    thread::sleep(PATIENCE);
    Ok(())
}

/// How long parent and child wait for each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// Orders between two looks at the bar and Ctrl-C.
const STEP: usize = 1024;

/// Kills a child at half of its work, reopens its table, verifies, finishes the work.
pub fn crash<T: Shown>(stage: &Stage<'_>, design: &Design) -> Result<Crash, Failure>
where
    T::Value: Stored,
{
    let path = stage.dir.join("crashed.ice");
    let acknowledged = run_and_kill(stage, design, &path)?;

    let begun = Instant::now();
    let table = T::open(&path)?;
    let first = stage.orders.first().map(|order| table.contains(order.key)).transpose()?;
    let recovery = begun.elapsed();
    let mut faults = Vec::new();
    if first == Some(false) {
        faults.push("the first order is absent".to_owned());
    }

    let stored = usize::try_from(acknowledged).unwrap_or(usize::MAX).min(stage.orders.len());
    let (before, after) = stage.orders.split_at(stored);
    let lost = missing(stage, design, &table, before)?;
    // The order that was on its way may be there or not; nothing beyond it may.
    let found = table.len()?;
    if !(acknowledged..=acknowledged + 1).contains(&found) {
        faults.push(format!("{found} orders after the crash, {acknowledged} acknowledged"));
    }
    faults.extend(table.check()?.faults);

    finish(stage, design, &table, after)?;
    let missing = missing(stage, design, &table, stage.orders)?;
    if missing > lost {
        faults.push(format!("{} orders are missing at the end", missing - lost));
    }
    drop(table);
    remove(&path)?;
    Ok(Crash { acknowledged, lost, recovery, faults })
}

/// Loads in a child, kills it, and gives the number of orders that it acknowledged.
fn run_and_kill(stage: &Stage<'_>, design: &Design, table: &Path) -> Result<u64, Failure> {
    let path = stage.dir.join("acknowledged");
    let io = |error: io::Error| Failure::io(&path, &error);
    std::fs::write(&path, 0_u64.to_le_bytes()).map_err(io)?;
    let counter = File::open(&path).map_err(io)?;
    let count = || {
        let mut bytes = [0; 8];
        counter.read_exact_at(&mut bytes, 0).map(|()| u64::from_le_bytes(bytes)).map_err(io)
    };

    let title = format!("{} ({}): loading, to be killed", design.name, design.values);
    let bar = progress::over_records(&title, stage.orders.len() as u64);
    let mut child = Killed(spawn(stage, design, table, &path)?);
    let (half, begun) = (stage.orders.len() as u64 / 2, Instant::now());
    while count()? < half {
        stage.go_on()?;
        if let Some(status) = child.0.try_wait().map_err(io)? {
            return Err(Failure::Problem(format!(
                "{}: the loading process ended early: {status}",
                design.name
            )));
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Problem(format!("{}: the loading process is stuck", design.name)));
        }
        bar.set_position(count()?);
        thread::sleep(Duration::from_micros(200));
    }
    child.kill().map_err(io)?;
    bar.finish_and_clear();
    count()
}

fn spawn(
    stage: &Stage<'_>,
    design: &Design,
    table: &Path,
    acknowledged: &Path,
) -> Result<Child, Failure> {
    let index = designs()
        .iter()
        .position(|other| (other.name, other.values) == (design.name, design.values));
    let program =
        std::env::current_exe().map_err(|error| Failure::io(Path::new("icefield"), &error))?;
    Command::new(&program)
        .arg(CHILD)
        .args(["--index", &index.unwrap_or_default().to_string()])
        .arg("--table")
        .arg(table)
        .arg("--orders")
        .arg(stage.file)
        .arg("--acknowledged")
        .arg(acknowledged)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| Failure::io(&program, &error))
}

/// A child that does not outlive this value.
struct Killed(Child);

impl Killed {
    /// Kills by SIGKILL, and returns when the child is gone.
    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be dead already, and that is all we want.
        let _ = self.kill();
    }
}

/// How many of `orders` are absent or wrong.
fn missing<T: Shown>(
    stage: &Stage<'_>,
    design: &Design,
    table: &T,
    orders: &[Order],
) -> Result<u64, Failure>
where
    T::Value: Stored,
{
    let bar = progress::over_records(
        &format!("{} ({}): verifying", design.name, design.values),
        orders.len() as u64,
    );
    let mut missing = 0;
    for orders in orders.chunks(STEP) {
        for order in orders {
            missing += u64::from(
                table.get(order.key)? != T::Value::own(T::Value::raw(T::Value::of(order))),
            );
        }
        step(stage, &bar, orders.len())?;
    }
    bar.finish_and_clear();
    Ok(missing)
}

fn finish<T: Shown>(
    stage: &Stage<'_>,
    design: &Design,
    table: &T,
    orders: &[Order],
) -> Result<(), Failure>
where
    T::Value: Stored,
{
    let bar = progress::over_records(
        &format!("{} ({}): finishing", design.name, design.values),
        orders.len() as u64,
    );
    for orders in orders.chunks(STEP) {
        for order in orders {
            table.put(order.key, T::Value::of(order))?;
        }
        step(stage, &bar, orders.len())?;
    }
    bar.finish_and_clear();
    Ok(())
}
