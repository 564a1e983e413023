//! The operations of a concurrent history: the calls of every table, and shadow inserts for the tables that have
//! them. [`Operation::step`] specifies both.

use icefield::{Decision, NotShadowed};

use crate::call::{Action, Reply};

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A call of [`Table`](icefield::Table).
    Call(Action),
    /// A shadow insert of a value. If it succeeds, its thread owns it.
    Shadow(u64),
    /// Commits the shadow insert that the calling thread owns.
    Commit,
    /// Aborts the shadow insert that the calling thread owns.
    Abort,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply of a call.
    Reply(Reply),
    /// The outcome of a shadow insert.
    Shadow(Result<(), NotShadowed<u64>>),
    /// The call was refused because of a shadow insert on the key.
    Refused,
    /// A shadow insert of this value was committed or aborted.
    Settled(u64),
}

impl Answer {
    /// Returns whether the operation was a shadow insert, its commit or abort, or a call that was refused because of
    /// one.
    #[must_use]
    pub fn is_of_shadow(&self) -> bool {
        !matches!(self, Self::Reply(_))
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Holding {
    /// The key is absent.
    #[default]
    Absent,
    /// The key has this value.
    Present(u64),
    /// A shadow insert of this value is pending. Reads, updates and removals treat the key as absent; other inserts
    /// fail.
    Shadowed(u64),
}

impl From<Option<u64>> for Holding {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::Absent, Self::Present)
    }
}

impl Operation {
    /// Specifies the operation: given the key's state before it, returns the state after it and the answer. Returns
    /// `None` if there is no shadow insert to commit or abort.
    #[must_use]
    pub fn step(self, before: Holding) -> Option<(Holding, Answer)> {
        Some(match (self, before) {
            (Self::Call(action), Holding::Shadowed(_)) => (before, under_shadow(action)),
            (Self::Call(action), Holding::Absent) => stepped(action, None),
            (Self::Call(action), Holding::Present(value)) => stepped(action, Some(value)),
            (Self::Shadow(new), Holding::Absent) => {
                (Holding::Shadowed(new), Answer::Shadow(Ok(())))
            }
            (Self::Shadow(_), Holding::Present(value)) => {
                (before, Answer::Shadow(Err(NotShadowed::Occupied(value))))
            }
            (Self::Shadow(_), Holding::Shadowed(_)) => {
                (before, Answer::Shadow(Err(NotShadowed::Shadowed)))
            }
            (Self::Commit, Holding::Shadowed(value)) => {
                (Holding::Present(value), Answer::Settled(value))
            }
            (Self::Abort, Holding::Shadowed(value)) => (Holding::Absent, Answer::Settled(value)),
            (Self::Commit | Self::Abort, _) => return None,
        })
    }
}

fn stepped(action: Action, value: Option<u64>) -> (Holding, Answer) {
    let (after, reply) = action.step(value);
    (after.into(), Answer::Reply(reply))
}

/// Returns the answer of a call on a key with a pending shadow insert. The key is absent, but cannot be inserted.
fn under_shadow(action: Action) -> Answer {
    let inserts = match action {
        Action::TryInsert(_) | Action::Insert(_) | Action::Put(_) => true,
        Action::Compute(rule) => matches!(rule.decide(None), Decision::Put(_)),
        _ => false,
    };
    if inserts { Answer::Refused } else { Answer::Reply(action.step(None).1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Rule;

    const HELD: Holding = Holding::Shadowed(7);

    fn held(action: Action) -> Option<Answer> {
        let (after, answer) = Operation::Call(action).step(HELD)?;
        assert_eq!(after, HELD, "no call changes what a shadow insert holds");
        Some(answer)
    }

    #[test]
    fn a_shadowed_key_is_absent_and_cannot_be_inserted() {
        let absent = Some(Answer::Reply(Reply::Value(None)));
        for action in [Action::Get, Action::Update(1), Action::Remove] {
            assert_eq!(held(action), absent, "{action:?}");
        }
        assert_eq!(held(Action::Delete), Some(Answer::Reply(Reply::Done)));
        for action in [Action::TryInsert(1), Action::Insert(1), Action::Put(1)] {
            assert_eq!(held(action), Some(Answer::Refused), "{action:?}");
        }
        assert_eq!(held(Action::Compute(Rule::PutIfAbsent(1))), Some(Answer::Refused));
        let kept = Answer::Reply(Reply::Computed(icefield::Computed::Kept(None)));
        assert_eq!(held(Action::Compute(Rule::PutIfPresent(1))), Some(kept));
    }

    #[test]
    fn a_shadow_insert_is_refused_by_what_is_there_and_ends_only_if_held() {
        let refused = |holding| Operation::Shadow(1).step(holding).map(|(_, answer)| answer);
        let (shadowed, occupied) = (NotShadowed::Shadowed, NotShadowed::Occupied(7));
        assert_eq!(refused(HELD), Some(Answer::Shadow(Err(shadowed))));
        assert_eq!(refused(Holding::Present(7)), Some(Answer::Shadow(Err(occupied))));
        let made = Operation::Shadow(7).step(Holding::Absent);
        assert_eq!(made, Some((HELD, Answer::Shadow(Ok(())))));
        let settled = Answer::Settled(7);
        assert_eq!(Operation::Commit.step(HELD), Some((Holding::Present(7), settled.clone())));
        assert_eq!(Operation::Abort.step(HELD), Some((Holding::Absent, settled)));
        assert_eq!(Operation::Commit.step(Holding::Present(7)), None);
        assert_eq!(Operation::Abort.step(Holding::Absent), None);
    }
}
