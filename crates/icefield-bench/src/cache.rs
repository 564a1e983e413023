//! A simulated cache for machines whose hardware counters are not accessible: a first and a last level, each
//! set-associative with LRU replacement. It does no prefetching, and sees only the accesses passed to it.

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
        let told = (0..8).filter_map(Told::of).filter(|told| told.holds_data);
        let mut here = Self { l1d: (32 << 10, 8), llc: (32 << 20, 16) };
        let mut highest = 1;
        for told in told {
            if told.level == 1 {
                here.l1d = (told.bytes, told.ways);
            } else if told.level > highest {
                (highest, here.llc) = (told.level, (told.bytes, told.ways));
            }
        }
        here
    }
}

/// A cache of processor 0, as sysfs describes it.
struct Told {
    level: u32,
    bytes: u64,
    ways: usize,
    holds_data: bool,
}

impl Told {
    fn of(index: u32) -> Option<Self> {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
        };
        let kibibytes: u64 = read("size")?.strip_suffix('K')?.parse().ok()?;
        let ways: usize = read("ways_of_associativity")?.parse().ok()?;
        Some(Self {
            level: read("level")?.parse().ok()?,
            bytes: kibibytes << 10,
            ways: Some(ways).filter(|ways| *ways > 0)?,
            holds_data: read("type")? != "Instruction",
        })
    }
}

/// The number of accesses, and of misses in each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    pub accesses: u64,
    pub l1d: u64,
    pub llc: u64,
}

impl Misses {
    pub fn since(self, before: Self) -> Self {
        Self {
            accesses: self.accesses - before.accesses,
            l1d: self.l1d - before.l1d,
            llc: self.llc - before.llc,
        }
    }
}

pub(crate) struct Caches {
    l1d: Level,
    llc: Level,
    misses: Misses,
}

impl Caches {
    pub fn new(sizes: Sizes) -> Self {
        let (l1d, llc) = (Level::new(sizes.l1d), Level::new(sizes.llc));
        Self { l1d, llc, misses: Misses::default() }
    }

    /// Simulates a load or store of `line`.
    pub fn touch(&mut self, line: u64) {
        self.misses.accesses += 1;
        if self.l1d.holds(line) {
            return;
        }
        self.misses.l1d += 1;
        self.misses.llc += u64::from(!self.llc.holds(line));
    }

    pub fn misses(&self) -> Misses {
        self.misses
    }
}

/// Sets of lines, each in the order of use, most recent first.
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
        // Lines of different regions differ in their upper halves.
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
        assert_eq!(caches.misses(), Misses { accesses: 6, l1d: 4, llc: 3 });
        let before = caches.misses();
        (0..8).chain(0..8).for_each(|line| caches.touch(line));
        assert_eq!(caches.misses().since(before).llc, 5);
    }

    #[test]
    fn this_machine_has_caches() {
        let sizes = Sizes::here();
        assert!(sizes.l1d.0 >= 4 << 10 && sizes.llc.0 > sizes.l1d.0, "{sizes:?}");
    }
}
