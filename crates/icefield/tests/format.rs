//! `docs/format.md`, read back byte by byte.

use std::fs;
use std::path::Path;

use icefield::base::hash::{Hash, HashKind};
use icefield::{DashEh, Iceberg};

const SEED: [u64; 2] = [11, 22];

struct File(Vec<u8>);

impl File {
    fn read(table: &Path, name: &str) -> Self {
        Self(fs::read(table.join(name)).expect("the region exists"))
    }
    fn u64(&self, byte: u64) -> u64 {
        let at = byte as usize;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
    fn u32(&self, byte: u64) -> u32 {
        self.u64(byte) as u32
    }
    fn text(&self, byte: usize, length: usize) -> &str {
        std::str::from_utf8(&self.0[byte..byte + length]).expect("names are text")
    }
}

fn made(path: &Path) -> Vec<(u64, u64)> {
    let table = DashEh::<u64, u64>::options().hash_seed(SEED).create(path).expect("room");
    let records: Vec<(u64, u64)> = (0..5_000).map(|n| (n * 7, n + 1)).collect();
    table.put_batch(&records).expect("room");
    records
}

#[test]
fn the_superblock_is_as_documented() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    made(&path);
    let file = File::read(&path, "table.ice");
    for copy in [0, 1024] {
        assert_eq!(file.text(copy, 8), "icefield");
        let copy = copy as u64;
        assert_eq!((file.u32(copy + 8), file.u32(copy + 12)), (1, 1));
        assert_eq!([file.u64(copy + 16), file.u64(copy + 24)], SEED);
        assert_eq!(
            (0..6).map(|n| file.u64(copy + 48 + 8 * n)).collect::<Vec<_>>(),
            [64, 14, 2, 65536, 1, 1]
        );
        assert_eq!(
            (file.text(copy as usize + 184, 8), file.text(copy as usize + 280, 4)),
            ("dash-eh\0", "u64\0")
        );
    }
    assert_eq!((file.u64(3072), file.u64(3088)), (1, 5_000));
    let words = [1_u64.to_le_bytes(), 5_000_u64.to_le_bytes()].concat();
    assert_eq!(file.u64(3080), icefield::pm::superblock::checksum(&words));
}

/// A reader that knows nothing but the document finds every record.
#[test]
fn every_record_is_where_the_document_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    let records = made(&path);
    let [root, headers, segments] =
        ["table.ice", "headers.ice", "segments.ice"].map(|name| File::read(&path, name));
    let depth = root.u64(4096) & 0xFF;
    assert_eq!(root.u64(4096) >> 8, 0, "never cleared");
    let entries = File::read(&path, "directory-0.ice");
    let hash = Hash::new(HashKind::Strong, SEED);
    for (key, value) in records {
        let hash = hash.word(key);
        let index = if depth == 0 { 0 } else { hash >> (64 - depth) };
        let entry = entries.u64(8 * ((1 << depth) + index));
        assert_eq!(entry >> 63, 1);
        let segment = entry & !(1 << 63);
        let link = headers.u64(32 * segment);
        let local = link >> 8 & 0xFF;
        assert_eq!(link & 0xFF, 1, "stable");
        if local > 0 {
            assert_eq!(
                headers.u64(32 * segment + 8) >> (64 - local),
                hash >> (64 - local),
                "pattern"
            );
        }
        let home = hash >> 8 & 63;
        let found = [home, (home + 1) % 64, 64, 65].into_iter().any(|bucket| {
            let at = (segment * 66 + bucket) * 256;
            let meta = segments.u32(at + 12);
            (0..14).any(|slot| {
                let here = meta >> slot & 1 == 1 && segments.u64(at + 32 + 16 * slot) == key;
                if here {
                    assert_eq!(segments.0[(at + 16 + slot) as usize], hash as u8, "fingerprint");
                    assert_eq!(segments.u64(at + 40 + 16 * slot), value);
                    let member = meta >> (14 + slot) & 1 == 1;
                    assert_eq!(member, bucket < 64 && bucket != home, "membership");
                }
                here
            })
        });
        assert!(found, "key {key}");
    }
    // The allocator of segments: as many handed out as there are, none free, no intent left.
    assert!(root.u64(4160) > 5);
    assert_eq!(root.u64(4160 + 16), 0);
    assert!((0..32).all(|intent| root.u64(4160 + 64 + 8 * intent) == 0));
}

/// The same for the slots of IcebergHT.
#[test]
fn every_record_of_an_iceberg_is_where_the_document_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    let options = Iceberg::<u64, u64>::options().hash_seed(SEED).capacity(4_600).max_load(1.0);
    let table = options.create(&path).expect("room");
    let records: Vec<(u64, u64)> = (0..4_500).map(|n| (n * 7, n + 1)).collect();
    table.put_batch(&records).expect("room");
    drop(table);
    let [root, front, back, overflow] =
        ["table.ice", "front.ice", "back.ice", "overflow.ice"].map(|name| File::read(&path, name));
    assert_eq!((0..6).map(|n| root.u64(48 + 8 * n)).collect::<Vec<_>>(), [64, 8, 0, 65536, 1, 1]);
    assert_eq!((root.text(184, 8), root.text(280, 4)), ("iceberg\0", "u64\0"));
    let (depth, phase) = (root.u64(4096) & 0xFF, root.u64(4096) >> 8 & 0xFF);
    assert_eq!((depth, phase), (6, 1), "64 buckets, stable");
    assert_eq!((root.u64(4160), root.u64(4168)), (1, 1), "key 0 is in the side slot");
    let hash = Hash::new(HashKind::Strong, SEED);
    let (mut in_front, mut in_back) = (0, 0);
    for &(key, value) in &records[1..] {
        let hash = hash.word(key);
        let mask = (1 << depth) - 1;
        let product = u128::from(hash ^ 0xBB67_AE85_84CA_A73B) * 0x6A09_E667_F3BC_C909;
        let m = product as u64 ^ (product >> 64) as u64;
        let m = m & !(1 << 32) | (!m & 1) << 32;
        let holds = |file: &File, bucket: u64, slots: u64| {
            (bucket * slots..(bucket + 1) * slots)
                .any(|slot| (file.u64(16 * slot), file.u64(16 * slot + 8)) == (key, value))
        };
        let [first, second] = [m & mask, m >> 32 & mask];
        if holds(&front, hash & mask, 64) {
            in_front += 1;
        } else if holds(&back, first, 8) || holds(&back, second, 8) {
            in_back += 1;
        } else {
            assert!(holds(&overflow, 0, overflow.0.len() as u64 / 16), "key {key}");
        }
    }
    assert!(in_back > 300, "{in_back}");
    println!("{in_front} in the front yard, {in_back} in the back yard");
    let used = |file: &File| file.0.chunks_exact(16).filter(|slot| slot[..8] != [0; 8]).count();
    assert_eq!((used(&front), used(&back)), (in_front, in_back), "and nothing else is there");
}
