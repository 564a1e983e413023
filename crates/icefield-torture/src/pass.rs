//! Passes over all records of a table, by each call that makes a pass. Keys and values are returned as numbers.

use std::cell::RefCell;
use std::ops::ControlFlow;

use icefield::{Cursor, Data, Error, Table};

use crate::rng::Rng;
use crate::subject::{Sample, Seen, Subject};

/// The call that makes the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// `scan`, in pages of about this many records.
    Scan(usize),
    /// `iter`.
    Iter,
    /// `for_each`.
    ForEach,
    /// `retain` that keeps all records.
    Retain,
    /// The design's own call, if it has one, otherwise `for_each`.
    Own,
}

impl Pass {
    /// Returns a random kind of pass.
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

/// A design's own call that returns all records of a table.
pub type OwnPass<T> = fn(&T) -> icefield::Result<Option<Seen>>;

/// Makes a pass with the design's own call, if it has one: [`Subject::own_pass`].
///
/// # Errors
/// Returns the table's error.
pub fn own<T: Subject>(table: &T) -> icefield::Result<Option<Seen>> {
    table.own_pass()
}

/// Returns every record, in the order of the pass. `shown` is called after each page of a scan, before the next call
/// of the table.
///
/// # Errors
/// Returns the table's error, a record that the scenario never wrote, or the error of `shown`.
pub fn see<T>(
    table: &T,
    pass: Pass,
    own: OwnPass<T>,
    shown: &dyn Fn() -> Result<(), String>,
) -> Result<Seen, String>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let mut seen = Raw::new();
    match pass {
        Pass::Scan(size) => {
            let mut next = Some(Cursor::START);
            while let Some(cursor) = next {
                let page = table.scan(cursor, size).map_err(in_words)?;
                shown()?;
                seen.extend(page.records.iter().map(|(key, value)| numbers::<T>(key, value)));
                next = page.next;
            }
        }
        Pass::Own => match own(table).map_err(in_words)? {
            Some(seen) => return Ok(seen),
            None => seen = see_at_once(table, Pass::ForEach).map_err(in_words)?,
        },
        _ => seen = see_at_once(table, pass).map_err(in_words)?,
    }
    let known: Option<Seen> = seen.into_iter().collect();
    known.ok_or_else(|| format!("{pass:?} shows a record that was never written"))
}

fn in_words(error: Error) -> String {
    error.to_string()
}

type Raw = Vec<Option<(u64, u64)>>;

fn see_at_once<T>(table: &T, pass: Pass) -> icefield::Result<Raw>
where
    T: Table<Key: Sample, Value: Sample>,
{
    let mut seen = Raw::new();
    match pass {
        Pass::Iter => {
            for record in table.iter() {
                let (key, value) = record?;
                seen.push(numbers::<T>(&key, &value));
            }
        }
        Pass::Scan(_) | Pass::ForEach | Pass::Own => table.for_each(|key, value| {
            seen.push(numbers::<T>(key, value));
            ControlFlow::Continue(())
        })?,
        Pass::Retain => {
            let asked = RefCell::new(Raw::new());
            table.retain(|key, value| {
                let key = T::Key::own(T::Key::raw(key));
                let record = key.and_then(|key| numbers::<T>(&key, &value.own_ref()));
                let mut asked = asked.borrow_mut();
                // `retain` calls its closure again for a key that another thread has just changed. Only the last call
                // counts.
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

/// Returns a record as numbers, or `None` if it is not a sample.
fn numbers<T: Table<Key: Sample, Value: Sample>>(
    key: &<T::Key as Data>::Owned,
    value: &<T::Value as Data>::Owned,
) -> Option<(u64, u64)> {
    Some((T::Key::number(key)?, T::Value::number(value)?))
}
