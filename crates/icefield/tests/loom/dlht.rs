//! DLHT's protocols, on whole tables of one or two bins: the states and results that other threads may see during
//! inserts, updates, removals and transfers.

use icefield::{Decision, Dlht, DlhtHash, Occupied, OnFailure, Op};
use loom::sync::Arc;
use loom::thread;

type Words = Dlht<u64, u64>;

/// Creates a table of 2^`bits` bins that doubles when it grows.
fn table(bits: u32) -> Words {
    // Every run must be identical, so the hash is fixed.
    let options = Dlht::options().hash(DlhtHash::Modulo).hash_seed([1, 2]).link_ratio(1.0);
    options.geometry(bits, 1).build().unwrap()
}

/// Lets `roles` race for a table that `before` has prepared, then checks their results.
fn race<const ROLES: usize>(
    bits: u32,
    before: fn(&Words),
    roles: [fn(&Words) -> Option<u64>; ROLES],
    judge: fn(&Words, [Option<u64>; ROLES]),
) {
    let prepared = move || {
        let table = table(bits);
        before(&table);
        table
    };
    race_for(prepared, roles, judge);
}

/// Lets `roles` race for the object that `prepared` creates, then checks their results. Every rotation of the roles is
/// explored.
pub fn race_for<T: 'static, A: std::fmt::Debug + 'static, const ROLES: usize>(
    prepared: impl Fn() -> T + Copy + Send + Sync + 'static,
    mut roles: [fn(&T) -> A; ROLES],
    judge: fn(&T, [A; ROLES]),
) {
    for turn in 0..ROLES {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.max_branches = 100_000;
        builder.check(move || {
            let shared = Arc::new(prepared());
            let [spawned @ .., last] = &roles[..] else { return };
            let threads: Vec<_> = spawned
                .iter()
                .map(|&role| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || role(&shared))
                })
                .collect();
            let last = last(&shared);
            let mut answers: Vec<_> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            answers.push(last);
            answers.rotate_right(turn);
            judge(&shared, answers.try_into().unwrap());
        });
        roles.rotate_left(1);
    }
}

fn present(key: u64) -> fn(&Words) {
    match key {
        1 => |table| table.put(1, 10),
        _ => |_| (),
    }
}

/// Returns 1 if the insert succeeded.
fn won(outcome: Result<(), Occupied<u64>>) -> Option<u64> {
    outcome.is_ok().then_some(1)
}

#[test]
fn one_of_two_inserts_of_a_key_wins() {
    race(
        0,
        |_| (),
        [|table| won(table.try_insert(1, 10)), |table| won(table.try_insert(1, 20))],
        |table, answers| {
            let value = match answers {
                [Some(1), None] => 10,
                [None, Some(1)] => 20,
                _ => panic!("{answers:?}"),
            };
            assert_eq!((table.get(1), table.len()), (Some(value), 1));
        },
    );
}

#[test]
fn a_removal_beside_an_insert_takes_what_was_inserted_or_nothing() {
    race(
        0,
        present(1),
        [|table| table.insert(1, 20), |table| table.remove(1)],
        |table, answers| match answers {
            [Some(10), Some(20)] => assert_eq!(table.get(1), None),
            [None, Some(10)] => assert_eq!(table.get(1), Some(20)),
            _ => panic!("{answers:?}"),
        },
    );
}

/// The slot of a removed key is reused for another key. A reader or updater of the old key must not see the new one.
#[test]
fn a_slot_that_is_used_again_belongs_to_its_new_key() {
    race(
        0,
        present(1),
        [
            |table| {
                let removed = table.remove(1);
                table.put(2, 99);
                removed
            },
            |table| table.update(1, 20),
        ],
        |table, answers| {
            match answers {
                [Some(10), None] | [Some(20), Some(10)] => {}
                _ => panic!("{answers:?}"),
            }
            assert_eq!((table.get(1), table.get(2)), (None, Some(99)));
        },
    );
    race(
        0,
        present(1),
        [
            |table| {
                table.delete(1);
                table.put(2, 99);
                table.get(2)
            },
            |table| table.get(1),
        ],
        |_, answers| assert!(matches!(answers, [Some(99), None | Some(10)]), "{answers:?}"),
    );
}

#[test]
fn a_reader_sees_updates_in_their_order() {
    race(
        0,
        present(1),
        [
            |table| {
                table.update(1, 20);
                table.update(1, 30)
            },
            |table| {
                let (first, second) = (table.get(1).unwrap(), table.get(1).unwrap());
                assert!(first <= second, "{first} before {second}");
                None
            },
        ],
        |table, answers| {
            assert_eq!((answers[0], table.get(1)), (Some(20), Some(30)));
        },
    );
}

/// Two threads add; no addition may be lost.
#[test]
fn additions_add_up() {
    race(
        0,
        |_| (),
        [|table| Some(table.fetch_add(1, 1)), |table| Some(table.fetch_add(1, 1))],
        |table, answers| {
            assert!(matches!(answers, [Some(0), Some(1)] | [Some(1), Some(0)]), "{answers:?}");
            assert_eq!((table.get(1), table.len()), (Some(2), 1));
        },
    );
}

/// The primary bucket is full, so both inserts need the same link bucket.
#[test]
fn two_inserts_chain_one_link_bucket() {
    race(
        0,
        |table| (1..4).for_each(|key| table.put(key, key)),
        [|table| won(table.try_insert(4, 4)), |table| won(table.try_insert(5, 5))],
        |table, answers| {
            assert_eq!(answers, [Some(1); 2]);
            assert!((1..6).all(|key| table.get(key) == Some(key)));
            assert_eq!(table.len(), 5);
        },
    );
}

#[test]
fn an_update_beside_a_transfer_is_not_lost() {
    race(
        0,
        present(1),
        [
            |table| {
                table.reserve(20);
                None
            },
            |table| table.update(1, 20),
        ],
        |table, answers| {
            assert_eq!((answers[1], table.get(1), table.len()), (Some(10), Some(20), 1));
        },
    );
}

#[test]
fn an_insert_beside_a_transfer_is_not_lost() {
    race(
        0,
        present(1),
        [
            |table| {
                table.reserve(20);
                None
            },
            |table| won(table.try_insert(2, 20)),
        ],
        |table, answers| {
            assert_eq!(answers[1], Some(1));
            assert_eq!((table.get(1), table.get(2), table.len()), (Some(10), Some(20), 2));
        },
    );
}

#[test]
fn a_removal_beside_a_transfer_stays_removed() {
    race(
        0,
        present(1),
        [
            |table| {
                table.reserve(20);
                None
            },
            |table| table.remove(1),
        ],
        |table, answers| {
            assert_eq!((answers[1], table.get(1), table.len()), (Some(10), None, 0));
        },
    );
}

/// Two transfers in a row: a reader that started before both must find its key on the way.
#[test]
fn a_laggard_walks_the_whole_chain() {
    race(
        0,
        present(1),
        [
            |table| {
                table.reserve(20);
                table.reserve(40);
                None
            },
            |table| table.get(1),
        ],
        |table, answers| assert_eq!((answers[1], table.get(1)), (Some(10), Some(10))),
    );
}

#[test]
fn a_shadow_insert_commits_across_a_transfer() {
    race(
        0,
        |_| (),
        [
            |table| {
                table.reserve(20);
                None
            },
            |table| {
                let shadow = table.try_insert_shadow(1, 10).unwrap();
                let seen = table.get(1);
                shadow.commit();
                seen
            },
        ],
        |table, answers| assert_eq!((answers[1], table.get(1), table.len()), (None, Some(10), 1)),
    );
}

#[test]
fn a_clear_takes_all_or_nothing() {
    race(
        0,
        present(1),
        [
            |table| {
                table.clear();
                table.get(1)
            },
            |table| {
                let before = table.get(1);
                assert!(before.is_some() || table.get(1).is_none());
                won(table.try_insert(1, 20))
            },
        ],
        |table, answers| {
            // Either the insert came after the clear, or it found the key that the clear removed.
            match (answers[1], table.get(1)) {
                (Some(1), Some(20)) | (None, None) => {}
                _ => panic!("{answers:?} {:?}", table.get(1)),
            }
            assert!(matches!(answers[0], None | Some(20)));
        },
    );
}

/// Two keys in two bins, which are frozen one after the other, must disappear at the same moment.
#[test]
fn a_clear_is_of_one_moment() {
    let both: fn(&Words) = |table| (0..2).for_each(|key| table.put(key, 10));
    let clear: fn(&Words) -> Option<u64> = |table| {
        table.clear();
        None
    };
    let gone: fn(&Words, [Option<u64>; 2]) =
        |table, _| assert_eq!((table.len(), table.get(0)), (0, None));
    let seen: [fn(&Words) -> Option<u64>; 2] = [
        |table| {
            let (first, second) = (table.get(0), table.get(1));
            assert!(first.is_some() || second.is_none());
            None
        },
        |table| {
            let (second, first) = (table.get(1), table.get(0));
            assert!(second.is_some() || first.is_none());
            None
        },
    ];
    for reader in seen {
        race(1, both, [clear, reader], gone);
    }
}

/// A snapshot contains a prefix of a batch that runs in order: both records, the first one, or none.
#[test]
fn a_snapshot_is_of_one_moment() {
    race(
        1,
        |_| (),
        [
            |table| {
                let snapshot = table.snapshot();
                let keys = snapshot.iter().fold(0, |keys, (key, _)| keys | 1 << key);
                Some(keys)
            },
            |table| {
                table.execute(&mut [Op::put(0, 1), Op::put(1, 1)], OnFailure::Continue);
                None
            },
        ],
        |table, answers| {
            assert!(matches!(answers[0], Some(0b00 | 0b01 | 0b11)), "{answers:?}");
            assert_eq!(table.len(), 2);
        },
    );
}

#[test]
fn a_computation_is_of_one_moment() {
    race(
        0,
        present(1),
        [
            |table| {
                let double = |value: Option<&u64>| match value {
                    Some(value) => Decision::Put(value * 2),
                    None => Decision::Put(1),
                };
                table.compute(1, double).before()
            },
            |table| table.remove(1),
        ],
        |table, answers| match answers {
            [Some(10), Some(20)] => assert_eq!(table.get(1), None),
            [None, Some(10)] => assert_eq!(table.get(1), Some(1)),
            _ => panic!("{answers:?}"),
        },
    );
}

/// Four records: three in the primary bucket, the last in a link bucket.
fn four(table: &Words) {
    [2, 4, 6, 8].into_iter().for_each(|key| table.put(key, key * 10));
}

/// The last record of a bin moves to the slot that a removal has made free. A reader must find it all the time.
#[test]
fn a_record_that_moves_within_its_bin_is_found() {
    race(1, four, [|table| table.remove(2), |table| table.get(8)], |table, answers| {
        assert_eq!(answers, [Some(20), Some(80)]);
        assert_eq!((table.get(2), table.get(8), table.len()), (None, Some(80), 3));
    });
}

#[test]
fn an_update_of_a_record_that_moves_is_not_lost() {
    race(1, four, [|table| table.remove(2), |table| table.update(8, 81)], |table, answers| {
        assert_eq!(answers, [Some(20), Some(80)]);
        assert_eq!((table.get(2), table.get(8)), (None, Some(81)));
    });
}

#[test]
fn two_removals_of_a_bin_remove_two_records() {
    race(1, four, [|table| table.remove(4), |table| table.remove(8)], |table, answers| {
        assert_eq!(answers, [Some(40), Some(80)]);
        assert_eq!(sorted_keys(table), [2, 6]);
    });
}

#[test]
fn an_insert_beside_a_removal_does_not_use_the_bucket_that_leaves() {
    race(
        1,
        four,
        [|table| table.remove(8), |table| won(table.try_insert(10, 100))],
        |table, answers| {
            assert_eq!(answers, [Some(80), Some(1)]);
            assert_eq!(sorted_keys(table), [2, 4, 6, 10]);
            assert_eq!(table.get(10), Some(100));
        },
    );
}

/// The link bucket of one bin goes to the other bin. A reader that still searches it for a key of the first bin must not
/// see the record of the second.
#[test]
fn a_link_bucket_that_changes_its_bin_belongs_to_the_new_one() {
    race(
        1,
        |table| {
            four(table);
            [1, 3, 5].into_iter().for_each(|key| table.put(key, 0));
        },
        [
            |table| {
                let removed = table.remove(8);
                table.put(7, 99);
                removed
            },
            |table| table.get(8),
        ],
        |table, answers| {
            assert!(matches!(answers, [Some(80), None | Some(80)]), "{answers:?}");
            assert_eq!((table.get(7), table.get(8)), (Some(99), None));
        },
    );
}

fn sorted_keys(table: &Words) -> Vec<u64> {
    let mut keys: Vec<u64> = table.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys
}

/// No bin was ever written to, so they are moved together, while the first insert writes to one of them.
#[test]
fn the_first_insert_beside_a_transfer_is_not_lost() {
    race(
        0,
        |_| (),
        [
            |table| {
                table.reserve(20);
                table.get(1)
            },
            |table| {
                let inserted = won(table.try_insert(1, 10));
                assert_eq!(table.get(1), Some(10));
                inserted
            },
        ],
        |table, answers| {
            assert_eq!(answers[1], Some(1));
            assert_eq!((table.get(1), table.len()), (Some(10), 1));
        },
    );
}

/// A batch finds a record that the same thread has put into the next index, whose bin in this one was never written to.
#[test]
fn a_batch_of_gets_beside_the_first_transfer_misses_nothing() {
    race(
        0,
        |_| (),
        [
            |table| {
                table.reserve(20);
                None
            },
            |table| {
                table.put(1, 10);
                let mut found = [None; 2];
                table.get_batch(&[1, 2], &mut found);
                assert_eq!(found, [Some(10), None]);
                found[0]
            },
        ],
        |table, _| assert_eq!((table.get(1), table.len()), (Some(10), 1)),
    );
}
