//! The feature `serde`: tables and sets in JSON.

use std::collections::{BTreeMap, BTreeSet};

use icefield::{Dlht, DlhtLocal, DlhtSet, DlhtSetLocal};

#[test]
fn tables_are_maps_and_sets_are_sequences() {
    for len in [0, 1, 1023, 1024, 1025, 5000] {
        let right: BTreeMap<u64, i32> = (0..len).map(|key| (key * 7, key as i32 - 9)).collect();
        let table: Dlht<u64, i32> = right.iter().map(|(&key, &value)| (key, value)).collect();
        let text = serde_json::to_string(&table).expect("words");
        let map: BTreeMap<u64, i32> = serde_json::from_str(&text).expect("a map");
        assert_eq!(map, right);
        let again: Dlht<u64, i32> = serde_json::from_str(&text).expect("a map");
        assert!(again == table);
        let local: DlhtLocal<u64, i32> = serde_json::from_str(&text).expect("a map");
        assert_eq!(local.iter().collect::<BTreeMap<_, _>>(), right);

        let right: BTreeSet<u64> = right.into_keys().collect();
        let set: DlhtSet<u64> = right.iter().copied().collect();
        let text = serde_json::to_string(&set).expect("words");
        assert_eq!(serde_json::from_str::<BTreeSet<u64>>(&text).expect("a sequence"), right);
        assert!(serde_json::from_str::<DlhtSet<u64>>(&text).expect("a sequence") == set);
        let local: DlhtSetLocal<u64> = serde_json::from_str(&text).expect("a sequence");
        assert_eq!(local.len(), right.len());
    }
}

#[test]
fn snapshots_are_written_as_they_were() {
    let (table, set) = (Dlht::from([(1_u8, true)]), DlhtSet::from(['a']));
    let (records, keys) = (table.snapshot(), set.snapshot());
    table.insert(2, false);
    set.clear();
    assert_eq!(serde_json::to_string(&records).expect("words"), r#"{"1":true}"#);
    assert_eq!(serde_json::to_string(&keys).expect("words"), r#"["a"]"#);
}

#[test]
fn repeated_and_wrong_input() {
    let table: Dlht<u8, u8> = serde_json::from_str(r#"{"1": 10, "1": 11}"#).expect("a map");
    assert_eq!(table, Dlht::from([(1, 11)]));
    let set: DlhtSet<u8> = serde_json::from_str("[1, 1, 2]").expect("a sequence");
    assert_eq!(set, DlhtSet::from([1, 2]));
    assert!(serde_json::from_str::<Dlht<u8, u8>>(r#"{"1": 300}"#).is_err());
    assert!(serde_json::from_str::<Dlht<u8, u8>>("[1]").is_err());
    assert!(serde_json::from_str::<DlhtSet<u8>>("{}").is_err());
}
