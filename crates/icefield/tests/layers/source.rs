//! A minimal parser for the paths and names in a Rust source file.

use std::fs;
use std::path::{Path, PathBuf};

/// A parsed source file.
pub struct Source {
    /// The path from the repository's root.
    pub path: String,
    /// The modules down to this file, from the crate's root: `["base", "group"]`.
    pub modules: Vec<String>,
    /// The tokens, without comments, literals and white space.
    pub tokens: Vec<Token>,
    /// The comments of each line, the first line first.
    pub comments: Vec<String>,
    /// Set for each empty line.
    pub is_blank: Vec<bool>,
    /// The unchanged lines.
    pub lines: Vec<String>,
}

/// An identifier, or one or two punctuation characters.
#[derive(Debug)]
pub struct Token {
    pub text: String,
    /// The line number, counted from 0.
    pub line: usize,
}

/// A path in the code, resolved from the crate's root.
#[derive(Debug, PartialEq)]
pub struct Reference {
    pub segments: Vec<String>,
    pub line: usize,
}

impl Source {
    /// Parses `text` as the file `path`. `in_crate` is its path under the crate's `src` folder.
    pub fn new(path: &str, in_crate: &str, text: &str) -> Self {
        let mut modules: Vec<String> =
            in_crate.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(modules.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            modules.pop();
        }
        let (code, comments) = split(text);
        let is_blank = text.lines().map(|line| line.trim().is_empty()).collect();
        let comments = comments.lines().map(str::to_owned).collect();
        let lines = text.lines().map(str::to_owned).collect();
        Self { path: path.to_owned(), modules, tokens: tokens(&code), comments, is_blank, lines }
    }

    /// Returns the text of the token at `index`, or an empty string.
    pub fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &token.text)
    }

    /// Returns a position in the file, for messages.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{}", self.path, line + 1)
    }

    /// Returns every path that starts with `crate`, `self` or `super`, in imports and elsewhere.
    pub fn references(&self) -> Vec<Reference> {
        let mut references = Vec::new();
        // The open inline modules, with the depth of braces at which each one closes.
        let mut inline: Vec<(String, usize)> = Vec::new();
        let mut depth = 0;
        for (index, token) in self.tokens.iter().enumerate() {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth = usize::saturating_sub(depth, 1);
                    inline.pop_if(|(_, closes_at)| *closes_at == depth);
                }
                "mod" if self.text(index + 2) == "{" => {
                    inline.push((self.text(index + 1).to_owned(), depth))
                }
                "crate" | "self" | "super"
                    if self.text(index + 1) == "::" && !self.continues_path(index) =>
                {
                    let here = self.modules.iter().chain(inline.iter().map(|(name, _)| name));
                    let mut trees = Vec::new();
                    self.tree(index, &mut Vec::new(), &mut trees);
                    for segments in trees {
                        let segments = resolve(here.clone().cloned().collect(), &segments);
                        references.push(Reference { segments, line: token.line });
                    }
                }
                _ => {}
            }
        }
        references
    }

    fn continues_path(&self, index: usize) -> bool {
        index > 0 && self.text(index - 1) == "::"
    }

    /// Reads the path or tree of paths that starts at token `index`, after `prefix`. Returns the index of the next
    /// token.
    pub fn tree(
        &self,
        mut index: usize,
        prefix: &mut Vec<String>,
        found: &mut Vec<Vec<String>>,
    ) -> usize {
        let length = prefix.len();
        loop {
            match self.text(index) {
                "{" => {
                    index += 1;
                    while !matches!(self.text(index), "}" | "") {
                        let before = index;
                        index = self.tree(index, prefix, found);
                        // Skips names after `as`, commas, and other tokens outside of paths.
                        index = index.max(before + usize::from(index == before));
                    }
                    index += 1;
                    break;
                }
                segment if segment == "*" || segment.starts_with(is_name) => {
                    prefix.push(segment.to_owned());
                    index += 1;
                    if self.text(index) != "::" {
                        found.push(prefix.clone());
                        break;
                    }
                    index += 1;
                }
                // A turbofish, or not a path.
                _ => {
                    if prefix.len() > length {
                        found.push(prefix.clone());
                    }
                    break;
                }
            }
        }
        prefix.truncate(length);
        if self.text(index) == "as" { index + 2 } else { index }
    }
}

/// Resolves `segments`, as seen from module `here`, to a path from the crate's root.
fn resolve(mut here: Vec<String>, segments: &[String]) -> Vec<String> {
    for (position, segment) in segments.iter().enumerate() {
        match segment.as_str() {
            "crate" => here.clear(),
            "self" if position == 0 => {}
            // `use some::module::{self}`.
            "self" => {}
            "super" => drop(here.pop()),
            name => here.push(name.to_owned()),
        }
    }
    here
}

pub fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Separates code from comments. In each, the other one is blanked, and literals are blanked in both. Line breaks
/// stay.
pub fn split(text: &str) -> (String, String) {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut comments = String::with_capacity(text.len());
    let mut index = 0;
    while index < characters.len() {
        let rest = &characters[index..];
        let (length, is_comment) =
            literal_or_comment(rest, index.checked_sub(1).map(|i| characters[i]));
        for &character in &rest[..length.max(1)] {
            let shown = |wanted: bool| if wanted || character == '\n' { character } else { ' ' };
            code.push(shown(length == 0));
            comments.push(shown(is_comment));
        }
        index += length.max(1);
    }
    (code, comments)
}

/// Returns the number of characters of the comment or literal at the start of `rest`, or 0 if there is none, and
/// whether it is a comment.
fn literal_or_comment(rest: &[char], before: Option<char>) -> (usize, bool) {
    match rest {
        ['/', '/', ..] => (rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()), true),
        ['/', '*', ..] => (block_comment(rest), true),
        ['"', ..] => (quoted(rest, '"'), false),
        ['r' | 'b' | 'c', ..] if !before.is_some_and(is_name) => (prefixed_literal(rest), false),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (quoted(rest, '\''), false),
        _ => (0, false),
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut index = 0;
    while index < rest.len() {
        match rest[index..] {
            ['/', '*', ..] => (depth, index) = (depth + 1, index + 2),
            ['*', '/', ..] => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            break;
        }
    }
    index
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut index = 1;
    while index < rest.len() && rest[index] != quote {
        index += if rest[index] == '\\' { 2 } else { 1 };
    }
    rest.len().min(index + 1)
}

/// Returns the length of `b".."`, `b'.'`, `c".."` and raw strings, or 0 if the letters start a name.
fn prefixed_literal(rest: &[char]) -> usize {
    let letters = rest.iter().take(2).take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let hashes = rest[letters..].iter().take_while(|&&c| c == '#').count();
    let opening = letters + hashes;
    match rest.get(opening) {
        Some('"') if rest[..letters].contains(&'r') => {
            let mut closing = vec!['#'; hashes + 1];
            closing[0] = '"';
            let body =
                rest[opening + 1..].windows(closing.len()).position(|window| window == closing);
            body.map_or(rest.len(), |length| opening + 1 + length + closing.len())
        }
        Some(&quote @ ('"' | '\'')) if hashes == 0 => letters + quoted(&rest[letters..], quote),
        _ => 0,
    }
}

/// Splits code into names and punctuation.
pub fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_name(first) {
                rest.find(|c| !is_name(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token { text: rest[..length].to_owned(), line });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Returns the repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Reads every Rust file under `folder` of the repository.
pub fn read_all(folder: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    collect(&repository(), &repository().join(folder), &mut sources);
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("the source tree is readable") {
        let path = entry.expect("the source tree is readable").path();
        if path.is_dir() && !path.ends_with("target") {
            collect(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("source files are UTF-8");
            let name = path
                .strip_prefix(root)
                .expect("found under the root")
                .to_string_lossy()
                .into_owned();
            let in_crate =
                name.split_once("/src/").map_or(name.as_str(), |(_, rest)| rest).to_owned();
            sources.push(Source::new(&name, &in_crate, &text));
        }
    }
}
