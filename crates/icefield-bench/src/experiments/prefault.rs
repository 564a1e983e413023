//! The cost of page faults in an insert (Dash Fig 15): into a table that grows and touches new pages, and into one
//! of the final size with all pages present; with small pages and with huge ones.

use rustix::thread::disable_transparent_huge_pages;

use super::growth::describe_space;
use crate::args::{Batch, Medium};
use crate::machine::{mops, part};
use crate::row::{Row, rounded};
use crate::session::Session;
use crate::table::{Call, Design};
use crate::{Error, Outcome};

/// Turns that make up one measurement.
const TURNS: usize = 16;

pub(super) fn run(session: &mut Session) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Memory);
    let keys = session.keys_or(4_000_000);
    let pages: &[&str] =
        if medium == Medium::Memory { &["4 KiB", "2 MiB"] } else { &["as mapped"] };
    for design in session.ours_on(medium)? {
        for threads in session.threads() {
            for batch in session.batches(&[Batch::Stream]) {
                for pages in pages {
                    for grown in [true, false] {
                        let _small = (*pages == "4 KiB").then(SmallPages::set).transpose()?;
                        let mut row = session.row("prefault", design, medium);
                        (row.threads, row.batch) = (Some(threads), Some(batch));
                        (row.keys, row.ops) = (Some(keys), Some(keys));
                        row.extra("pages", *pages);
                        row.extra("start", if grown { "grown" } else { "pre-faulted" });
                        measure(session, design, (medium, grown), &mut row)?;
                        session.put(row)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// A guard: while it lives, this process maps small pages.
struct SmallPages;

impl SmallPages {
    fn set() -> Outcome<Self> {
        let refused =
            |error| Error::failed(format!("huge pages cannot be switched off here: {error}"));
        disable_transparent_huge_pages(true).map_err(refused)?;
        Ok(Self)
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        // The opposite call succeeded, so this one does.
        let _ = disable_transparent_huge_pages(false);
    }
}

/// Inserts all keys, once per repeat.
fn measure(
    session: &Session,
    design: &'static dyn Design,
    (medium, grown): (Medium, bool),
    row: &mut Row,
) -> Outcome {
    let (threads, batch) = (row.threads.unwrap_or(1), row.batch.unwrap_or(Batch::Stream));
    let keys = session.space.keys(0..row.keys.unwrap_or_default());
    let (mut speeds, mut faults) = (Vec::new(), 0);
    for round in 0..session.repeat() {
        session.progress(&format!("prefault {}: round {}", design.name(), round + 1));
        let capacity = if grown { 1024 } else { keys.len() as u64 };
        let placed = session.create(design, medium, session.setup(capacity))?;
        if !grown {
            session.touch(&*placed.table, &keys)?;
        }
        let before = page_faults()?;
        let (mut time, mut found) = (std::time::Duration::ZERO, crate::keys::Tally::default());
        for turn in 0..TURNS {
            let keys = &keys[part(keys.len(), turn, TURNS)];
            let (one, tally) =
                session.timed(&*placed.table, Call::TryInsert, keys, threads, batch)?;
            time += one;
            found.add(tally);
        }
        faults += page_faults()? - before;
        session.check_call(design, &*placed.table, (Call::TryInsert, &keys), found);
        speeds.push(mops(keys.len(), time));
        describe_space(row, &*placed.table);
    }
    row.throughput(&speeds);
    let inserts = (keys.len() * session.repeat()).max(1);
    row.extra("page_faults", rounded(faults as f64 / inserts as f64));
    Ok(())
}

/// Returns the minor page faults of this process so far.
fn page_faults() -> Outcome<u64> {
    Ok(procfs::process::Process::myself()?.stat()?.minflt)
}
