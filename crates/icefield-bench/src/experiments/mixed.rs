//! Operations of several kinds. `mixed` inserts new keys and reads present ones, by the share of inserts (Dash Fig 8).
//! The YCSB mixes follow DLHT Fig 18, or Iceberg 7.2 if their writes insert, so that tables double during the run.
//!
//! Workload E of YCSB, which scans, is left out. A read-modify-write is a get and then an update of the same key, and
//! counts as one operation.

use icefield_torture::Rng;
use icefield_torture::workload::Distribution;
use serde_json::Value;

use crate::args::YcsbWrites;
use crate::prelude::*;

/// The shares of inserts without `--insert-ratio`.
const RATIOS: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Update,
    /// Inserts a new key.
    Insert,
    /// Reads a present key, then updates it.
    Modify,
}

/// A mix of operations: a share of writes; all others read present keys.
struct Mix {
    /// The share of writes.
    writes: f64,
    write: Write,
    dist: Distribution,
    /// The calls that a table must support to take part.
    calls: &'static [Call],
    /// The field of `extra` that identifies the mix.
    point: (&'static str, Value),
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let ratios = session.points(&session.args.insert_ratio, &RATIOS);
    for setting in session.settings(&[Batch::Stream]) {
        for ratio in &ratios {
            let mix = Mix {
                writes: *ratio,
                write: Write::Insert,
                dist: session.args.dist,
                calls: &[Call::Get, Call::TryInsert],
                point: ("insert_ratio", (*ratio).into()),
            };
            mix.measure(session, setting)?;
        }
    }
    Ok(())
}

pub(super) fn ycsb(session: &mut Session) -> Outcome {
    let (writes, write) = match session.experiment {
        "ycsb-b" => (0.05, Write::Update),
        "ycsb-c" => (0.0, Write::Update),
        "ycsb-d" => (0.05, Write::Insert),
        "ycsb-f" => (0.5, Write::Modify),
        _ => (0.5, Write::Update),
    };
    let dist = match session.args.dist {
        // The reads of D prefer the latest keys when `--dist` is not given.
        Distribution::Uniform if session.experiment == "ycsb-d" => Distribution::Latest(0.99),
        asked => asked,
    };
    let inserts = session.args.ycsb_writes == YcsbWrites::Insert || write == Write::Insert;
    let mix = Mix {
        writes,
        write: if inserts { Write::Insert } else { write },
        dist,
        calls: &[Call::Get, Call::TryInsert, Call::Update],
        point: ("writes", if inserts { "insert" } else { "update" }.into()),
    };
    let settings = session.settings(&[Batch::Stream]);
    settings.into_iter().try_for_each(|setting| mix.measure(session, setting))
}

impl Mix {
    fn measure(&self, session: &mut Session, (threads, batch): Setting) -> Outcome {
        let designs = session.contenders(self.calls, threads)?;
        let setting = (threads, batch);
        let rows = session.rotate(&designs, setting, |session, design, round, row| {
            let (placed, keys) = session.create_loaded(design)?;
            let ops = session.ops(keys);
            let work = self.operations(session, (keys, ops), (threads, round));
            let work: Vec<&[Mixed]> = work.iter().map(Vec::as_slice).collect();
            row.sample("mops", mops(ops as usize, session.measured_mixed(&placed, &work, batch)?));
            (row.keys, row.ops) = (Some(keys), Some(ops));
            row.dist = Some(self.dist.to_string());
            row.extra(self.point.0, self.point.1.clone());
            describe_space(row, &*placed);
            Ok(())
        })?;
        session.put_all(rows)
    }

    /// Returns the operations of each thread in random order; a read-modify-write is never split between threads.
    fn operations(
        &self,
        session: &Session,
        (present, count): (u64, u64),
        (threads, round): (usize, u64),
    ) -> Vec<Vec<Mixed>> {
        let seed = session.args.seed + round;
        let (mut random, mut next) = (Rng::fork(seed, 1), present);
        let drawn = session.space.draw(self.dist, present, count as usize, seed);
        let mut work: Vec<Vec<Mixed>> = vec![Vec::new(); threads];
        let each = drawn.len().div_ceil(threads).max(1);
        for (ops, keys) in work.iter_mut().zip(drawn.chunks(each)) {
            for &key in keys {
                let reads = random.unit() >= self.writes;
                if reads || self.write == Write::Modify {
                    ops.push(Mixed::new(Call::Get, key));
                }
                if !reads && self.write == Write::Insert {
                    ops.push(Mixed::new(Call::TryInsert, session.space.key(next)));
                    next += 1;
                } else if !reads {
                    ops.push(Mixed::new(Call::Update, key));
                }
            }
        }
        work
    }
}
