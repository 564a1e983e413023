//! Memory of several processes that have the same index open, compared with that of one. All of them map the same
//! pages.
//!
//! Child processes open the index read-only and probe every key, which maps all its pages. When they report that they
//! are ready, this process reads their proportional set sizes from the kernel. These sizes divide each page by the
//! number of processes that map it.

use std::io::Read;
use std::path::Path;
use std::process::Child;

use icefield::JoinIndex;
use procfs::process::{MMapPath, MemoryMap, MemoryMaps, Process};

use super::{BUILD_ROWS, built};
use crate::experiments::child;
use crate::index::JOIN;
use crate::prelude::*;

/// The hidden experiment that the child processes run.
pub(in crate::experiments) const CHILD: &str = "join-share-child";
/// Numbers of records without `--keys`.
const SIZES: [u64; 2] = [1_000_000, BUILD_ROWS];
const PROCESSES: [usize; 2] = [1, 8];
/// Number of keys that a child generates and probes at a time.
const ASKED: u64 = 1 << 14;

pub(in crate::experiments) fn run(session: &mut Session) -> Outcome {
    let (medium, _) = session.medium_of_files()?;
    let sizes = match session.args.keys {
        Some(keys) => vec![keys],
        None => Vec::from(SIZES.map(|size| session.keys_or(size))),
    };
    sizes.into_iter().try_for_each(|keys| one_size(session, medium, keys))
}

fn one_size(session: &mut Session, medium: Medium, keys: u64) -> Outcome {
    session.progress(&format!("join-share: building an index of {keys} pairs"));
    let rows = session.space.keys(0..keys);
    let how = (session.machine.cores(), Batch::Stream);
    let (placed, _) = built(session, &JOIN, medium, &rows, how)?;
    drop(rows);
    let mut row = session.row(&JOIN, medium);
    describe_space(&mut row, &*placed);
    (row.keys, row.threads) = (Some(keys), Some(1));
    let Placed { table, place, dir: _dir, .. } = placed;
    drop(table);
    let Place::Dir { path, .. } = place else {
        return Err(Error::failed("the index is not in files"));
    };
    let mut alone = None;
    for processes in PROCESSES {
        session.progress(&format!("join-share: {processes} processes open {keys} pairs"));
        let shares = shares(&session.args, &path, processes, keys)?;
        let alone = *alone.get_or_insert(shares);
        let mut row = row.clone();
        row.extra("processes", processes);
        row.extras([("pss_bytes", shares.whole), ("index_pss_bytes", shares.index)]);
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
        children.0.push(child::start(args, CHILD, path, keys, &[])?);
    }
    children.0.iter_mut().try_for_each(child::wait_until_ready)?;
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
    child::end_with_parent()?;
    let (Some(keys), Some(path)) = (args.keys, args.dir.as_ref()) else {
        return Err(Error::failed("join-share-child: only join-share starts it; run join-share"));
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
    child::report_ready()?;
    // However the input ends, the parent no longer needs this process.
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}
