//! The feature `serde`: maps in JSON.

use std::collections::BTreeMap;

use icefield::{DlhtMap, DlhtMapLocal};
use serde_json::{from_str, to_string};

#[test]
fn maps_are_maps() {
    for len in [0, 1, 1023, 1024, 1025, 5000] {
        let right: BTreeMap<String, Vec<u32>> =
            (0..len).map(|n: u32| (format!("key {n}"), vec![n; n as usize % 3])).collect();
        let map: DlhtMap<String, Vec<u32>> = right.clone().into_iter().collect();
        let text = to_string(&map).expect("a map");
        assert_eq!(from_str::<BTreeMap<String, Vec<u32>>>(&text).expect("a map"), right);
        assert!(from_str::<DlhtMap<String, Vec<u32>>>(&text).expect("a map") == map);
        let local: DlhtMapLocal<String, Vec<u32>> = from_str(&text).expect("a map");
        assert_eq!(local.into_iter().collect::<BTreeMap<_, _>>(), right);
    }
}

#[test]
fn namespaces_and_snapshots_are_written_by_themselves() {
    let map = DlhtMap::from([(1, "one".to_owned())]);
    let guard = map.pin();
    let snapshot = map.snapshot(&guard);
    let space = map.namespace(7).expect("small");
    space.put(2, "two".to_owned());
    map.put(1, "uno".to_owned());
    assert_eq!(to_string(&snapshot).expect("a map"), r#"{"1":"one"}"#);
    assert_eq!(to_string(&space).expect("a map"), r#"{"2":"two"}"#);
    // The record of the other namespace would be lost.
    let error = to_string(&map).expect_err("two namespaces").to_string();
    assert!(error.contains("namespace 7"), "{error}");
    space.delete(&2);
    assert_eq!(to_string(&map).expect("a map"), r#"{"1":"uno"}"#);
}

#[test]
fn repeated_and_wrong_input() {
    let map: DlhtMap<String, u8> = from_str(r#"{"a": 10, "a": 11}"#).expect("a map");
    assert_eq!(map, DlhtMap::from([("a".to_owned(), 11)]));
    assert!(from_str::<DlhtMap<String, u8>>(r#"{"a": 300}"#).is_err());
    assert!(from_str::<DlhtMap<String, u8>>("[1]").is_err());
    assert!(from_str::<DlhtMap<String, u8>>(r#"{"a": 1"#).is_err());
}
