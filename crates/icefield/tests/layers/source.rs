//! Source files of the repository: their syntax by `syn`, and their comments, which `syn` drops.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Attribute, Item, Meta};

/// A parsed source file. Lines are counted from 1.
pub struct Source {
    /// The path from the repository's root.
    pub path: String,
    /// The modules down to this file, from the crate's root: `["base", "group"]`.
    pub modules: Vec<String>,
    pub syntax: syn::File,
    lines: Vec<String>,
    comments: Vec<String>,
}

impl Source {
    /// Parses `text` as the file `path`. `in_crate` is its path under the crate's `src` folder.
    pub fn new(path: &str, in_crate: &str, text: &str) -> Self {
        let mut modules: Vec<String> =
            in_crate.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(modules.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            modules.pop();
        }
        let not_rust = |line, fault: &dyn std::fmt::Display| -> ! {
            panic!("{path}:{line}: `syn` cannot parse the file: {fault}")
        };
        let tokens = TokenStream::from_str(text)
            .unwrap_or_else(|fault| not_rust(fault.span().start().line, &fault));
        let comments = comments(text, &tokens).lines().map(str::to_owned).collect();
        let syntax = syn::parse2(tokens)
            .unwrap_or_else(|fault: syn::Error| not_rust(fault.span().start().line, &fault));
        let lines = text.lines().map(str::to_owned).collect();
        Self { path: path.to_owned(), modules, syntax, lines, comments }
    }

    /// Returns a position in the file, for messages.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path)
    }

    /// Returns each line that has a comment, as its number and the comment.
    pub fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.comments.iter().enumerate();
        lines.map(|(index, text)| (index + 1, text.as_str())).filter(|(_, text)| !text.is_empty())
    }

    /// Returns the comments on `line` and on at most `reach` lines above it, up to a blank line.
    pub fn comments_above(&self, line: usize, reach: usize) -> impl Iterator<Item = &str> {
        let lines = (line.saturating_sub(reach).max(1)..=line).rev();
        lines
            .take_while(|line| !self.lines[line - 1].trim().is_empty())
            .filter_map(|line| self.comments.get(line - 1).map(String::as_str))
    }

    /// Returns the documentation at the start of the file.
    pub fn header(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str).filter(|line| line.starts_with("//!"))
    }

    /// Checks whether the file is one of `folders` of the crate, or in one of them.
    pub fn is_under(&self, folders: &[&str]) -> bool {
        is_under(&self.modules.join("/"), folders)
    }
}

/// Checks whether `path` is one of `folders`, or in one of them.
pub fn is_under(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

pub fn line(span: Span) -> usize {
    span.start().line
}

/// Returns the comments of `text`, each on its line; all other text is removed. Documentation counts as a comment.
fn comments(text: &str, tokens: &TokenStream) -> String {
    let mut code = Vec::new();
    cover(text, tokens, &mut code);
    let mut comments = String::with_capacity(text.len());
    let mut end = 0;
    for bytes in code {
        comments.push_str(text[end..bytes.start].trim_matches(' '));
        comments.extend(text[bytes.clone()].chars().filter(|c| *c == '\n'));
        end = bytes.end;
    }
    comments.push_str(&text[end..]);
    comments
}

/// Adds the byte ranges of all tokens to `code`, in order, except for those of doc comments: their span is the whole
/// comment.
fn cover(text: &str, tokens: &TokenStream, code: &mut Vec<Range<usize>>) {
    for token in tokens.clone() {
        let bytes = token.span().byte_range();
        if text[bytes.clone()].starts_with("//") || text[bytes.clone()].starts_with("/*") {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                code.push(bytes.start..bytes.start + 1);
                cover(text, &group.stream(), code);
                code.push(bytes.end - 1..bytes.end);
            }
            _ => code.push(bytes),
        }
    }
}

/// Checks whether an attribute `doc(hidden)` hides the item, under a condition or always.
pub fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        (path.is_ident("doc") || path.is_ident("cfg_attr"))
            && names_in(&attribute.meta).iter().any(|name| name == "hidden")
    })
}

/// Returns the attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Checks whether the item is compiled for tests only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let names = names_in(&attribute.meta);
        !names.contains(&"not".to_owned())
            && names.iter().any(|name| name == "test" || name == "doctest")
    })
}

/// Returns all names between the parentheses of an attribute.
pub fn names_in(meta: &Meta) -> Vec<String> {
    let mut names = Vec::new();
    if let Meta::List(list) = meta {
        names_of(&list.tokens, &mut names);
    }
    names
}

/// Adds all names in `tokens` to `names`.
pub fn names_of(tokens: &TokenStream, names: &mut Vec<String>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(name) => names.push(name.to_string()),
            TokenTree::Group(group) => names_of(&group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns the repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Reads every Rust file under `folder` of the repository.
pub fn read_all(folder: &str) -> Vec<Source> {
    let root = repository();
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths);
    paths.sort();
    paths.iter().map(|path| read(&root, path)).collect()
}

fn read(root: &Path, path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("source files are UTF-8");
    let name = path.strip_prefix(root).expect("found under the root").to_string_lossy();
    let in_crate = name.split_once("/src/").map_or(&*name, |(_, rest)| rest);
    Source::new(&name, in_crate, &text)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source tree is readable") {
        let path = entry.expect("the source tree is readable").path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}
