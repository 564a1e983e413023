//! Guesses the types of a table from the first rows that go into it.

use crate::rows::Row;

/// The narrowest of a few types that every key, and every value, of the sample fits: integers, then (values only)
/// numbers and booleans, else text.
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
    // `007` and `+7` are names made of digits: as integers they would come back changed.
    let all = |fits: fn(&str) -> bool| {
        non_empty(texts.clone()) && texts.clone().all(|text| utf8(text).is_some_and(fits))
    };
    if all(|text| text.parse::<u64>().is_ok_and(|value| value.to_string() == text)) {
        return Some("u64");
    }
    all(|text| text.parse::<i64>().is_ok_and(|value| value.to_string() == text)).then_some("i64")
}

fn number<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    let fits = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
        // Words such as `inf`, and names made of digits such as `007`, are text.
        let starts_as_number = match digits {
            [b'0', second, ..] => !second.is_ascii_digit(),
            [first, ..] => first.is_ascii_digit() || *first == b'.',
            [] => false,
        };
        starts_as_number && text.parse::<f64>().is_ok()
    };
    (non_empty(texts.clone()) && texts.clone().all(|text| utf8(text).is_some_and(fits)))
        .then_some("f64")
}

fn boolean<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<&'static str> {
    (non_empty(texts.clone()) && texts.clone().all(|text| matches!(text, b"true" | b"false")))
        .then_some("bool")
}

fn non_empty<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> bool {
    texts.next().is_some()
}

fn utf8(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
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
        assert_eq!(inferred(&[("1", "2"), ("-3", "4.50")]), ("i64", "f64"));
        assert_eq!(inferred(&[("1", "true"), ("x", "false")]), ("str", "bool"));
        assert_eq!(inferred(&[("007", "nan"), ("1", "2")]), ("str", "str"));
        assert_eq!(inferred(&[("1.5", "00.5")]), ("str", "str"));
        assert_eq!(inferred(&[]), ("str", "str"));
    }
}
