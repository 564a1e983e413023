//! `filters`: the gain from each table's filters: fingerprints and overflow metadata of Dash (Dash Figs 9 and 10),
//! filters in DRAM and preallocated buckets of Plush (Plush Fig 9).

use serde_json::json;

use super::ablations::{Comparison, compare};
use super::throughput::{GET, GET_MISS, INSERT, Sweep, run_sweep};
use crate::ablated::{CCEH_LIKE, NO_FILTERS, NO_FINGERPRINTS, NO_OVERFLOW, WHOLE, WIDE_BYTES};
use crate::session::Session;
use crate::table::{Design, Levels};
use crate::{Error, Outcome};

/// Dash with its filters, and without each of them.
const DASH: [&dyn Design; 5] = [&WHOLE, &NO_FINGERPRINTS, &NO_OVERFLOW, &NO_FILTERS, &CCEH_LIKE];

pub(super) fn run(session: &mut Session) -> Outcome {
    let any = |has: fn(&dyn Design) -> bool| session.designs.iter().any(|design| has(*design));
    let dash = any(|design| DASH.iter().any(|form| form.name() == design.name()));
    let levels = any(|design| design.offers_levels());
    if !dash && !levels {
        return Err(Error::option("tables", "none of these tables has filters to switch off"));
    }
    if dash {
        of_dash(session)?;
    }
    if levels {
        of_levels(session)?;
    }
    Ok(())
}

/// Measures all forms, whichever `--tables` names: each is compared with the complete one.
fn of_dash(session: &mut Session) -> Outcome {
    for key_bytes in [8, WIDE_BYTES] {
        let designs = DASH.to_vec();
        compare(session, &Comparison { experiment: "filters", designs, key_bytes })?;
    }
    Ok(())
}

/// Measures the options of a table with levels, cumulatively, for the level that holds the records of its capacity.
fn of_levels(session: &mut Session) -> Outcome {
    for (preallocated, dram_filters, name) in
        [(0, 0, "none"), (1, 0, "prealloc"), (1, 1, "prealloc+dramfilter")]
    {
        session.levels = Some(Levels { dram_filters, preallocated });
        let point = [("filters", json!(name))];
        for spec in [&INSERT, &GET, &GET_MISS] {
            let admits = |design: &dyn Design| design.offers_levels();
            let sweep = Sweep { point: &point, admits, ..Sweep::new(session, "filters") };
            run_sweep(session, spec, &sweep)?;
        }
    }
    session.levels = None;
    Ok(())
}
