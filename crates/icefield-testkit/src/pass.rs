//! Passes over all records of a table, by each of the calls that make one, as plain numbers.

use std::cell::RefCell;
use std::ops::ControlFlow;

use icefield::{Cursor, Data, Table};

use crate::rng::Rng;
use crate::subject::{Sample, Subject};

/// How to see every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// `scan`, by pages of about so many records.
    Scan(usize),
    /// `iter`.
    Iter,
    /// `for_each`.
    ForEach,
    /// `retain`, which keeps everything.
    Retain,
    /// The design's own way, if it has one; else as `for_each`.
    Own,
}

impl Pass {
    /// Any of them.
    pub fn any(rng: &mut Rng) -> Self {
        match rng.below(6) {
            0 => Self::Iter,
            1 => Self::ForEach,
            2 => Self::Retain,
            3 => Self::Own,
            _ => Self::Scan(1 + rng.index(64)),
        }
    }
}

/// Numbers of keys and values.
pub type Seen = Vec<(u64, u64)>;

/// A design's own way to see all records of a table.
pub type OwnPass<T> = fn(&T) -> icefield::Result<Option<Seen>>;

/// The own pass of a [`Subject`].
///
/// # Errors
/// The table's.
pub fn own<T: Subject>(table: &T) -> icefield::Result<Option<Seen>> {
    table.own_pass()
}

/// Sees every record, in the order in which the table shows them.
///
/// # Errors
/// The table's, or a record that nobody wrote, in words.
pub fn see<T>(table: &T, pass: Pass, own: OwnPass<T>) -> Result<Seen, String>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let seen = match pass {
        Pass::Own => match own(table).map_err(|error| error.to_string())? {
            Some(seen) => return Ok(seen),
            None => see_all(table, Pass::ForEach),
        },
        _ => see_all(table, pass),
    };
    let seen = seen.map_err(|error| error.to_string())?;
    seen.into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{pass:?} shows a record that nobody wrote"))
}

type Raw = Vec<Option<(u64, u64)>>;

fn see_all<T>(table: &T, pass: Pass) -> icefield::Result<Raw>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let mut seen = Raw::new();
    match pass {
        Pass::Scan(size) => {
            let mut next = Some(Cursor::START);
            while let Some(cursor) = next {
                let page = table.scan(cursor, size)?;
                seen.extend(page.records.iter().map(|(key, value)| numbers::<T>(key, value)));
                next = page.next;
            }
        }
        Pass::Iter => {
            for record in table.iter() {
                let (key, value) = record?;
                seen.push(numbers::<T>(&key, &value));
            }
        }
        Pass::ForEach | Pass::Own => table.for_each(|key, value| {
            seen.push(numbers::<T>(key, value));
            ControlFlow::Continue(())
        })?,
        Pass::Retain => {
            let asked = RefCell::new(Raw::new());
            table.retain(|key, value| {
                let key = T::Key::own(T::Key::raw(key));
                let record = key.and_then(|key| numbers::<T>(&key, &value.own_ref()));
                let mut asked = asked.borrow_mut();
                // Asked again of a key that another thread has changed meanwhile: the last time counts.
                let again = |last: &mut Option<(u64, u64)>| {
                    last.zip(record).is_some_and(|(last, record)| last.0 == record.0)
                };
                asked.pop_if(again);
                asked.push(record);
                true
            })?;
            seen = asked.into_inner();
        }
    }
    Ok(seen)
}

/// A record in numbers; `None` if it is nobody's.
fn numbers<T: Table<Key: Sample, Value: Sample>>(
    key: &<T::Key as Data>::Owned,
    value: &<T::Value as Data>::Owned,
) -> Option<(u64, u64)> {
    Some((T::Key::number(key)?, T::Value::number(value)?))
}
