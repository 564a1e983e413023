//! A lock manager over a set (DLHT Fig 17). A successful insert takes a lock; the removal of the key releases it.
//!
//! Each transaction requests a batch of locks in the order of their keys and releases those that were granted. A
//! request for a lock that is held fails at once. Afterwards, threads contend for a small number of locks and record
//! the owner of each, to check that no lock is ever held twice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use icefield::DlhtSet;
use icefield_torture::workload::Stream;

use crate::adapter::Shared;
use crate::map::Keys;
use crate::prelude::*;

/// The default number of locks in a transaction. By default, transactions of a single lock are measured too.
const USUAL: usize = 16;

/// The number of contended locks in the check, and the number of transactions of each thread in it.
const CROWD: u64 = 64;
const FIGHTS: usize = 2_000;

pub(super) fn run(session: &mut Session) -> Outcome {
    let design = session.our("dlht-set")?;
    let keys = session.keys(Medium::Memory);
    session.progress("lock-manager: touching memory");
    let set = Shared(Keys(DlhtSet::with_capacity(keys as usize)));
    session.touch(&set, &session.space.keys(0..keys))?;
    let Shared(Keys(locks)) = &set;
    for (threads, batch) in session.settings(&[Batch::None, Batch::Of(USUAL)]) {
        let (mut granted, mut ops) = (0, 0);
        let mut row = session.row(design, Medium::Memory);
        for round in 0..session.repeat() as u64 {
            let wanted = wanted(session, keys, batch, round);
            session.progress(&format!("lock-manager: {threads} threads, batch {batch}"));
            let (time, parts) = session.machine.run(threads, |thread| {
                let wanted = &wanted[part(wanted.len(), thread, threads)];
                transactions(locks, wanted, batch, |_, _| ())
            });
            let got: u64 = parts.iter().sum();
            (ops, granted) = (ops + wanted.len() as u64, granted + got);
            // Operations are all requests, plus one release for each granted lock.
            row.sample("mops", mops(wanted.len() + got as usize, time));
        }
        if !locks.is_empty() {
            session.blame(design, "locks are still held");
        }
        if !is_exclusive(session, threads.max(2), batch) {
            session.blame(design, "a lock had two owners");
        }
        row.at(threads, batch, keys, ops);
        row.dist = Some(session.args.dist.to_string());
        row.extra("granted", rounded(granted as f64 / ops as f64));
        describe_space(&mut row, &set);
        session.put(row)?;
    }
    Ok(())
}

/// Returns the locks of the transactions; those of each transaction are sorted.
fn wanted(session: &Session, keys: u64, batch: Batch, round: u64) -> Vec<u64> {
    let seed = session.args.seed + round;
    let count = session.ops(keys) as usize;
    let mut wanted = session.space.draw(session.args.dist, keys, count, seed);
    wanted.chunks_mut(batch.size()).for_each(<[u64]>::sort_unstable);
    wanted
}

/// Takes and releases the locks of all transactions. Returns the number of granted locks. Calls `note` for each lock
/// that was just taken (`true`) or is about to be released (`false`).
fn transactions(
    locks: &DlhtSet<u64>,
    wanted: &[u64],
    batch: Batch,
    note: impl Fn(u64, bool),
) -> u64 {
    let mut granted = 0;
    if batch == Batch::None {
        for &key in wanted {
            if locks.insert(key) {
                note(key, true);
                granted += 1;
                note(key, false);
                locks.remove(key);
            }
        }
        return granted;
    }
    let (mut got, mut held) = (vec![false; batch.size()], Vec::with_capacity(batch.size()));
    for wanted in wanted.chunks(batch.size()) {
        let got = &mut got[..wanted.len()];
        locks.insert_batch(wanted, got);
        held.clear();
        held.extend(wanted.iter().zip(&*got).filter(|(_, got)| **got).map(|(key, _)| *key));
        held.iter().for_each(|key| note(*key, true));
        granted += held.len() as u64;
        held.iter().for_each(|key| note(*key, false));
        locks.remove_batch(&held, &mut got[..held.len()]);
    }
    granted
}

/// Returns whether no lock was ever granted while another thread held it.
fn is_exclusive(session: &Session, threads: usize, batch: Batch) -> bool {
    let locks = DlhtSet::new();
    let owners: Vec<AtomicU32> = (0..CROWD).map(|_| AtomicU32::new(0)).collect();
    let faults = AtomicU64::new(0);
    let (dist, seed) = (session.args.dist, session.args.seed);
    session.machine.run(threads, |thread| {
        let me = thread as u32 + 1;
        let mut stream = Stream::new(dist, CROWD, seed + thread as u64);
        let mut wanted: Vec<u64> =
            (0..FIGHTS * batch.size().min(8)).map(|_| stream.draw()).collect();
        wanted.chunks_mut(batch.size()).for_each(<[u64]>::sort_unstable);
        transactions(&locks, &wanted, batch, |key, taken| {
            let (before, after) = if taken { (0, me) } else { (me, 0) };
            // Relaxed: if the locks exclude other threads, they also order these accesses; if not, this check detects
            // it.
            if owners[key as usize].swap(after, Relaxed) != before {
                faults.fetch_add(1, Relaxed);
            }
        });
    });
    faults.into_inner() == 0 && locks.is_empty()
}
