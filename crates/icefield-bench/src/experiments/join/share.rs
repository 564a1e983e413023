//! Memory of several processes that have the same index open, compared with one process: they map the same pages.
//!
//! Child processes open the index read-only, probe every key, which maps all its pages, and report that they are
//! ready. Then this process reads their proportional set sizes from the kernel, which divide each page by the
//! number of processes that map it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use icefield::JoinIndex;
use procfs::process::{MMapPath, MemoryMap, MemoryMaps, Process};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{BUILD_ROWS, built};
use crate::args::{Args, Batch, Medium};
use crate::experiments::growth::describe_space;
use crate::index::SparHt;
use crate::keys::KeySpace;
use crate::place::RemovedDir;
use crate::row::rounded;
use crate::session::{Placed, Session};
use crate::table::Place;
use crate::{Error, Outcome};

/// The hidden experiment that the child processes run.
pub(in crate::experiments) const CHILD: &str = "join-share-child";
/// Numbers of records without `--keys`.
const SIZES: [u64; 2] = [1_000_000, BUILD_ROWS];
const PROCESSES: [usize; 2] = [1, 8];
/// Keys that a child generates and probes at a time.
const ASKED: u64 = 1 << 14;
/// Printed by a child that has mapped all pages.
const READY: &str = "ready";

pub(in crate::experiments) fn run(session: &mut Session) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Pmem);
    if !matches!(medium, Medium::Process | Medium::Pmem | Medium::Disk) {
        return Err(Error::option("medium", "join-share needs files: process, pmem or disk"));
    }
    let sizes = match session.args.keys {
        Some(keys) => vec![keys],
        None => Vec::from(SIZES.map(|size| session.keys_or(size))),
    };
    for keys in sizes {
        one_size(session, medium, keys)?;
    }
    Ok(())
}

fn one_size(session: &mut Session, medium: Medium, keys: u64) -> Outcome {
    session.progress(&format!("join-share: building an index of {keys} pairs"));
    let rows = session.space.keys(0..keys);
    let how = (session.machine.cores(), Batch::Stream);
    let (placed, _) = built(session, &SparHt, medium, &rows, how)?;
    drop(rows);
    let mut row = session.row("join-share", &SparHt, medium);
    describe_space(&mut row, &*placed.table);
    row.keys = Some(keys);
    let Placed { table, place, _dir } = placed;
    drop(table);
    let Place::Dir { path, .. } = place else {
        return Err(Error::failed("the index is not in files"));
    };
    let _removed: RemovedDir = _dir;
    let mut alone = None;
    for processes in PROCESSES {
        session.progress(&format!("join-share: {processes} processes open {keys} pairs"));
        let shares = shares(&session.args, &path, processes, keys)?;
        let alone = *alone.get_or_insert(shares);
        let mut row = row.clone();
        row.threads = Some(1);
        row.extra("processes", processes);
        row.extra("pss_bytes", shares.whole);
        row.extra("index_pss_bytes", shares.index);
        row.extra("pss_ratio", ratio(shares.whole, alone.whole));
        row.extra("index_pss_ratio", ratio(shares.index, alone.index));
        session.put(row)?;
    }
    Ok(())
}

fn ratio(one: u64, other: u64) -> f64 {
    rounded(one as f64 / other.max(1) as f64)
}

/// The sums of the processes' proportional set sizes.
#[derive(Clone, Copy)]
struct Shares {
    /// Of all mappings, including programs, stacks and heaps.
    whole: u64,
    index: u64,
}

/// Starts `processes` processes that open the index, and reads their sizes while all of them run.
fn shares(args: &Args, path: &Path, processes: usize, keys: u64) -> Outcome<Shares> {
    let mut children = Children(Vec::new());
    for _ in 0..processes {
        children.0.push(start(args, path, keys)?);
    }
    for child in &mut children.0 {
        wait_until_ready(child)?;
    }
    let mut shares = Shares { whole: 0, index: 0 };
    for child in &children.0 {
        let process = Process::new(child.id() as i32)?;
        shares.whole += pss(&process.smaps_rollup()?.memory_map_rollup, None);
        shares.index += pss(&process.smaps()?, Some(path));
    }
    Ok(shares)
}

/// A guard: on drop, each child ends, because its standard input closes.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        for child in &mut self.0 {
            // A child that cannot be waited for has already ended.
            let _ = child.wait();
        }
    }
}

fn start(args: &Args, path: &Path, keys: u64) -> Outcome<Child> {
    let program = args.this_program()?;
    Command::new(&program[0])
        .args(&program[1..])
        .arg(CHILD)
        .args(["--keys", &keys.to_string(), "--seed", &args.seed.to_string()])
        .arg("--dir")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::file(Path::new(&program[0]), error))
}

fn wait_until_ready(child: &mut Child) -> Outcome {
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        // An unreadable line is not the expected word.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match line.trim() {
        READY => Ok(()),
        _ => Err(Error::failed("a process that was to open the index ended early")),
    }
}

/// Sums up the proportional set sizes in bytes of mappings: of all, or of files in a directory.
fn pss(maps: &MemoryMaps, within: Option<&Path>) -> u64 {
    let counts = |map: &&MemoryMap| match (&map.pathname, within) {
        (_, None) => true,
        (MMapPath::Path(file), Some(within)) => file.starts_with(within),
        _ => false,
    };
    maps.0.iter().filter(counts).filter_map(|map| map.extension.map.get("Pss")).sum()
}

/// The child: opens the index, probes every key, reports that it is ready, and waits for the end of its standard
/// input.
pub(in crate::experiments) fn child(args: &Args) -> Outcome {
    // A child whose parent died would never end.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::failed(format!("no signal when the parent ends: {error}")))?;
    let (Some(keys), Some(path)) = (args.keys, args.dir.as_ref()) else {
        return Err(Error::failed("join-share-child is started by join-share only"));
    };
    let index = JoinIndex::<u64>::open_read_only(path)?;
    index.set_threads(1);
    let space = KeySpace::new(args.seed);
    let mut found = 0;
    for first in (0..keys).step_by(ASKED as usize) {
        found += index.probe_count(&space.keys(first..(first + ASKED).min(keys)))?;
    }
    if found != keys {
        return Err(Error::failed(format!("{found} of {keys} keys were found")));
    }
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(crate::output::stdout_fault)?;
    // However the input ends, the parent no longer needs this process.
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}
