//! A simulated cache for machines whose hardware counters are not accessible. It has a first and a last level, each
//! set-associative with LRU replacement. It counts only the accesses passed to it and does no prefetching.

const LINE_BYTES: u64 = 64;

/// The capacity in bytes and the associativity of two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub l1d: (u64, usize),
    pub llc: (u64, usize),
}

impl Sizes {
    /// Returns the sizes of this machine's caches, or common ones where the system does not report them.
    pub fn here() -> Self {
        let mut here = Self { l1d: (32 << 10, 8), llc: (32 << 20, 16) };
        let mut highest = 1;
        for (level, size) in (0..8).filter_map(data_cache) {
            if level == 1 {
                here.l1d = size;
            } else if level > highest {
                (highest, here.llc) = (level, size);
            }
        }
        here
    }
}

/// Returns the level and the size of a cache of processor 0, as sysfs describes it, if it holds data.
fn data_cache(index: u32) -> Option<(u32, (u64, usize))> {
    let read = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    };
    let kibibytes: u64 = read("size")?.strip_suffix('K')?.parse().ok()?;
    let ways = read("ways_of_associativity")?.parse().ok().filter(|ways| *ways > 0)?;
    let level = read("level")?.parse().ok()?;
    (read("type")? != "Instruction").then_some((level, (kibibytes << 10, ways)))
}

/// The number of accesses, and of misses in the first and in the last level.
pub(crate) type Misses = [u64; 3];

pub(crate) struct Caches {
    l1d: Level,
    llc: Level,
    misses: Misses,
}

impl Caches {
    pub fn new(sizes: Sizes) -> Self {
        let (l1d, llc) = (Level::new(sizes.l1d), Level::new(sizes.llc));
        Self { l1d, llc, misses: [0; 3] }
    }

    /// Simulates a load or store of `line`.
    pub fn touch(&mut self, line: u64) {
        self.misses[0] += 1;
        if self.l1d.holds(line) {
            return;
        }
        self.misses[1] += 1;
        self.misses[2] += u64::from(!self.llc.holds(line));
    }

    pub fn misses(&self) -> Misses {
        self.misses
    }
}

/// A cache level: sets of lines. The lines of a set are in the order of their last use, the most recent first.
struct Level {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Level {
    fn new((bytes, ways): (u64, usize)) -> Self {
        let sets = (bytes / LINE_BYTES / ways as u64).max(1) as usize;
        Self { sets: vec![Vec::with_capacity(ways); sets], ways }
    }

    /// Returns whether the line is cached, and caches it.
    fn holds(&mut self, line: u64) -> bool {
        let count = self.sets.len() as u64;
        // The set depends on the upper half of the line number too, because lines of different regions differ there.
        let set = &mut self.sets[((line ^ line >> 32) % count) as usize];
        let found = set.iter().position(|known| *known == line);
        match found {
            Some(at) => set[..=at].rotate_right(1),
            None => {
                set.truncate(self.ways - 1);
                set.insert(0, line);
            }
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_used_longest_ago_goes() {
        // Two sets of two lines; behind them one set of eight lines.
        let mut caches = Caches::new(Sizes { l1d: (256, 2), llc: (512, 8) });
        for line in [0, 2, 0, 4, 0, 2] {
            caches.touch(line);
        }
        // 0, 2 and 4 miss; 4 evicts 2 from the first level only.
        assert_eq!(caches.misses(), [6, 4, 3]);
        let before = caches.misses();
        (0..8).chain(0..8).for_each(|line| caches.touch(line));
        assert_eq!(caches.misses()[2] - before[2], 5);
    }

    #[test]
    fn this_machine_has_caches() {
        let sizes = Sizes::here();
        assert!(sizes.l1d.0 >= 4 << 10 && sizes.llc.0 > sizes.l1d.0, "{sizes:?}");
    }
}
