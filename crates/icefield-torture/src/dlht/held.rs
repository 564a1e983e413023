//! A thread's shadow inserts in a DLHT table, made by single calls and by batches.

use icefield::{Error, Interleaved, NotShadowed, Occupied, OnFailure, Op, Shadow, Shadows, Table};

use super::turns::{Batons, DlhtInTurns};
use crate::call::{Action, Call, Reply, ask};
use crate::linear::{End, Held};
use crate::operation::{Answer, Operation};
use crate::subject::{FOREIGN, Sample};

type Turns = Interleaved<Batons>;

/// The shadow inserts that a thread holds.
struct Holder<'a> {
    table: &'a DlhtInTurns,
    ones: Vec<Shadow<'a, u64, u64, Turns>>,
    batches: Shadows<'a, u64, u64, Turns>,
}

/// Creates a holder without shadow inserts for `table`.
pub(super) fn held(table: &DlhtInTurns) -> Box<dyn Held + '_> {
    Box::new(Holder { table, ones: Vec::new(), batches: table.shadows() })
}

impl Held for Holder<'_> {
    fn shadow(&mut self, key: u64, value: u64) -> Answer {
        let made = self.table.try_insert_shadow(key, value);
        Answer::Shadow(made.map(|shadow| self.ones.push(shadow)))
    }

    fn batch(
        &mut self,
        on_failure: OnFailure,
        ops: &[(u64, Operation)],
    ) -> Result<Vec<Answer>, String> {
        let mut ops = ops
            .iter()
            .map(|&(key, asked)| unanswered(key, asked, &self.batches))
            .collect::<Result<Vec<_>, _>>()?;
        let ran = Table::execute(self.table, &mut ops, on_failure);
        let answered = ops.iter().take_while(|op| is_answered(op)).count();
        let mut answers: Vec<Answer> = ops[..answered].iter().map(answer_of).collect();
        match ran {
            Ok(ran) if ran == answered => {}
            Err(Error::Shadowed) if answered < ops.len() => answers.push(Answer::Refused),
            other => return Err(format!("{other:?}, but {answered} have results: {ops:?}")),
        }
        if ops[answered..].iter().any(is_answered) {
            return Err(format!("operations that did not run have results: {ops:?}"));
        }
        Ok(answers)
    }

    fn settle(&mut self, key: u64, end: End) -> Option<u64> {
        let at = self.ones.iter().position(|shadow| shadow.key() == key);
        let shadow = match at {
            Some(at) => self.ones.swap_remove(at),
            None => self.batches.take(key)?,
        };
        let value = shadow.value();
        match end {
            End::Commit => shadow.commit(),
            End::Abort => shadow.abort(),
        }
        Some(value)
    }

    fn settle_all(&mut self, end: End) {
        let ones = self.ones.drain(..);
        match end {
            End::Commit => {
                ones.for_each(Shadow::commit);
                self.batches.commit();
            }
            End::Abort => {
                drop(ones);
                self.batches.abort();
            }
        }
    }
}

/// A table with shadow inserts, but without shadow inserts in its batches.
pub(super) trait Shadowing: Table<Key: Sample, Value: Sample> {
    type Shadow<'a>
    where
        Self: 'a;

    fn shadow(&self, key: u64, value: u64) -> Result<Self::Shadow<'_>, NotShadowed<u64>>;
    /// Returns the key and the value of a shadow insert.
    fn record(shadow: &Self::Shadow<'_>) -> (u64, u64);
    fn commit(shadow: Self::Shadow<'_>);
}

/// The shadow inserts that a thread holds in such a table. Dropping one aborts it.
struct OneByOne<'a, T: Shadowing> {
    table: &'a T,
    held: Vec<T::Shadow<'a>>,
}

/// Creates a holder without shadow inserts for `table`. It runs the operations of a batch one by one.
pub(super) fn held_one_by_one<T: Shadowing>(table: &T) -> Box<dyn Held + '_> {
    Box::new(OneByOne { table, held: Vec::new() })
}

impl<T: Shadowing> Held for OneByOne<'_, T> {
    fn shadow(&mut self, key: u64, value: u64) -> Answer {
        let made = self.table.shadow(key, value);
        Answer::Shadow(made.map(|shadow| self.held.push(shadow)))
    }

    fn batch(
        &mut self,
        on_failure: OnFailure,
        ops: &[(u64, Operation)],
    ) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        for &(key, asked) in ops {
            let (answer, ends) = match asked {
                Operation::Shadow(value) => {
                    let answer = self.shadow(key, value);
                    let failed = answer != Answer::Shadow(Ok(()));
                    (answer, failed && on_failure == OnFailure::Stop)
                }
                Operation::Call(action) => match ask(self.table, Call { key, action }) {
                    Err(Error::Shadowed) => (Answer::Refused, true),
                    Err(error) => return Err(error.to_string()),
                    Ok(reply) => {
                        let failed = action.failed(&reply);
                        (Answer::Reply(reply), failed && on_failure == OnFailure::Stop)
                    }
                },
                other => return Err(format!("{other:?} in a batch")),
            };
            answers.push(answer);
            if ends {
                break;
            }
        }
        Ok(answers)
    }

    fn settle(&mut self, key: u64, end: End) -> Option<u64> {
        let at = self.held.iter().position(|shadow| T::record(shadow).0 == key)?;
        let shadow = self.held.swap_remove(at);
        let (_, value) = T::record(&shadow);
        match end {
            End::Commit => T::commit(shadow),
            End::Abort => drop(shadow),
        }
        Some(value)
    }

    fn settle_all(&mut self, end: End) {
        for shadow in self.held.drain(..) {
            match end {
                End::Commit => T::commit(shadow),
                End::Abort => drop(shadow),
            }
        }
    }
}

/// Returns an operation whose result is set to a value that no table returns. Any other result then shows that the
/// operation ran.
fn unanswered<'a>(
    key: u64,
    asked: Operation,
    shadows: &'a Shadows<'_, u64, u64, Turns>,
) -> Result<Op<'a, u64, u64>, String> {
    Ok(match asked {
        Operation::Call(Action::Get) => Op::Get(key, Some(FOREIGN)),
        Operation::Call(Action::Insert(value)) => Op::Insert(key, value, Some(FOREIGN)),
        Operation::Call(Action::Update(value)) => Op::Update(key, value, Some(FOREIGN)),
        Operation::Call(Action::Remove) => Op::Remove(key, Some(FOREIGN)),
        Operation::Call(Action::TryInsert(value)) => {
            Op::TryInsert(key, value, Err(Occupied(FOREIGN)))
        }
        Operation::Shadow(value) => {
            let outcome = Err(NotShadowed::Occupied(FOREIGN));
            Op::Shadow(key, value, shadows.as_ref(), outcome)
        }
        other => return Err(format!("{other:?} has no answer in a batch")),
    })
}

fn is_answered(op: &Op<'_, u64, u64>) -> bool {
    match op {
        Op::Get(_, found)
        | Op::Insert(_, _, found)
        | Op::Update(_, _, found)
        | Op::Remove(_, found) => *found != Some(FOREIGN),
        Op::TryInsert(.., outcome) => *outcome != Err(Occupied(FOREIGN)),
        Op::Shadow(.., outcome) => *outcome != Err(NotShadowed::Occupied(FOREIGN)),
        Op::Put(..) => false,
    }
}

fn answer_of(op: &Op<'_, u64, u64>) -> Answer {
    Answer::Reply(match op {
        Op::Shadow(.., outcome) => return Answer::Shadow(*outcome),
        Op::Get(_, found)
        | Op::Insert(_, _, found)
        | Op::Update(_, _, found)
        | Op::Remove(_, found) => Reply::Value(*found),
        Op::TryInsert(.., outcome) => Reply::TryInsert(outcome.map_err(|present| present.0)),
        Op::Put(..) => Reply::Done,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tiny;
    use super::*;
    use crate::linear::{Ground, Hold, histories_on};
    use crate::pool::Pool;

    /// Ends shadow inserts the wrong way: aborts instead of committing, and vice versa.
    struct Confused<'a>(Box<dyn Held + 'a>);

    fn other(end: End) -> End {
        if end == End::Commit { End::Abort } else { End::Commit }
    }

    impl Held for Confused<'_> {
        fn shadow(&mut self, key: u64, value: u64) -> Answer {
            self.0.shadow(key, value)
        }
        fn batch(
            &mut self,
            on_failure: OnFailure,
            ops: &[(u64, Operation)],
        ) -> Result<Vec<Answer>, String> {
            self.0.batch(on_failure, ops)
        }
        fn settle(&mut self, key: u64, end: End) -> Option<u64> {
            self.0.settle(key, other(end))
        }
        fn settle_all(&mut self, end: End) {
            self.0.settle_all(other(end));
        }
    }

    /// Returns the reason why histories are rejected, if they are.
    fn judged(hold: Hold<DlhtInTurns>) -> Option<String> {
        let make = |seed| {
            Ok(Ground { hold: Some(hold), ..Ground::of(tiny::<DlhtInTurns>(seed).build()?, true) })
        };
        histories_on(1, 2000, &Pool::new(3), make).err().map(|failure| failure.what)
    }

    #[test]
    fn shadow_inserts_that_end_wrongly_are_found() {
        let found = judged(|table| Box::new(Confused(held(table))));
        assert!(found.as_ref().is_some_and(|what| what.contains("no order")), "{found:?}");
    }

    #[test]
    fn right_ones_pass() {
        assert_eq!(judged(held), None);
    }
}
