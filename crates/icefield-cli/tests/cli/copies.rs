//! Commands on a whole table, intact or damaged: backup, salvage, shrink.

use serde_json::json;

use crate::support::Place;
use crate::{filled, sorted};

#[test]
fn copies_hold_the_same() {
    let place = Place::new();
    filled(&place, 3000);
    let original = place.ok(&["export", "t.ice"]);
    for command in ["backup", "salvage"] {
        let copy = format!("{command}.ice");
        place.ok(&[command, "t.ice", &copy]);
        assert_eq!(sorted(&place.ok(&["export", &copy])), sorted(&original));
        assert!(place.ok(&["check", &copy]).contains("no faults"));
        assert!(place.fails(2, &[command, "t.ice", &copy]).contains("already exists"));
        let line = &place.json(&[command, "t.ice", &format!("{command}-2.ice")])[0];
        assert!(line.is_object());
    }
}

#[test]
fn shrink_gives_back_what_is_not_needed() {
    let place = Place::new();
    place.ok(&["create", "t.ice", "--capacity", "100000"]);
    place.ok(&["put", "t.ice", "1", "x"]);
    let line = &place.json(&["shrink", "t.ice"])[0];
    let [after, before] = ["bytes", "bytes_before"].map(|name| line[name].as_u64().unwrap());
    assert!(after + 1_000_000 < before, "{line}");
    assert!(place.ok(&["shrink", "t.ice"]).contains(" bytes, "));
    assert_eq!(place.ok(&["get", "t.ice", "1"]), "x\n");
    place.ok(&["check", "t.ice"]);
}

#[test]
fn damage_is_a_found_problem() {
    let place = Place::new();
    filled(&place, 20_000);
    let segments = place.path("t.ice").join("segments.ice");
    let mut bytes = std::fs::read(&segments).unwrap();
    for at in (20_000..20_600).step_by(3) {
        bytes[at] ^= 0xA5;
    }
    std::fs::write(&segments, bytes).unwrap();
    let checked = place.run(&["check", "t.ice"]);
    assert_eq!(checked.status, Some(1), "{checked:?}");
    assert!(checked.out.contains("fault: ") && checked.out.contains("salvage"), "{}", checked.out);
    let salvaged = place.run(&["salvage", "t.ice", "rescued.ice"]);
    assert_eq!(salvaged.status, Some(1), "{salvaged:?}");
    let rescued = &place.json(&["check", "rescued.ice"])[0];
    assert_eq!(rescued["clean"], json!(true), "{rescued}");
    assert!(rescued["records"].as_u64().unwrap() > 19_000, "{rescued}");

    // Without a superblock, there is nothing to open.
    std::fs::write(place.path("t.ice").join("table.ice"), [0x5A; 8192]).unwrap();
    for command in [&["stat", "t.ice"][..], &["get", "t.ice", "1"], &["check", "t.ice"]] {
        let ran = place.run(command);
        assert!(matches!(ran.status, Some(1 | 2)) && ran.err.contains("t.ice"), "{ran:?}");
    }
}
