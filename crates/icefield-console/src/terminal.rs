//! Untrusted text on a terminal: control characters in names, columns and values from files are escaped.

use std::borrow::Cow;
use std::path::Path;

/// Returns whether a terminal may act on `c` instead of showing it: control characters (C0, DEL, C1), line
/// separators, and marks that reorder the text around them.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes all characters that a terminal acts on, in a name or value that is printed within a line.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes a path as [`shown`] does.
pub fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy()).into_owned()
}

/// Escapes text of several lines and columns as [`shown`] does, except for line ends and tabs.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes all characters that a terminal acts on in a JSON text. They occur only inside its strings, so the result is
/// equivalent JSON.
pub fn shown_json(json: &str) -> Cow<'_, str> {
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    // All these characters are in the basic multilingual plane, so each fits into one `\u` escape.
    Cow::Owned(json.chars().fold(String::new(), |mut text, c| {
        match acts(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
        text
    }))
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let escapes = |c: char| acts(c) && !keeps(c);
    if !text.contains(escapes) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::new(), |mut text, c| {
        match escapes(c) {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
        text
    }))
}

/// Quotes `text` as one word of a shell command that a message suggests.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if text.contains(acts) {
        // `$'...'` interprets escapes; all bytes but printable ASCII are written as escapes.
        let bytes = text.bytes().map(|byte| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        });
        return format!("$'{}'", bytes.collect::<String>());
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_acts_on_nothing() {
        assert_eq!(
            shown("a\x1b[2J\u{9b}1m\x7f\u{202e}\n\tb"),
            r"a\u{1b}[2J\u{9b}1m\u{7f}\u{202e}\n\tb"
        );
        assert_eq!(shown_lines("a\tb\n\r\u{2028}"), "a\tb\n\\r\\u{2028}");
        assert_eq!(shown("é 漢 \u{1f600}"), "é 漢 \u{1f600}");
        let json = "{\"a\":\"x\u{9b}\u{2066}\"}";
        assert_eq!(shown_json(json), "{\"a\":\"x\\u009b\\u2066\"}");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        assert_eq!(parse(&shown_json(json)), parse(json));
    }

    #[test]
    fn words_of_a_shell_are_quoted() {
        assert_eq!(shell_word("a/b-c.csv"), "a/b-c.csv");
        assert_eq!(shell_word("a; rm -rf $HOME"), "'a; rm -rf $HOME'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("a\n'\u{9b}"), r"$'a\x0a\'\xc2\x9b'");
        assert_eq!(shell_word(""), "''");
    }
}
