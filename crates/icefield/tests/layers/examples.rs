//! Finds exported types, functions and methods without an example.
//!
//! An example belongs to the type that it documents, or in whose methods it is. It covers the names that it uses as
//! `.name`, as `Type::name`, or as `fn name` in a trait implementation. One example can cover many methods.

use std::collections::{HashMap, HashSet};

use super::source::{Source, is_name, tokens};

/// The body of an `impl` block or a trait.
struct Scope {
    /// The type or trait.
    owner: String,
    kind: Kind,
    /// Token indexes of its declaration and of its braces.
    at: usize,
    open: usize,
    close: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inherent,
    OfTrait,
    Trait,
}

/// The entry for the type itself in the list of its methods.
const ITSELF: &str = "";

/// Returns the exports of the crate's root without an example. Items that are public only in their modules are for
/// tests and tools.
pub fn faults(sources: &[Source]) -> Vec<String> {
    let lib = sources.iter().filter(|source| source.modules.is_empty());
    let exported: HashSet<Name> = lib.flat_map(exports).collect();
    assert!(!exported.is_empty(), "the root exports nothing");
    let scopes: Vec<Vec<Scope>> = sources.iter().map(scopes).collect();
    let mut shown: HashMap<Name, HashSet<String>> = HashMap::new();
    for (source, scopes) in sources.iter().zip(&scopes) {
        for (owner, names) in examples(source, scopes) {
            shown.entry(known(source, &owner)).or_default().extend(names);
        }
    }
    let mut faults = Vec::new();
    for (source, scopes) in sources.iter().zip(&scopes) {
        for (line, owner, name) in exported_items(source, scopes, &exported) {
            if !shown.get(&known(source, &owner)).is_some_and(|names| names.contains(&name)) {
                let item = if name == ITSELF { owner } else { format!("{owner}::{name}") };
                faults.push(format!("{}: no example shows `{item}`", source.at(line)));
            }
        }
    }
    faults
}

/// Returns type and name of every exported method that has a `self` parameter.
pub fn methods(sources: &[Source]) -> Vec<(String, String)> {
    let lib = sources.iter().filter(|source| source.modules.is_empty());
    let exported: HashSet<Name> = lib.flat_map(exports).collect();
    let mut found = Vec::new();
    for source in sources {
        for (line, owner, name) in exported_items(source, &scopes(source), &exported) {
            let at =
                source.tokens.iter().position(|token| token.line == line && token.text == "fn");
            if at.is_some_and(|at| takes_self(source, at)) {
                found.push((owner, name));
            }
        }
    }
    found
}

/// Returns whether the first parameter of the function at token `index` is `self`.
fn takes_self(source: &Source, index: usize) -> bool {
    let rest = (index..source.tokens.len()).map(|index| source.text(index));
    let parameters = rest.skip_while(|text| *text != "(").skip(1);
    parameters.take_while(|text| !matches!(*text, "," | ")" | ":")).any(|text| text == "self")
}

/// A type, trait or function, and its top-level module.
type Name = (String, String);

fn known(source: &Source, name: &str) -> Name {
    (source.modules.first().cloned().unwrap_or_default(), name.to_owned())
}

/// Returns the exports of the crate's root that are not hidden.
fn exports(lib: &Source) -> Vec<Name> {
    let mut paths = Vec::new();
    for (index, token) in lib.tokens.iter().enumerate() {
        if token.text == "use" && !is_hidden(lib, index) {
            lib.tree(index + 1, &mut Vec::new(), &mut paths);
        }
    }
    paths
        .into_iter()
        .filter_map(|path| Some((path.first()?.clone(), path.last()?.clone())))
        .collect()
}

/// Checks whether an attribute before the item at token `index` hides it.
fn is_hidden(source: &Source, index: usize) -> bool {
    let before = (0..index).rev().map(|index| source.text(index));
    before.take_while(|text| !matches!(*text, ";" | "{" | "}")).any(|text| text == "hidden")
}

/// Returns line, type and name of every item that needs an example. Macros count if they are those of tables.
fn exported_items(
    source: &Source,
    scopes: &[Scope],
    exported: &HashSet<Name>,
) -> Vec<(usize, String, String)> {
    let is_exported = |name: &str| exported.contains(&known(source, name));
    let in_tables = !matches!(source.modules.first().map(String::as_str), Some("base" | "storage"));
    let mut items = Vec::new();
    for (index, token) in source.tokens.iter().enumerate() {
        let name = source.text(index + 1).to_owned();
        let is_public = || is_public(source, index) && !is_hidden(source, index);
        match token.text.as_str() {
            "struct" | "enum" | "trait" | "type" if is_exported(&name) && is_public() => {
                items.push((token.line, name, ITSELF.to_owned()));
            }
            "fn" => {
                let inside = scopes.iter().rfind(|scope| scope.open < index && index < scope.close);
                let Some(scope) = inside else {
                    if is_exported(&name) && is_public() {
                        items.push((token.line, name, ITSELF.to_owned()));
                    }
                    continue;
                };
                let is_ours =
                    is_exported(&scope.owner) || in_tables && scope.owner.starts_with('$');
                let is_called = match scope.kind {
                    Kind::Inherent => is_public(),
                    Kind::Trait => !is_hidden(source, index),
                    Kind::OfTrait => false,
                };
                if is_ours && is_called && !is_hidden(source, scope.at) {
                    items.push((token.line, scope.owner.clone(), name));
                }
            }
            _ => {}
        }
    }
    items
}

/// Checks whether an unrestricted `pub` precedes the keyword at token `index`.
fn is_public(source: &Source, index: usize) -> bool {
    let before = (0..index).rev().map(|index| source.text(index));
    before.into_iter().find(|text| !matches!(*text, "const" | "unsafe" | "async")) == Some("pub")
}

/// Returns the bodies of all `impl` blocks and traits, including those in macros.
fn scopes(source: &Source) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| source.text(before));
        let begins_item = matches!(before, "" | ";" | "{" | "}" | "]" | "*" | "unsafe" | "pub");
        let is_trait = token.text == "trait";
        if !is_trait && token.text != "impl" || !begins_item {
            continue;
        }
        let header = source.tokens[at..].iter().take_while(|token| token.text != "{").count();
        let open = at + header;
        let (owner, kind) = if is_trait {
            (source.text(at + 1).to_owned(), Kind::Trait)
        } else {
            implementor(source, at + 1, open)
        };
        let close = closing(source, open);
        scopes.push(Scope { owner, kind, at, open, close });
    }
    scopes
}

/// Returns the token that closes the brace at token `open`.
fn closing(source: &Source, open: usize) -> usize {
    let mut depth = 0;
    let close = (open..source.tokens.len()).find(|&index| {
        match source.text(index) {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    close.unwrap_or(source.tokens.len())
}

/// Returns the type of the `impl` block whose header is `tokens[at..open]`: the last name outside of angle brackets.
/// A macro parameter keeps its `$`.
fn implementor(source: &Source, at: usize, open: usize) -> (String, Kind) {
    let (mut owner, mut kind, mut depth) = (String::new(), Kind::Inherent, 0);
    for index in at..open {
        let before = source.text(index - 1);
        match source.text(index) {
            "<" => depth += 1,
            ">" if before != "-" => depth -= 1,
            _ if depth > 0 => {}
            "where" => break,
            "for" => kind = Kind::OfTrait,
            name if name.starts_with(is_name) => {
                owner = if before == "$" { format!("${name}") } else { name.to_owned() };
            }
            _ => {}
        }
    }
    (owner, kind)
}

/// Returns the names in each block of an example, with the type that the block belongs to.
fn examples(source: &Source, scopes: &[Scope]) -> Vec<(String, HashSet<String>)> {
    let mut found = Vec::new();
    let mut block: Option<(String, HashSet<String>)> = None;
    for (number, line) in source.lines.iter().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("#[doc =")) else {
            continue;
        };
        match &mut block {
            None if text.trim() == "```" || text.trim() == "```no_run" => {
                let (owner, is_itself) = owner_at(source, scopes, number);
                block = Some((owner, is_itself.then(|| ITSELF.to_owned()).into_iter().collect()));
            }
            Some((_, names)) if !text.trim_start().starts_with("```") => names.extend(called(text)),
            _ => found.extend(block.take()),
        }
    }
    found
}

/// Returns the names after `.`, `::` or `fn`.
fn called(code: &str) -> impl Iterator<Item = String> {
    let tokens = tokens(code);
    let pairs = tokens.windows(2).filter(|pair| matches!(&*pair[0].text, "." | "::" | "fn"));
    pairs.map(|pair| pair[1].text.clone()).collect::<Vec<_>>().into_iter()
}

/// Returns the type or trait that a doc comment at `line` belongs to, and whether it documents the type itself.
fn owner_at(source: &Source, scopes: &[Scope], line: usize) -> (String, bool) {
    let line_of = |index: usize| source.tokens.get(index).map_or(usize::MAX, |token| token.line);
    let around = |scope: &&Scope| line_of(scope.open) < line && line < line_of(scope.close);
    if let Some(scope) = scopes.iter().rfind(around) {
        return (scope.owner.clone(), false);
    }
    let below = source.tokens.iter().enumerate().find(|(_, token)| {
        let keywords = ["struct", "enum", "trait", "type", "fn", "impl"];
        token.line > line && keywords.contains(&token.text.as_str())
    });
    let Some((index, keyword)) = below else { return (String::new(), false) };
    let scope = scopes.iter().find(|scope| scope.at == index);
    let owner = scope.map_or_else(|| source.text(index + 1), |scope| &scope.owner);
    (owner.to_owned(), keyword.text != "impl")
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn count(text: &str) -> usize {
        let source = |in_crate, text| Source::new(in_crate, in_crate, text);
        let lib = "pub use dash::{Dash, Map};\n#[doc(hidden)]\npub use dash::Whole;";
        faults(&[source("lib.rs", lib), source("dash/mod.rs", text)]).len()
    }

    #[test]
    fn types_without_examples_are_found() {
        assert_eq!(count("/// A table.\npub struct Dash;"), 1);
        let shown =
            "/// A table.\n///\n/// ```\n/// Dash;\n/// ```\n#[derive(Debug)]\npub struct Dash;";
        assert_eq!(count(shown), 0);
        assert_eq!(count("/// For tests.\npub struct Whole;\n/// Ours.\npub struct Mine;"), 0);
    }

    #[test]
    fn calls_without_examples_are_found() {
        for text in [
            "impl<K: Key> Dash<K> { pub fn get(&self) {} }",
            "impl<K> Dash<K> where K: Key { #[must_use] pub const fn get(&self) {} }",
            "macro_rules! calls { () => { impl<K $(, $p)?> $table<K $(, $p)?> { pub fn get() {} } } }",
            "/// ```\n/// get();\n/// ```\npub fn other() {}\nimpl Dash { pub fn get(&self) {} }",
            "/// ```\n/// it.get();\n/// ```\nimpl Whole {}\nimpl Dash { pub fn get(&self) {} }",
            "/// ```text\n/// it.get();\n/// ```\nimpl Dash { pub fn get(&self) {} }",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
    }

    #[test]
    fn calls_that_are_shown_or_hidden_are_not() {
        for text in [
            "/// ```\n/// it.get();\n/// ```\nimpl Dash { pub fn get(&self) {} }",
            "impl Dash {\n/// ```\n/// map(Dash::get);\n/// ```\npub fn put(&self) { self.get() }\n\
             pub fn get(&self) {} }\n/// ```\n/// Dash.put();\n/// ```\npub struct Dash;",
            "macro_rules! calls { () => { impl $ty {\n/// ```\n#[doc = \" it.get(1);\"]\n/// ```\n\
             pub fn get() {} } } }",
            "impl Dash { #[doc(hidden)] pub fn get() {} pub(crate) fn put() {} fn own() {} }",
            "impl Whole { pub fn get() {} } impl Into<Dash> for Whole { fn into() {} }",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
        let shown =
            "/// ```\n/// impl Map for X { fn get() {} }\n/// ```\npub trait Map { fn get(); }";
        assert_eq!(count(shown), 0);
        assert_eq!(count(&shown.replace("fn get();", "fn get(); fn put();")), 1);
    }
}
