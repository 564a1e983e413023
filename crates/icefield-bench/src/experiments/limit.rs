//! The machine's own ceilings, on each kind of memory.

use crate::limit::{Arena, Loop, Pace, Pages};
use crate::prelude::*;

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

/// Kinds of memory: the name of the page size, the medium, and the pages to request from the kernel.
const KINDS: [(&str, Medium, Pages); 3] = [
    ("4 KiB", Medium::Memory, Pages::Small),
    ("2 MiB", Medium::Memory, Pages::Huge),
    ("as mapped", Medium::Pmem, Pages::AsMapped),
];

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.medium;
    for (pages, medium, advice) in KINDS {
        if asked.is_some_and(|asked| asked != medium) {
            continue;
        }
        // A table of that many records takes about 32 bytes per key.
        let bytes = session.keys_or(32_000_000) * 32;
        let (arena, _dir) = match medium {
            Medium::Memory => (Arena::anonymous(bytes, advice)?, RemovedDir(None)),
            medium => session.arena(medium, bytes, advice)?,
        };
        arena.link_cycle(session.args.seed);
        for threads in session.threads() {
            measure(session, (pages, medium), &arena, threads)?;
        }
    }
    Ok(())
}

fn measure(
    session: &mut Session,
    (pages, medium): (&str, Medium),
    arena: &Arena,
    threads: usize,
) -> Outcome {
    let ops = session.args.ops.unwrap_or(4_000_000.min(arena.bytes() / 16)) as usize;
    let flushes = medium == Medium::Pmem;
    let loops = LOOPS.iter().filter(|(bare, _)| flushes || !bare.persists());
    let row = |(bare, batch): &(Loop, Option<Batch>)| {
        let mut row = Row::new(session.experiment, "machine");
        (row.threads, row.ops, row.batch) = (Some(threads), Some(ops as u64), *batch);
        (row.medium, row.ceiling) = (Some(medium.name().to_owned()), Some(bare.name()));
        row.extra("pages", pages);
        row.extra("footprint_bytes", arena.bytes());
        (*bare, row)
    };
    let mut rows: Vec<_> = loops.map(row).collect();
    for round in 0..session.repeat() {
        for (bare, row) in &mut rows {
            let name = bare.name();
            session.progress(&format!("{name} on pages {pages}, {threads} threads"));
            let time = session.timed_loop(*bare, arena, ops, threads, round as u64);
            row.sample("mops", mops(ops, time));
        }
    }
    for (bare, mut row) in rows {
        if matches!(bare, Loop::SequentialRead | Loop::SequentialWrite) {
            let gigabytes = row.median("mops").map(|mops| rounded(mops * 64.0 / 1e3));
            row.extra("gb_per_s", gigabytes);
        }
        session.put(row)?;
    }
    Ok(())
}
