//! The cost of page faults in an insert (Dash Fig 15). A table that grows touches new pages; a table of the final size
//! has all pages present. Both are measured with small pages and with huge ones.

use std::time::Duration;

use procfs::process::Process;
use rustix::thread::disable_transparent_huge_pages;

use crate::prelude::*;

/// Number of turns that make up one measurement.
const TURNS: usize = 16;

pub(super) fn run(session: &mut Session) -> Outcome {
    let medium = session.args.medium.unwrap_or(Medium::Memory);
    let keys = session.keys_or(4_000_000);
    let pages: &[&str] =
        if medium == Medium::Memory { &["4 KiB", "2 MiB"] } else { &["as mapped"] };
    let starts = |pages: &&'static str| [(*pages, true), (*pages, false)];
    for design in session.ours_on(medium)? {
        for setting in session.settings(&[Batch::Stream]) {
            for (pages, grown) in pages.iter().flat_map(starts) {
                let _small = (pages == "4 KiB").then(SmallPages::set).transpose()?;
                let mut row = session.row(design, medium);
                row.at(setting.0, setting.1, keys, keys);
                row.extra("pages", pages);
                row.extra("start", if grown { "grown" } else { "pre-faulted" });
                measure(session, design, (medium, grown), (keys, setting), &mut row)?;
                session.put(row)?;
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
        // The call that enabled the guard succeeded, so this one succeeds too.
        let _ = disable_transparent_huge_pages(false);
    }
}

/// Inserts all keys, once per repeat.
fn measure(
    session: &Session,
    design: DesignRef,
    (medium, grown): (Medium, bool),
    (keys, setting): (u64, Setting),
    row: &mut Row,
) -> Outcome {
    let keys = session.space.keys(0..keys);
    for round in 0..session.repeat() {
        session.progress(&format!("prefault {}: round {}", design.name, round + 1));
        let capacity = if grown { 1024 } else { keys.len() as u64 };
        let placed = session.create(design, medium, session.setup(capacity))?;
        if !grown {
            session.touch(&*placed, &keys)?;
        }
        let before = page_faults()?;
        let mut time = Duration::ZERO;
        for turn in 0..TURNS {
            let keys = &keys[part(keys.len(), turn, TURNS)];
            time += session.measured(&placed, Call::TryInsert, keys, setting)?;
        }
        row.sample("page_faults", (page_faults()? - before) as f64 / keys.len().max(1) as f64);
        row.sample("mops", mops(keys.len(), time));
        describe_space(row, &*placed);
    }
    Ok(())
}

/// Returns the minor page faults of this process so far.
fn page_faults() -> Outcome<u64> {
    Ok(Process::myself()?.stat()?.minflt)
}
