//! The format of the superblock, byte by byte, and its state after crashes.

mod crash;

use super::*;
use crate::Durability;
use crate::storage::{Bytes, Mapped, MappedOptions, Properties, Regions};

fn memory() -> Mapped {
    Mapped::anonymous(MappedOptions::default()).unwrap()
}

fn identity() -> Identity {
    Identity {
        design: "dash-eh".into(),
        key_type: "u64".into(),
        value_type: "bytes".into(),
        hash_id: 1,
        hash_seed: [2, 3],
        params: std::array::from_fn(|index| 100 + index as u64),
        uuid: [4, 5],
    }
}

fn sealed(storage: &Mapped) -> Region {
    let region = create(storage).unwrap();
    seal(storage, &region, &identity()).unwrap();
    region
}

/// Changes one bit of a byte of the region.
fn flip(storage: &Mapped, region: &Region, offset: u64) {
    let cell = region.at::<Cell64>(offset / 8 * 8).unwrap();
    let word = cell.load(storage, Ordering::Relaxed) ^ (0x10 << (offset % 8 * 8));
    cell.store(storage, word, Ordering::Relaxed);
}

#[test]
fn the_checksum_is_crc_64_xz() {
    assert_eq!(checksum(b"123456789"), 0x995D_C9BB_DF19_39FA);
    assert_eq!(checksum(b""), 0);
}

#[test]
fn reads_what_was_sealed() {
    let storage = memory();
    let region = sealed(&storage);
    let (again, found) = read(&storage).unwrap();
    assert_eq!(again.base(), region.base());
    assert_eq!(found, identity());
}

#[test]
fn the_bytes_are_those_of_the_table_above() {
    let storage = memory();
    let region = sealed(&storage);
    for copy in COPIES {
        // SAFETY: no thread writes to this region any more.
        let bytes = unsafe { storage.read_bytes(&region, copy, COPY_BYTES) }.unwrap();
        assert_eq!(&bytes[..8], b"icefield");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[40]), (2, 3, 4, 5));
        assert_eq!((bytes[48], bytes[168]), (100, 115));
        assert_eq!(bytes[176..184], [7, 0, 3, 0, 5, 0, 0, 0]);
        assert_eq!(&bytes[184..191], b"dash-eh");
        assert_eq!(&bytes[280..283], b"u64");
        assert_eq!(&bytes[536..541], b"bytes");
        assert_eq!(bytes[1016..], checksum(&bytes[..1016]).to_le_bytes());
    }
}

#[test]
fn an_unsealed_region_is_no_table() {
    let storage = memory();
    assert!(matches!(read(&storage), Err(Error::NotFound { .. })));
    create(&storage).unwrap();
    assert!(matches!(read(&storage), Err(Error::NotFound { .. })));
}

#[test]
fn one_good_copy_suffices() {
    for damaged in [0, 8, 200, 1016, 1024, 1024 + 500] {
        let storage = memory();
        let region = sealed(&storage);
        flip(&storage, &region, damaged);
        assert_eq!(read(&storage).unwrap().1, identity(), "byte {damaged}");
        flip(&storage, &region, if damaged < 1024 { 1024 + 48 } else { 48 });
        assert!(matches!(read(&storage), Err(Error::Corrupt { .. })), "byte {damaged}");
    }
}

#[test]
fn every_flipped_byte_of_both_copies_is_noticed() {
    let storage = memory();
    let region = sealed(&storage);
    for byte in 0..COPY_BYTES as u64 {
        let both = COPIES.map(|copy| copy + byte);
        both.iter().for_each(|byte| flip(&storage, &region, *byte));
        assert!(matches!(read(&storage), Err(Error::Corrupt { .. })), "byte {byte}");
        both.iter().for_each(|byte| flip(&storage, &region, *byte));
    }
    assert!(read(&storage).is_ok());
}

#[test]
fn another_version_is_named() {
    let storage = memory();
    let region = sealed(&storage);
    for copy in copies(&storage, &region).unwrap() {
        let mut bytes = load(&storage, copy);
        bytes[VERSION_AT] = 9;
        let sum = checksum(&bytes[..CHECKSUM_AT]);
        copy[1].store(&storage, get_u64(&bytes, 8), Ordering::Relaxed);
        copy[CHECKSUM_AT / 8].store(&storage, sum, Ordering::Relaxed);
    }
    assert!(matches!(
        read(&storage),
        Err(Error::FormatVersion { found: 9, supported: FORMAT_VERSION, .. })
    ));
}

#[test]
fn names_have_their_bounds() {
    let storage = memory();
    let region = create(&storage).unwrap();
    let longest = Identity { design: "d".repeat(96), key_type: "k".repeat(256), ..identity() };
    seal(&storage, &region, &longest).unwrap();
    assert_eq!(read(&storage).unwrap().1, longest);
    let too_long = Identity { design: "d".repeat(97), ..identity() };
    assert!(matches!(seal(&storage, &region, &too_long), Err(Error::InvalidOption { .. })));
    // The length of a name exceeds the space reserved for the name, and the checksum is valid.
    let first = copies(&storage, &region).unwrap()[0];
    let mut bytes = load(&storage, first);
    bytes[LENGTHS_AT] = 200;
    let sum = checksum(&bytes[..CHECKSUM_AT]);
    put_u64(&mut bytes, CHECKSUM_AT, sum);
    assert!(matches!(decode(&bytes), Err(Flaw::Corrupt(LENGTHS_AT, _))));
}

#[test]
fn any_bytes_under_a_good_checksum_are_taken_without_a_panic() {
    let mut state = 1_u64;
    let mut decoded = 0;
    for _ in 0..2000 {
        let mut bytes = [0; COPY_BYTES];
        for word in bytes.chunks_exact_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(state >> (state >> 59)).to_le_bytes());
        }
        put_u64(&mut bytes, 0, MAGIC);
        bytes[VERSION_AT..][..4].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[LENGTHS_AT..][..8].copy_from_slice(&(state >> 40 & 0x0103_0103_0103).to_le_bytes());
        let sum = checksum(&bytes[..CHECKSUM_AT]);
        put_u64(&mut bytes, CHECKSUM_AT, sum);
        match decode(&bytes) {
            Ok(identity) => {
                decoded += 1;
                assert!(identity.design.len() <= 96);
            }
            Err(Flaw::Corrupt(at, _)) => assert!((LENGTHS_AT..CHECKSUM_AT).contains(&at)),
            Err(Flaw::Unsealed | Flaw::Version(_)) => panic!("neither was damaged"),
        }
    }
    assert!(decoded > 0);
}

#[test]
fn sessions_count_up_and_tell_a_clean_close() {
    let storage = memory();
    let region = sealed(&storage);
    let first = begin_session(&storage, &region).unwrap();
    assert_eq!(first, SessionStart { generation: 1, was_clean: false, records: 0, mended: false });
    end_session(&storage, &region, 42).unwrap();
    let second = begin_session(&storage, &region).unwrap();
    assert_eq!(second, SessionStart { generation: 2, was_clean: true, records: 42, mended: false });
    let third = begin_session(&storage, &region).unwrap();
    assert_eq!((third.generation, third.was_clean), (3, false));
    region.at::<Session>(SESSION_OFFSET).unwrap().generation.store(
        &storage,
        u64::MAX,
        Ordering::Relaxed,
    );
    assert_eq!(begin_session(&storage, &region).unwrap().generation, 1, "zero is no session");
}

#[test]
fn a_damaged_copy_is_told_and_mended_by_whoever_may_write() {
    for copy in COPIES {
        for at in [0, VERSION_AT, CHECKSUM_AT] {
            let storage = memory();
            let region = sealed(&storage);
            let word: &Cell64 = region.at(copy + (at / 8 * 8) as u64).unwrap();
            word.store(
                &storage,
                word.load(&storage, Ordering::Relaxed) ^ 1 << 33,
                Ordering::Relaxed,
            );
            assert_eq!(check(&storage, &region).unwrap().len(), 1);
            let start = resume_session(&storage, &region, &identity()).unwrap();
            assert!(start.mended && check(&storage, &region).unwrap().is_empty());
            assert!(!resume_session(&storage, &region, &identity()).unwrap().mended);
        }
    }
}

#[test]
fn a_short_region_is_corrupt() {
    let storage = memory();
    let region = storage.region(TABLE_REGION, TABLE_BYTES).unwrap();
    storage.grow(&region, 4096).unwrap();
    assert!(matches!(read(&storage), Err(Error::Corrupt { offset: 4096, .. })));
    assert!(matches!(seal(&storage, &region, &identity()), Err(Error::Corrupt { .. })));
    assert_eq!(storage.durability(), Durability::Memory);
}
