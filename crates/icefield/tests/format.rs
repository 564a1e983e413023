//! Reads files byte by byte as `docs/format.md` describes them.

use std::fs;
use std::path::Path;

use icefield::base::hash::{Hash, HashKind};
use icefield::{DashEh, DashLh, Iceberg, JoinIndex, Plush, Shape};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

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
    let (opened, closed) = (file.u64(3072), file.u64(3080));
    assert_eq!((opened, closed & ((1 << 40) - 1)), (1, 5_000));
    let words = [1_u64.to_le_bytes(), 5_000_u64.to_le_bytes()].concat();
    assert_eq!(closed >> 40, icefield::storage::superblock::checksum(&words) >> 40);
}

/// Finds every record with only the information in the document.
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
        let found = in_segment(&segments, segment, hash, (key, value));
        assert!(found, "key {key}");
    }
    // The allocator of segments has handed out more than five segments, has no free one, and has no pending intent.
    assert!(root.u64(4160) > 5);
    assert_eq!(root.u64(4160 + 16), 0);
    assert!((0..32).all(|intent| root.u64(4160 + 64 + 8 * intent) == 0));
}

/// Checks whether a segment's buckets, without the chain, hold a record.
fn in_segment(segments: &File, segment: u64, hash: u64, record: (u64, u64)) -> bool {
    let home = hash >> 8 & 63;
    [home, (home + 1) % 64, 64, 65].into_iter().any(|bucket| {
        let at = (segment * 66 + bucket) * 256;
        let slot = in_bucket(segments, at, hash, record);
        let member = |slot: u64| segments.u32(at + 12) >> (14 + slot) & 1 == 1;
        if let Some(slot) = slot {
            assert_eq!(member(slot), bucket < 64 && bucket != home, "membership");
        }
        slot.is_some()
    })
}

/// Returns the slot of a record in the bucket at byte `at`.
fn in_bucket(file: &File, at: u64, hash: u64, (key, value): (u64, u64)) -> Option<u64> {
    let holds =
        |&slot: &u64| file.u32(at + 12) >> slot & 1 == 1 && file.u64(at + 32 + 16 * slot) == key;
    let slot = (0..14).find(holds)?;
    assert_eq!(file.0[(at + 16 + slot) as usize], hash as u8, "fingerprint");
    assert_eq!(file.u64(at + 40 + 16 * slot), value);
    Some(slot)
}

/// Reads a table of linear hashing with a first array of 4 segments and two arrays of each size.
#[test]
fn every_record_of_linear_hashing_is_where_the_document_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    let options = DashLh::<u64, u64>::options().hash_seed(SEED).first_array(4).stride(2);
    let table = options.create(&path).expect("room");
    let records: Vec<(u64, u64)> = (0..20_000).map(|n| (n * 7, n + 1)).collect();
    table.put_batch(&records).expect("room");
    // `check` executes all splits that are due.
    assert!(table.check().expect("readable").is_clean());
    drop(table);
    let [root, headers, segments, chains, entries] =
        ["table.ice", "headers.ice", "segments.ice", "chains.ice", "directory-0.ice"]
            .map(|name| File::read(&path, name));
    assert_eq!((0..9).map(|n| root.u64(48 + 8 * n)).collect::<Vec<_>>()[6..], [4, 2, 0]);
    assert_eq!(root.text(184, 8), "dash-lh\0");
    let (next, level, generation) =
        (root.u32(4096), root.u64(4096) >> 32 & 0xFF, root.u64(4096) >> 40);
    assert_eq!(generation, 0, "never cleared");
    let segments_in_use = (1 << level) + u64::from(next);
    println!("{segments_in_use} segments");
    assert!(segments_in_use > 20);
    let hash = Hash::new(HashKind::Strong, SEED);
    let mut chained = 0;
    for record in records {
        let hash = hash.word(record.0);
        let prefix = hash >> (64 - level);
        let depth = level + u64::from(prefix < u64::from(next));
        let path = 1 << depth | hash >> (64 - depth);
        let number = path >> path.trailing_zeros() >> 1;
        // Arrays of 4, 4, 8, 8, 16, 16 segments and so on.
        let (mut array, mut within, mut size) = (0, number, 4);
        while within >= size {
            (array, within) = (array + 1, within - size);
            size = 4 << (array / 2);
        }
        let entry = entries.u64(8 * array);
        let place = if array == 0 { 0 } else { number - within + 4 };
        assert_eq!(entry, 1 << 63 | place);
        let segment = place + within;
        assert_eq!(headers.u64(32 * segment) & 0xFFFF, 1 | depth << 8, "stable, depth");
        assert_eq!(headers.u64(32 * segment + 8) >> (64 - depth), hash >> (64 - depth));
        assert_eq!(headers.u64(32 * segment + 24), 1, "made in generation 0");
        if !in_segment(&segments, segment, hash, record) {
            let mut block = headers.u64(32 * segment + 16);
            while in_bucket(&chains, (block - 1) * 320 + 64, hash, record).is_none() {
                block = chains.u64((block - 1) * 320);
            }
            chained += 1;
        }
    }
    println!("{chained} records in chained buckets");
}

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

/// Returns the valid records of `words` words in the logs of a Plush table, with their epochs.
fn logged(log: &File, words: u64, chunks: u64, records: u64) -> Vec<(Vec<u64>, u64)> {
    const FLAG: u64 = 1 << 63;
    let bytes = 8 * (words + 1);
    let chunk_bytes = (64 + bytes * records).next_multiple_of(256);
    let mut found = Vec::new();
    for chunk in 0..log.0.len() as u64 / chunk_bytes {
        let turn = log.u64(chunk * chunk_bytes);
        if turn == 0 {
            continue;
        }
        assert_eq!((turn - 1) % chunks, chunk % chunks);
        let flag = if ((turn - 1) / chunks).is_multiple_of(2) { FLAG } else { 0 };
        for record in 0..records {
            let at = chunk * chunk_bytes + 64 + bytes * record;
            let all: Vec<u64> = (0..=words).map(|word| log.u64(at + 8 * word)).collect();
            if all.iter().all(|word| word & FLAG == flag) {
                let last = all[words as usize];
                assert_eq!(last >> (62 - words) & 1, 0, "nothing was removed");
                let whole = |(at, word): (u32, &u64)| word & !FLAG | last << 1 << at & FLAG;
                let content = (0..).zip(&all[..words as usize]).map(whole).collect();
                found.push((content, last & ((1 << 46) - 1)));
            }
        }
    }
    found
}

#[test]
fn every_record_of_a_plush_is_where_the_document_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    let shape = Shape { root_bits: 2, log_bits: 1, log_records: 200, ..Shape::default() };
    let table = Plush::<u64, u64>::options().hash_seed(SEED).shape(shape).create(&path);
    let table = table.expect("room");
    let records: Vec<(u64, u64)> = (0..6_000).map(|n| (n * 7, !n)).collect();
    records.iter().for_each(|&(key, value)| table.put(key, value).expect("room"));
    drop(table);
    let hash = Hash::new(HashKind::Strong, SEED);
    let records = records.iter().map(|&(key, value)| (hash.word(key), vec![key, value]));
    plush_is_as_documented(&path, [1, 1, 0], &records.collect::<Vec<_>>());
}

#[test]
fn every_wide_record_of_a_plush_is_where_the_document_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.ice");
    let shape = Shape { root_bits: 2, log_bits: 1, log_records: 200, ..Shape::default() };
    let options = Plush::<u128, [u8; 32]>::options().hash_seed(SEED).shape(shape);
    let table = options.create(&path).expect("room");
    let hash = Hash::new(HashKind::Strong, SEED);
    let mut records = Vec::new();
    for n in 0..6_000_u64 {
        let words: Vec<u64> = (0..6).map(|word| (n * 7 + 1).rotate_right(word * 11)).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let key = u128::from_le_bytes(bytes[..16].try_into().expect("16 bytes"));
        table.put(key, bytes[16..].try_into().expect("32 bytes")).expect("room");
        records.push((hash.bytes(&bytes[..16]), words));
    }
    drop(table);
    plush_is_as_documented(&path, [2 | 16 << 8, 2 | 32 << 8, 2 | 4 << 8], &records);
}

/// Finds records by their hashes as the document describes. `types` are the superblock's parameters for types and
/// widths.
fn plush_is_as_documented(path: &Path, types: [u64; 3], records: &[(u64, Vec<u64>)]) {
    let words = records[0].1.len() as u64;
    let [root, levels, log] =
        ["table.ice", "levels.ice", "log.ice"].map(|name| File::read(path, name));
    let runs = [1, 2, 4, 8].map(|run| File::read(path, &format!("buckets-{run}.ice")));
    let params: Vec<u64> = (0..10).map(|n| root.u64(48 + 8 * n)).collect();
    assert_eq!(params[..4], [2 | 4 << 16 | 16 << 24, 1 | 4 << 8, 200, 65536]);
    assert_eq!(params[4..], [types[0], types[1], 0, 0, 0, types[2]]);
    assert_eq!(root.text(184, 6), "plush\0");
    assert_eq!((root.u64(4096), root.u64(4104)), (2, 2), "stable, of two levels");
    let logged = logged(&log, words, 4, 200);
    let arrived = |hash: u64| levels.u64(448 * (hash >> 62)) >> 16;
    let (mut in_levels, mut in_log, mut twice) = (0, 0, 0);
    for (number, (hash, content)) in records.iter().enumerate() {
        let hash = *hash;
        // Level 1 has 4 entries, level 2 has 64.
        let places = [hash >> 62, 4 + (hash >> 58)].into_iter().map(|entry| {
            let size = levels.u64(448 * entry) & 0xFFFF;
            let holds = |record: &u64| {
                let (bucket, slot) = (record / 16, record % 16);
                let run = if bucket == 0 { 0 } else { bucket.ilog2() + 1 };
                let first = if bucket == 0 { 0 } else { 1 << bucket.ilog2() };
                let class = run.saturating_sub(1);
                let block = u64::from(levels.u32(448 * entry + 8 + 4 * u64::from(run))) - 1;
                let at = 128 * words * ((block << class) + bucket - first);
                let file = &runs[class as usize];
                let rest = (0..words - 1).map(|word| at + 128 + 8 * (slot * (words - 1) + word));
                let all = [at + 8 * slot].into_iter().chain(rest);
                all.map(|byte| file.u64(byte)).eq(content.iter().copied())
            };
            (0..size).filter(holds).count()
        });
        let found: usize = places.sum();
        let copies = logged.iter().filter(|(_, epoch)| *epoch > arrived(hash));
        let copies = copies.filter(|(copy, _)| copy == content);
        let copies = copies.count();
        // A record is found twice if a migration that has not finished has already moved it.
        assert!(matches!(found + copies, 1 | 2), "record {number} is in {found} + {copies} places");
        in_levels += u64::from(found > 0);
        in_log += u64::from(found == 0);
        twice += u64::from(found + copies == 2);
    }
    println!("{in_levels} in the levels, {in_log} in the logs, {twice} twice");
    assert!(in_levels > 4_000 && in_log > 100);
    assert!(twice < 4 * 200, "of a root entry, a migration at a time");
}

#[test]
fn a_join_index_is_as_documented() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("index.ice");
    let keys: Vec<u64> = (0..2_000).map(|n| n * 11).collect();
    let payloads: Vec<u64> = (0..2_000).collect();
    let options = JoinIndex::<u64>::options().hash_seed(SEED);
    let index = options.build(&path, &keys, &payloads).expect("room");
    index.insert(5, 50).expect("room");
    index.remove(11).expect("room");
    drop(index);
    let (table, base, delta) = (
        File::read(&path, "table.ice"),
        File::read(&path, "base-1.ice"),
        File::read(&path, "delta-1.ice"),
    );
    let hash = Hash::new(HashKind::Strong, SEED);
    let sums = Hash::new(HashKind::Strong, SEED.map(|word| !word));
    let sum = |words: &[u64]| {
        sums.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    };
    for root in [4096, 4160] {
        assert_eq!([table.u64(root), table.u64(root + 16)], [1, 11]);
        assert_eq!(table.u64(root + 8), base.u64(64));
        let words: Vec<u64> = (0..7).map(|n| table.u64(root + 8 * n)).collect();
        assert_eq!(table.u64(root + 56), sum(&words));
    }
    assert_eq!(table.u64(4224), 2 | sum(&[1, 2]) << 40);

    assert_eq!((base.text(0, 8), base.u64(8), base.u64(32)), ("joinbase", 1, 2_000));
    let (groups, wide) = (base.u64(40), base.u64(48));
    assert_eq!((groups, wide), (2_000_u64.div_ceil(29), 0));
    let area = |end: u64| end.next_multiple_of(4096);
    let records = area(4096 + groups * 64);
    let checksums = area(records + 2_000 * 16);
    assert_eq!(base.0.len() as u64, area(checksums + checksums / 4096 * 8));
    for block in 1..checksums / 4096 {
        let bytes = &base.0[block as usize * 4096..][..4096];
        assert_eq!(base.u64(checksums + block * 8), sums.bytes(bytes));
    }
    assert_eq!(base.u64(56), sums.bytes(&base.0[checksums as usize..]));
    for (key, payload) in keys.iter().zip(&payloads) {
        let hash = hash.word(*key);
        let group = 4096 + ((u128::from(hash) * u128::from(groups)) >> 64) as u64 * 64;
        let (first, bucket) = (base.u64(group) & ((1 << 48) - 1), hash as usize & 15);
        let ends = &base.0[group as usize + 8..][..16];
        let start = if bucket == 0 { 0 } else { ends[bucket - 1] };
        let mut bucket = (first + u64::from(start)..first + u64::from(ends[bucket]))
            .map(|record| records + record * 16);
        assert!(bucket.any(|at| (base.u64(at), base.u64(at + 8)) == (*key, *payload)));
        for word in 0..5 {
            let bit = hash >> (4 + 6 * word) & 63;
            assert_eq!(base.u64(group + 24 + 8 * word) >> bit & 1, 1);
        }
    }

    for (number, words) in [[5, 50, 1], [11, 0, 2]].into_iter().enumerate() {
        let at = number as u64 * 32;
        assert_eq!([0, 8, 16].map(|word| delta.u64(at + word)), words);
        let [key, payload, kind] = words;
        assert_eq!(delta.u64(at + 24), sum(&[key, payload, kind, number as u64, 1]));
    }
}
