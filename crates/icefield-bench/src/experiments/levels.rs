//! The number of records in each level of a nearly full table, by bucket sizes (Iceberg Tables 4 and 6).

use icefield::Yards;

use crate::prelude::*;

/// The sizes of Table 6 in its order; the first is the paper's default.
const PAPER: [(u32, u32); 6] = [(64, 8), (64, 6), (64, 4), (32, 8), (32, 6), (32, 4)];

/// The load factor without `--fill`.
const FILL: f64 = 0.95;

/// The number of records without `--keys`. Of ten million, at least a few are in the overflow yard.
const KEYS: u64 = 10_000_000;

pub(super) fn run(session: &mut Session) -> Outcome {
    let asked = session.args.yards.clone();
    let paper = PAPER.map(|(front, back)| Yards { front, back });
    let sizes = if asked.is_empty() { paper.to_vec() } else { asked };
    // The counts do not depend on the medium, so a fast one is used.
    let medium = session.args.medium.unwrap_or(Medium::Process);
    for design in session.ours_on(medium)?.into_iter().filter(|design| design.offers_yards) {
        for yards in &sizes {
            one_size(session, design, medium, *yards)?;
        }
    }
    Ok(())
}

fn one_size(session: &mut Session, design: DesignRef, medium: Medium, yards: Yards) -> Outcome {
    let fill = session.args.fill.unwrap_or(FILL);
    let setup = Setup { yards: Some(yards), ..session.setup(0) };
    let keys = (medium, session.keys_or(KEYS));
    let (placed, records) = session.create_for_fill(design, keys, (fill, setup))?;
    session.load(&placed, 0..records)?;
    let mut row = session.row(design, medium);
    (row.batch, row.keys) = (Some(Batch::Stream), Some(records));
    describe_space(&mut row, &*placed);
    row.extra("yards", format!("{}/{}", yards.front, yards.back));
    // No record was removed or moved, so the number of inserts into a yard is the number of its records.
    let stats = placed.stats();
    let [back, overflow] =
        ["back_inserts", "overflow_inserts"].map(|name| detail(&stats, name).unwrap_or(0));
    let share = |count: u64| count as f64 / records as f64;
    row.extra("front_yard", rounded(share(records.saturating_sub(back + overflow))));
    row.extra("back_yard", rounded(share(back)));
    // Not rounded, because the share may be in the millionths.
    row.extra("overflow", share(overflow));
    row.extra("overflow_records", overflow);
    session.put(row)
}
