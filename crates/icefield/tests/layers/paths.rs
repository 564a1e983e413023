//! The paths that a source file names, and the trees of its imports.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, Path, UseTree};

use super::macros;
use super::source::{Source, line};

/// A path in the code, resolved from the crate's root.
#[derive(Debug, PartialEq)]
pub struct Reference {
    pub segments: Vec<String>,
    pub line: usize,
}

/// Returns every path that starts with `crate`, `self` or `super`, in imports and elsewhere.
pub fn references(source: &Source) -> Vec<Reference> {
    let mut finder = Finder { here: source.modules.clone(), found: Vec::new() };
    finder.visit_file(&source.syntax);
    finder.found
}

struct Finder {
    here: Vec<String>,
    found: Vec<Reference>,
}

impl Finder {
    fn add(&mut self, segments: &[String], at: Span) {
        let is_ours = matches!(segments[0].as_str(), "crate" | "self" | "super");
        if is_ours && segments.len() > 1 {
            let segments = resolve(self.here.clone(), segments);
            self.found.push(Reference { segments, line: line(at) });
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.here.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.here.pop();
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        for leaf in leaves(&import.tree) {
            self.add(&leaf.segments, leaf.span);
        }
        visit::visit_item_use(self, import);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.add(&names(path), path.segments[0].ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        visit::visit_macro(self, called);
        macros::visit_body(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        visit::visit_attribute(self, attribute);
        macros::visit_attribute(self, attribute);
    }
}

/// Returns the names of a path, without its generic arguments.
pub fn names(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// One name that an import brings in.
pub struct Leaf {
    /// The path, as written; it ends with `*` if all names of a module are imported.
    pub segments: Vec<String>,
    /// The name in the importing module.
    pub name: String,
    pub span: Span,
}

/// Returns all names that an import brings in.
pub fn leaves(tree: &UseTree) -> Vec<Leaf> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<Leaf>) {
    let mut add = |last: &str, name: &str, span| {
        let mut segments = before.clone();
        // In `use some::module::{self}`, `self` adds nothing to the path.
        if last != "self" || segments.is_empty() {
            segments.push(last.to_owned());
        }
        let name = if name == "self" { segments.last().expect("not empty") } else { name };
        found.push(Leaf { name: name.to_owned(), segments, span });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => {
            add(&name.ident.to_string(), &name.ident.to_string(), name.ident.span());
        }
        UseTree::Rename(name) => {
            add(&name.ident.to_string(), &name.rename.to_string(), name.ident.span());
        }
        UseTree::Glob(glob) => add("*", "*", glob.star_token.spans[0]),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, before, found)),
    }
}

/// Resolves `segments`, as seen from module `here`, to a path from the crate's root.
fn resolve(mut here: Vec<String>, segments: &[String]) -> Vec<String> {
    for segment in segments {
        match segment.as_str() {
            "crate" => here.clear(),
            "self" => {}
            "super" => drop(here.pop()),
            name => here.push(name.to_owned()),
        }
    }
    here
}
