//! Throughput while a sized table fills up (Iceberg Fig 5).

use crate::prelude::*;

const STEPS: u64 = 20;

/// The calls at each step: inserts up to the next fill, then reads.
const CALLS: [(&str, Call); 3] =
    [("mops", Call::TryInsert), ("get_mops", Call::Get), ("get_miss_mops", Call::GetMiss)];

pub(super) fn run(session: &mut Session) -> Outcome {
    for setting in session.settings(&[Batch::Stream]) {
        let mut designs = session.contenders(&CALLS.map(|(_, call)| call), setting.0)?;
        // The resize point of a peer is unknown.
        designs.retain(|design| !design.is_peer());
        let mut curves: Vec<Vec<Row>> = vec![Vec::new(); designs.len()];
        for round in 0..session.repeat() {
            for (design, curve) in designs.iter().zip(&mut curves) {
                fill_up(session, design, (setting, round as u64), curve)?;
            }
        }
        session.put_all(curves.concat())?;
    }
    Ok(())
}

fn fill_up(
    session: &Session,
    design: DesignRef,
    (setting, round): (Setting, u64),
    curve: &mut Vec<Row>,
) -> Outcome {
    let (medium, space) = (session.medium(design), session.space);
    let placed = session.create(design, medium, session.setup(session.keys(medium)))?;
    let capacity = placed.stats().capacity.max(STEPS);
    let absent = space.keys(2 * capacity..2 * capacity + capacity / STEPS);
    // Maps the table's pages.
    session.touch(&*placed, &space.keys(0..capacity))?;
    for step in 0..STEPS {
        let (from, to) = (capacity * step / STEPS, capacity * (step + 1) / STEPS);
        session.progress(&format!("fill-curve {}: {to} of {capacity}", design.name));
        let new = space.keys(from..to);
        let drawn = space.draw(session.args.dist, to, new.len(), session.args.seed + round);
        if curve.len() == step as usize {
            let mut row = session.row(design, medium);
            row.at(setting.0, setting.1, to, new.len() as u64);
            row.dist = Some(session.args.dist.to_string());
            row.extra("fill", rounded(to as f64 / capacity as f64));
            curve.push(row);
        }
        let row = &mut curve[step as usize];
        for ((name, call), keys) in CALLS.into_iter().zip([&new, &drawn, &absent]) {
            row.sample(name, mops(keys.len(), session.measured(&placed, call, keys, setting)?));
        }
        describe_space(row, &*placed);
    }
    Ok(())
}
