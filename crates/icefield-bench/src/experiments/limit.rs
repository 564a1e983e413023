//! The machine's own ceilings, on each kind of memory.

use crate::Outcome;
use crate::args::{Batch, Medium};
use crate::limit::{Arena, Loop, Pace, Pages};
use crate::machine::mops;
use crate::place::RemovedDir;
use crate::row::{Row, rounded};
use crate::session::Session;

/// The loops, each with the batch that it corresponds to.
const LOOPS: &[(Loop, Option<Batch>)] = &[
    (Loop::Chase, None),
    (Loop::Read(Pace::Single), Some(Batch::None)),
    (Loop::Read(Pace::Batch(8)), Some(Batch::Of(8))),
    (Loop::Read(Pace::Batch(16)), Some(Batch::Of(16))),
    (Loop::Read(Pace::Batch(32)), Some(Batch::Of(32))),
    (Loop::Read(Pace::Batch(64)), Some(Batch::Of(64))),
    (Loop::Read(Pace::Ring(16)), Some(Batch::Stream)),
    (Loop::Read(Pace::Ring(32)), Some(Batch::Stream)),
    (Loop::Read(Pace::Ring(64)), Some(Batch::Stream)),
    (Loop::Modify(Pace::Single), Some(Batch::None)),
    (Loop::Modify(Pace::Ring(64)), Some(Batch::Stream)),
    (Loop::Cas(Pace::Single), Some(Batch::None)),
    (Loop::Cas(Pace::Batch(32)), Some(Batch::Of(32))),
    (Loop::Cas(Pace::Batch(64)), Some(Batch::Of(64))),
    (Loop::Cas(Pace::Ring(64)), Some(Batch::Stream)),
    (Loop::Persist(1), Some(Batch::None)),
    (Loop::Persist(32), Some(Batch::Of(32))),
    (Loop::SequentialRead, None),
    (Loop::SequentialWrite, None),
];

struct Kind {
    pages: &'static str,
    medium: Medium,
    advice: Pages,
}

const KINDS: [Kind; 3] = [
    Kind { pages: "4 KiB", medium: Medium::Memory, advice: Pages::Small },
    Kind { pages: "2 MiB", medium: Medium::Memory, advice: Pages::Huge },
    Kind { pages: "as mapped", medium: Medium::Pmem, advice: Pages::AsMapped },
];

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.medium;
    for kind in KINDS.iter().filter(|kind| asked.is_none_or(|asked| asked == kind.medium)) {
        // 32 bytes per key: the footprint of a table of that many records.
        let bytes = session.keys_or(32_000_000) * 32;
        let (arena, _dir) = match kind.medium {
            Medium::Memory => (Arena::anonymous(bytes, kind.advice)?, RemovedDir(None)),
            medium => session.arena(medium, bytes, kind.advice)?,
        };
        arena.link_cycle(session.args.seed);
        for threads in session.threads() {
            measure(session, kind, &arena, threads)?;
        }
    }
    Ok(())
}

fn measure(session: &mut Session, kind: &Kind, arena: &Arena, threads: usize) -> Outcome {
    let usual = 4_000_000.min(arena.bytes() / 16);
    let ops = session.args.ops.unwrap_or(usual) as usize;
    let flushes = kind.medium == Medium::Pmem;
    let loops: Vec<_> = LOOPS.iter().filter(|(bare, _)| flushes || !bare.persists()).collect();
    let mut samples: Vec<Vec<f64>> = loops.iter().map(|_| Vec::new()).collect();
    for round in 0..session.repeat() {
        for ((bare, _), samples) in loops.iter().zip(&mut samples) {
            session.progress(&format!(
                "{} on pages {}, {threads} threads",
                bare.name(),
                kind.pages
            ));
            samples.push(mops(ops, session.timed_loop(*bare, arena, ops, threads, round as u64)));
        }
    }
    for ((bare, batch), mops) in loops.into_iter().zip(&samples) {
        let mut row =
            Row { experiment: "limit", table: "machine".to_owned(), op: "limit", ..Row::default() };
        (row.threads, row.ops, row.batch) = (Some(threads), Some(ops as u64), *batch);
        (row.medium, row.ceiling) = (Some(kind.medium.name()), Some(bare.name()));
        row.throughput(mops);
        row.extra("pages", kind.pages);
        row.extra("footprint_bytes", arena.bytes());
        if matches!(bare, Loop::SequentialRead | Loop::SequentialWrite) {
            row.extra("gb_per_s", row.mops.map(|mops| rounded(mops * 64.0 / 1e3)));
        }
        session.put(row)?;
    }
    Ok(())
}
