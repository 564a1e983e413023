//! Infers the key and value types of a new table from the first rows to be loaded into it.

use crate::rows::Row;
use crate::text::TextType;

/// Returns the narrowest key and value types that represent every text of the sample exactly. Integers come first, then
/// (for values only) numbers and booleans, then text.
pub fn types(sample: &[&Row]) -> (&'static str, &'static str) {
    let keys = || sample.iter().map(|row| row.key.as_slice());
    let values = || sample.iter().map(|row| row.value.as_slice());
    let key = integer(keys()).unwrap_or("str");
    let value = integer(values())
        .or_else(|| number(values()))
        .or_else(|| boolean(values()))
        .unwrap_or("str");
    (key, value)
}

fn integer<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    // `007` and `+7` are texts, because as integers they would be printed as `7`.
    ["u64", "i64"].into_iter().find(|name| fits(name, texts.clone()))
}

fn number<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    // Words such as `inf`, which parse as numbers, are texts.
    let is_number = |text: &[u8]| text.iter().all(|byte| b"0123456789.-e".contains(byte));
    (texts.clone().all(is_number) && fits("f64", texts)).then_some("f64")
}

/// Returns whether there is at least one text, and the type represents every text exactly.
fn fits<'a>(name: &str, texts: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    let text_type = TextType::new(name, false);
    non_empty(texts.clone()) && texts.into_iter().all(|text| text_type.parse_exactly(text).is_ok())
}

fn boolean<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    (non_empty(texts.clone()) && texts.clone().all(|text| matches!(text, b"true" | b"false")))
        .then_some("bool")
}

fn non_empty<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> bool {
    texts.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(pairs: &[(&str, &str)]) -> (&'static str, &'static str) {
        let row = |(key, value): &(&str, &str)| Row {
            line: 1,
            key: (*key).into(),
            value: (*value).into(),
        };
        let rows: Vec<Row> = pairs.iter().map(row).collect();
        types(&rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_narrowest_type_wins() {
        assert_eq!(inferred(&[("1", "2"), ("3", "4")]), ("u64", "u64"));
        assert_eq!(inferred(&[("1", "2.0"), ("-3", "4.5")]), ("i64", "f64"));
        for changed in ["4.50", "10", "1e400", "12345678901234567890123", ".5"] {
            assert_eq!(inferred(&[("1", "2.5"), ("-3", changed)]), ("i64", "str"), "{changed}");
        }
        assert_eq!(inferred(&[("1", "true"), ("x", "false")]), ("str", "bool"));
        assert_eq!(inferred(&[("007", "nan"), ("1", "2")]), ("str", "str"));
        assert_eq!(inferred(&[("1.5", "00.5")]), ("str", "str"));
        assert_eq!(inferred(&[]), ("str", "str"));
    }
}
