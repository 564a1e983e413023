//! Selects the key and value columns.

use icefield_console::failure::Failure;
use icefield_console::terminal::shown;

/// The columns that the user named.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The key column.
    pub key: Option<String>,
    /// True if the keys are the row numbers, from 1.
    pub key_is_number: bool,
    /// The value column.
    pub value: Option<String>,
}

/// The columns of an input, and the selected ones.
pub struct Schema {
    /// All columns; for JSON those of the first object.
    pub(super) names: Vec<String>,
    /// The key column; `None` if the key is the row number.
    pub(super) key: Option<String>,
    /// The value column; `None` if the value is a JSON object of all columns but the key.
    pub(super) value: Option<String>,
}

/// Selects the columns. The key is the row number if requested, else the named column, else the column `key`, else the
/// first. The value is the named column, else the only other column, else a JSON object of all others.
pub fn settle(names: &[String], asked: &Columns) -> Result<Schema, Failure> {
    if names.is_empty() {
        return Err(Failure::Problem(
            "the input has no header and no object, so its columns have no names".to_owned(),
        ));
    }
    let count = |column: &str| names.iter().filter(|name| *name == column).count();
    let named = |option: &str, column: &String| match count(column) {
        1 => Ok(column.clone()),
        0 => Err(Failure::Usage(format!(
            "{option} {column}: no such column; there are {}",
            shown(&names.join(", "))
        ))),
        n => Err(Failure::Usage(format!("{option} {column}: there are {n} columns of that name"))),
    };
    let key = match &asked.key {
        _ if asked.key_is_number => None,
        Some(column) => Some(named("--key", column)?),
        None => Some(names.iter().find(|name| *name == "key").unwrap_or(&names[0]).clone()),
    };
    let value = match &asked.value {
        Some(column) => Some(named("--value", column)?),
        None => {
            let mut others = names.iter().filter(|name| Some(*name) != key.as_ref());
            others.next().filter(|_| others.next().is_none()).cloned()
        }
    };
    // A column that is stored must have a unique name.
    let stored = names.iter().filter(|name| {
        value.is_none() || Some(*name) == key.as_ref() || Some(*name) == value.as_ref()
    });
    if let Some((name, n)) = stored.map(|name| (name, count(name))).find(|(_, n)| *n > 1) {
        return Err(Failure::Usage(format!(
            "{n} columns have the name `{}`; rename one, name others with --key and --value, or read CSV with \
             --no-header",
            shown(name)
        )));
    }
    Ok(Schema { names: names.to_vec(), key, value })
}
