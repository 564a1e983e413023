//! Joins of two relations, `SELECT COUNT(*) FROM R, S WHERE R.key = S.key` (SPAR Figs 4 to 6, DLHT Fig 20), including
//! TPC-H's orders and line items; and the cost of adding a tenth more rows to an index (SPAR Fig 7).
//!
//! Each table is built from R, probed with S for every percentage of matching rows, closed, reopened if it lives in
//! files, and probed again. The time of a build includes all preparation, for all tables alike: the creation of files,
//! their pages and directories. Maps are created with the number of records as their capacity. All pages are mapped
//! before warm probes.

mod contest;
mod relations;
mod share;
mod update;

use crate::choice::named;
use crate::prelude::*;

pub(super) use self::contest::built;
use self::contest::contest;
pub(super) use self::relations::Probe;
use self::relations::Relations;
pub(super) use self::share::{CHILD as SHARE_CHILD, child as share_child, run as share};
pub(super) use self::update::run as update;

/// The tables that are measured without `--tables`.
const USUAL: [&str; 5] = ["join", "dlht", "dash-eh", "cceh-like", "iceberg"];
const BUILD_ROWS: u64 = 10_000_000;
/// Percentages of matching rows: the paper's, and 0, for which the index reads only its filter.
const SELECTIVITIES: [u32; 6] = [0, 20, 40, 60, 80, 100];
/// The percentages that `--quick` measures, because the papers' claims are about them.
const QUICK: [u32; 3] = [0, 20, 100];
/// DLHT's workload A: the number of probing rows per row of the build side; the build side is a quarter of that of
/// the other joins.
const WORKLOAD_A: u64 = 16;
const WORKLOAD_A_PART: u64 = 4;

/// Returns the number of probing rows for `build` rows of the build side, in the paper's proportion.
pub(super) fn probe_rows(session: &Session, build: u64) -> u64 {
    session.args.ops.unwrap_or((build as f64 * 2.6) as u64)
}

/// Returns the percentages from the options, or `usual`.
pub(super) fn selectivities(session: &Session, usual: &[u32]) -> Vec<u32> {
    match session.args.selectivity.as_slice() {
        [] if session.args.quick => usual.iter().copied().filter(|it| QUICK.contains(it)).collect(),
        [] => usual.to_vec(),
        asked => asked.to_vec(),
    }
}

/// Returns the tables that can join.
///
/// # Errors
/// No table can join these relations.
fn contenders(session: &Session, relations: &Relations) -> Outcome<Vec<DesignRef>> {
    named(session.designs_or(&USUAL), |design| {
        let is_map = [Call::TryInsert, Call::Get].into_iter().all(|call| design.offers(call));
        design.is_built() || is_map && !relations.repeat
    })
}

/// Returns an error on the simulated medium.
fn refuse_sim(session: &Session) -> Outcome {
    if session.args.medium == Some(Medium::Sim) {
        let detail = "must be memory, process, pmem or disk; cache-misses simulates";
        return Err(Error::option("medium", detail));
    }
    Ok(())
}

pub(super) fn run(session: &mut Session) -> Outcome {
    refuse_sim(session)?;
    let keys = session.keys_or(BUILD_ROWS);
    let relations = match session.args.relations.clone() {
        Some(dir) => Relations::read(&dir)?,
        None => {
            let selectivities = selectivities(session, &SELECTIVITIES);
            Relations::make(session, keys, probe_rows(session, keys), &selectivities)
        }
    };
    let designs = contenders(session, &relations)?;
    contest(session, &designs, &relations, ("join", &[Batch::Stream]))?;
    drop(relations);
    // With `--relations` or `--selectivity`, only those joins run.
    if session.args.relations.is_some() || !session.args.selectivity.is_empty() {
        return Ok(());
    }
    let relations = Relations::tpch(session, keys);
    contest(session, &designs, &relations, ("tpch", &[Batch::Stream]))?;
    drop(relations);
    let in_memory = |design: &DesignRef| session.medium(design) == Medium::Memory;
    let designs: Vec<_> = designs.into_iter().filter(in_memory).collect();
    if designs.is_empty() {
        return Ok(());
    }
    let build = (keys / WORKLOAD_A_PART).max(1);
    let relations = Relations::make(session, build, WORKLOAD_A * build, &[100]);
    contest(session, &designs, &relations, ("workload-a", &[Batch::None, Batch::Stream]))
}
