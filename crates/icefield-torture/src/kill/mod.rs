//! A child process writes to a table, acknowledges its writes in a shared file, and is killed: at a random moment, or
//! at a system call of the persistent layer, also while it creates, grows, recovers and closes the table. The parent
//! reopens the table and checks that every acknowledged write is present.
//!
//! The child is the same program, started again with its orders. The caller of [`scenario`] provides the command, and
//! the new process calls [`child`].

pub(crate) mod ack;
mod child;
mod script;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use icefield::{Data, SyncMode};

use crate::failure::Failure;
use crate::file_subject::{FileOptions, FileSubject};
use crate::reference::Reference;
use crate::rng::Rng;
use crate::subject::{FOREIGN, Sample};
use ack::{Acks, Stage};
use child::Orders;
use script::Expected;

pub use child::child;

/// The name of the scenario.
pub const NAME: &str = "kill";
/// The environment variable that passes a child its orders in tests.
pub const ORDERS_VARIABLE: &str = "ICEFIELD_KILL_ORDERS";
/// Number of rounds on one table before it is created anew.
const ROUNDS_PER_TABLE: u64 = 8;
/// Writing threads of a child.
const THREADS: usize = 2;
/// Time after which a child that is still alive is reported as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which a child is killed even if the parent has not seen it in the wanted stage. It allows several
/// sessions, because a short stage may pass more than once before the parent sees it.
const STAGE_PATIENCE: Duration = Duration::from_secs(2);

/// Results of rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Children started.
    pub rounds: u64,
    /// Children that SIGKILL ended. The others exited before.
    pub killed: u64,
    /// Children that died at a chosen system call.
    pub killed_at_call: u64,
    /// Operations that children had acknowledged; all were found.
    pub acked: u64,
    /// Number of deaths in each stage of a child.
    pub stages: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Adds the results of other rounds.
    pub fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.killed += other.killed;
        self.killed_at_call += other.killed_at_call;
        self.acked += other.acked;
        for (stage, deaths) in other.stages {
            *self.stages.entry(stage).or_default() += deaths;
        }
    }

    /// Checks that the rounds killed children in all stages of a table's life.
    ///
    /// # Errors
    /// Returns an error if no child died, if no operation was acknowledged, or if a hundred rounds missed a stage of
    /// a table's life.
    pub fn meaningful(&self, seed: u64) -> Result<(), Failure> {
        self.meaningful_in(seed, &["creating", "opening", "working", "closing"])
    }

    /// Makes the checks of [`Counts::meaningful`], but requires deaths only in `stages`, for tables whose other stages
    /// are too short.
    ///
    /// # Errors
    /// Returns the errors of [`Counts::meaningful`].
    pub fn meaningful_in(&self, seed: u64, stages: &[&str]) -> Result<(), Failure> {
        let missed = |stage: &&&str| self.rounds >= 100 && !self.stages.contains_key(**stage);
        if self.killed == 0 || self.acked == 0 {
            return Err(Failure::new(
                NAME,
                seed,
                format!("no child was killed, or no operation acknowledged: {self:?}"),
            ));
        }
        match stages.iter().find(missed) {
            Some(stage) => Err(Failure::new(
                NAME,
                seed,
                format!("no child was killed while {stage}: {self:?}"),
            )),
            None => Ok(()),
        }
    }
}

pub(crate) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Starting => "starting",
        Stage::Creating => "creating",
        Stage::Opening => "opening",
        Stage::Working => "working",
        Stage::Closing => "closing",
        Stage::Closed => "closed",
    }
}

/// Runs rounds on one table in `place`, an empty or absent directory. `command` starts the child with its orders.
///
/// # Errors
/// Returns a lost or invented write, a table that does not open or is not clean, or a child that failed before it was
/// killed.
pub fn scenario<T: FileSubject>(
    seed: u64,
    rounds: u64,
    place: &Path,
    command: &dyn Fn(&str) -> Command,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for table in 0..rounds.div_ceil(ROUNDS_PER_TABLE) {
        let table_seed = seed.wrapping_add(table);
        let rounds = ROUNDS_PER_TABLE.min(rounds - table * ROUNDS_PER_TABLE);
        let done = one_table::<T>(table_seed, rounds, place, command).map_err(|what| {
            Failure::new(NAME, table_seed, format!("{what} (after {})", summary(&counts)))
        })?;
        counts.add(done);
    }
    Ok(counts)
}

fn summary(counts: &Counts) -> String {
    format!("{} rounds, {} acknowledged operations", counts.rounds, counts.acked)
}

fn one_table<T: FileSubject>(
    seed: u64,
    rounds: u64,
    place: &Path,
    command: &dyn Fn(&str) -> Command,
) -> Result<Counts, String> {
    let io = |error: std::io::Error| format!("{}: {error}", place.display());
    if place.exists() {
        std::fs::remove_dir_all(place).map_err(io)?;
    }
    std::fs::create_dir_all(place).map_err(io)?;
    let mut life = Life {
        path: place.join("table"),
        acks: place.join("acks"),
        state: Reference::new(),
        rng: Rng::fork(seed, 3),
        counts: Counts::default(),
    };
    for round in 0..rounds {
        life.round::<T>(seed.wrapping_mul(ROUNDS_PER_TABLE).wrapping_add(round), command)
            .map_err(|what| format!("round {round}: {what}"))?;
    }
    std::fs::remove_dir_all(place).map_err(io)?;
    Ok(life.counts)
}

/// A table and its expected contents.
struct Life {
    path: PathBuf,
    acks: PathBuf,
    state: Reference,
    rng: Rng,
    counts: Counts,
}

impl Life {
    fn round<T: FileSubject>(
        &mut self,
        seed: u64,
        command: &dyn Fn(&str) -> Command,
    ) -> Result<(), String> {
        let acks =
            Acks::create(&self.acks).map_err(|error| format!("acknowledgements: {error}"))?;
        let orders = self.orders(seed, T::DISKS);
        let text = serde_json::to_string(&orders).map_err(|error| format!("orders: {error}"))?;
        let mut child = spawn(command(&text))?;
        let status = match orders.die_at_call {
            Some(_) => await_end(&mut child)?,
            None => self.kill_at_random(&mut child, &acks)?,
        };
        self.count_death(status, &orders, &acks, &mut child)?;
        let progress: Vec<_> = (0..THREADS)
            .map(|thread| {
                (
                    acks.done(thread).load(Ordering::Acquire),
                    acks.begun(thread).load(Ordering::Acquire),
                )
            })
            .collect();
        let expected = Expected::after(&self.state, seed, &progress);
        self.counts.acked += expected.acknowledged;
        self.verify::<T>(&expected)
    }

    fn orders(&mut self, seed: u64, disks: bool) -> Orders {
        let die_at_call = self.rng.one_in(3).then(|| {
            // The first calls belong to creating and opening; later ones grow and close the table.
            let most = *self.rng.pick(&[40, 150, 600]);
            1 + self.rng.below(most)
        });
        Orders {
            path: self.path.clone(),
            acks: self.acks.clone(),
            seed,
            threads: THREADS,
            flushes: self.rng.one_in(4),
            // The page cache survives the process, so no acknowledged write is lost in any mode.
            sync: (disks && self.rng.one_in(3)).then(|| {
                let modes =
                    [SyncMode::Always, SyncMode::Every(0), SyncMode::Every(3), SyncMode::Never];
                self.rng.pick(&modes).to_string()
            }),
            die_at_call,
            steps: *self.rng.pick(&[10, 60, 400]),
            sessions: 60,
        }
    }

    /// Waits until the child has reached a random stage, then for a random time, mostly a short one, and kills it.
    fn kill_at_random(&mut self, child: &mut Child, acks: &Acks) -> Result<ExitStatus, String> {
        let nothing_yet = !self.path.exists();
        let (stage, longest): (_, &[u64]) = match self.rng.below(8) {
            0 | 4..8 if nothing_yet => (Stage::Creating, &[100, 1_000]),
            1 => (Stage::Opening, &[100, 1_000]),
            2 | 3 => (Stage::Closing, &[20, 200]),
            _ => (Stage::Working, &[300, 3_000, 30_000]),
        };
        let started = Instant::now();
        while acks.stage() != stage && started.elapsed() < STAGE_PATIENCE {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            std::thread::yield_now();
        }
        let longest = *self.rng.pick(longest);
        let moment = Instant::now() + Duration::from_micros(self.rng.below(longest));
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())
    }

    fn count_death(
        &mut self,
        status: ExitStatus,
        orders: &Orders,
        acks: &Acks,
        child: &mut Child,
    ) -> Result<(), String> {
        self.counts.rounds += 1;
        if status.success() {
            return Ok(());
        }
        if std::os::unix::process::ExitStatusExt::signal(&status) != Some(9) {
            return Err(format!("the child failed ({status}): {}", last_words(child)));
        }
        self.counts.killed += 1;
        self.counts.killed_at_call += u64::from(orders.die_at_call.is_some());
        *self.counts.stages.entry(stage_name(acks.stage())).or_default() += 1;
        Ok(())
    }

    /// Reads the table, which is opened read-only as the child left it. Every second time, on average, the parent then
    /// recovers the table; otherwise the next child opens the unrecovered table.
    fn verify<T: FileSubject>(&mut self, expected: &Expected) -> Result<(), String> {
        if !self.path.exists() {
            return compare(&BTreeMap::new(), expected)
                .map_err(|what| format!("there is no table: {what}"));
        }
        let open = |table: icefield::Result<T>, how: &str| {
            table.map_err(|error| format!("{how}: {error}"))
        };
        let seen = contents(&open(T::open_to_read(&self.path), "open read-only")?, expected)?;
        compare(&seen, expected)?;
        if self.rng.one_in(2) {
            let again =
                contents(&open(T::open_at(&self.path, FileOptions::default()), "open")?, expected)?;
            if again != seen {
                return Err(
                    "opening for writing shows other records than opening read-only".to_owned()
                );
            }
        }
        self.state = Reference::new();
        seen.iter().for_each(|(&key, &value)| self.state.set(key, Some(value)));
        Ok(())
    }
}

/// Returns every record. A scan and single reads must agree, and the table's check must be clean.
fn contents<T: FileSubject>(table: &T, expected: &Expected) -> Result<BTreeMap<u64, u64>, String> {
    let error = |error: icefield::Error| format!("reading: {error}");
    let mut seen = BTreeMap::new();
    let mut twice = None;
    table
        .for_each(|key, value| {
            let key = T::Key::number(key).unwrap_or(FOREIGN);
            if seen.insert(key, T::Value::number(value).unwrap_or(FOREIGN)).is_some() {
                twice = Some(key);
            }
            std::ops::ControlFlow::Continue(())
        })
        .map_err(error)?;
    if let Some(key) = twice {
        return Err(format!("a scan shows key {key:#x} twice"));
    }
    for &key in expected.allowed.keys() {
        let owned = T::Key::sample(key);
        let found = table.get(T::Key::arg(&owned)).map_err(error)?;
        let found = found.map(|value| T::Value::number(&value).unwrap_or(FOREIGN));
        if found != seen.get(&key).copied() {
            return Err(format!(
                "key {key:#x}: a read finds {found:?}, a scan {:?}",
                seen.get(&key)
            ));
        }
    }
    let report = table.check().map_err(error)?;
    if !report.is_clean() || report.records != seen.len() as u64 {
        return Err(format!("check: {report:?} with {} records seen", seen.len()));
    }
    Ok(seen)
}

fn compare(seen: &BTreeMap<u64, u64>, expected: &Expected) -> Result<(), String> {
    for (key, allowed) in &expected.allowed {
        let found = seen.get(key).copied();
        if !allowed.contains(&found) {
            return Err(format!("key {key:#x} holds {found:?} instead of one of {allowed:?}"));
        }
    }
    match seen.keys().find(|key| !expected.allowed.contains_key(key)) {
        Some(key) => Err(format!("key {key:#x} was never written")),
        None => Ok(()),
    }
}

fn spawn(mut command: Command) -> Result<Child, String> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("starting the child: {error}"))
}

/// Waits for a child that kills itself at a system call, or exits before it.
fn await_end(child: &mut Child) -> Result<ExitStatus, String> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().map_err(|error| error.to_string())?;
    child.wait().map_err(|error| error.to_string())?;
    Err(format!("the child hangs: {}", last_words(child)))
}

/// Returns the child's output on standard error.
fn last_words(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        // The report is useful without this output, so a read error is ignored.
        let _ = stderr.read_to_string(&mut text);
    }
    text.trim().to_owned()
}
