//! The two sides of a join, generated before the clock starts.

use std::collections::HashMap;
use std::path::Path;

use icefield_torture::Rng;
use icefield_torture::tpch::Orders;
use serde_json::{Value, json};

use crate::prelude::*;

/// The rows of a probe side.
pub(in crate::experiments) struct Probe {
    /// The field of `extra` that identifies this probe side: the percentage of matching rows, or a file's name.
    pub point: (&'static str, Value),
    pub keys: Vec<u64>,
    /// The number of matching pairs, and the sum of their payloads.
    pub pairs: Tally,
    /// True if keys are in random order, so that a bare loop of random reads is a bound.
    pub shuffled: bool,
}

impl Probe {
    /// Draws `rows` rows in random order, of which `selectivity` percent match one of the first `build` keys.
    pub fn draw(session: &Session, build: u64, rows: u64, selectivity: u32) -> Self {
        let seed = session.args.seed.wrapping_add(u64::from(selectivity) << 32);
        let hits = (u128::from(rows) * u128::from(selectivity) / 100) as u64;
        let mut keys = session.space.draw(session.args.dist, build, hits as usize, seed);
        let pairs = Tally::of_values(&keys);
        keys.extend(session.space.keys(build..build + rows - hits));
        let mut random = Rng::new(seed);
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.index(at + 1));
        }
        Self { point: ("selectivity", json!(selectivity)), keys, pairs, shuffled: true }
    }

    /// Checks the answers of `placed` against the relations. For a table that returns no values, only the number of
    /// pairs is checked.
    pub fn check(&self, session: &Session, placed: &Placed, found: Tally) {
        session.check(placed.design, "join", found, placed.answers().told_of(self.pairs));
    }

    pub fn selectivity(&self) -> Option<u64> {
        self.point.1.as_u64()
    }
}

/// Both sides. The payload of a build row is the value of its key.
#[derive(Default)]
pub(in crate::experiments) struct Relations {
    pub build: Vec<u64>,
    pub probes: Vec<Probe>,
    /// True if a key may repeat, which maps do not support.
    pub repeat: bool,
    /// The scale factor, if the rows are TPC-H's.
    pub scale: Option<f64>,
}

impl Relations {
    /// Generates `build` rows with different keys, and `rows` probing rows for each percentage.
    pub fn make(session: &Session, build: u64, rows: u64, selectivities: &[u32]) -> Self {
        session.progress(&format!("making relations of {build} and {rows} rows"));
        let draw = |selectivity: &u32| Probe::draw(session, build, rows, *selectivity);
        let probes = selectivities.iter().map(draw).collect();
        Self { build: session.space.keys(0..build), probes, repeat: false, scale: None }
    }

    /// Generates the keys of TPC-H's orders, `orders` in number, and of all their line items, both in row order. Every
    /// line item matches one order.
    pub fn tpch(session: &Session, orders: u64) -> Self {
        session.progress(&format!("making the keys of {orders} orders and of their line items"));
        let orders = Orders::new(orders);
        let keys: Vec<u64> = orders.lines().collect();
        let pairs = Tally::of_values(&keys);
        let probe = Probe { point: ("selectivity", json!(100)), keys, pairs, shuffled: false };
        let build = orders.keys().collect();
        Self { build, probes: vec![probe], repeat: false, scale: Some(orders.scale()) }
    }

    /// Reads the relations in the files of `dir`.
    pub fn read(dir: &Path) -> Outcome<Self> {
        let build = words(&dir.join("build.u64"))?;
        let mut counts: HashMap<u64, u64> = HashMap::new();
        build.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
        let fault = |error| Error::file(dir, error);
        let mut probes = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(fault)? {
            let path = entry.map_err(fault)?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            if path.extension().is_none_or(|kind| kind != "u64") || !name.starts_with("probe-") {
                continue;
            }
            let keys = words(&path)?;
            let mut pairs = Tally::default();
            for key in &keys {
                let count = counts.get(key).copied().unwrap_or(0);
                let sum = count.wrapping_mul(value_of(*key));
                pairs.add(Tally { hits: count, sum });
            }
            let point = ("relation", json!(name));
            probes.push(Probe { point, keys, pairs, shuffled: false });
        }
        probes.sort_by_key(|probe| probe.point.1.to_string());
        if probes.is_empty() {
            let detail = format!("{} has no probe-NAME.u64", dir.display());
            return Err(Error::option("relations", detail));
        }
        Ok(Self { build, probes, repeat: true, scale: None })
    }
}

/// Reads a file of little-endian words.
fn words(path: &Path) -> Outcome<Vec<u64>> {
    let bytes = std::fs::read(path).map_err(|error| Error::file(path, error))?;
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        let detail = format!(
            "{}: {} bytes are not a whole number of 8-byte words",
            path.display(),
            bytes.len()
        );
        return Err(Error::option("relations", detail));
    }
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}
