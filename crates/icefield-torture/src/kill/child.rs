//! The process that is killed. It repeatedly opens or creates the table, writes to it and closes it.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use icefield::{Durability, Error};
use serde::{Deserialize, Serialize};

use super::ack::{Acks, MAX_THREADS, Stage};
use super::script;
use crate::call::{ask, ask_batch};
use crate::faulty::kill_at;
use crate::file_subject::{FileOptions, FileSubject};

/// The orders of a child, in one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub path: PathBuf,
    pub acks: PathBuf,
    pub seed: u64,
    pub threads: usize,
    /// Forces the flush instructions of persistent memory.
    pub flushes: bool,
    /// Determines when writes are acknowledged, if the medium is a disk.
    pub sync: Option<String>,
    /// The system call of the persistent layer at which the process dies.
    pub die_at_call: Option<u64>,
    /// Steps of each thread between opening and closing.
    pub steps: u64,
    /// Number of times that the child opens the table before it exits.
    pub sessions: u64,
}

/// Executes `orders` as the child.
///
/// # Errors
/// Returns an error for invalid orders or for an error of the table: no call may fail in a child that is still alive.
pub fn child<T: FileSubject>(orders: &str) -> Result<(), String> {
    let orders: Orders =
        serde_json::from_str(orders).map_err(|error| format!("orders: {error}"))?;
    if orders.threads > MAX_THREADS {
        return Err(format!("{} threads; at most {MAX_THREADS} are possible", orders.threads));
    }
    let acks = Acks::open(&orders.acks).map_err(|error| format!("acknowledgements: {error}"))?;
    let sync = orders.sync.as_deref().map(str::parse).transpose()?;
    let how = FileOptions {
        variant: orders.seed,
        durability: match sync {
            Some(_) => Durability::Disk,
            None if orders.flushes => Durability::PmemForced,
            None => Durability::Process,
        },
        sync: sync.unwrap_or_default(),
        faults: orders.die_at_call.map(kill_at),
        ..FileOptions::default()
    };
    for session in 0..orders.sessions {
        run_session::<T>(&orders, &acks, &how, session)
            .map_err(|error| format!("session {session}: {error}"))?;
    }
    Ok(())
}

fn run_session<T: FileSubject>(
    orders: &Orders,
    acks: &Acks,
    how: &FileOptions,
    session: u64,
) -> Result<(), Error> {
    let table = if orders.path.exists() {
        acks.set_stage(Stage::Opening);
        T::open_at(&orders.path, how.clone())?
    } else {
        acks.set_stage(Stage::Creating);
        T::create_at(&orders.path, how.clone())?
    };
    acks.set_stage(Stage::Working);
    let steps = session * orders.steps..(session + 1) * orders.steps;
    let write =
        |thread| steps.clone().try_for_each(|n| write(&table, orders.seed, thread, n, acks));
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..orders.threads).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
    })?;
    acks.set_stage(Stage::Closing);
    drop(table);
    acks.set_stage(Stage::Closed);
    Ok(())
}

fn panicked() -> Error {
    Error::Unsupported("a writing thread panicked".to_owned())
}

fn write<T: FileSubject>(
    table: &T,
    seed: u64,
    thread: usize,
    n: u64,
    acks: &Acks,
) -> Result<(), Error> {
    let step = script::step(seed, thread, n);
    // Release: a reader that sees the step's effect in the table also sees that the step had started. For a reader
    // after the thread's death, x86 and the page cache keep the order of the thread's stores.
    acks.begun(thread).store(n + 1, Ordering::Release);
    match step.batch {
        None => step.calls.iter().try_for_each(|&call| ask(table, call).map(drop))?,
        Some(kind) => drop(ask_batch(table, kind, &step.calls)?),
    }
    acks.done(thread).store(n + 1, Ordering::Release);
    Ok(())
}
