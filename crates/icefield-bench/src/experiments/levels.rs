//! The levels that hold the records of a nearly full table, by bucket sizes (Iceberg Tables 4 and 6).

use icefield::Yards;

use super::growth::{describe_space, detail, filled_with};
use crate::Outcome;
use crate::args::{Batch, Medium};
use crate::row::{Row, rounded};
use crate::session::Session;
use crate::table::{BenchTable, Design, Setup};

/// The sizes of Table 6 in its order; the first is the paper's default.
const PAPER: [(u32, u32); 6] = [(64, 8), (64, 6), (64, 4), (32, 8), (32, 6), (32, 4)];

/// The load factor without `--fill`.
const FILL: f64 = 0.95;

/// The number of records without `--keys`: of ten million, a handful are in the overflow yard.
const KEYS: u64 = 10_000_000;

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.yards.clone();
    let sizes = if asked.is_empty() {
        PAPER.map(|(front, back)| Yards { front, back }).into()
    } else {
        asked
    };
    // The counts do not depend on the medium, so a fast one is used.
    let medium = session.args.medium.unwrap_or(Medium::Process);
    let mut designs = session.ours_on(medium)?;
    designs.retain(|design| design.offers_yards());
    for design in designs {
        for yards in &sizes {
            one_size(session, design, medium, *yards)?;
        }
    }
    Ok(())
}

fn one_size(
    session: &mut Session,
    design: &'static dyn Design,
    medium: Medium,
    yards: Yards,
) -> Outcome {
    let keys = session.keys_or(KEYS);
    let fill = session.args.fill.unwrap_or(FILL);
    let setup = Setup { yards: Some(yards), ..session.setup(0) };
    let (placed, records) = filled_with(session, design, (medium, keys), (fill, setup))?;
    session.load(design, &*placed.table, 0..records)?;
    let mut row = session.row("levels", design, medium);
    (row.batch, row.keys) = (Some(Batch::Stream), Some(records));
    describe_space(&mut row, &*placed.table);
    row.extra("yards", format!("{}/{}", yards.front, yards.back));
    describe_levels(&mut row, &*placed.table, records);
    session.put(row)
}

/// Counts records by level. No record was removed or moved, so each is where it was inserted.
fn describe_levels(row: &mut Row, table: &dyn BenchTable, records: u64) {
    let stats = table.stats();
    let of = |name| detail(&stats, name).unwrap_or(0);
    let (back, overflow) = (of("back_inserts"), of("overflow_inserts"));
    let share = |count: u64| count as f64 / records as f64;
    row.extra("front_yard", rounded(share(records.saturating_sub(back + overflow))));
    row.extra("back_yard", rounded(share(back)));
    // Unrounded: the share may be in the millionths.
    row.extra("overflow", share(overflow));
    row.extra("overflow_records", overflow);
}
