//! Reports of damaged records.

use crate::support::Place;

/// Creates a table of three records, and damages one value so that it is not UTF-8.
fn damaged(place: &Place, design: &str) {
    let words: Vec<String> = ["first", "second", "third"]
        .map(|word| format!("a value of its own, the {word} one"))
        .into();
    place.ok(&["create", "t.ice", "--table", design, "--value", "str"]);
    for (key, word) in (1..).zip(&words) {
        place.ok(&["put", "t.ice", &key.to_string(), word]);
    }
    // Damages every copy of the value, because some designs store a value in a log too.
    let mut places = 0;
    for entry in std::fs::read_dir(place.path("t.ice")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        while let Some(at) = bytes.windows(6).position(|part| part == b"second") {
            bytes[at] = 0xFF;
            places += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(places > 0, "the value is in no file of {design}");
}

#[test]
fn a_damaged_record_ends_no_command_that_gives_others() {
    for design in icefield::AnyTable::DESIGNS {
        let place = Place::new();
        damaged(&place, design);
        let ran = place.run(&["scan", "t.ice"]);
        assert_eq!((ran.status, ran.out.lines().count()), (Some(1), 2), "{design}: {ran:?}");
        assert!(ran.err.contains("record 2: "), "{design}: {}", ran.err);
        let ran = place.run(&["export", "t.ice", "out.csv"]);
        assert_eq!(ran.status, Some(1), "{design}: {ran:?}");
        assert_eq!(ran.out, "out.csv: 2 records, 1 left out\n");
        assert!(ran.err.contains("record 2: "), "{}", ran.err);
        assert_eq!(std::fs::read_to_string(place.path("out.csv")).unwrap().lines().count(), 3);
        let ran = place.run(&["get", "t.ice", "1", "2", "3"]);
        assert_eq!((ran.status, ran.out.lines().count()), (Some(1), 2), "{design}: {ran:?}");
        assert!(ran.err.contains("2: damaged: "), "{}", ran.err);
        assert_eq!(place.run(&["get", "t.ice", "2"]).status, Some(1));
        assert_eq!(place.run(&["check", "t.ice"]).status, Some(1));
        let ran = place.run(&["del", "t.ice", "2"]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(0), "removed 1\n"), "{design}: {ran:?}");
        assert_eq!(place.ok(&["scan", "t.ice"]).lines().count(), 2, "{design}");
    }
}
