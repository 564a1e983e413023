//! Peers under measurement: somebody else's tables, by the interface of `icefield-peers`.
//!
//! A peer gets the same keys in the same order, in arrays as long as our batches: one key a call under `none`. What it
//! makes of an array is its own affair. Operations of several kinds go over by kind, an array of each.

use std::time::Instant;

use icefield::{Error, Result, Stats};
use icefield_peers::{Kind, Operation, Peer};

use crate::args::{Batch, Medium};
use crate::keys::{Tally, value_of};
use crate::stats::Histogram;
use crate::table::{Answers, BenchTable, Call, Cost, Design, Mixed, Place, Setup, updates};

/// A kind of peer.
pub(crate) struct Rival(Box<dyn Kind>);

impl Rival {
    /// As a design. It stays for as long as the process: there are a handful.
    pub fn design(kind: Box<dyn Kind>) -> &'static dyn Design {
        Box::leak(Box::new(Self(kind)))
    }
}

impl Design for Rival {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn lives_in(&self, medium: Medium) -> bool {
        medium == Medium::Memory
    }

    fn usual_medium(&self) -> Medium {
        Medium::Memory
    }

    fn offers(&self, call: Call) -> bool {
        let needed: &[Operation] = match call {
            Call::Get | Call::GetMiss => &[Operation::Get],
            Call::TryInsert => &[Operation::Insert],
            Call::Insert | Call::Put => &[],
            Call::Update => &[Operation::Update],
            Call::Remove => &[Operation::Remove],
            Call::InsDel => &[Operation::InsDel],
            Call::PutHeavy => &[Operation::Get, Operation::Update],
        };
        !needed.is_empty() && needed.iter().all(|operation| self.0.offers(*operation))
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let dir = match place {
            Place::Dir { path, .. } => Some(path.as_path()),
            Place::Memory | Place::Simulated(_) => None,
        };
        let failed = |error: icefield_peers::Error| Error::InvalidOption {
            option: "peers",
            detail: error.to_string(),
        };
        Ok(Box::new(Rivals(self.0.create(setup.capacity, dir).map_err(failed)?)))
    }

    fn open(&self, _place: &Place) -> Result<Box<dyn BenchTable>> {
        let detail = format!("{} is not measured across processes", self.name());
        Err(Error::InvalidOption { option: "peers", detail })
    }

    fn cost(&self, _call: Call) -> Option<Cost> {
        None
    }
}

/// A peer's table.
struct Rivals(Box<dyn Peer>);

impl Rivals {
    fn call(&self, call: Call, keys: &[u64], values: &mut Vec<u64>) -> Tally {
        let peer = &*self.0;
        let mut fill = || {
            values.clear();
            values.extend(keys.iter().copied().map(value_of));
        };
        let hits = match call {
            Call::Get | Call::GetMiss => {
                let found = peer.get(keys);
                return Tally { hits: found.hits, sum: found.sum };
            }
            Call::TryInsert => {
                fill();
                peer.insert(keys, values)
            }
            Call::Update => {
                fill();
                peer.update(keys, values)
            }
            Call::Remove => peer.remove(keys),
            Call::InsDel => 2 * peer.insdel(keys),
            Call::PutHeavy if keys.len() == 1 => {
                let one = if updates(keys[0]) { Call::Update } else { Call::Get };
                return self.call(one, keys, values);
            }
            Call::PutHeavy => {
                let (updated, asked): (Vec<u64>, Vec<u64>) =
                    keys.iter().copied().partition(|key| updates(*key));
                let mut tally = self.call(Call::Get, &asked, values);
                tally.add(self.call(Call::Update, &updated, values));
                return tally;
            }
            Call::Insert | Call::Put => 0,
        };
        Tally { hits, sum: 0 }
    }
}

impl BenchTable for Rivals {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        let (mut tally, mut values) = (Tally::default(), Vec::new());
        for keys in keys.chunks(batch.size()) {
            tally.add(self.call(call, keys, &mut values));
        }
        Ok(tally)
    }

    fn answers(&self) -> Answers {
        Answers::GetValues
    }

    fn thread(&self, index: usize, begins: bool) {
        self.0.thread(index, begins);
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        const KINDS: [Call; 4] = [Call::TryInsert, Call::Get, Call::Update, Call::Remove];
        let (mut tally, mut values, mut keys) = (Tally::default(), Vec::new(), Vec::new());
        for ops in ops.chunks(batch.size()) {
            if let [op] = ops {
                tally.add(self.call(op.call, &[op.key], &mut values));
                continue;
            }
            for call in KINDS {
                keys.clear();
                keys.extend(ops.iter().filter(|op| op.call == call).map(|op| op.key));
                if !keys.is_empty() {
                    tally.add(self.call(call, &keys, &mut values));
                }
            }
        }
        Ok(tally)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let (mut tally, mut values) = (Tally::default(), Vec::new());
        let mut last = Instant::now();
        for key in keys {
            tally.add(self.call(call, std::slice::from_ref(key), &mut values));
            let now = Instant::now();
            times.record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(tally)
    }

    /// Nobody asks peers how big they are.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}
