//! Peers under measurement: competitors, called through the interface of `icefield-peers`.
//!
//! A peer gets the same keys in the same order, in arrays as long as our batches; with `--batch none`, an array has one
//! key. How a peer processes an array is up to it. A mixed batch is passed on as one array for each kind of operation.
//!
//! A peer lives either in memory or in files. A peer in files has two modes: with `--sync always`, the writes of a call
//! are durable when the call returns; with any weaker setting, the peer runs in its own relaxed mode. On tmpfs, where
//! tables on `pmem` are by default, the syncs of a peer cost almost nothing.

use std::io;
use std::path::PathBuf;

use icefield::{Error, Result, Stats, SyncMode};
use icefield_peers::{Kind, Peer, Writes, built_in, load};

use crate::adapter::{Adapter, Scratch, Shared, expand};
use crate::designs::DESIGNS;
use crate::prelude::*;

/// Returns the competitors that `--peers` and `--peer-lib` name. On a disk these are competitors in files, otherwise
/// competitors in memory.
pub(crate) fn chosen(args: &Args) -> Outcome<Vec<DesignRef>> {
    let refused = |option, detail: String| Err(crate::Error::option(option, detail));
    let mut kinds = built_in();
    let known: Vec<String> = kinds.iter().map(|kind| kind.name().to_owned()).collect();
    let wanted = match args.peers.as_slice() {
        // For the experiment `all`, the default is all peers.
        [] if args.experiment == "all" => vec!["all".to_owned()],
        asked => asked.to_vec(),
    };
    for name in wanted.iter().filter(|name| !matches!(name.as_str(), "none" | "all")) {
        if known.is_empty() {
            let detail = "this build has no competitors; build with `--features peers` or `peers-kv`, or use `none`";
            return refused("peers", detail.to_owned());
        }
        if !known.contains(name) {
            return refused(
                "peers",
                format!("`{name}` is not one of {}, all, none", known.join(", ")),
            );
        }
    }
    let on_disk = args.medium == Some(Medium::Disk);
    let in_files = matches!(args.medium, Some(Medium::Process | Medium::Pmem | Medium::Disk));
    let all = wanted.iter().any(|name| name == "all");
    let is_named = |kind: &dyn Kind| wanted.iter().any(|name| name == kind.name());
    kinds.retain(|kind| is_named(&**kind) || all && kind.is_persistent() == on_disk);
    for path in &args.peer_lib {
        let kind =
            load(path).map_err(|error| crate::Error::option("peer-lib", error.to_string()))?;
        let ours = DESIGNS.iter().map(|design| design.name);
        let mut taken = kinds.iter().map(|kind| kind.name()).chain(ours);
        if taken.any(|name| name == kind.name()) {
            let (path, name) = (path.display(), kind.name());
            return refused("peer-lib", format!("{path}: another table has the name {name}"));
        }
        kinds.push(kind);
    }
    let fits = |kind: &dyn Kind| if kind.is_persistent() { in_files } else { !on_disk };
    if let Some(kind) = kinds.iter().find(|kind| !fits(&***kind)) {
        let place = if on_disk { "memory" } else { "files, e.g. `--medium pmem`" };
        return refused("medium", format!("{} needs {place}", kind.name()));
    }
    Ok(kinds.into_iter().map(|kind| design(kind, args.medium)).collect())
}

/// Returns the peer as a design; `medium` is that of the options. The peer is leaked, which is harmless because a run has
/// only a few.
fn design(kind: Box<dyn Kind>, medium: Option<Medium>) -> DesignRef {
    let media: &[_] = match medium {
        _ if !kind.is_persistent() => &[Medium::Memory],
        Some(Medium::Disk) => &[Medium::Disk],
        Some(Medium::Process) => &[Medium::Process],
        _ => &[Medium::Pmem],
    };
    let kind: &'static dyn Kind = Box::leak(kind);
    let maker = Maker::Peer { kind, create, open };
    Box::leak(Box::new(Design { media, ..Design::new(kind.name(), maker) }))
}

/// Returns the mode of a peer in files for `sync`.
pub(crate) fn writes(sync: SyncMode) -> Writes {
    if sync == SyncMode::Always { Writes::Durable } else { Writes::Relaxed }
}

/// Returns the failure of a peer's call, which ends the measurement as an error of our own tables does.
pub(crate) fn failure(name: &str, peer: &dyn Peer) -> Result<()> {
    let Some(why) = peer.failure() else { return Ok(()) };
    Err(Error::Io { path: PathBuf::from(name), source: io::Error::other(why.to_owned()) })
}

fn create(kind: &dyn Kind, place: &Place, setup: Setup) -> Made {
    let writes = writes(setup.sync);
    table(
        kind,
        match place {
            Place::Dir { path, .. } if kind.is_persistent() => kind.open(path, writes),
            Place::Dir { path, .. } => kind.create(setup.capacity, Some(path)),
            Place::Memory | Place::Simulated(_) => kind.create(setup.capacity, None),
        },
    )
}

fn open(kind: &dyn Kind, place: &Place) -> Made {
    match place {
        Place::Dir { path, .. } if kind.is_persistent() => {
            table(kind, kind.open(path, Writes::Durable))
        }
        _ => Err(unsupported("peers", format!("{} does not survive its process", kind.name()))),
    }
}

type Opened = std::result::Result<Box<dyn Peer>, icefield_peers::Error>;

fn table(kind: &dyn Kind, opened: Opened) -> Made {
    let peer = opened.map_err(|error| unsupported("peers", error.to_string()))?;
    Ok(Box::new(Shared(PeerTable { name: kind.name().to_owned(), peer })))
}

/// An open table of a peer.
struct PeerTable {
    name: String,
    peer: Box<dyn Peer>,
}

impl Adapter for PeerTable {
    type Key = u64;

    fn one(&self, call: Call, key: u64, s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        self.many(call, &[key], s, t)
    }

    fn many(&self, call: Call, keys: &[u64], s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let (peer, values) = (&*self.peer, &mut s.words);
        if !matches!(call, Call::Get | Call::Remove) {
            values.clear();
            values.extend(keys.iter().copied().map(value_of));
        }
        let hits = match call {
            Call::Get => {
                let found = peer.get(keys);
                t.add(Tally { hits: found.hits, sum: found.sum });
                return Ok(());
            }
            Call::TryInsert => peer.insert(keys, values),
            Call::Update => peer.update(keys, values),
            Call::Remove => peer.remove(keys),
            Call::Put => peer.put(keys, values),
            _ => 0,
        };
        t.hits += hits;
        Ok(())
    }

    fn mixed(&self, ops: &[Mixed], s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        let mut keys = Vec::with_capacity(ops.len());
        for kind in Call::PLAIN {
            keys.clear();
            for op in ops {
                expand(*op, |call, key| keys.extend((call == kind).then_some(key)));
            }
            if !keys.is_empty() {
                self.many(kind, &keys, s, t)?;
            }
        }
        Ok(())
    }

    fn insdel(&self, key: u64, s: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        self.insdel_many(&[key], s, t)
    }

    fn insdel_many(&self, keys: &[u64], _: &mut Scratch<u64>, t: &mut Tally) -> Result<()> {
        t.hits += 2 * self.peer.insdel(keys);
        Ok(())
    }

    fn failure(&self) -> Result<()> {
        failure(&self.name, &*self.peer)
    }

    fn answers(&self) -> Answers {
        Answers::GetValues
    }

    fn thread(&self, index: usize, begins: bool) {
        self.peer.thread(index, begins);
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
    use crate::args::Batch;
    use crate::stats::histogram;
    use crate::table::Timed;

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
        assert!(table.run_timed(Timed::each(&Call::Put, &[1]), &mut histogram()).is_err());
        assert!(table.run_mixed(&[Mixed::new(Call::Put, 1)], Batch::None).is_err());
    }
}
