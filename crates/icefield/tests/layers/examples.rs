//! Finds exported types, functions and methods without an example.
//!
//! An example belongs to the type that it documents, or whose method it documents. It covers the names that it uses as
//! `.name`, as `Type::name`, or as `fn name` in a trait implementation. One example can cover many methods.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ImplItem, ItemEnum, ItemFn, ItemImpl, ItemStruct, ItemTrait, ItemType,
    ItemUse, Lit, Macro, Meta, Signature, TraitItem, Type, Visibility,
};

use super::source::{Source, is_hidden, line};
use super::{macros, paths};

/// The entry for the type itself in the list of its methods.
const ITSELF: &str = "";

/// Returns the exports of the crate's root that have no example. Items that are public only in their modules are not
/// checked: they are for tests and tools.
pub fn faults(sources: &[&Source]) -> Vec<String> {
    let exported = exported(sources);
    assert!(!exported.is_empty(), "the root exports nothing");
    let surveys: Vec<Survey> = sources.iter().map(|source| survey(source)).collect();
    let mut shown: HashMap<Name, HashSet<String>> = HashMap::new();
    for (source, survey) in sources.iter().zip(&surveys) {
        for (owner, names) in &survey.examples {
            shown.entry(known(source, owner)).or_default().extend(names.iter().cloned());
        }
    }
    let mut faults = Vec::new();
    for (source, survey) in sources.iter().zip(&surveys) {
        for Declared { owner, name, line, .. } in survey.public(source, &exported) {
            if !shown.get(&known(source, owner)).is_some_and(|names| names.contains(name)) {
                let item = if name == ITSELF { owner } else { &format!("{owner}::{name}") };
                faults.push(format!(
                    "{}: no example shows `{item}`: use it in an example of `{owner}`",
                    source.at(*line)
                ));
            }
        }
    }
    faults
}

/// Returns type and name of every exported method that has a `self` parameter.
pub fn methods(sources: &[&Source]) -> Vec<(String, String)> {
    let exported = exported(sources);
    let mut found = Vec::new();
    for source in sources {
        let survey = survey(source);
        let methods = survey.public(source, &exported).filter(|declared| declared.takes_self);
        found.extend(methods.map(|method| (method.owner.clone(), method.name.clone())));
    }
    found
}

/// The top-level module and the name of a type, trait or function.
type Name = (String, String);

fn known(source: &Source, name: &str) -> Name {
    (source.modules.first().cloned().unwrap_or_default(), name.to_owned())
}

/// Returns the exports of the crate's root that are not hidden.
fn exported(sources: &[&Source]) -> HashSet<Name> {
    struct Exports(HashSet<Name>);
    impl<'ast> Visit<'ast> for Exports {
        fn visit_item_use(&mut self, import: &'ast ItemUse) {
            if !is_hidden(&import.attrs) {
                for leaf in paths::leaves(&import.tree) {
                    let path = leaf.segments;
                    self.0.insert((path[0].clone(), path[path.len() - 1].clone()));
                }
            }
        }
    }
    let mut exports = Exports(HashSet::new());
    for lib in sources.iter().filter(|source| source.modules.is_empty()) {
        exports.visit_file(&lib.syntax);
    }
    exports.0
}

/// A type, a function or a method that is visible outside its module.
struct Declared {
    /// The type or trait of a method, or the type or function itself.
    owner: String,
    /// The method, or [`ITSELF`].
    name: String,
    line: usize,
    takes_self: bool,
}

/// The declarations and examples of one file.
#[derive(Default)]
struct Survey {
    declared: Vec<Declared>,
    /// The names in each example, with the type that the example belongs to.
    examples: Vec<(String, HashSet<String>)>,
}

fn survey(source: &Source) -> Survey {
    let mut survey = Survey::default();
    survey.visit_file(&source.syntax);
    survey
}

impl Survey {
    /// Returns the declarations that need an example. Methods in macros count, except for macros in `base` and
    /// `storage`.
    fn public<'a>(
        &'a self,
        source: &'a Source,
        exported: &'a HashSet<Name>,
    ) -> impl Iterator<Item = &'a Declared> {
        let in_tables = !source.is_under(&["base", "storage"]);
        self.declared.iter().filter(move |declared| {
            exported.contains(&known(source, &declared.owner))
                || in_tables && declared.owner.starts_with('$')
        })
    }

    /// Adds a type, or a function outside of types.
    fn add(&mut self, name: &Ident, visibility: &Visibility, attributes: &[Attribute]) {
        let owner = name.to_string();
        if is_public(visibility) && !is_hidden(attributes) {
            self.declared.push(Declared {
                owner: owner.clone(),
                name: ITSELF.to_owned(),
                line: line(name.span()),
                takes_self: false,
            });
        }
        self.add_examples(&owner, Some(ITSELF), attributes);
    }

    /// Adds a method to `owner`, and its examples. `is_callable` is false for methods that users do not call on
    /// `owner`.
    fn add_method(
        &mut self,
        owner: &str,
        method: &Signature,
        attributes: &[Attribute],
        is_callable: bool,
    ) {
        if is_callable && !is_hidden(attributes) {
            self.declared.push(Declared {
                owner: owner.to_owned(),
                name: method.ident.to_string(),
                line: line(method.ident.span()),
                takes_self: method.receiver().is_some(),
            });
        }
        self.add_examples(owner, None, attributes);
    }

    /// Adds the examples of a doc comment, each as the set of the names in it plus `itself`.
    fn add_examples(&mut self, owner: &str, itself: Option<&str>, attributes: &[Attribute]) {
        for code in code_blocks(attributes) {
            let mut names: HashSet<String> = itself.map(str::to_owned).into_iter().collect();
            called(&code, &mut names);
            self.examples.push((owner.to_owned(), names));
        }
    }
}

impl<'ast> Visit<'ast> for Survey {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add(&item.ident, &item.vis, &item.attrs);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add(&item.ident, &item.vis, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add(&item.ident, &item.vis, &item.attrs);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig.ident, &item.vis, &item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add(&item.ident, &item.vis, &item.attrs);
        let owner = item.ident.to_string();
        for method in &item.items {
            if let TraitItem::Fn(method) = method {
                self.add_method(&owner, &method.sig, &method.attrs, !is_hidden(&item.attrs));
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let owner = implementor(&item.self_ty);
        self.add_examples(&owner, None, &item.attrs);
        let is_inherent = item.trait_.is_none() && !is_hidden(&item.attrs);
        for method in &item.items {
            if let ImplItem::Fn(method) = method {
                let is_callable = is_inherent && is_public(&method.vis);
                self.add_method(&owner, &method.sig, &method.attrs, is_callable);
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        macros::visit_body(self, called);
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the name of the type that an `impl` block is for. A macro parameter keeps its `$`.
fn implementor(implementor: &Type) -> String {
    match implementor {
        Type::Path(path) => {
            let name = path.path.segments.last().map(|last| last.ident.to_string());
            let name = name.unwrap_or_default();
            macros::parameter(&name).unwrap_or(name)
        }
        Type::Reference(reference) => self::implementor(&reference.elem),
        _ => String::new(),
    }
}

/// Returns the code of each example in a doc comment.
fn code_blocks(attributes: &[Attribute]) -> Vec<String> {
    let mut blocks = Vec::new();
    // The open block, and whether it is an example.
    let mut block: Option<(String, bool)> = None;
    let docs = attributes.iter().filter_map(documentation).collect::<Vec<_>>().join("\n");
    for line in docs.lines() {
        let text = line.trim();
        match &mut block {
            None if text.starts_with("```") => {
                block = Some((String::new(), matches!(text, "```" | "```no_run")));
            }
            Some(_) if text.starts_with("```") => {
                blocks.extend(block.take().filter(|(_, is_example)| *is_example));
            }
            // Lines that begin with `# ` are compiled, but not shown.
            Some((code, _)) => {
                code.push_str(text.strip_prefix("# ").unwrap_or(text));
                code.push('\n');
            }
            None => {}
        }
    }
    blocks.into_iter().map(|(code, _)| code).collect()
}

/// Returns the text of a doc attribute. If a macro composes the attribute, the text is that of its string literals.
fn documentation(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            Expr::Macro(composed) => Some(literals(&composed.mac.tokens)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns all string literals in `tokens`, one after another.
fn literals(tokens: &TokenStream) -> String {
    let parts = tokens.clone().into_iter().filter_map(|token| match token {
        TokenTree::Literal(literal) => match Lit::new(literal) {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    parts.collect()
}

/// Adds the names after `.`, `::` or `fn`. If the whole code cannot be split into tokens, each line is read separately.
fn called(code: &str, names: &mut HashSet<String>) {
    match TokenStream::from_str(code) {
        Ok(tokens) => called_in(&tokens, names),
        Err(_) => {
            let lines = code.lines().filter_map(|line| TokenStream::from_str(line).ok());
            lines.for_each(|tokens| called_in(&tokens, names));
        }
    }
}

fn called_in(tokens: &TokenStream, names: &mut HashSet<String>) {
    let mut before = [String::new(), String::new()];
    for token in tokens.clone() {
        if let TokenTree::Ident(name) = &token
            && matches!(before.each_ref().map(String::as_str), [_, "." | "fn"] | [":", ":"])
        {
            names.insert(name.to_string());
        }
        let text = match &token {
            TokenTree::Ident(name) => name.to_string(),
            TokenTree::Punct(punct) => punct.as_char().to_string(),
            TokenTree::Literal(_) => String::new(),
            TokenTree::Group(group) => {
                called_in(&group.stream(), names);
                String::new()
            }
        };
        before = [std::mem::take(&mut before[1]), text];
    }
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn count(text: &str) -> usize {
        let source = |in_crate, text| Source::new(in_crate, in_crate, text);
        let lib = "pub use dash::{Dash, Map};\n#[doc(hidden)]\npub use dash::Whole;";
        faults(&[&source("lib.rs", lib), &source("dash/mod.rs", text)]).len()
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
            "macro_rules! calls { ($self:ident: $ty:ty) => { impl $ty { pub fn get(&$self) {} } } }",
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
            "impl Dash { #[cfg_attr(not(feature = \"sim\"), doc(hidden))] pub fn get() {} }",
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
