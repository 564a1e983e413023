//! Finds memory orderings without an explanation.
//!
//! An explanation is a comment on the access, or directly above it, that names an ordering or a tag (E1, P1).
//! Alternatively, it is a line in the header of the file, or of an enclosing module, that names the cell in code quotes
//! and its ordering.

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprCall, ExprMethodCall, ItemMod, Macro, Member, Path};

use super::macros;
use super::source::{Source, is_for_tests, line};

/// Orderings that need an explanation. A racing `Relaxed` access needs one as well, but the text does not show races.
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// Maximum distance of the comment above the access, in lines.
const REACH: usize = 12;

/// Returns the accesses in `sources` that are stronger than Relaxed and have no explanation. `sources` must be all
/// files of a crate, because the headers of other files may explain an access.
pub fn faults(sources: &[&Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let tests = |source: &&&Source| source.modules.iter().any(|module| module == "tests");
    for source in sources.iter().filter(|source| !tests(source)) {
        let headers: Vec<&&Source> =
            sources.iter().filter(|other| is_header(other, source)).collect();
        for Access { cell, ordering, line } in accesses(source) {
            let explains = |cell| headers.iter().any(|header| header_explains(header, cell));
            if !cell.as_deref().is_some_and(explains) && !is_explained(source, line) {
                let cell = cell.as_deref().unwrap_or("fence");
                faults.push(format!(
                    "{}: `{cell}`: state why {ordering}, in a comment on the access or in the header",
                    source.at(line)
                ));
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

struct Access {
    /// The last name before the call that has the ordering as an argument: `epoch` for
    /// `self.heads[entry].epoch.store(..)`, `entries` for `entries[at].load(..)`. A fence has none.
    cell: Option<String>,
    ordering: String,
    line: usize,
}

/// Returns the uses of strong orderings. Imports, tests and variants of other enums are excluded.
fn accesses(source: &Source) -> Vec<Access> {
    let mut finder = Finder { cell: None, found: Vec::new() };
    finder.visit_file(&source.syntax);
    finder.found
}

struct Finder {
    /// The cell of the call whose arguments are visited.
    cell: Option<String>,
    found: Vec<Access>,
}

impl Finder {
    fn within(&mut self, cell: Option<String>, visit: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.cell, cell);
        visit(self);
        self.cell = around;
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.ident != "tests" && !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.visit_expr(&call.receiver);
        self.within(last_name(&call.receiver), |finder| {
            call.args.iter().for_each(|argument| finder.visit_expr(argument));
        });
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        self.within(None, |finder| visit::visit_expr_call(finder, call));
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.within(None, |finder| visit::visit_block(finder, block));
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.within(None, |finder| macros::visit_body(finder, called));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let mut names = path.segments.iter().rev().map(|segment| &segment.ident);
        let (last, owner) = (names.next(), names.next());
        if let Some(ordering) = last
            && STRONG.iter().any(|strong| ordering == strong)
            && owner.is_none_or(|owner| owner == "Ordering")
        {
            self.found.push(Access {
                cell: self.cell.clone(),
                ordering: ordering.to_string(),
                line: line(ordering.span()),
            });
        }
        visit::visit_path(self, path);
    }
}

/// Returns the last name of the expression before a call's dot.
fn last_name(receiver: &Expr) -> Option<String> {
    match receiver {
        Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        Expr::Field(field) => match &field.member {
            Member::Named(name) => Some(name.to_string()),
            Member::Unnamed(index) => Some(index.index.to_string()),
        },
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Call(call) => last_name(&call.func),
        Expr::Index(index) => last_name(&index.expr),
        Expr::Try(attempt) => last_name(&attempt.expr),
        Expr::Paren(inner) => last_name(&inner.expr),
        Expr::Unary(inner) => last_name(&inner.expr),
        Expr::Reference(inner) => last_name(&inner.expr),
        _ => None,
    }
}

/// Checks whether one line of the header names the cell and an ordering.
fn header_explains(header: &Source, cell: &str) -> bool {
    header.header().any(|line| {
        line.contains(&format!("`{cell}`")) && STRONG.iter().any(|ordering| line.contains(ordering))
    })
}

/// Checks for a comment about ordering on the line, or above it without a blank line between.
fn is_explained(source: &Source, line: usize) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    source
        .comments_above(line, REACH)
        .any(|comment| comment.split(|c: char| !is_name(c)).any(is_tag))
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
        faults(&[&source("dash/mod.rs", header), &source("dash/eh.rs", text)]).len()
    }

    #[test]
    fn unexplained_orderings_are_found() {
        for text in [
            "fn f() { self.head.store(1, Release); }",
            "// Release (E1).\n\nfn f() { cell.load(Acquire); }",
            "// The usual.\nfn f() { fence(Ordering::SeqCst); }",
            "fn f() { self.links[0].swap(g(1), AcqRel) }",
            "fn f() { self.link.store(g(Release), Relaxed) }",
            "fn f() { assert!(self.head.load(Acquire) == 1, \"{}\", 1) }",
            "macro_rules! m { ($x:expr) => { fn f() { $x.head.load(Acquire) } }; }",
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
            "macro_rules! m { ($x:expr) => { fn f() { $x.link.load(Acquire) } }; }",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
    }
}
