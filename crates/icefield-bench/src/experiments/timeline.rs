//! Gets and inserts over time while an index grows (DLHT Fig 8).
//!
//! Half of the threads insert new records, the other half read those present from the start. The table is loaded to
//! nine tenths of its resize point before the clock starts and then grows to one and a half times that point, so the
//! timeline covers the time before, during and after the transfer.
//!
//! Stalls of gets are measured in the thread's own processor time, because on a shared machine wall time includes
//! waiting for a processor. Even so, the kernel and the host can delay a thread, above all while another thread touches
//! fresh memory. An additional thread, the control, measures these delays: it only counts. It reads its clock as often
//! as readers do, so its longest round bounds the stalls that are not caused by the table.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use icefield::Result;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::prelude::*;
use crate::table_stats::is_moving;

const SLICES: usize = 50;

/// Number of inserts between two clock readings.
const INSERTS: usize = 1024;

/// The number of steps that the control counts between two clock readings. They take about a microsecond, as a batch of
/// gets does.
const COUNTED: u64 = 1024;

/// The share of the resize point that is loaded before the clock starts.
const LOADED: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Reads,
    Inserts,
    /// The control, which does not use the table.
    Counts,
}

impl Role {
    /// Returns the role of a thread: first the readers, then the inserting threads, then the control, which has the
    /// number `threads`. If no core is left for the control, it shares a core with a reader.
    fn of(thread: usize, threads: usize) -> Self {
        match thread {
            _ if thread < threads - threads / 2 => Self::Reads,
            _ if thread < threads => Self::Inserts,
            _ => Self::Counts,
        }
    }
}

/// A number of operations, the time after the start at which they ended, and whether records were moving then.
#[derive(Clone, Copy)]
struct Stamp {
    at: Duration,
    role: Role,
    ops: usize,
    moving: bool,
}

/// The measurements of one thread.
struct Seen {
    role: Role,
    stamps: Vec<Stamp>,
    tally: Tally,
    asked: Tally,
    longest: Duration,
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let mut designs = session.ours_on(Medium::Memory)?;
    // Keeps only the tables that report when their records move.
    designs.retain(|design| design.offers_hashes && !design.is_for_one_thread);
    // A run needs at least one reader and one writer.
    let mut settings = session.settings(&[Batch::Of(32)]);
    settings.iter_mut().for_each(|(threads, _)| *threads = (*threads).max(2));
    settings.dedup();
    for setting in settings {
        let rows = session.rotate(&designs, setting, |session, design, round, row| {
            let (placed, loaded, seen) = grow(session, design, setting, round)?;
            let [get, control] = [Role::Reads, Role::Counts].map(|role| longest_us(&seen, role));
            row.sample("longest_get_stall_us", get);
            row.sample("longest_control_stall_us", control);
            row.sample("get_to_control_stall", get / control.max(1e-3));
            let stamps: Vec<Stamp> = seen.into_iter().flat_map(|one| one.stamps).collect();
            let timeline = Timeline::of(&stamps);
            row.sample("mops", timeline.ops as f64 / timeline.length.as_secs_f64() / 1e6);
            for (name, role) in
                [("insert_rate_ratio", Role::Inserts), ("get_rate_ratio", Role::Reads)]
            {
                timeline.ratio(role).into_iter().for_each(|ratio| row.sample(name, ratio));
            }
            (row.keys, row.ops) = (Some(loaded), Some(timeline.ops as u64));
            row.dist = Some(session.args.dist.to_string());
            describe_space(row, &*placed);
            timeline.describe(row);
            Ok(())
        })?;
        session.put_all(rows)?;
    }
    Ok(())
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the longest stall of any thread of this role.
fn longest_us(seen: &[Seen], role: Role) -> f64 {
    let longest = seen.iter().filter(|one| one.role == role).map(|one| one.longest).max();
    longest.unwrap_or_default().as_nanos() as f64 / 1e3
}

/// Runs one round. Returns the table, the number of records at the start, and the measurements of each thread.
fn grow(
    session: &Session,
    design: DesignRef,
    (threads, batch): Setting,
    round: u64,
) -> Outcome<(Placed, u64, Vec<Seen>)> {
    // The table is sized for half of the records. The inserts add six tenths of its capacity, so the table grows during
    // the run.
    let sized = session.setup(session.keys(Medium::Memory).div_ceil(2));
    let placed = session.create(design, Medium::Memory, sized)?;
    let table = &*placed.table;
    let capacity = table.stats().capacity;
    let loaded = ((capacity as f64 * LOADED) as u64).max(1);
    session.load(&placed, 0..loaded)?;
    let new = session.space.keys(loaded..loaded + capacity * 6 / 10);
    let (dist, seed) = (session.args.dist, session.args.seed + round);
    let asked = session.space.draw(dist, loaded, session.ops(loaded) as usize, seed);
    session.progress(&format!("resize-timeline {}: {threads} threads", design.name));
    let writers = threads / 2;
    let readers = threads - writers;
    let writing = AtomicUsize::new(writers);
    let began = Instant::now();
    let (_, seen) = session.run(table, threads + 1, |thread| match Role::of(thread, threads) {
        Role::Reads => {
            let part = part(asked.len(), thread, readers);
            read(table, &asked[part], batch.size(), began, &writing)
        }
        Role::Inserts => {
            let seen = insert(table, &new[part(new.len(), thread - readers, writers)], began);
            // Also decremented after a failure, because readers wait until the count is zero.
            writing.fetch_sub(1, Relaxed);
            seen
        }
        Role::Counts => Ok(count(&writing)),
    });
    let seen = seen.into_iter().collect::<Result<Vec<Seen>>>()?;
    let (mut found, mut expected) = (Tally::default(), Tally::default());
    seen.iter().for_each(|one| {
        found.add(one.tally);
        expected.add(one.asked);
    });
    session.check(design, "gets and inserts while it grew", found, expected);
    for keys in [session.space.keys(0..loaded), new] {
        session.measured(&placed, Call::Get, &keys, (session.machine.cores(), Batch::Stream))?;
    }
    Ok((placed, loaded, seen))
}

fn insert(table: &dyn BenchTable, keys: &[u64], began: Instant) -> Result<Seen> {
    let mut seen = Seen::new(Role::Inserts, keys.len() / INSERTS + 1);
    for keys in keys.chunks(INSERTS) {
        seen.tally.add(table.run(Call::TryInsert, keys, Batch::Stream)?);
        seen.asked.add(Tally { hits: keys.len() as u64, sum: 0 });
        seen.stamp(began, keys.len(), is_moving(table) == Some(true));
    }
    Ok(seen)
}

/// Reads until no thread inserts any more.
fn read(
    table: &dyn BenchTable,
    keys: &[u64],
    size: usize,
    began: Instant,
    writing: &AtomicUsize,
) -> Result<Seen> {
    let mut seen = Seen::new(Role::Reads, 1 << 16);
    let batch = if size == 1 { Batch::None } else { Batch::Of(size) };
    // Reads at least one batch, even if all inserts are finished before this thread starts.
    for keys in keys.chunks(size).cycle() {
        let before = thread_time();
        let found = table.run(Call::Get, keys, batch)?;
        seen.longest = seen.longest.max(thread_time().saturating_sub(before));
        seen.tally.add(found);
        seen.asked.add(Call::Get.expected(keys));
        seen.stamp(began, keys.len(), false);
        if writing.load(Relaxed) == 0 {
            break;
        }
    }
    Ok(seen)
}

/// The control: counts until no thread inserts any more.
fn count(writing: &AtomicUsize) -> Seen {
    let mut seen = Seen::new(Role::Counts, 0);
    while writing.load(Relaxed) != 0 || seen.longest.is_zero() {
        let before = thread_time();
        (0..COUNTED).for_each(|number| {
            black_box(number);
        });
        seen.longest = seen.longest.max(thread_time().saturating_sub(before));
    }
    seen
}

impl Seen {
    fn new(role: Role, stamps: usize) -> Self {
        let (tally, asked) = (Tally::default(), Tally::default());
        Self { role, stamps: Vec::with_capacity(stamps), tally, asked, longest: Duration::ZERO }
    }

    fn stamp(&mut self, began: Instant, ops: usize, moving: bool) {
        let (at, role) = (began.elapsed(), self.role);
        match self.stamps.last_mut() {
            // Merges successive reads until a stamp has a thousand operations, which is precise enough.
            Some(last) if role == Role::Reads && last.ops < INSERTS => {
                last.ops += ops;
                last.at = at;
            }
            _ => self.stamps.push(Stamp { at, role, ops, moving }),
        }
    }
}

/// Throughput by slices of time.
struct Timeline {
    ops: usize,
    length: Duration,
    gets: Vec<usize>,
    inserts: Vec<usize>,
    /// The first and the last time at which records were moving.
    moving: Option<(Duration, Duration)>,
}

impl Timeline {
    fn of(stamps: &[Stamp]) -> Self {
        let length = stamps.iter().map(|stamp| stamp.at).max().unwrap_or_default();
        let mut timeline = Self {
            ops: stamps.iter().map(|stamp| stamp.ops).sum(),
            length,
            gets: vec![0; SLICES],
            inserts: vec![0; SLICES],
            moving: None,
        };
        for stamp in stamps {
            let slice = timeline.slice(stamp.at);
            match stamp.role {
                Role::Reads => timeline.gets[slice] += stamp.ops,
                Role::Inserts => timeline.inserts[slice] += stamp.ops,
                Role::Counts => {}
            }
            if stamp.moving {
                let (first, last) = timeline.moving.unwrap_or((stamp.at, stamp.at));
                timeline.moving = Some((first.min(stamp.at), last.max(stamp.at)));
            }
        }
        timeline
    }

    fn slice(&self, at: Duration) -> usize {
        let share = at.as_secs_f64() / self.length.as_secs_f64().max(1e-9);
        ((share * SLICES as f64) as usize).min(SLICES - 1)
    }

    /// Returns the mean rate while records moved, divided by the mean rate before; `None` when either period is too
    /// short.
    fn ratio(&self, role: Role) -> Option<f64> {
        let (first, last) = self.moving?;
        let (first, last) = (self.slice(first), self.slice(last));
        let counts = if role == Role::Reads { &self.gets } else { &self.inserts };
        let mean = |slices: &[usize]| {
            (!slices.is_empty()).then(|| slices.iter().sum::<usize>() as f64 / slices.len() as f64)
        };
        // Skips the first slice, in which the threads start.
        let before = mean(counts.get(1..first)?)?;
        let during = mean(&counts[first..=last])?;
        (before > 0.0).then_some(during / before)
    }

    fn describe(&self, row: &mut Row) {
        let slice_ms = self.length.as_secs_f64() * 1e3 / SLICES as f64;
        let mops = |count: usize| rounded(count as f64 / slice_ms.max(1e-6) / 1e3);
        let points: Vec<_> = (0..SLICES)
            .map(|i| {
                json!({
                    "ms": rounded(slice_ms * i as f64),
                    "get_mops": mops(self.gets[i]),
                    "insert_mops": mops(self.inserts[i]),
                })
            })
            .collect();
        row.extra("timeline", points);
        if let Some((first, last)) = self.moving {
            let times = [("moving_from_ms", first), ("moving_until_ms", last)];
            row.extras(times.map(|(name, time)| (name, rounded(time.as_secs_f64() * 1e3))));
        }
    }
}
