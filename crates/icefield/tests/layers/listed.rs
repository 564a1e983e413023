//! Compares the public calls of tables on a medium with the lists in `calls.rs`.

use super::calls::{CALLS, Calls};

/// Returns the calls in `found` (type and name) that are not in the lists, and the listed calls that are not in
/// `found`.
pub fn faults(found: &[(String, String)]) -> Vec<String> {
    let of = |owner: &str| {
        let mine = found.iter().filter(|(found, _)| found == owner);
        mine.map(|(_, name)| name.as_str()).collect::<Vec<_>>()
    };
    let mut faults = Vec::new();
    let mut owners: Vec<&str> = CALLS.iter().map(type_of).collect();
    owners.dedup();
    for owner in owners {
        let all = CALLS.iter().filter(|calls| type_of(calls) == owner);
        let (changing, reading): (Vec<_>, Vec<_>) =
            all.map(|calls| (calls.changing, calls.reading)).unzip();
        let (changing, reading) = (changing.concat(), reading.concat());
        let (found, listed) = (of(owner), [changing.clone(), reading.clone()].concat());
        let name = |name: &&str| format!("{owner}::{name}");
        let new = found.iter().filter(|name| !listed.contains(*name)).map(name);
        faults.extend(
            new.map(|name| format!("tests/layers/calls.rs: list `{name}` as changing or reading")),
        );
        let gone = listed.iter().filter(|name| !found.contains(name)).map(name);
        faults.extend(
            gone.map(|name| format!("tests/layers/calls.rs: remove `{name}`, which is not a call")),
        );
        let twice = changing.iter().filter(|name| reading.contains(name)).map(name);
        faults.extend(twice.map(|name| format!("tests/layers/calls.rs: `{name}` is listed twice")));
    }
    // A type with `sync` or `merge` is on a medium, so its calls must be listed.
    let made = found.iter().filter(|(owner, _)| !owner.ends_with("Options"));
    for (owner, name) in made.filter(|(_, name)| matches!(name.as_str(), "sync" | "merge")) {
        if CALLS.iter().all(|calls| type_of(calls) != owner) {
            faults.push(format!(
                "tests/layers/calls.rs: list the calls of `{owner}`, which has `{name}`"
            ));
        }
    }
    faults
}

fn type_of(calls: &Calls) -> &'static str {
    calls.owner.split(' ').next().unwrap_or(calls.owner)
}

/// Violates the rule on purpose.
mod planted {
    use super::*;

    #[test]
    fn calls_that_are_not_listed_are_found() {
        let mut found = Vec::new();
        for calls in CALLS {
            let names = [calls.changing, calls.reading].concat();
            found.extend(names.iter().map(|name| (type_of(calls).to_owned(), (*name).to_owned())));
        }
        assert_eq!(faults(&found), [""; 0]);
        found.push(("JoinIndex".to_owned(), "rename".to_owned()));
        assert_eq!(faults(&found).len(), 1);
        found[0].1 = "gone".to_owned();
        assert_eq!(faults(&found).len(), 3);
        found.push(("NewIndex".to_owned(), "sync".to_owned()));
        assert_eq!(faults(&found).len(), 4);
    }
}
