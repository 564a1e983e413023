//! Ways to damage a table's files. Some change any byte; others change words at known positions and correct the
//! checksums, so that the damage is not detected by checksums.

use icefield::storage::sim::Image;
use icefield::storage::superblock::{TABLE_REGION, checksum};

use crate::rng::Rng;

/// Files, or an image of them, to be damaged.
pub(crate) trait Files {
    fn names(&self) -> Vec<String>;
    fn bytes(&mut self, name: &str) -> Option<&mut Vec<u8>>;
    fn remove(&mut self, name: &str);
    /// Returns the number of bytes of which all file lengths are multiples.
    fn grain(&self) -> usize;
}

impl Files for Image {
    fn names(&self) -> Vec<String> {
        self.regions().map(|(name, _)| name.to_owned()).collect()
    }

    fn bytes(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.region_mut(name)
    }

    fn remove(&mut self, name: &str) {
        self.remove_region(name);
    }

    fn grain(&self) -> usize {
        64
    }
}

/// The files of a directory, in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(pub(crate) Vec<(String, Vec<u8>)>);

impl Files for Directory {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn bytes(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, bytes)| bytes)
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    fn grain(&self) -> usize {
        1
    }
}

/// Size of a copy of the superblock, and of the part that its checksum covers.
const COPY_BYTES: usize = 1024;
const COPY_BODY: usize = 1016;
/// Byte range of the session words.
const SESSION: std::ops::Range<usize> = 3072..3088;
/// Byte range of the design's root words.
const ROOT: std::ops::Range<usize> = 4096..4608;

/// Damages `files` once and describes how. `other` is another table of the same kind, to splice from.
pub(crate) fn damage(files: &mut impl Files, other: &mut impl Files, rng: &mut Rng) -> String {
    let names = files.names();
    if names.is_empty() {
        return "nothing is left to damage".to_owned();
    }
    let name = rng.pick(&names).clone();
    match rng.below(100) {
        0..22 => flip_bit(files, &name, rng),
        22..50 => set_word(files, &name, rng),
        50..57 => set_root_word(files, rng),
        57..64 => set_identity(files, rng),
        64..76 => copy_within(files, &name, rng),
        76..84 => splice(files, other, &name, rng),
        84..90 => shorten(files, &name, rng),
        90..94 => lengthen(files, &name, rng),
        94..98 => fill(files, &name, rng),
        _ => {
            files.remove(&name);
            format!("{name} removed")
        }
    }
}

pub(crate) fn read_word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

pub(crate) fn write_word(bytes: &mut [u8], at: usize, word: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Returns the offset of a word of the file, most often of one that is not 0.
fn pick_word(bytes: &[u8], rng: &mut Rng) -> usize {
    let words = (bytes.len() / 8).max(1);
    let mut at = rng.index(words) * 8;
    for _ in 0..40 {
        if read_word(bytes, at) != 0 {
            break;
        }
        at = rng.index(words) * 8;
    }
    at
}

fn flip_bit(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(name).filter(|bytes| !bytes.is_empty()) else {
        return String::new();
    };
    let at = (pick_word(bytes, rng) + rng.index(8)).min(bytes.len() - 1);
    let bit = rng.below(8);
    bytes[at] ^= 1 << bit;
    format!("{name}: bit {bit} of byte {at} flipped")
}

/// Returns a value that is likely to break the handling of counts, offsets and states.
fn tricky(old: u64, bytes: &[u8], rng: &mut Rng) -> u64 {
    let len = bytes.len() as u64;
    match rng.below(18) {
        0 => 0,
        1 => u64::MAX,
        2 => 1,
        3 => len,
        4 => len.wrapping_sub(8),
        5 => len.wrapping_add(64),
        6 => old.wrapping_add(1),
        7 => old.wrapping_sub(1),
        8 => old.wrapping_add(64),
        9 => old << 1,
        10 => old ^ (1 << rng.below(64)),
        11 => old | 1 << 63,
        12 => old.swap_bytes(),
        13 => rng.word(),
        14 => rng.below(256),
        15 => old & u64::from(u32::MAX) | rng.word() << 32,
        // A reference that is already in use gives a block two owners, or makes a cycle.
        _ => read_word(bytes, pick_word(bytes, rng)),
    }
}

fn set_word(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(name) else { return String::new() };
    let at = pick_word(bytes, rng);
    set(bytes, name, at, rng)
}

fn set(bytes: &mut [u8], name: &str, at: usize, rng: &mut Rng) -> String {
    let old = read_word(bytes, at);
    let new = tricky(old, bytes, rng);
    write_word(bytes, at, new);
    format!("{name}: word at byte {at} set from {old:#x} to {new:#x}")
}

fn set_root_word(files: &mut impl Files, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(TABLE_REGION) else { return String::new() };
    let range = if rng.one_in(4) { SESSION } else { ROOT };
    let words: Vec<usize> =
        range.step_by(8).filter(|&at| read_word(bytes, at) != 0 || rng.one_in(8)).collect();
    if words.is_empty() {
        return String::new();
    }
    set(bytes, TABLE_REGION, *rng.pick(&words), rng)
}

/// Changes a word of the superblock's identity and corrects the checksum, in both copies or in the first one.
fn set_identity(files: &mut impl Files, rng: &mut Rng) -> String {
    let Some(bytes) = files.bytes(TABLE_REGION).filter(|bytes| bytes.len() >= 2 * COPY_BYTES)
    else {
        return String::new();
    };
    let at = pick_word(&bytes[..COPY_BODY - 8], rng);
    let said = set(bytes, TABLE_REGION, at, rng);
    let body = bytes[..COPY_BODY].to_vec();
    let copies = if rng.one_in(4) { 1 } else { 2 };
    for copy in 0..copies {
        let start = copy * COPY_BYTES;
        bytes[start..start + COPY_BODY].copy_from_slice(&body);
        write_word(bytes, start + COPY_BODY, checksum(&body));
    }
    format!("{said}, checksum of {copies} copies corrected")
}

/// Returns the length of a run of bytes that tables may use as a unit.
fn run_length(rng: &mut Rng) -> usize {
    *rng.pick(&[8, 16, 32, 64, 256, 4096])
}

fn aligned(limit: usize, run: usize, rng: &mut Rng) -> usize {
    rng.index((limit / run).max(1)) * run
}

fn copy_within(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let run = run_length(rng);
    let Some(bytes) = files.bytes(name).filter(|bytes| bytes.len() >= run) else {
        return String::new();
    };
    let (from, to) = (aligned(bytes.len(), run, rng), aligned(bytes.len(), run, rng));
    bytes.copy_within(from..from + run, to);
    format!("{name}: {run} bytes at {from} copied to {to}")
}

fn splice(files: &mut impl Files, other: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let run = run_length(rng);
    let (Some(bytes), Some(source)) = (files.bytes(name), other.bytes(name)) else {
        return String::new();
    };
    if bytes.len().min(source.len()) < run {
        return String::new();
    }
    let at = aligned(bytes.len().min(source.len()), run, rng);
    bytes[at..at + run].copy_from_slice(&source[at..at + run]);
    format!("{name}: {run} bytes at {at} taken from another table")
}

fn shorten(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let grain = files.grain();
    let Some(bytes) = files.bytes(name) else { return String::new() };
    let len = match rng.below(4) {
        0 => 0,
        1 => bytes.len().saturating_sub(grain),
        _ => rng.index(bytes.len() + 1) / grain * grain,
    };
    bytes.truncate(len);
    format!("{name}: shortened to {len}")
}

fn lengthen(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let grain = files.grain().max(rng.index(4097) / 64 * 64);
    let fill = *rng.pick(&[0, 0, 0xFF, 0x5A]);
    let Some(bytes) = files.bytes(name) else { return String::new() };
    bytes.resize(bytes.len() + grain, fill);
    format!("{name}: lengthened by {grain} bytes of {fill:#x}")
}

fn fill(files: &mut impl Files, name: &str, rng: &mut Rng) -> String {
    let run = run_length(rng);
    let fill = *rng.pick(&[0, 0xFF]);
    let Some(bytes) = files.bytes(name).filter(|bytes| bytes.len() >= run) else {
        return String::new();
    };
    let at = aligned(bytes.len(), run, rng);
    bytes[at..at + run].fill(fill);
    format!("{name}: {run} bytes at {at} set to {fill:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_every_kind_changes_something_and_never_panics() {
        let file = |fill: u8, len: usize| (0..len).map(|at| fill ^ at as u8).collect::<Vec<u8>>();
        let whole = Directory(vec![
            (TABLE_REGION.to_owned(), file(1, 8192)),
            ("b".to_owned(), file(2, 100)),
        ]);
        let mut rng = Rng::new(5);
        let mut changed = 0;
        for _ in 0..5000 {
            let mut damaged = whole.clone();
            for _ in 0..3 {
                damage(&mut damaged, &mut whole.clone(), &mut rng);
            }
            changed += u32::from(damaged.0 != whole.0);
        }
        assert!(changed > 4800, "{changed}");
    }

    #[test]
    fn a_changed_identity_has_a_right_checksum() {
        let mut files = Directory(vec![(TABLE_REGION.to_owned(), vec![7; 8192])]);
        let said = set_identity(&mut files, &mut Rng::new(1));
        assert!(said.contains("corrected"), "{said}");
        let bytes = &files.0[0].1;
        assert_eq!(read_word(bytes, COPY_BODY), checksum(&bytes[..COPY_BODY]));
    }
}
