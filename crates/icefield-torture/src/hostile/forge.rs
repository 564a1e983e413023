//! Damage that follows the file format: references and lengths are well-formed but wrong, and the checksums are
//! correct.

use icefield::payload_checksum;
use icefield::storage::blob::{header_words, map_word};
use icefield::storage::superblock::TABLE_REGION;

use crate::corrupt::damage::{Files, damage, read_word, write_word};
use crate::rng::Rng;

/// Offset of the chunk size of `blobs.ice` or `payload.ice` in the superblock.
const CHUNK_BYTES_AT: usize = 48 + 3 * 8;
/// Files without references to byte records.
const OTHERS: [&str; 7] = [
    TABLE_REGION,
    "lock",
    "blobs.ice",
    "blobmap.ice",
    "payload.ice",
    "payloadmap.ice",
    "headers.ice",
];

/// A word of a slot that refers to a byte record.
#[derive(Clone, Debug)]
struct Reference {
    file: String,
    at: usize,
    word: u64,
    /// The position that it refers to.
    place: usize,
}

impl Reference {
    fn set(&self, files: &mut impl Files, word: u64) -> String {
        if let Some(bytes) = files.bytes(&self.file) {
            write_word(bytes, self.at, word);
        }
        format!(
            "{}: reference at byte {} set from {:#x} to {word:#x}",
            self.file, self.at, self.word
        )
    }
}

/// Forges a reference or a length in `files`, or damages them as `corrupt` does, and describes how.
pub(super) fn forge(files: &mut impl Files, other: &mut impl Files, rng: &mut Rng) -> String {
    let chunk = files.bytes(TABLE_REGION).map_or(0, |bytes| read_word(bytes, CHUNK_BYTES_AT));
    let chunk = usize::try_from(chunk).unwrap_or(0);
    let forged = match rng.below(4) {
        0 => None,
        _ if !(64..=1 << 20).contains(&chunk) => None,
        _ => forge_blob(files, chunk, rng).or_else(|| forge_payload(files, chunk, rng)),
    };
    forged.unwrap_or_else(|| damage(files, other, rng))
}

/// Returns the words, in the files with slots, for which `lead` returns a position.
fn references(files: &mut impl Files, lead: impl Fn(u64) -> Option<usize>) -> Vec<Reference> {
    let mut found = Vec::new();
    for file in files.names() {
        if OTHERS.contains(&file.as_str()) {
            continue;
        }
        let Some(bytes) = files.bytes(&file) else { continue };
        for (number, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if let Some(place) = lead(word) {
                found.push(Reference { file: file.clone(), at: number * 8, word, place });
            }
        }
    }
    found
}

/// Returns a wrong length for a record of `old` bytes in a block with room for `room` bytes. Most lengths exceed the
/// block.
fn length(old: usize, room: usize, chunk: usize, rng: &mut Rng) -> usize {
    match rng.below(12) {
        0 => old + 1,
        1 => old.wrapping_sub(1),
        2 => 0,
        3 => room,
        4 => room + 1,
        5 => room + 16 + rng.index(400),
        6 => old + 16 * rng.index(64),
        7 => chunk,
        8 => 2 * chunk,
        9 => *rng.pick(&[16 << 20, (16 << 20) + 1]),
        10 => u32::MAX as usize,
        _ => rng.index(4 * chunk),
    }
}

const PLACE_MASK: u64 = (1 << 48) - 1;

fn blob_place(word: u64) -> Option<usize> {
    let place = (word & PLACE_MASK).checked_sub(1)?.checked_mul(16)?;
    usize::try_from(place).ok()
}

fn blob_word(place: usize, tag: u64) -> u64 {
    (place as u64 / 16 + 1) & PLACE_MASK | tag & !PLACE_MASK
}

/// Returns the size of the block at `place`, according to the chunk map.
fn block_bytes(map: &[u8], chunk: usize, place: usize) -> Option<usize> {
    let word = read_word(map, place / chunk * 8);
    let value = (word >> 8) as u32 as usize;
    match word & 0xFF {
        1 if value > 16 && (place % chunk).is_multiple_of(value) => Some(value),
        2 if place.is_multiple_of(chunk) => value.checked_mul(chunk),
        _ => None,
    }
}

/// Writes a header for `len` bytes to the block at `place`. Its checksum is correct unless the bytes would extend
/// beyond the end of the file.
fn write_header(blobs: &mut [u8], place: usize, owner: u64, len: usize) {
    let content = blobs.get(place + 16..place.saturating_add(16).saturating_add(len));
    let [shape, owner] = match content {
        Some(content) => header_words(owner, content),
        None => [read_word(blobs, place) >> 32 << 32 | len as u32 as u64, owner],
    };
    write_word(blobs, place, shape);
    write_word(blobs, place + 8, owner);
}

fn forge_blob(files: &mut impl Files, chunk: usize, rng: &mut Rng) -> Option<String> {
    let map = files.bytes("blobmap.ice")?.clone();
    let blobs = files.bytes("blobs.ice")?.clone();
    let found = references(files, |word| {
        let place = blob_place(word).filter(|place| place + 16 <= blobs.len())?;
        let room = block_bytes(&map, chunk, place)?.checked_sub(16)?;
        let header = read_word(&blobs, place);
        (header != 0 && header as u32 as usize <= room).then_some(place)
    });
    if found.is_empty() {
        return None;
    }
    let one = rng.pick(&found).clone();
    let two = rng.pick(&found).clone();
    let room = block_bytes(&map, chunk, one.place)? - 16;
    let old = read_word(&blobs, one.place) as u32 as usize;
    let owner = read_word(&blobs, one.place + 8);
    let said = match rng.below(9) {
        0..3 => {
            let len = length(old, room, chunk, rng);
            write_header(files.bytes("blobs.ice")?, one.place, owner, len);
            format!("blobs.ice: block at byte {} made {len} bytes long, not {old}", one.place)
        }
        3 => {
            // Two slots share one block; its header names the owner of one of them.
            if rng.one_in(2) {
                let owner = read_word(&blobs, two.place + 8);
                write_header(files.bytes("blobs.ice")?, one.place, owner, old);
            }
            two.set(files, blob_word(one.place, *rng.pick(&[one.word, two.word])))
        }
        4 => {
            let swapped = one.set(files, two.word);
            format!("{swapped}; {}", two.set(files, one.word))
        }
        5 => {
            // A reference into the middle of a block, with or without a forged header there.
            let place = one.place + 16 * (1 + rng.index(room.div_ceil(16)));
            if rng.one_in(2) {
                let len = rng.index(2 * room + 1);
                write_header(files.bytes("blobs.ice")?, place, owner, len);
            }
            one.set(files, blob_word(place, one.word))
        }
        6 => {
            // A reference to a block that no slot refers to, of the same size class or of another.
            let free: Vec<usize> = (0..blobs.len())
                .step_by(16)
                .filter(|&place| block_bytes(&map, chunk, place).is_some())
                .filter(|&place| found.iter().all(|known| known.place != place))
                .take(200)
                .collect();
            let place = *rng.pick(if free.is_empty() { &[0] } else { &free });
            let len = if rng.one_in(2) { old } else { length(old, room, chunk, rng) };
            write_header(files.bytes("blobs.ice")?, place, owner, len);
            one.set(files, blob_word(place, one.word))
        }
        7 => {
            let ends = [blobs.len(), blobs.len().saturating_sub(16), blobs.len() + chunk, 1 << 51];
            one.set(files, blob_word(*rng.pick(&ends), one.word))
        }
        _ => forge_map_word(files, &map, chunk, one.place / chunk, rng)?,
    };
    Some(said)
}

/// Gives a chunk another block size, extends it over its neighbours, or marks it as unused.
fn forge_map_word(
    files: &mut impl Files,
    map: &[u8],
    chunk: usize,
    number: usize,
    rng: &mut Rng,
) -> Option<String> {
    let word = match rng.below(4) {
        0 => 0,
        1 => map_word(number as u32, true, *rng.pick(&[1, 2, 3, 1000, u32::MAX])),
        2 => map_word(number as u32, false, *rng.pick(&[0, 1, 16, 32, 48, 64, 128, u32::MAX])),
        _ => {
            // The block size of another chunk.
            let value = (read_word(map, rng.index(map.len() / 8) * 8) >> 8) as u32;
            map_word(number as u32, false, if value == 0 { chunk as u32 / 2 } else { value })
        }
    };
    write_word(files.bytes("blobmap.ice")?, number * 8, word);
    Some(format!("blobmap.ice: chunk {number} made {word:#x}"))
}

const HEAD_BYTES: usize = 24;

/// Returns chunk, epoch and position of a reference into the payload log. The highest bit is ignored, because it has
/// another meaning in words of logs.
fn payload_place(word: u64, chunk: usize) -> (usize, u64, usize) {
    let word = word & !(1 << 63);
    let number = (word >> 36) as usize;
    (number, word >> 16 & 0xF_FFFF, number.saturating_mul(chunk) + (word as u16 as usize) * 8)
}

fn payload_word(epoch: u64, place: usize, chunk: usize, like: u64) -> u64 {
    let number = (place / chunk) as u64;
    number << 36 | (epoch & 0xF_FFFF) << 16 | (place % chunk / 8) as u64 | like & 1 << 63
}

/// Writes lengths to the record at `place`. Its checksum is correct unless the record would extend beyond the end of
/// the file.
fn write_head(log: &mut [u8], place: usize, word: u64, hash: u64, key: usize, value: usize) {
    let lengths = u64::from(key as u32) | (value as u64) << 32;
    let word = word & !(1 << 63);
    let start = place + HEAD_BYTES;
    let end = start.saturating_add(key as u32 as usize).saturating_add(value as u32 as usize);
    let sum =
        log.get(start..end).map_or(0, |content| payload_checksum(word, hash, lengths, content));
    write_word(log, place, lengths);
    write_word(log, place + 8, hash);
    write_word(log, place + 16, sum);
}

fn forge_payload(files: &mut impl Files, chunk: usize, rng: &mut Rng) -> Option<String> {
    let map = files.bytes("payloadmap.ice")?.clone();
    let log = files.bytes("payload.ice")?.clone();
    let lengths_at = |place: usize| {
        let lengths = read_word(&log, place);
        (lengths as u32 as usize, (lengths >> 32) as usize)
    };
    let found = references(files, |word| {
        let (number, epoch, place) = payload_place(word, chunk);
        let state = read_word(&map, number.saturating_mul(8));
        let is_here = state & 1 == 1 && state >> 2 == epoch && place + HEAD_BYTES <= log.len();
        let (key, value) = lengths_at(place);
        (is_here && key + value > 0 && place + HEAD_BYTES + key + value <= log.len())
            .then_some(place)
    });
    if found.is_empty() {
        return None;
    }
    let one = rng.pick(&found).clone();
    let two = rng.pick(&found).clone();
    let (_, epoch, place) = payload_place(one.word, chunk);
    let (key, value) = lengths_at(place);
    let hash = read_word(&log, place + 8);
    let room = chunk.saturating_sub(place % chunk + HEAD_BYTES + key);
    let said = match rng.below(9) {
        0..4 => {
            let (key, value) = match rng.below(6) {
                0 => (length(key, room, chunk, rng), value),
                _ => (key, length(value, room, chunk, rng)),
            };
            write_head(files.bytes("payload.ice")?, place, one.word, hash, key, value);
            format!("payload.ice: record at byte {place} made {key} and {value} bytes long")
        }
        4 => two.set(files, one.word),
        5 => {
            let swapped = one.set(files, two.word);
            format!("{swapped}; {}", two.set(files, one.word))
        }
        6 => {
            // A record in the middle of another one or after the last one, with the same key.
            let behind = place + (HEAD_BYTES + key + value).next_multiple_of(8);
            let to = match rng.below(3) {
                0 => place + 8 * (1 + rng.index((key + value) / 8 + 1)),
                1 => (behind + 8 * rng.index(64)).min(log.len().saturating_sub(64) / 8 * 8),
                _ => rng.index(log.len() / 8) * 8,
            };
            let number = to / chunk;
            let epoch = read_word(&map, number * 8) >> 2;
            let word = payload_word(epoch, to, chunk, one.word);
            let bytes = files.bytes("payload.ice")?;
            if to + HEAD_BYTES + key <= bytes.len() {
                let own = log[place + HEAD_BYTES..place + HEAD_BYTES + key].to_vec();
                bytes[to + HEAD_BYTES..to + HEAD_BYTES + key].copy_from_slice(&own);
                let value = if rng.one_in(2) { value } else { length(value, room, chunk, rng) };
                write_head(bytes, to, word, hash, key, value);
            }
            one.set(files, word)
        }
        7 => {
            let word = payload_word(epoch.wrapping_add(rng.below(3)), place, chunk, one.word);
            one.set(files, word ^ (rng.below(4) << 36))
        }
        _ => {
            let number = if rng.one_in(2) { place / chunk } else { rng.index(map.len() / 8) };
            let old = read_word(&map, number * 8);
            let new = match rng.below(6) {
                0 => old ^ 1,
                1 => old ^ 2,
                2 => old.wrapping_add(4),
                3 => old & 3 | ((1 << 20) - 1) << 2,
                4 => old & 3 | u64::MAX << 2,
                _ => 0,
            };
            write_word(files.bytes("payloadmap.ice")?, number * 8, new);
            format!("payloadmap.ice: chunk {number} set from {old:#x} to {new:#x}")
        }
    };
    Some(said)
}
