//! The first page of every table: the table's identity and its session state.
//!
//! ```text
//! table.ice     0  identity, first copy        1024  identity, second copy        2048  zero
//!            3072  session words               4096  the design's root words
//!
//! identity      0  magic                         8  format version (u32)            12  hash function (u32)
//!              16  hash seed (2 x u64)           32  uuid (2 x u64)                  48  parameters (16 x u64)
//!             176  lengths of the three names (u16 each), zero (u16)
//!             184  design (96 bytes)            280  key type (256)                 536  value type (256)
//!             792  zero                        1016  CRC-64/XZ of bytes 0..1016
//!
//! session       0  generation                    8  records at a clean close, 40 bits, and a seal; or 0
//! ```
//!
//! All numbers are little-endian. Later formats keep the places of magic, version and checksum, so that an older build
//! can report that a table is too new for it.
//!
//! # Crashes
//!
//! - P1: both copies except their magics are durable. A crash before P1 leaves neither a magic nor a table.
//! - P2, commit point of creation: the magics are durable. A crash between P1 and P2 leaves none, one or both; each
//!   copy is valid on its own.
//! - P3: a session's first persist stores the next generation (the session's number) in the first session word and 0 in
//!   the second. The two words may become durable in either order, because the session has changed nothing else yet,
//!   except that it has rewritten a damaged copy of the identity.
//! - P4: closing stores one word: the record count, and a seal over count and generation. A crash during P3 on a disk
//!   can leave the seal of the previous generation. A seal that fits neither generation is damage, on any medium.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::cell::{Cell64, Overlay};
use super::medium::{Medium, sound};
use super::region::Region;
use crate::{Error, Result};

/// The region that holds the superblock.
pub const TABLE_REGION: &str = "table.ice";
/// The offset of the design's root words in [`TABLE_REGION`].
pub const ROOT_OFFSET: u64 = 4096;
/// The length of the design's root words in bytes.
pub const ROOT_BYTES: u64 = 4096;

/// Returns the design's root words.
pub(crate) fn root_words<'a, T: Overlay>(
    storage: &impl Medium,
    table: &'a Region,
) -> Result<&'a T> {
    table.get(storage, ROOT_OFFSET, "the root words")
}

/// The version of the file format that this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;

const TABLE_BYTES: u64 = ROOT_OFFSET + ROOT_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"icefield");
const COPY_BYTES: usize = 1024;
const COPY_WORDS: usize = COPY_BYTES / 8;
const COPIES: [u64; 2] = [0, COPY_BYTES as u64];
/// The bytes at the start of [`TABLE_REGION`] that hold both copies of the identity.
pub(crate) const IDENTITY_BYTES: usize = 2 * COPY_BYTES;
const SESSION_OFFSET: u64 = 3072;
/// Bits of the record count in the word of a clean close; the seal is above them.
const RECORDS_BITS: u32 = 40;
/// The largest record count that a closed table stores. A larger count is stored as this value.
pub const MOST_RECORDS: u64 = (1 << RECORDS_BITS) - 1;

const VERSION_AT: usize = 8;
const HASH_AT: usize = 12;
const SEED_AT: usize = 16;
const UUID_AT: usize = 32;
const PARAMS_AT: usize = 48;
const LENGTHS_AT: usize = 176;
/// The offset and the maximal length of each name.
const NAMES: [(usize, usize); 3] = [(184, 96), (280, 256), (536, 256)];
const CHECKSUM_AT: usize = 1016;
const _: () = assert!(NAMES[2].0 + NAMES[2].1 <= CHECKSUM_AT && CHECKSUM_AT + 8 == COPY_BYTES);
const _: () =
    assert!(NAMES[0].0 + NAMES[0].1 == NAMES[1].0 && NAMES[1].0 + NAMES[1].1 == NAMES[2].0);
const _: () = assert!(PARAMS_AT + 16 * 8 == LENGTHS_AT && LENGTHS_AT + 8 == NAMES[0].0);

/// The properties of a table that are fixed at its creation.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The design's name, e.g. `dash-eh`.
    pub design: String,
    /// The key type's name.
    pub key_type: String,
    /// The value type's name.
    pub value_type: String,
    /// The hash function.
    pub hash_id: u32,
    /// The seed of the hash function.
    pub hash_seed: [u64; 2],
    /// The design's parameters.
    pub params: [u64; 16],
    /// A random identifier that distinguishes this table from all others.
    pub uuid: [u64; 2],
}

impl Identity {
    /// Returns the identifier as one number.
    #[must_use]
    pub fn uuid(&self) -> u128 {
        let [high, low] = self.uuid;
        u128::from(high) << 64 | u128::from(low)
    }
}

/// Omits the seed, which would make it easy to choose keys that collide.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("design", &self.design)
            .field("key_type", &self.key_type)
            .field("value_type", &self.value_type)
            .field("hash_id", &self.hash_id)
            .field("params", &self.params)
            .field("uuid", &self.uuid)
            .finish_non_exhaustive()
    }
}

/// One copy of the identity, word by word.
type Copy = [Cell64; COPY_WORDS];

/// The words that change with each opening and closing.
#[repr(C)]
struct Session {
    generation: Cell64,
    clean: Cell64,
}

// SAFETY: repr(C), cells only.
unsafe impl Overlay for Session {}

/// The state that a new session found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStart {
    /// This session's number, which no earlier session of the table had.
    pub generation: u64,
    /// True if the last session ended by [`end_session`].
    pub was_clean: bool,
    /// The number of records at the last clean close. 0 if `was_clean` is false.
    pub records: u64,
    /// True if a copy of the identity was damaged and has been rewritten.
    pub mended: bool,
}

/// Maps a new table's first region, with a superblock that is not valid yet.
///
/// # Errors
/// The region could not be created or grown.
pub fn create(storage: &impl Medium) -> Result<Region> {
    let region = storage.region(TABLE_REGION, TABLE_BYTES)?;
    storage.grow(&region, TABLE_BYTES)?;
    Ok(region)
}

/// Writes the superblock: the commit point of creation. All other data of the new table must already be durable.
///
/// # Errors
/// [`Error::InvalidOption`] when a name is too long, [`Error::Poisoned`] when the medium could not be synced.
pub fn seal(storage: &impl Medium, region: &Region, identity: &Identity) -> Result<()> {
    let words = encode(identity)?;
    let copies = copies(storage, region)?;
    for copy in copies {
        for (cell, word) in copy.iter().zip(words).skip(1).filter(|(_, word)| *word != 0) {
            cell.store(storage, word, Ordering::Relaxed);
        }
        storage.flush_object(copy);
    }
    // P1: both copies are durable before their magics are stored, so a copy with a magic is complete.
    storage.try_fence()?;
    for copy in copies {
        copy[0].store(storage, MAGIC, Ordering::Release);
        storage.flush_object(&copy[0]);
    }
    // P2, commit point: the magics are durable, so the table exists.
    storage.try_fence()
}

/// Reads the identity of the table on `storage`. One intact copy suffices.
///
/// # Errors
/// [`Error::NotFound`] when no table was ever completed here, [`Error::FormatVersion`] when another version wrote it,
/// [`Error::Corrupt`] when neither copy is intact.
pub fn read(storage: &impl Medium) -> Result<(Region, Identity)> {
    let region = storage.region(TABLE_REGION, TABLE_BYTES)?;
    if region.is_empty() {
        return Err(Error::NotFound { path: storage.path().to_owned() });
    }
    let identity = identity(storage, &region)?;
    Ok((region, identity))
}

/// Reads the identity, as [`read`] does.
///
/// # Errors
/// As for [`read`].
pub fn identity(storage: &impl Medium, region: &Region) -> Result<Identity> {
    judge(storage.path(), copies(storage, region)?.map(|copy| load(storage, copy)))
}

/// Reads the identity from the first bytes of [`TABLE_REGION`], as [`read`] does in the mapped region. `path` is the
/// table's directory. Used to decide whether a directory is a table before anything in it is changed.
///
/// # Errors
/// As for [`read`].
pub(crate) fn identify(path: &Path, bytes: &[u8]) -> Result<Identity> {
    if bytes.is_empty() {
        return Err(Error::NotFound { path: path.to_owned() });
    }
    let copy = |at: u64| bytes.get(at as usize..)?.first_chunk().copied();
    match COPIES.map(copy) {
        [Some(first), Some(second)] => judge(path, [first, second]),
        _ => Err(shorter_than_needed(path, bytes.len() as u64)),
    }
}

/// Combines the two copies of an identity. One intact copy suffices.
fn judge(path: &Path, copies: [[u8; COPY_BYTES]; 2]) -> Result<Identity> {
    let mut unsealed = 0;
    let mut other_version = None;
    let mut fault = None;
    for (copy, offset) in copies.iter().zip(COPIES) {
        match decode(copy) {
            Ok(identity) => return Ok(identity),
            Err(Flaw::Unsealed) => unsealed += 1,
            Err(Flaw::Version(found)) => other_version = Some(found),
            Err(Flaw::Corrupt(at, detail)) => fault = fault.or(Some((offset + at as u64, detail))),
        }
    }
    if let Some(found) = other_version {
        return Err(Error::FormatVersion {
            path: path.to_owned(),
            found,
            supported: FORMAT_VERSION,
        });
    }
    if unsealed == COPIES.len() {
        return Err(Error::NotFound { path: path.to_owned() });
    }
    let (offset, detail) = fault.unwrap_or((0, "no magic number"));
    Err(Error::corrupt(
        path.join(TABLE_REGION),
        offset,
        format!("{detail}, and the other copy is damaged, too"),
    ))
}

/// Returns the number of the last session, which differs from opening to opening.
///
/// # Errors
/// [`Error::Corrupt`] when the region is too short.
pub fn last_session(storage: &impl Medium, region: &Region) -> Result<u64> {
    // Relaxed: a word of a former session.
    Ok(session(storage, region)?.generation.load(storage, Ordering::Relaxed))
}

/// The end of the last session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// By [`end_session`], with this number of records.
    Clean(u64),
    /// The session has not ended, or a crash ended it.
    Open,
    /// The words fit no session: they are damaged.
    Odd,
}

/// Returns how the last session ended, or that it has not. Changes nothing.
///
/// # Errors
/// [`Error::Corrupt`] when the region is too short.
pub fn session_end(storage: &impl Medium, region: &Region) -> Result<SessionEnd> {
    let session = session(storage, region)?;
    // Relaxed: words of a former session, or words that the seal binds together.
    let generation = session.generation.load(storage, Ordering::Relaxed);
    let clean = session.clean.load(storage, Ordering::Relaxed);
    let records = clean & MOST_RECORDS;
    Ok(match clean {
        0 => SessionEnd::Open,
        _ if clean == clean_word(generation, records) => SessionEnd::Clean(records),
        _ if clean == clean_word(generation.wrapping_sub(1), records) => SessionEnd::Open,
        _ => SessionEnd::Odd,
    })
}

/// Checks that both copies of the identity are intact, and that all other bytes before the root words are zero except
/// the session words. [`read`] does not check this, because one intact copy suffices. Returns descriptions of the
/// faults.
///
/// # Errors
/// [`Error::Corrupt`] when the region is too short.
pub fn check(storage: &impl Medium, region: &Region) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (copy, offset) in copies(storage, region)?.into_iter().zip(COPIES) {
        if decode(&load(storage, copy)).is_err() {
            faults.push(format!(
                "{TABLE_REGION}: the copy of the superblock at byte {offset} is damaged"
            ));
        }
    }
    let gaps = [
        (COPIES[1] + COPY_BYTES as u64, SESSION_OFFSET),
        (SESSION_OFFSET + size_of::<Session>() as u64, ROOT_OFFSET),
    ];
    for (start, end) in gaps {
        let cells = region.slice_at::<Cell64>(start, (end - start) as usize / 8);
        let cells = cells.ok_or_else(|| too_short(storage, region))?;
        if let Some(at) = cells.iter().position(|cell| cell.load(storage, Ordering::Relaxed) != 0) {
            faults.push(format!("{TABLE_REGION}: byte {} is not zero", start + at as u64 * 8));
        }
    }
    Ok(faults)
}

/// Starts a session: from here on the table counts as not closed.
///
/// # Errors
/// [`Error::Corrupt`] when the region is too short, [`Error::Poisoned`] when the medium could not be synced.
pub fn begin_session(storage: &impl Medium, region: &Region) -> Result<SessionStart> {
    let (was_clean, records) = match session_end(storage, region)? {
        SessionEnd::Clean(records) => (true, records),
        SessionEnd::Open | SessionEnd::Odd => (false, 0),
    };
    let session = session(storage, region)?;
    let last = session.generation.load(storage, Ordering::Relaxed);
    // Zero is the content of a fresh file: no session has that number, even after an overflow.
    let generation = last.wrapping_add(1).max(1);
    session.clean.store(storage, 0, Ordering::Relaxed);
    // Release: on persistent memory, the new generation survives only together with the 0 in `clean`, because both
    // words are in one line.
    session.generation.store(storage, generation, Ordering::Release);
    // P3: both words are durable before the session changes anything except damaged copies of the identity.
    storage.try_persist(session)?;
    sound(storage)?;
    Ok(SessionStart { generation, was_clean, records, mended: false })
}

/// Starts a session of an existing table, and makes both copies of its identity intact.
///
/// # Errors
/// As for [`begin_session`].
pub fn resume_session(
    storage: &impl Medium,
    region: &Region,
    identity: &Identity,
) -> Result<SessionStart> {
    // A reader leaves a damaged copy in place, so that a check reports it.
    let mended = storage.check_writable().is_ok() && mend(storage, region, identity)?;
    Ok(SessionStart { mended, ..begin_session(storage, region)? })
}

/// Rewrites damaged copies of the identity and returns whether there were any. One copy can be incomplete after a crash
/// between P1 and P2, or damaged later. The copies are flushed here; the fence of P3 makes them durable.
fn mend(storage: &impl Medium, region: &Region, identity: &Identity) -> Result<bool> {
    let words = encode(identity)?;
    let mut mended = false;
    for copy in
        copies(storage, region)?.into_iter().filter(|copy| decode(&load(storage, copy)).is_err())
    {
        for (cell, word) in copy.iter().zip(words) {
            // Relaxed: the checksum binds the words together.
            cell.store(storage, word, Ordering::Relaxed);
        }
        storage.flush_object(copy);
        mended = true;
    }
    Ok(mended)
}

/// Ends a session cleanly, with `records` records (at most [`MOST_RECORDS`]). All other data must already be durable.
///
/// # Errors
/// As for [`begin_session`].
pub fn end_session(storage: &impl Medium, region: &Region, records: u64) -> Result<()> {
    let session = session(storage, region)?;
    let generation = session.generation.load(storage, Ordering::Relaxed);
    let clean = clean_word(generation, records.min(MOST_RECORDS));
    // Relaxed: only this word is stored, and all other data is durable already.
    session.clean.store(storage, clean, Ordering::Relaxed);
    // P4, commit point: the next opening finds that the table was closed, and its record count.
    storage.try_persist(session)?;
    sound(storage)
}

/// Returns the word `clean` of a clean close. It is never 0. Two sessions have equal seals with a probability of about
/// 2^-24.
fn clean_word(generation: u64, records: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&generation.to_le_bytes());
    bytes[8..].copy_from_slice(&records.to_le_bytes());
    (checksum(&bytes) >> RECORDS_BITS).max(1) << RECORDS_BITS | records
}

fn too_short(storage: &impl Medium, region: &Region) -> Error {
    shorter_than_needed(storage.path(), region.len())
}

fn shorter_than_needed(path: &Path, len: u64) -> Error {
    let detail = format!("the file has {len} bytes, but needs at least {TABLE_BYTES}");
    Error::corrupt(path.join(TABLE_REGION), len, detail)
}

fn copies<'a>(storage: &impl Medium, region: &'a Region) -> Result<[&'a Copy; 2]> {
    if region.len() < TABLE_BYTES {
        return Err(too_short(storage, region));
    }
    match COPIES.map(|offset| region.at::<Copy>(offset)) {
        [Some(first), Some(second)] => Ok([first, second]),
        _ => Err(too_short(storage, region)),
    }
}

fn session<'a>(storage: &impl Medium, region: &'a Region) -> Result<&'a Session> {
    region.at::<Session>(SESSION_OFFSET).ok_or_else(|| too_short(storage, region))
}

fn load(storage: &impl Medium, copy: &Copy) -> [u8; COPY_BYTES] {
    let mut bytes = [0; COPY_BYTES];
    for (cell, target) in copy.iter().zip(bytes.chunks_exact_mut(8)) {
        target.copy_from_slice(&cell.load(storage, Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

/// The flaw of a copy of the identity.
enum Flaw {
    Unsealed,
    Version(u32),
    Corrupt(usize, &'static str),
}

fn encode(identity: &Identity) -> Result<[u64; COPY_WORDS]> {
    let mut bytes = [0; COPY_BYTES];
    put_u64(&mut bytes, 0, MAGIC);
    bytes[VERSION_AT..][..4].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[HASH_AT..][..4].copy_from_slice(&identity.hash_id.to_le_bytes());
    for (at, words) in [
        (SEED_AT, &identity.hash_seed[..]),
        (UUID_AT, &identity.uuid[..]),
        (PARAMS_AT, &identity.params[..]),
    ] {
        for (index, word) in words.iter().enumerate() {
            put_u64(&mut bytes, at + index * 8, *word);
        }
    }
    for (index, name) in
        [&identity.design, &identity.key_type, &identity.value_type].into_iter().enumerate()
    {
        let (at, max) = NAMES[index];
        if name.len() > max {
            let detail = format!("`{name}` is longer than {max} bytes");
            return Err(Error::InvalidOption { option: "type name", detail });
        }
        bytes[LENGTHS_AT + index * 2..][..2].copy_from_slice(&(name.len() as u16).to_le_bytes());
        bytes[at..][..name.len()].copy_from_slice(name.as_bytes());
    }
    let sum = checksum(&bytes[..CHECKSUM_AT]);
    put_u64(&mut bytes, CHECKSUM_AT, sum);
    Ok(std::array::from_fn(|index| get_u64(&bytes, index * 8)))
}

fn decode(bytes: &[u8; COPY_BYTES]) -> std::result::Result<Identity, Flaw> {
    match get_u64(bytes, 0) {
        MAGIC => {}
        0 => return Err(Flaw::Unsealed),
        _ => return Err(Flaw::Corrupt(0, "no magic number")),
    }
    if get_u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT]) {
        return Err(Flaw::Corrupt(CHECKSUM_AT, "the superblock's checksum is wrong"));
    }
    let version = get_u32(bytes, VERSION_AT);
    if version != FORMAT_VERSION {
        return Err(Flaw::Version(version));
    }
    Ok(Identity {
        design: name(bytes, 0)?,
        key_type: name(bytes, 1)?,
        value_type: name(bytes, 2)?,
        hash_id: get_u32(bytes, HASH_AT),
        hash_seed: std::array::from_fn(|index| get_u64(bytes, SEED_AT + index * 8)),
        params: std::array::from_fn(|index| get_u64(bytes, PARAMS_AT + index * 8)),
        uuid: std::array::from_fn(|index| get_u64(bytes, UUID_AT + index * 8)),
    })
}

fn name(bytes: &[u8; COPY_BYTES], index: usize) -> std::result::Result<String, Flaw> {
    let (at, max) = NAMES[index];
    let length_at = LENGTHS_AT + index * 2;
    let len = usize::from(u16::from_le_bytes([bytes[length_at], bytes[length_at + 1]]));
    let text = bytes[at..at + max]
        .get(..len)
        .ok_or(Flaw::Corrupt(length_at, "a name is longer than its field"))?;
    let text = std::str::from_utf8(text).map_err(|_| Flaw::Corrupt(at, "a name is not UTF-8"))?;
    Ok(text.to_owned())
}

fn get_u64(bytes: &[u8; COPY_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn get_u32(bytes: &[u8; COPY_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn put_u64(bytes: &mut [u8; COPY_BYTES], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Returns the CRC-64/XZ of `bytes`. One bit at a time suffices: an opening computes it over a few kilobytes only.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    /// The ECMA-182 polynomial, its bits reversed.
    const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;
    let mut crc = u64::MAX;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    !crc
}

/// Returns the error for a superblock with a valid checksum and an impossible value.
pub(crate) fn impossible(storage: &impl Medium, what: &str) -> Error {
    let detail = format!("the superblock has an impossible {what}");
    Error::corrupt(storage.path().join(TABLE_REGION), 0, detail)
}

#[cfg(test)]
mod tests;
