//! Extreme numbers on the command line.

use crate::support::Place;

/// Runs a command and returns its exit status. Fails the test on a panic, a hang or an arithmetic error.
fn ends(place: &Place, args: &[&str]) -> Option<i32> {
    let ran = place.run(args);
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {ran:?}");
    assert!(!ran.err.contains("panicked") && !ran.err.contains("overflow"), "{args:?}: {ran:?}");
    ran.status
}

const MOST: &str = "18446744073709551615";

#[test]
fn numbers_at_their_ends_are_taken_or_refused() {
    let place = Place::new();
    place.file("rows.csv", "key,value\n1,2\n2,3\n");
    place.ok(&["load", "t.ice", "rows.csv", "--create"]);
    for design in icefield::AnyTable::DESIGNS {
        for (number, capacity) in ["0", "1", "9223372036854775808", MOST].into_iter().enumerate() {
            let table = format!("{design}-{number}.ice");
            let args = ["create", &table, "--table", design, "--capacity", capacity];
            let status = ends(&place, &args);
            assert_eq!(status == Some(0), place.path(&table).exists(), "{args:?}");
            assert_eq!(status == Some(0), number < 2, "{args:?}");
        }
        for (number, most) in ["0", "1", MOST].into_iter().enumerate() {
            let table = format!("{design}-most-{number}.ice");
            ends(&place, &["create", &table, "--table", design, "--max-bytes", most]);
        }
    }
    for limit in ["0", "1", MOST] {
        assert_eq!(ends(&place, &["scan", "t.ice", "--limit", limit]), Some(0), "{limit}");
    }
    for cursor in ["1", "9223372036854775808", MOST] {
        ends(&place, &["scan", "t.ice", "--cursor", cursor]);
    }
    for (batch, status) in [("1", 0), ("1048576", 0), ("0", 2), ("1048577", 2), (MOST, 2)] {
        assert_eq!(ends(&place, &["load", "t.ice", "rows.csv", "--batch", batch]), Some(status));
    }
    for too_many in ["18446744073709551616", "-1", "1.5", "", "1e9"] {
        for args in [
            &["scan", "t.ice", "--limit", too_many][..],
            &["create", "x.ice", "--capacity", too_many],
        ] {
            assert_eq!(ends(&place, args), Some(2), "{args:?}");
        }
    }
    for keep in ["every:0", "every:18446744073709551615", "every:18446744073709551616"] {
        let table = format!("{}.ice", keep.replace(':', "-"));
        ends(&place, &["create", &table, "--table", "plush", "--durability", keep]);
    }
}
