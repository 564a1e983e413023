//! Selects the columns of both sides that a join returns.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema, SchemaRef};

use super::input::names;
use icefield_console::failure::Failure;

/// A side of the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The probing file.
    Left,
    /// The indexed file.
    Right,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// A column that the join returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The side that it comes from.
    pub side: Side,
    /// The column's position in its file.
    pub column: usize,
}

/// The files of both sides, from whose columns the user chooses.
pub struct Sides<'a> {
    /// The probing file and its columns.
    pub left: (&'a Path, &'a Schema),
    /// The indexed file and its columns.
    pub right: (&'a Path, &'a Schema),
}

impl Sides<'_> {
    fn of(&self, side: Side) -> (&Path, &Schema) {
        match side {
            Side::Left => self.left,
            Side::Right => self.right,
        }
    }

    /// Finds the columns that the user names. Returns them, and the schema with their names in the result.
    pub fn choose(&self, wanted: &[String]) -> Result<(Vec<Chosen>, SchemaRef), Failure> {
        let mut chosen = Vec::new();
        for name in wanted {
            self.find(name.trim(), &mut chosen)?;
        }
        if chosen.is_empty() {
            return Err(Failure::Usage("--select: name at least one column".to_owned()));
        }
        let schema = self.schema(&chosen);
        Ok((chosen, schema))
    }

    fn find(&self, name: &str, chosen: &mut Vec<Chosen>) -> Result<(), Failure> {
        let sides = [Side::Left, Side::Right];
        if name == "*" {
            for side in sides {
                self.all(side, chosen);
            }
            return Ok(());
        }
        let plain: Vec<Chosen> =
            sides.into_iter().flat_map(|side| self.named(side, name)).collect();
        match plain.as_slice() {
            [one] => {
                chosen.push(one.clone());
                return Ok(());
            }
            [] => {}
            _ => {
                return Err(Failure::Usage(format!(
                    "--select: there are several columns `{name}`; write left.{name} or right.{name}"
                )));
            }
        }
        for side in sides {
            let Some(column) = self.without_prefix(side, name) else { continue };
            if column == "*" {
                self.all(side, chosen);
                return Ok(());
            }
            if let [one] = self.named(side, column).as_slice() {
                chosen.push(one.clone());
                return Ok(());
            }
        }
        Err(self.not_found(name))
    }

    fn all(&self, side: Side, chosen: &mut Vec<Chosen>) {
        let count = self.of(side).1.fields().len();
        chosen.extend((0..count).map(|column| Chosen { side, column }));
    }

    fn named(&self, side: Side, name: &str) -> Vec<Chosen> {
        let fields = self.of(side).1.fields().iter().enumerate();
        fields
            .filter(|(_, field)| field.name() == name)
            .map(|(column, _)| Chosen { side, column })
            .collect()
    }

    /// Returns `name` without its prefix for this side: `left.` or `right.`, or the name of the side's file and a dot.
    fn without_prefix<'n>(&self, side: Side, name: &'n str) -> Option<&'n str> {
        let stem = |side| self.of(side).0.file_stem().and_then(|stem| stem.to_str());
        let after = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('.');
        // In a self-join, both files have the same name, which then identifies no side.
        let own = stem(side).filter(|own| Some(*own) != stem(other(side)));
        after(side.name()).or_else(|| after(own?))
    }

    fn not_found(&self, name: &str) -> Failure {
        let line = |side| {
            let (path, schema) = self.of(side);
            format!("{} has {}", path.display(), names(schema))
        };
        let (left, right) = (line(Side::Left), line(Side::Right));
        Failure::Usage(format!("--select: no column `{name}`; {left}; {right}"))
    }

    /// Returns the schema of the result. Columns keep their names, except that the side's name is added to names that
    /// occur twice.
    fn schema(&self, chosen: &[Chosen]) -> SchemaRef {
        let field = |one: &Chosen| Arc::clone(&self.of(one.side).1.fields()[one.column]);
        let fields: Vec<FieldRef> = chosen.iter().map(field).collect();
        let is_alone = |name: &str| fields.iter().filter(|field| field.name() == name).count() == 1;
        let named = chosen.iter().zip(&fields).map(|(one, field)| {
            let name = match is_alone(field.name()) {
                true => field.name().clone(),
                false => format!("{}.{}", one.side.name(), field.name()),
            };
            field.as_ref().clone().with_name(name)
        });
        Arc::new(Schema::new(named.collect::<Vec<_>>()))
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Left => Side::Right,
        Side::Right => Side::Left,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    fn chosen(wanted: &[&str]) -> Result<Vec<String>, String> {
        let schema = |names: &[&str]| {
            let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true));
            Schema::new(fields.collect::<Vec<_>>())
        };
        let (left, right) = (schema(&["k", "a", "x.y"]), schema(&["k", "b"]));
        let sides = Sides {
            left: (Path::new("lines.csv"), &left),
            right: (Path::new("dir/orders.parquet"), &right),
        };
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let (_, schema) = sides.choose(&wanted).map_err(|failure| failure.to_string())?;
        Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
    }

    #[test]
    fn columns_are_found_by_name_side_and_file() {
        assert_eq!(chosen(&["a", "b"]).unwrap(), ["a", "b"]);
        assert_eq!(chosen(&["x.y"]).unwrap(), ["x.y"]);
        assert_eq!(chosen(&["orders.k", " lines.a"]).unwrap(), ["k", "a"]);
        assert_eq!(chosen(&["left.k", "right.k"]).unwrap(), ["left.k", "right.k"]);
        assert_eq!(chosen(&["right.*"]).unwrap(), ["k", "b"]);
        assert_eq!(chosen(&["*"]).unwrap(), ["left.k", "a", "x.y", "right.k", "b"]);
        assert!(chosen(&["k"]).unwrap_err().contains("left.k or right.k"));
        assert!(chosen(&["c"]).unwrap_err().contains("k, a, x.y"));
        assert!(chosen(&["left.b"]).is_err() && chosen(&[]).is_err());
    }
}
