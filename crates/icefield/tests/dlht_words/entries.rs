//! Concurrent histories of calls that depend on whether a key is present. Each history must have an order in which a map
//! gives the same replies.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use icefield_torture::Rng;
use icefield_torture::budget::Budget;
use icefield_torture::dlht::{DlhtInTurns, tiny};
use icefield_torture::scheduler::{self, Scheduler};

const THREADS: usize = 3;
const CALLS: u64 = 4;
/// The keys of the histories. Other keys only make the table grow.
const KEYS: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Insert(u64),
    Remove,
    OrInsert(u64),
    GetOrInsertWith(u64),
    ModifyOrInsert(u64),
    Apply,
    /// `and_modify` without another call.
    Modify,
    RemoveIfEven,
    Drain,
}

#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Nothing,
    Value(Option<u64>),
    Drained(BTreeMap<u64, u64>),
}

/// A call with the moments before and after it.
#[derive(Debug)]
struct Event {
    key: u64,
    call: Call,
    reply: Reply,
    start: u64,
    end: u64,
}

fn modified(value: u64) -> u64 {
    value.wrapping_mul(3) + 1
}

impl Call {
    fn random(rng: &mut Rng, value: u64) -> Self {
        match rng.below(14) {
            0 => Self::Get,
            1 => Self::Insert(value),
            2 | 3 => Self::Remove,
            4 => Self::OrInsert(value),
            5 => Self::GetOrInsertWith(value),
            6..9 => Self::ModifyOrInsert(value),
            9 => Self::Apply,
            10 => Self::Modify,
            11 | 12 => Self::RemoveIfEven,
            _ => Self::Drain,
        }
    }

    /// Performs the call on a table.
    fn perform(self, table: &DlhtInTurns, key: u64) -> Reply {
        let modify = |value: &mut u64| {
            // User code of any length: other threads may run.
            scheduler::tick();
            *value = modified(*value);
        };
        Reply::Value(match self {
            Self::Get => table.get(key),
            Self::Insert(value) => table.entry(key).insert(value),
            Self::Remove => table.entry(key).remove(),
            Self::OrInsert(value) => Some(table.entry(key).or_insert(value)),
            Self::GetOrInsertWith(value) => Some(table.get_or_insert_with(key, || {
                scheduler::tick();
                value
            })),
            Self::ModifyOrInsert(value) => {
                Some(table.entry(key).and_modify(modify).or_insert(value))
            }
            Self::Apply => table.entry(key).and_modify(modify).apply(),
            Self::Modify => {
                table.entry(key).and_modify(modify);
                return Reply::Nothing;
            }
            Self::RemoveIfEven => table.remove_if(key, |value| {
                scheduler::tick();
                value % 2 == 0
            }),
            Self::Drain => {
                return Reply::Drained(table.drain().filter(|&(key, _)| key < KEYS).collect());
            }
        })
    }

    /// Performs the call on a map.
    fn step(self, map: &mut BTreeMap<u64, u64>, key: u64) -> Reply {
        let present = map.get(&key).copied();
        let (after, reply) = match self {
            Self::Get => (present, present),
            Self::Insert(value) => (Some(value), present),
            Self::Remove => (None, present),
            Self::OrInsert(value) | Self::GetOrInsertWith(value) => {
                (present.or(Some(value)), present.or(Some(value)))
            }
            Self::ModifyOrInsert(value) => {
                let after = present.map(modified).or(Some(value));
                (after, after)
            }
            Self::Apply | Self::Modify => (present.map(modified), present.map(modified)),
            Self::RemoveIfEven => match present {
                Some(value) if value % 2 == 0 => (None, present),
                _ => (present, None),
            },
            Self::Drain => return Reply::Drained(std::mem::take(map)),
        };
        match after {
            Some(after) => map.insert(key, after),
            None => map.remove(&key),
        };
        if let Self::Modify = self { Reply::Nothing } else { Reply::Value(reply) }
    }
}

/// Returns whether some order explains the replies: one that keeps every call after the calls that ended before its
/// start.
fn has_order(events: &[Event]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, BTreeMap::new())];
    while let Some((done, map)) = open.pop() {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !seen.insert((done, map.clone())) {
            continue;
        }
        let left = || events.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        let first_end = left().map(|(_, event)| event.end).min().unwrap_or(0);
        for (at, event) in left().filter(|(_, event)| event.start < first_end) {
            let mut next = map.clone();
            if event.call.step(&mut next, event.key) == event.reply {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}

/// Runs one history, whose calls `perform` performs.
fn history(
    seed: u64,
    perform: impl Fn(Call, &DlhtInTurns, u64) -> Reply + Copy + Send + Sync,
) -> Vec<Event> {
    let (table, clock) = (tiny::<DlhtInTurns>(seed).build().expect("small"), AtomicU64::new(0));
    let scheduler = Scheduler::new(seed, THREADS);
    let work = |me: usize| {
        let mut rng = Rng::fork(seed, me as u64);
        let mut events = Vec::new();
        scheduler.take_turns(me, || {
            for number in 0..CALLS {
                let value = 100 * me as u64 + number;
                if rng.one_in(3) {
                    (0..3).for_each(|other| table.put(1000 + 10 * value + other, 0));
                }
                let (key, call) = (rng.below(KEYS), Call::random(&mut rng, value));
                scheduler::begin();
                let start = clock.fetch_add(1, Ordering::SeqCst);
                let reply = perform(call, &table, key);
                let end = clock.fetch_add(1, Ordering::SeqCst);
                events.push(Event { key, call, reply, start, end });
            }
        });
        events
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || work(me))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn entries_and_drains_are_atomic() {
    let (mut histories, mut overlapping) = (0, 0);
    let mut budget = Budget::time(Duration::from_secs(4)).at_least(300).at_most(10_000);
    while let Some((number, _)) = budget.chunk(1) {
        let seed = 1_000_000 + number;
        let events = history(seed, |call, table, key| call.perform(table, key));
        assert!(has_order(&events), "{seed}: no order explains {events:#?}");
        histories += 1;
        let overlaps = |a: &Event| events.iter().any(|b| b.start < a.start && a.start < b.end);
        overlapping += events.iter().filter(|event| overlaps(event)).count();
    }
    println!("{histories} histories, {overlapping} calls that began during another");
    assert!(overlapping > histories, "{histories} histories, {overlapping} overlaps");
}

type Perform = fn(Call, &DlhtInTurns, u64) -> Reply;

fn modify_then_insert(call: Call, table: &DlhtInTurns, key: u64) -> Reply {
    let Call::ModifyOrInsert(value) = call else { return call.perform(table, key) };
    match Call::Apply.perform(table, key) {
        Reply::Value(None) => Call::OrInsert(value).perform(table, key),
        applied => applied,
    }
}

fn judge_then_remove(call: Call, table: &DlhtInTurns, key: u64) -> Reply {
    let Call::RemoveIfEven = call else { return call.perform(table, key) };
    let is_even = table.get(key).is_some_and(|value| value % 2 == 0);
    Reply::Value(if is_even { table.remove(key) } else { None })
}

fn list_then_clear(call: Call, table: &DlhtInTurns, key: u64) -> Reply {
    let Call::Drain = call else { return call.perform(table, key) };
    let removed = table.iter().filter(|&(key, _)| key < KEYS).collect();
    table.clear();
    Reply::Drained(removed)
}

/// The check must reject calls that are made of two steps.
#[test]
fn calls_of_two_steps_are_rejected() {
    let mutants: [(&str, Perform); 3] = [
        ("and_modify, or_insert", modify_then_insert),
        ("remove_if", judge_then_remove),
        ("drain", list_then_clear),
    ];
    for (name, mutant) in mutants {
        let rejected = (0..3000).find(|&seed| !has_order(&history(seed, mutant)));
        println!("{name} in two steps: rejected at seed {rejected:?}");
        assert!(rejected.is_some(), "{name}: 3000 histories of two steps have an order");
    }
}

#[test]
fn threads_count_words_without_loss() {
    const EACH: u64 = 20_000;
    let table = icefield::Dlht::<u32, u64>::options().geometry(0, 1).build().expect("small");
    let is_drained = AtomicBool::new(false);
    let drained: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let (table, is_drained) = (&table, &is_drained);
                scope.spawn(move || {
                    let mut rng = Rng::new(writer);
                    for number in 0..EACH {
                        // So that the writers cannot end before a drain.
                        while number == EACH / 2 && !is_drained.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                        let word = rng.below(500) as u32;
                        table.entry(word).and_modify(|count| *count += 1).or_insert(1);
                    }
                })
            })
            .collect();
        let mut drained = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            drained += table.drain().map(|(_, count)| count).sum::<u64>();
            is_drained.store(drained > 0, Ordering::Relaxed);
            for word in 0..500 {
                drained += table.remove_if(word, |count| *count > 1).unwrap_or(0);
            }
        }
        drained
    });
    let left: u64 = table.values().sum();
    assert!(drained > 0);
    assert_eq!(drained + left, 2 * EACH);
}

#[test]
fn one_of_many_threads_provides_a_value() {
    const KEYS: u64 = 3000;
    let table = icefield::Dlht::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let seen: Vec<Vec<u64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let table = &table;
                scope.spawn(move || {
                    let value = |key| table.get_or_insert_with(key, || key * 3 + thread);
                    (0..KEYS).map(value).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(seen.iter().all(|values| *values == seen[0]));
    assert!((0..KEYS).zip(&seen[0]).all(|(key, &value)| table.get(key) == Some(value)));
    assert_eq!(table.len() as u64, KEYS);
}

/// A closure may call the table, also in a way that replaces its index.
#[test]
fn closures_may_use_the_table() {
    let table = icefield::DlhtLocal::<u64, u64>::options().geometry(0, 1).build().expect("small");
    let busy = |value: u64| {
        (100..300).for_each(|key| table.put(key, value));
        assert!(table.drain().count() >= 200);
        table.shrink_to_fit();
        value
    };
    assert_eq!(table.entry(1).or_insert_with(|| busy(7)), 7);
    let modified = table.entry(1).and_modify(|value| *value += busy(1)).or_insert_with(|| busy(9));
    assert_eq!((modified, table.get(1)), (9, Some(9)), "the closure removes the key first");
    let mut calls = 0;
    let kept = table.remove_if(1, |value| {
        calls += 1;
        table.put(1, 10);
        *value == 9
    });
    assert_eq!((kept, calls, table.get(1)), (None, 2, Some(10)), "another value than was judged");
}
