//! Tables opened by the types in their superblock, compared with the same tables opened by their Rust types.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "any/salvage.rs"]
mod salvage;

use icefield::{AnyOptions, AnyTable, Cursor, DashEh, Error, Occupied, Word};
// Its tables are compiled already (record 0108).
use icefield_torture as _;

fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn create(path: &std::path::Path, key: &str, value: &str) -> AnyTable {
    AnyTable::create(path, "dash-eh", key, value, &AnyOptions::default()).unwrap()
}

#[test]
fn typed_tables_open_untyped() {
    let place = place();
    let path = place.path().join("t.ice");
    DashEh::<i32, str>::options().create(&path).unwrap().put(-5, "five").unwrap();
    let table = AnyTable::open(&path).unwrap();
    assert_eq!((table.design(), table.key_type(), table.value_type()), ("dash-eh", "i32", "str"));
    assert_eq!(table.get(&(-5_i32).to_le_bytes()).unwrap(), Some(b"five".to_vec()));
    assert!(table.recovery().was_clean);
}

#[test]
fn untyped_tables_open_typed() {
    let place = place();
    let path = place.path().join("t.ice");
    create(&path, "[u8; 16]", "u128").put(&[7; 16], &9_u128.to_le_bytes()).unwrap();
    let table = DashEh::<[u8; 16], u128>::options().open(&path).unwrap();
    assert_eq!(table.get([7; 16]).unwrap(), Some(9));
    drop(table);
    assert!(matches!(DashEh::<[u8], u128>::options().open(&path), Err(Error::TypeMismatch { .. })));
    assert!(matches!(DashEh::<u64, u128>::options().open(&path), Err(Error::TypeMismatch { .. })));
}

#[test]
fn a_users_word_is_eight_bytes() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct OrderId(u32);
    impl Word for OrderId {
        const TYPE: &'static str = "order-id";
        fn to_word(self) -> u64 {
            u64::from(self.0)
        }
        fn from_word(word: u64) -> Option<Self> {
            u32::try_from(word).ok().map(OrderId)
        }
    }
    let place = place();
    let path = place.path().join("t.ice");
    DashEh::<OrderId, u64>::options().create(&path).unwrap().put(OrderId(7), 70).unwrap();
    let table = AnyTable::open(&path).unwrap();
    assert_eq!(table.key_type(), "order-id");
    assert_eq!(table.get(&7_u64.to_le_bytes()).unwrap(), Some(70_u64.to_le_bytes().to_vec()));
}

#[test]
fn every_call_means_what_it_means_on_typed_tables() {
    let place = place();
    let table = create(&place.path().join("t.ice"), "str", "u16");
    let value = |number: u16| number.to_le_bytes();
    assert_eq!(table.try_insert(b"a", &value(1)).unwrap(), Ok(()));
    assert_eq!(table.try_insert(b"a", &value(2)).unwrap(), Err(Occupied(value(1).to_vec())));
    assert_eq!(table.insert(b"a", &value(3)).unwrap(), Some(value(1).to_vec()));
    assert_eq!(table.update(b"b", &value(4)).unwrap(), None);
    assert!(!table.contains(b"b").unwrap());
    table.put_batch(&[(b"b", &value(5)), (b"c", &value(6))]).unwrap();
    let previous = table.insert_batch(&[(b"b", &value(7)), (b"d", &value(8))]).unwrap();
    assert_eq!(previous, [Some(value(5).to_vec()), None]);
    let found = table.get_batch(&[b"a", b"x", b"d"]).unwrap();
    assert_eq!(found, [Some(value(3).to_vec()), None, Some(value(8).to_vec())]);
    assert_eq!(table.remove_batch(&[b"c", b"c"]).unwrap(), [Some(value(6).to_vec()), None]);
    assert_eq!(table.remove(b"d").unwrap(), Some(value(8).to_vec()));
    assert_eq!(table.len().unwrap(), 2);

    let page = table.scan(Cursor::START, 100).unwrap();
    let mut records = page.records;
    records.sort();
    assert_eq!(records, [(b"a".to_vec(), value(3).to_vec()), (b"b".to_vec(), value(7).to_vec())]);
    assert_eq!(page.next, None);

    table.reserve(1000).unwrap();
    assert!(table.capacity() >= 1000);
    table.sync().unwrap();
    assert!(table.check().unwrap().is_clean());
    table.clear().unwrap();
    assert!(table.is_empty().unwrap());
}

#[test]
fn bytes_that_are_no_value_are_refused_and_nothing_changes() {
    let place = place();
    let table = create(&place.path().join("t.ice"), "u32", "bool");
    let refused = |result: icefield::Result<()>| matches!(result, Err(Error::InvalidOption { .. }));
    assert!(refused(table.put(&[0; 8], &[1])));
    assert!(refused(table.put(&[0; 4], &[2])));
    assert!(refused(table.put_batch(&[(&[0; 4], &[1]), (&[0; 4], &[])])));
    assert!(table.get(&[0; 3]).is_err() && table.remove(&[]).is_err());
    assert!(table.get_batch(&[&[0; 4], &[0; 3]]).is_err());
    assert_eq!(table.len().unwrap(), 0);
    let texts = create(&place.path().join("texts.ice"), "str", "str");
    texts.put("ä".as_bytes(), "ö".as_bytes()).unwrap();
    let mut seen = 0;
    assert!(texts.get_batch_with(&["ä".as_bytes(), b"\xFF"], |_, _| seen += 1).is_err());
    assert!(texts.get_batch(&[b"\xC3"]).is_err() && texts.remove_batch(&[b"\xFF"]).is_err());
    assert_eq!((seen, texts.len().unwrap()), (0, 1));
}

#[test]
fn names_that_are_none_are_refused() {
    let place = place();
    let path = place.path().join("t.ice");
    for (design, key, value) in [
        ("dash", "u64", "u64"),
        ("dash-eh", "u65", "u64"),
        ("dash-eh", "u64", ""),
        ("dash-eh", "f32", "u64"),
    ] {
        let made = AnyTable::create(&path, design, key, value, &AnyOptions::default());
        assert!(matches!(made, Err(Error::InvalidOption { .. })), "{made:?}");
    }
    assert!(!path.exists());
    assert!(matches!(AnyTable::open(&path), Err(Error::NotFound { .. })));
}

#[test]
fn copies_keep_their_types() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    let table = create(&at("t.ice"), "u8", "[u8; 64]");
    table.put(&[1], &[2; 64]).unwrap();
    table.backup(at("backup.ice")).unwrap();
    assert_eq!(table.salvage(at("salvage.ice")).unwrap().records, 1);
    for copy in ["backup.ice", "salvage.ice"] {
        let copy = DashEh::<u8, [u8; 64]>::options().open(at(copy)).unwrap();
        assert_eq!(copy.get(1).unwrap(), Some([2; 64]));
    }
}

#[test]
fn readers_share_and_change_nothing() {
    let place = place();
    let path = place.path().join("t.ice");
    create(&path, "u64", "u64").put(&[1; 8], &[2; 8]).unwrap();
    let (first, second) =
        (AnyTable::open_read_only(&path).unwrap(), AnyTable::open_read_only(&path).unwrap());
    assert_eq!(first.get(&[1; 8]).unwrap(), second.get(&[1; 8]).unwrap());
    assert!(matches!(first.put(&[1; 8], &[3; 8]), Err(Error::ReadOnly)));
    assert!(matches!(AnyTable::open(&path), Err(Error::Locked { .. })));
}

/// A type's name, and a function that makes a value of the type from a number and returns the value's bytes.
type NumberedType = (&'static str, fn(u64) -> Vec<u8>);

/// A word, a fixed and a variable type.
const FORMS: [NumberedType; 3] = [
    ("u64", |number| number.to_le_bytes().to_vec()),
    ("[u8; 32]", |number| [[0; 24].as_slice(), &number.to_be_bytes()].concat()),
    ("str", |number| format!("number {number}").into_bytes()),
];

/// Each pair of forms may be compiled to a different engine, so the test covers every pair.
#[test]
fn every_pair_of_forms_has_every_call() {
    let directory = place();
    for design in AnyTable::DESIGNS {
        for ((key, key_of), (value, value_of)) in
            FORMS.iter().flat_map(|key| FORMS.iter().map(move |value| (*key, *value)))
        {
            let what = format!("{design} of {key} and {value}");
            let path = directory.path().join(&what);
            let records: Vec<_> =
                (0..500).map(|number| (key_of(number), value_of(number))).collect();
            let table =
                AnyTable::create(&path, design, key, value, &AnyOptions::default()).unwrap();
            let (first, second) = records.split_at(250);
            first.iter().for_each(|(key, value)| table.put(key, value).unwrap());
            let pairs: Vec<(&[u8], &[u8])> =
                second.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            table.put_batch(&pairs).unwrap();
            drop(table);
            let table = AnyTable::open(&path).unwrap();
            assert_eq!(table.len().unwrap(), 500, "{what}");
            for (key, value) in &records {
                assert_eq!(table.get(key).unwrap().as_ref(), Some(value), "{what}");
                assert_eq!(table.get_with(key, |found| found == value).unwrap(), Some(true));
            }
            // Half of the keys are absent.
            let asked: Vec<_> = (400..600).map(|number| key_of(number * 2 % 1000)).collect();
            let asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
            let mut shown = Vec::new();
            table
                .get_batch_with(&asked, |index, found| {
                    shown.push((index, found.map(<[u8]>::to_vec)));
                })
                .unwrap();
            let copies = table.get_batch(&asked).unwrap();
            assert_eq!(shown, copies.into_iter().enumerate().collect::<Vec<_>>(), "{what}");
            assert_eq!(shown.iter().filter(|(_, found)| found.is_some()).count(), 100, "{what}");
            let removed = table.remove_batch(&asked).unwrap();
            assert_eq!(removed.iter().flatten().count(), 100, "{what}");
            assert!(table.check().unwrap().is_clean(), "{what}");
        }
    }
}

/// The calls on words have the results of the calls on bytes, one by one and in batches.
#[test]
fn words_and_bytes_agree() {
    for design in AnyTable::DESIGNS {
        let place = place();
        let make = |name: &str| {
            let path = place.path().join(name);
            AnyTable::create(path, design, "u64", "i64", &AnyOptions::default()).unwrap()
        };
        let (by_words, by_bytes) = (make("words.ice"), make("bytes.ice"));
        let words = by_words.words().unwrap();
        let of = |value: Option<Vec<u8>>| {
            value.map(|value| u64::from_le_bytes(value.try_into().unwrap()))
        };
        let keys: Vec<u64> = (0..1000).map(|key| key * 7 % 500).collect();
        let values: Vec<u64> = (0..1000).map(|value| u64::MAX - value).collect();
        for (&key, &value) in keys[..300].iter().zip(&values) {
            let (key_bytes, value_bytes) = (&key.to_le_bytes(), &value.to_le_bytes());
            let previous = words.insert(key, value).unwrap();
            assert_eq!(previous, of(by_bytes.insert(key_bytes, value_bytes).unwrap()));
        }
        let mut answers = vec![None; keys.len()];
        words.insert_batch(&keys, &values, |index, previous| answers[index] = previous).unwrap();
        for ((&key, &value), &answer) in keys.iter().zip(&values).zip(&answers) {
            let previous = by_bytes.insert(&key.to_le_bytes(), &value.to_le_bytes()).unwrap();
            assert_eq!(answer, of(previous), "{design}");
        }
        words.get_batch(&keys, |index, value| answers[index] = value).unwrap();
        for (&key, &answer) in keys.iter().zip(&answers) {
            assert_eq!(answer, of(by_bytes.get(&key.to_le_bytes()).unwrap()), "{design}");
            assert_eq!(words.get(key).unwrap(), answer);
        }
        assert_eq!((words.get(5000).unwrap(), words.contains(5000).unwrap()), (None, false));
        assert!(matches!(words.put_batch(&[1], &[]), Err(Error::InvalidOption { .. })));
    }
}

#[test]
fn only_tables_of_whole_words_have_words() {
    let place = place();
    for (index, (key, value, are_words)) in [
        ("u64", "f64", true),
        ("[u8; 8]", "i64", true),
        ("u32", "u64", false),
        ("u64", "bool", false),
        ("str", "u64", false),
        ("u64", "bytes", false),
        ("u128", "[u8; 16]", false),
    ]
    .into_iter()
    .enumerate()
    {
        let table = create(&place.path().join(index.to_string()), key, value);
        assert_eq!(table.words().is_some(), are_words, "{key} {value}");
    }
}
