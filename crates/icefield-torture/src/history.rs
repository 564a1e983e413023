//! Recorded concurrent histories and the check of their linearizability.
//!
//! Operations on different keys are independent, so a history is linearizable if each key's part of it is linearizable
//! (Herlihy and Wing's locality). The search for a legal order of each part is that of Wing and Gong. The search
//! remembers the pairs of (set of operations done, state of the key) from which no legal order continues (Lowe).

use std::collections::{BTreeMap, HashSet};

use crate::operation::{Answer, Holding, Operation};

/// Maximum number of operations on one key that [`check`] supports.
pub const MAX_EVENTS: usize = 128;

/// A completed operation. Time stamps come from one counter that all threads advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The calling thread.
    pub thread: usize,
    /// Time stamp from before the call.
    pub began: u64,
    /// Time stamp from after the return. The operations of a batch share both stamps.
    pub returned: u64,
    /// The key.
    pub key: u64,
    /// The operation.
    pub asked: Operation,
    /// The answer.
    pub answer: Answer,
}

/// The part of a history that has no legal order.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// The operations on the key, in the order of their start.
    pub events: Vec<Event>,
}

impl Violation {
    /// Returns the operations, one per line.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        let line = |event: &Event| {
            let Event { thread, began, returned, key, asked, answer } = event;
            format!("thread {thread} [{began}..{returned}] key {key}: {asked:?} -> {answer:?}")
        };
        self.events.iter().map(line).collect()
    }
}

/// Checks that some order of `events` explains every answer. All keys are absent at the start. Events of one thread
/// must be in program order.
///
/// # Errors
/// Returns the first key without a legal order.
///
/// # Panics
/// Panics if a key has more than [`MAX_EVENTS`] operations.
pub fn check(events: &[Event]) -> Result<(), Violation> {
    for (key, events) in by_key(events) {
        assert!(
            events.len() <= MAX_EVENTS,
            "{} operations on key {key} are too many to check",
            events.len()
        );
        if !Search::new(&events).explains() {
            return Err(Violation { key, events });
        }
    }
    Ok(())
}

/// Groups the operations by key and sorts them by start. The order within a thread is preserved.
fn by_key(events: &[Event]) -> BTreeMap<u64, Vec<Event>> {
    let mut keys: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for event in events {
        keys.entry(event.key).or_default().push(event.clone());
    }
    for events in keys.values_mut() {
        events.sort_by_key(|event| event.began);
    }
    keys
}

/// Returns the number of `events` that overlap an operation of another thread on the same key.
#[must_use]
pub fn overlapping(events: &[Event]) -> usize {
    let overlap = |a: &Event, b: &Event| {
        a.thread != b.thread && a.key == b.key && a.began < b.returned && b.began < a.returned
    };
    events.iter().filter(|event| events.iter().any(|other| overlap(event, other))).count()
}

/// Returns the history with the answers of two operations exchanged.
#[must_use]
pub fn with_answers_swapped(events: &[Event], a: usize, b: usize) -> Vec<Event> {
    let mut swapped = events.to_vec();
    swapped[a].answer = events[b].answer.clone();
    swapped[b].answer = events[a].answer.clone();
    swapped
}

/// The search for a legal order of one key's operations.
struct Search<'a> {
    events: &'a [Event],
    /// Pairs from which no legal order continues: the set of operations done, and the state of the key.
    dead: HashSet<(u128, Holding)>,
}

impl<'a> Search<'a> {
    fn new(events: &'a [Event]) -> Self {
        Self { events, dead: HashSet::new() }
    }

    fn explains(&mut self) -> bool {
        self.explains_rest(0, Holding::Absent)
    }

    /// Checks whether the operations outside `done` can follow, starting with `holding`. [`MAX_EVENTS`] bounds the
    /// recursion.
    fn explains_rest(&mut self, done: u128, holding: Holding) -> bool {
        if done.count_ones() as usize == self.events.len() {
            return true;
        }
        if self.dead.contains(&(done, holding)) {
            return false;
        }
        for at in self.candidates(done) {
            let Event { asked, answer, .. } = &self.events[at];
            let Some((after, right)) = asked.step(holding) else { continue };
            if right == *answer && self.explains_rest(done | 1 << at, after) {
                return true;
            }
        }
        self.dead.insert((done, holding));
        false
    }

    /// Returns the operations that may be next: each started before the first return of a pending operation, and is the
    /// first pending one of its thread.
    fn candidates(&self, done: u128) -> Vec<usize> {
        let pending = || (0..self.events.len()).filter(move |&at| done & (1 << at) == 0);
        let first_return = pending().map(|at| self.events[at].returned).min().unwrap_or(u64::MAX);
        let mut threads = HashSet::new();
        pending()
            .take_while(|&at| self.events[at].began < first_return)
            .filter(|&at| threads.insert(self.events[at].thread))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Action, Reply};
    use icefield::NotShadowed;

    fn event(thread: usize, began: u64, returned: u64, action: Action, reply: Reply) -> Event {
        asked(thread, began, returned, Operation::Call(action), Answer::Reply(reply))
    }

    fn asked(thread: usize, began: u64, returned: u64, asked: Operation, answer: Answer) -> Event {
        Event { thread, began, returned, key: 1, asked, answer }
    }

    fn shadow(
        thread: usize,
        began: u64,
        returned: u64,
        outcome: Result<(), NotShadowed<u64>>,
    ) -> Event {
        asked(thread, began, returned, Operation::Shadow(thread as u64), Answer::Shadow(outcome))
    }

    fn insert(thread: usize, began: u64, returned: u64, value: u64, before: Option<u64>) -> Event {
        event(thread, began, returned, Action::Insert(value), Reply::Value(before))
    }

    fn get(thread: usize, began: u64, returned: u64, value: Option<u64>) -> Event {
        event(thread, began, returned, Action::Get, Reply::Value(value))
    }

    #[test]
    fn a_read_during_a_write_may_see_either() {
        for seen in [None, Some(7)] {
            assert!(check(&[insert(0, 0, 3, 7, None), get(1, 1, 2, seen)]).is_ok());
        }
        assert!(check(&[insert(0, 0, 3, 7, None), get(1, 1, 2, Some(8))]).is_err());
    }

    #[test]
    fn a_read_after_a_write_must_see_it() {
        assert!(check(&[insert(0, 0, 1, 7, None), get(1, 2, 3, None)]).is_err());
    }

    #[test]
    fn reads_may_not_go_back_in_time() {
        let write = insert(0, 0, 9, 7, None);
        assert!(check(&[write.clone(), get(1, 1, 2, None), get(1, 3, 4, Some(7))]).is_ok());
        assert!(check(&[write, get(1, 1, 2, Some(7)), get(2, 3, 4, None)]).is_err());
    }

    #[test]
    fn two_inserters_may_not_both_find_the_key_absent() {
        let both = [insert(0, 0, 3, 7, None), insert(1, 1, 4, 8, None)];
        assert!(check(&both).is_err());
        let tried = |thread, reply| {
            event(thread, 0, 5, Action::TryInsert(thread as u64), Reply::TryInsert(reply))
        };
        assert!(check(&[tried(1, Ok(())), tried(2, Err(1))]).is_ok());
        assert!(check(&[tried(1, Ok(())), tried(2, Ok(()))]).is_err());
    }

    #[test]
    fn two_removers_may_not_both_get_the_value() {
        let remove = |thread, seen| event(thread, 2, 9, Action::Remove, Reply::Value(seen));
        assert!(check(&[insert(0, 0, 1, 7, None), remove(1, Some(7)), remove(2, None)]).is_ok());
        assert!(
            check(&[insert(0, 0, 1, 7, None), remove(1, Some(7)), remove(2, Some(7))]).is_err()
        );
    }

    #[test]
    fn a_batch_keeps_its_own_order() {
        let batch = [insert(0, 0, 9, 7, None), insert(0, 0, 9, 8, Some(7))];
        assert!(check(&batch).is_ok());
        let reversed = [insert(0, 0, 9, 7, Some(8)), insert(0, 0, 9, 8, None)];
        assert!(check(&reversed).is_err());
    }

    #[test]
    fn exchanged_answers_are_rejected() {
        let history =
            [insert(0, 0, 1, 7, None), insert(1, 2, 3, 8, Some(7)), get(2, 4, 5, Some(8))];
        assert!(check(&history).is_ok());
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(check(&with_answers_swapped(&history, a, b)).is_err(), "{a} and {b}");
        }
    }

    #[test]
    fn a_shadow_insert_is_seen_by_nobody_before_it_commits() {
        let commit = asked(1, 4, 5, Operation::Commit, Answer::Settled(1));
        let held = |seen| vec![shadow(1, 0, 1, Ok(())), get(2, 2, 3, seen), commit.clone()];
        assert!(check(&held(None)).is_ok());
        assert!(check(&held(Some(1))).is_err());
        let after = |seen| vec![shadow(1, 0, 1, Ok(())), commit.clone(), get(2, 6, 7, seen)];
        assert!(check(&after(Some(1))).is_ok());
        assert!(check(&after(None)).is_err());
    }

    #[test]
    fn one_shadow_insert_holds_a_key_until_it_ends() {
        let abort = asked(1, 2, 3, Operation::Abort, Answer::Settled(1));
        let second = |began, outcome| {
            let all = [shadow(1, 0, 1, Ok(())), abort.clone(), shadow(2, began, 9, outcome)];
            check(&all).is_ok()
        };
        assert!(second(2, Ok(())) && second(2, Err(NotShadowed::Shadowed)));
        assert!(second(4, Ok(())) && !second(4, Err(NotShadowed::Shadowed)));
        let refused = asked(2, 2, 3, Operation::Call(Action::Insert(5)), Answer::Refused);
        let kept = [shadow(1, 0, 1, Ok(())), refused.clone()];
        assert!(check(&kept).is_ok());
        assert!(check(&[refused]).is_err(), "nobody holds the key");
        assert!(check(&[shadow(1, 0, 1, Ok(())), insert(2, 2, 3, 5, None)]).is_err());
    }

    #[test]
    fn overlap_counts_other_threads_on_the_same_key_only() {
        let mut history = vec![
            insert(0, 0, 3, 7, None),
            get(1, 1, 2, None),
            get(1, 4, 5, None),
            get(0, 0, 9, None),
        ];
        history[3].key = 2;
        assert_eq!(overlapping(&history), 2);
    }

    #[test]
    fn a_long_history_of_one_key_is_judged_quickly() {
        let mut history = Vec::new();
        for at in 0..32 {
            for thread in 0..3 {
                history.push(event(
                    thread,
                    at * 10,
                    at * 10 + 11,
                    Action::Put(at * 3 + thread as u64),
                    Reply::Done,
                ));
            }
        }
        history.push(get(4, 1000, 1001, Some(94)));
        assert!(check(&history).is_ok());
        history[96].answer = Answer::Reply(Reply::Value(Some(1)));
        assert!(check(&history).is_err());
    }
}
