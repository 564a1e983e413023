//! A thread in a history: it calls the table, and holds shadow inserts between its moves.

use icefield::{Error, Table};

use super::held::{End, Held, Hold};
use super::plan::Move;
use crate::call::{Action, Call, Reply, ask, ask_batch};
use crate::operation::{Answer, Operation};
use crate::pass::{OwnPass, Pass, see};
use crate::subject::Sample;

/// An operation on a key, and its answer.
pub(super) type Answered = (u64, Operation, Answer);

/// A thread in a history.
pub(super) struct Actor<'a, T> {
    table: &'a T,
    held: Option<Box<dyn Held + 'a>>,
    /// The design's own call that returns all records.
    pass: OwnPass<T>,
    /// The keys of the history.
    among: &'a [u64],
    /// Returns an error if a crash could revert what a pass has returned.
    durable: &'a dyn Fn() -> Result<(), String>,
    /// Keys and values of the shadow inserts that the thread holds.
    keys: Vec<(u64, u64)>,
}

impl<'a, T: Table<Key: Sample, Value: Sample>> Actor<'a, T> {
    /// Creates a thread for a history of the keys `among`.
    pub(super) fn new(
        table: &'a T,
        hold: Option<Hold<T>>,
        pass: OwnPass<T>,
        among: &'a [u64],
        durable: &'a dyn Fn() -> Result<(), String>,
    ) -> Self {
        let held = hold.map(|hold| hold(table));
        Self { table, held, pass, among, durable, keys: Vec::new() }
    }

    /// Makes a move. Returns the operations, their keys and their answers.
    ///
    /// # Errors
    /// Returns a description of the table's error.
    pub(super) fn make(&mut self, step: &Move) -> Result<Vec<Answered>, String> {
        let answered = match step {
            Move::One(key, asked) => vec![self.ask(*key, *asked)?],
            Move::Batch(kind, calls) => {
                let replies = ask_batch(self.table, *kind, calls).map_err(in_words)?;
                let answered = |(call, reply): (&Call, _)| {
                    (call.key, Operation::Call(call.action), Answer::Reply(reply))
                };
                calls.iter().zip(replies).map(answered).collect()
            }
            Move::Mixed(on_failure, ops) => {
                let answers = self.held()?.batch(*on_failure, ops)?.into_iter();
                ops.iter()
                    .zip(answers)
                    .map(|(&(key, asked), answer)| (key, asked, answer))
                    .collect()
            }
            Move::Settle { key, .. } if self.keys.is_empty() => {
                vec![self.ask(*key, Operation::Call(Action::Get))?]
            }
            Move::Settle { end, all: true, .. } => self.settle_all(*end)?,
            Move::Settle { end, .. } => vec![self.settle_one(*end)?],
            Move::Clear => {
                self.table.clear().map_err(in_words)?;
                Vec::new()
            }
            Move::Pass(pass) => self.pass(*pass)?,
        };
        let made = answered.iter().filter_map(|(key, asked, answer)| match (asked, answer) {
            (Operation::Shadow(value), Answer::Shadow(Ok(()))) => Some((*key, *value)),
            _ => None,
        });
        self.keys.extend(made);
        Ok(answered)
    }

    /// Converts a pass into one read per key of the history. If a key was removed and inserted again, the pass can
    /// return it more than once. Then the key has several reads.
    fn pass(&self, pass: Pass) -> Result<Vec<Answered>, String> {
        let seen = see(self.table, pass, self.pass, self.durable)?;
        let read =
            |key, value| (key, Operation::Call(Action::Get), Answer::Reply(Reply::Value(value)));
        let shown = seen.iter().filter(|(key, _)| self.among.contains(key));
        let not_shown = self.among.iter().filter(|&among| seen.iter().all(|(key, _)| key != among));
        Ok(shown
            .map(|&(key, value)| read(key, Some(value)))
            .chain(not_shown.map(|&key| read(key, None)))
            .collect())
    }

    fn held(&mut self) -> Result<&mut (dyn Held + 'a), String> {
        self.held.as_deref_mut().ok_or_else(|| "the table has no shadow inserts".to_owned())
    }

    fn ask(&mut self, key: u64, asked: Operation) -> Result<Answered, String> {
        let answer = match asked {
            Operation::Call(action) => match ask(self.table, Call { key, action }) {
                Err(Error::Shadowed) => Answer::Refused,
                reply => Answer::Reply(reply.map_err(in_words)?),
            },
            Operation::Shadow(value) => self.held()?.shadow(key, value),
            Operation::Commit | Operation::Abort => {
                return Err("the operation does not name its shadow insert".to_owned());
            }
        };
        Ok((key, asked, answer))
    }

    /// Ends the oldest shadow insert.
    fn settle_one(&mut self, end: End) -> Result<Answered, String> {
        let (key, _) = self.keys.remove(0);
        let value = self.held()?.settle(key, end);
        let value = value.ok_or_else(|| format!("the shadow insert of key {key} is not held"))?;
        Ok((key, end.asked(), Answer::Settled(value)))
    }

    fn settle_all(&mut self, end: End) -> Result<Vec<Answered>, String> {
        self.held()?.settle_all(end);
        let settled = |(key, value)| (key, end.asked(), Answer::Settled(value));
        Ok(std::mem::take(&mut self.keys).into_iter().map(settled).collect())
    }
}

fn in_words(error: Error) -> String {
    error.to_string()
}
