//! Finds memory orderings without an explanation.
//!
//! An explanation is a comment on the access, or directly above it, that names an ordering or a tag (E1, P1).
//! Alternatively it is a line in the header of the file, or of a module around it, that names the cell in code quotes
//! and its ordering.

use super::source::{Source, is_name};

/// Orderings that need an explanation. A racing `Relaxed` access needs one as well, but the text does not show races.
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// Maximum distance of the comment above the access, in lines.
const REACH: usize = 12;

/// Returns the accesses in `sources` that are stronger than Relaxed and have no explanation. `sources` are all of a
/// crate.
pub fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let tests = |source: &Source| source.modules.iter().any(|module| module == "tests");
    for source in sources.iter().filter(|source| !tests(source)) {
        let headers: Vec<&Source> =
            sources.iter().filter(|other| is_header(other, source)).collect();
        for index in accesses(source) {
            let line = source.tokens[index].line;
            let cell = cell(source, index);
            let told = cell.is_some_and(|cell| headers.iter().any(|header| tells(header, cell)));
            if !told && !is_explained(source, line) {
                let ordering = source.text(index);
                let cell = cell.unwrap_or("fence");
                faults.push(format!("{}: `{cell}`: why {ordering}?", source.at(line)));
            }
        }
    }
    faults
}

/// Checks whether `other` is `source` itself or the `mod.rs` of a module around it.
fn is_header(other: &Source, source: &Source) -> bool {
    other.path == source.path
        || !other.modules.is_empty() && source.modules.starts_with(&other.modules)
}

/// Returns the tokens that order an access. Imports, tests and variants of other enums are excluded.
fn accesses(source: &Source) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_import = false;
    for (index, token) in source.tokens.iter().enumerate() {
        match token.text.as_str() {
            "mod" if source.text(index + 1) == "tests" && source.text(index + 2) == "{" => break,
            "use" => is_import = true,
            ";" => is_import = false,
            name if !is_import && STRONG.contains(&name) => {
                let before = |back: usize| index.checked_sub(back).map_or("", |at| source.text(at));
                if before(1) != "::" || before(2) == "Ordering" {
                    found.push(index);
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the name before the call that has token `index` as an argument: `epoch` for
/// `self.heads[entry].epoch.store(..)`, `entries` for `entries[at].load(..)`. A fence has none.
fn cell(source: &Source, index: usize) -> Option<&str> {
    let mut at = before_brackets(source, index)?;
    // Skips the call's own name and the dot before it.
    if !source.text(at).starts_with(is_name) || source.text(at.checked_sub(1)?) != "." {
        return None;
    }
    at = at.checked_sub(2)?;
    while let ")" | "]" | "?" = source.text(at) {
        at = if source.text(at) == "?" { at.checked_sub(1)? } else { before_brackets(source, at)? };
    }
    Some(source.text(at)).filter(|name| name.starts_with(is_name))
}

/// Returns the token before the bracket that is open at token `index` or that this token closes.
fn before_brackets(source: &Source, index: usize) -> Option<usize> {
    let mut depth = 0;
    let mut at = index.checked_sub(1)?;
    loop {
        match source.text(at) {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" if depth == 0 => return at.checked_sub(1),
            "(" | "[" | "{" => depth -= 1,
            _ => {}
        }
        at = at.checked_sub(1)?;
    }
}

/// Checks whether one line of the header names the cell and an ordering.
fn tells(header: &Source, cell: &str) -> bool {
    let mut lines = header.lines.iter().filter(|line| line.starts_with("//!"));
    lines.any(|line| {
        line.contains(&format!("`{cell}`")) && STRONG.iter().any(|ordering| line.contains(ordering))
    })
}

/// Checks for a comment about ordering on the line, or above it without a blank line between.
fn is_explained(source: &Source, line: usize) -> bool {
    (line.saturating_sub(REACH)..=line)
        .rev()
        .take_while(|&line| !source.is_blank[line])
        .any(|line| source.comments[line].split(|c: char| !is_name(c)).any(is_tag))
}

/// Checks for the name of an ordering, or E or P with a number.
fn is_tag(word: &str) -> bool {
    let number = word.strip_prefix(['E', 'P']).unwrap_or_default();
    word == "Relaxed"
        || STRONG.contains(&word)
        || !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

/// Violates the rule on purpose.
mod planted {
    use super::*;

    fn count(text: &str) -> usize {
        let header = "//! | E1 | `link`, `slots` (Release) |\n//! `head` is a cell.";
        let source = |in_crate, text| Source::new(in_crate, in_crate, text);
        faults(&[source("dash/mod.rs", header), source("dash/eh.rs", text)]).len()
    }

    #[test]
    fn unexplained_orderings_are_found() {
        for text in [
            "fn f() { self.head.store(1, Release); }",
            "// Release (E1).\n\nfn f() { cell.load(Acquire); }",
            "// The usual.\nfence(Ordering::SeqCst);",
            "fn f() { self.links[0].swap(g(1), AcqRel) }",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
    }

    #[test]
    fn explained_orderings_are_not() {
        for text in [
            "// Release (E1).\nfn f() { self.head.store(1, Release); }",
            "fn f() { self.link(a)?.load(storage, Acquire); b.slots[c(0)].store(1, Release) }",
            "use std::sync::atomic::Ordering::{Acquire, Release};",
            "fn f() { x == StoreKind::Release }",
            "mod tests { fn f() { x.load(Acquire) } }",
            "fn f() { x.load(Relaxed) }",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
    }
}
