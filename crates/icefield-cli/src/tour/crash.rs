//! The core of the tour: a process that loads a table is killed, and every acknowledged record must be present
//! afterwards.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use icefield::Data;

use super::child::{CHILD, ChildArgs};
use super::design::{Crash, Design, Shown};
use super::measure::{remove, step};
use super::orders::{self, Order, Stored};
use super::stage::Stage;
use icefield_console::failure::Failure;
use icefield_console::progress;

/// The child's work: puts the orders one by one and acknowledges each.
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
    // Waits, so that the parent can still kill a process that has the table open. If the parent is dead, the child ends
    // after this time.
    thread::sleep(PATIENCE);
    Ok(())
}

/// The longest time that the parent and the child wait for each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of orders between two updates of the progress bar, with checks for Ctrl-C.
const STEP: usize = 1024;

/// Kills a child halfway, reopens its table, verifies it, and loads the remaining orders. `index` is the table's number
/// in the tour.
pub fn crash<T: Shown>(stage: &Stage<'_>, design: &Design, index: usize) -> Result<Crash, Failure>
where
    T::Value: Stored,
{
    let path = stage.dir.join("crashed.ice");
    let acknowledged = run_and_kill(stage, design, index, &path)?;

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
    // The order whose put was in progress may be present or absent; later orders must be absent.
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

/// Loads a table in a child process and kills it. Returns the number of orders that it acknowledged.
fn run_and_kill(
    stage: &Stage<'_>,
    design: &Design,
    index: usize,
    table: &Path,
) -> Result<u64, Failure> {
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
    let mut child = Killed(spawn(stage, index, table, &path)?);
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
    index: usize,
    table: &Path,
    acknowledged: &Path,
) -> Result<Child, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::io(Path::new("icefield"), &error))?;
    Command::new(&program)
        .arg(CHILD)
        .args(["--index", &index.to_string()])
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

/// A child process that is killed when this value is dropped.
struct Killed(Child);

impl Killed {
    /// Kills the child with SIGKILL and waits until it has ended.
    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // An error means that the child is already dead.
        let _ = self.kill();
    }
}

/// Returns the number of `orders` that are absent or wrong.
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
