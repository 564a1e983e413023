//! Peers under measurement: competitors behind the interface of `icefield-peers`.
//!
//! A peer gets the same keys in the same order, in arrays as long as our batches: one key per call under `none`.
//! How it processes an array is up to the peer. A mixed batch is passed on by kind, one array for each.
//!
//! A peer lives either in memory or in files; those in files run on `--medium disk` only. A peer in files has two
//! modes: with `--sync always`, the writes of a call are durable when it returns; with any weaker setting it runs
//! in its own relaxed mode.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use icefield::{Error, Result, Stats, SyncMode};
use icefield_peers::{Kind, Operation, Peer, Writes, built_in, load};

use crate::Outcome;
use crate::args::{Args, Batch, Medium};
use crate::designs::DESIGNS;
use crate::keys::{Tally, value_of};
use crate::stats::Histogram;
use crate::table::{Answers, BenchTable, Call, Cost, Design, Mixed, Place, Setup, updates};

/// Returns the competitors that `--peers` and `--peer-lib` name: on a disk those in files, else those in memory.
pub(crate) fn chosen(args: &Args) -> Outcome<Vec<&'static dyn Design>> {
    let mut kinds = built_in();
    let known: Vec<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
    let wanted = match args.peers.as_slice() {
        // The experiment `all` includes all peers.
        [] if args.experiment == "all" => vec!["all".to_owned()],
        asked => asked.to_vec(),
    };
    for name in wanted.iter().filter(|name| !matches!(name.as_str(), "none" | "all")) {
        if known.is_empty() {
            return Err(crate::Error::option(
                "peers",
                "this build has none (features `peers`, `peers-kv`); say `none`",
            ));
        }
        if !known.contains(name) {
            let detail = format!("`{name}` is none of {}, all, none", known.join(", "));
            return Err(crate::Error::option("peers", detail));
        }
    }
    let on_disk = args.medium == Some(Medium::Disk);
    let fits = |kind: &dyn Kind| kind.is_persistent() == on_disk;
    let all = wanted.iter().any(|name| name == "all");
    let named = |kind: &dyn Kind| wanted.iter().any(|name| name == kind.name());
    kinds.retain(|kind| named(&**kind) || all && fits(&**kind));
    for path in &args.peer_lib {
        let kind =
            load(path).map_err(|error| crate::Error::option("peer-lib", error.to_string()))?;
        let taken = |name: &str| {
            kinds.iter().any(|known| known.name() == name)
                || DESIGNS.iter().any(|design| design.name() == name)
        };
        if taken(kind.name()) {
            let detail = format!("{}: another table is called {}", path.display(), kind.name());
            return Err(crate::Error::option("peer-lib", detail));
        }
        kinds.push(kind);
    }
    if let Some(kind) = kinds.iter().find(|kind| !fits(&***kind)) {
        let place = if on_disk { "in memory only" } else { "on disks only, `--medium disk`" };
        let detail = format!("{} lives {place}", kind.name());
        return Err(crate::Error::option("medium", detail));
    }
    Ok(kinds.into_iter().map(PeerRunner::design).collect())
}

/// A kind of peer.
pub(crate) struct PeerRunner(Box<dyn Kind>);

impl PeerRunner {
    /// Returns the peer as a design. It is leaked, which is fine for a handful of peers.
    fn design(kind: Box<dyn Kind>) -> &'static dyn Design {
        Box::leak(Box::new(Self(kind)))
    }
}

impl Design for PeerRunner {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn lives_in(&self, medium: Medium) -> bool {
        medium == self.usual_medium()
    }

    fn usual_medium(&self) -> Medium {
        if self.0.is_persistent() { Medium::Disk } else { Medium::Memory }
    }

    fn offers(&self, call: Call) -> bool {
        let needed: &[Operation] = match call {
            Call::Get | Call::GetMiss => &[Operation::Get],
            Call::TryInsert => &[Operation::Insert],
            Call::Put => &[Operation::Put],
            Call::Insert => &[],
            Call::Update => &[Operation::Update],
            Call::Remove => &[Operation::Remove],
            Call::InsDel => &[Operation::InsDel],
            Call::PutHeavy => &[Operation::Get, Operation::Update],
        };
        !needed.is_empty() && needed.iter().all(|operation| self.0.offers(*operation))
    }

    fn create(&self, place: &Place, setup: Setup) -> Result<Box<dyn BenchTable>> {
        let made = match place {
            Place::Dir { path, .. } if self.0.is_persistent() => {
                self.0.open(path, writes(setup.sync))
            }
            Place::Dir { path, .. } => self.0.create(setup.capacity, Some(path)),
            Place::Memory | Place::Simulated(_) => self.0.create(setup.capacity, None),
        };
        self.table(made)
    }

    fn open(&self, place: &Place, _threads: usize) -> Result<Box<dyn BenchTable>> {
        match place {
            Place::Dir { path, .. } if self.0.is_persistent() => {
                self.table(self.0.open(path, Writes::Durable))
            }
            _ => Err(failed(format!("{} is not measured across processes", self.name()))),
        }
    }

    fn cost(&self, _call: Call) -> Option<Cost> {
        None
    }
}

impl PeerRunner {
    fn table(&self, made: Made) -> Result<Box<dyn BenchTable>> {
        let peer = made.map_err(|error| failed(error.to_string()))?;
        Ok(Box::new(PeerTable { name: self.name().to_owned(), peer }))
    }
}

type Made = std::result::Result<Box<dyn Peer>, icefield_peers::Error>;

fn failed(detail: String) -> Error {
    Error::InvalidOption { option: "peers", detail }
}

fn writes(sync: SyncMode) -> Writes {
    if sync == SyncMode::Always { Writes::Durable } else { Writes::Relaxed }
}

/// An open table of a peer.
struct PeerTable {
    name: String,
    peer: Box<dyn Peer>,
}

impl PeerTable {
    /// Returns the answers, or an error if a call failed, which ends the measurement as a failure of our own tables
    /// does.
    fn sound(&self, tally: Tally) -> Result<Tally> {
        match self.peer.failure() {
            Some(why) => {
                let source = io::Error::other(why.to_owned());
                Err(Error::Io { path: PathBuf::from(&self.name), source })
            }
            None => Ok(tally),
        }
    }

    fn call(&self, call: Call, keys: &[u64], values: &mut Vec<u64>) -> Tally {
        let peer = &*self.peer;
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
            Call::Put => {
                fill();
                peer.put(keys, values)
            }
            Call::Insert => 0,
        };
        Tally { hits, sum: 0 }
    }
}

impl BenchTable for PeerTable {
    fn run(&self, call: Call, keys: &[u64], batch: Batch) -> Result<Tally> {
        let (mut tally, mut values) = (Tally::default(), Vec::new());
        for keys in keys.chunks(batch.size()) {
            tally.add(self.call(call, keys, &mut values));
        }
        self.sound(tally)
    }

    fn answers(&self) -> Answers {
        Answers::GetValues
    }

    fn thread(&self, index: usize, begins: bool) {
        self.peer.thread(index, begins);
    }

    fn run_mixed(&self, ops: &[Mixed], batch: Batch) -> Result<Tally> {
        const KINDS: [Call; 5] =
            [Call::TryInsert, Call::Put, Call::Get, Call::Update, Call::Remove];
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
        self.sound(tally)
    }

    fn run_timed(&self, call: Call, keys: &[u64], times: &mut Histogram) -> Result<Tally> {
        let (mut tally, mut values) = (Tally::default(), Vec::new());
        let mut last = Instant::now();
        for key in keys {
            tally.add(self.call(call, std::slice::from_ref(key), &mut values));
            let now = Instant::now();
            times.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
        self.sound(tally)
    }

    /// The interface of peers has no statistics.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

#[cfg(test)]
mod tests {
    use icefield_peers::Found;

    use super::*;
    use crate::stats::histogram;

    /// A peer whose every call fails.
    struct Broken;

    impl Peer for Broken {
        fn insert(&self, _keys: &[u64], _values: &[u64]) -> u64 {
            0
        }

        fn get(&self, _keys: &[u64]) -> Found {
            Found::default()
        }

        fn update(&self, _keys: &[u64], _values: &[u64]) -> u64 {
            0
        }

        fn remove(&self, _keys: &[u64]) -> u64 {
            0
        }

        fn insdel(&self, _keys: &[u64]) -> u64 {
            0
        }

        fn failure(&self) -> Option<&str> {
            Some("no space")
        }
    }

    #[test]
    fn a_failure_is_no_answer() {
        let table = PeerTable { name: "broken".to_owned(), peer: Box::new(Broken) };
        let error = table.run(Call::GetMiss, &[1, 2], Batch::Of(2)).unwrap_err();
        assert_eq!(error.to_string(), "broken: no space");
        assert!(table.run_timed(Call::Put, &[1], &mut histogram()).is_err());
        assert!(table.run_mixed(&[Mixed::new(Call::Put, 1)], Batch::None).is_err());
    }
}
