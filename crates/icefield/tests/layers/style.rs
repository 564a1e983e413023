//! Finds notes to self, stubs, `unsafe` without a reason, unchecked fences on disks, and names that the
//! glossary replaces.

use proc_macro2::{Ident, Span};
use syn::visit::{self, Visit};
use syn::{
    ExprMethodCall, ExprUnsafe, ImplItemType, ItemEnum, ItemImpl, ItemStruct, ItemTrait, ItemType,
    ItemUnion, Macro, TraitItemType,
};

use super::imports::{BASE, ERROR, STORAGE, TYPES};
use super::macros;
use super::source::{Source, line};

/// Code that also runs on disks, where each fence is a sync that may fail, and later stores must not rely on a failed
/// one.
pub const ON_DISKS: &[&str] = &["engine/plush", "join", "storage/alloc", "storage/superblock"];

/// Returns fences whose failure would be ignored, in code for disks.
pub fn unchecked_fences(source: &Source) -> Vec<String> {
    struct Fences<'a>(&'a Source, Vec<String>);
    impl<'ast> Visit<'ast> for Fences<'_> {
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            if call.method == "fence" || call.method == "persist" {
                let at = self.0.at(line(call.method.span()));
                self.1.push(format!("{at}: call `try_{}`: it may fail on a disk", call.method));
            }
            visit::visit_expr_method_call(self, call);
        }

        fn visit_macro(&mut self, called: &'ast Macro) {
            macros::visit_body(self, called);
        }
    }
    let mut fences = Fences(source, Vec::new());
    if source.is_under(ON_DISKS) {
        fences.visit_file(&source.syntax);
    }
    fences.1
}

/// Returns notes to self, stubs, and `unsafe` without a reason.
pub fn faults(source: &Source) -> Vec<String> {
    let mut style = Style { source, faults: Vec::new() };
    for (line, comment) in source.comments() {
        for word in comment.split(|c: char| !c.is_alphanumeric()) {
            if ["TODO", "FIXME", "XXX", "HACK"].contains(&word) {
                style
                    .faults
                    .push(format!("{}: `{word}`: do it, or open an issue", source.at(line)));
            }
        }
    }
    style.visit_file(&source.syntax);
    style.faults
}

struct Style<'a> {
    source: &'a Source,
    faults: Vec<String>,
}

impl Style<'_> {
    /// Checks for a `SAFETY:` comment on the line, or above it without a blank line between.
    fn check_unsafe(&mut self, span: Span) {
        const REACH: usize = 16;
        let mut comments = self.source.comments_above(line(span), REACH);
        if !comments.any(|comment| comment.contains("SAFETY:")) {
            let at = self.source.at(line(span));
            self.faults.push(format!("{at}: `unsafe` without `// SAFETY:`: state why it is sound"));
        }
    }
}

impl<'ast> Visit<'ast> for Style<'_> {
    fn visit_expr_unsafe(&mut self, block: &'ast ExprUnsafe) {
        self.check_unsafe(block.unsafe_token.span);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.check_unsafe(token.span);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        if called.path.is_ident("todo") || called.path.is_ident("unimplemented") {
            let at = self.source.at(line(called.path.segments[0].ident.span()));
            self.faults.push(format!("{at}: a stub: write the code"));
        }
        macros::visit_body(self, called);
    }
}

/// Returns types whose name contains a word for which the glossary has another term.
pub fn glossary_faults(source: &Source) -> Vec<String> {
    let mut types = Types(Vec::new());
    types.visit_file(&source.syntax);
    const NOWHERE: [(&str, &str); 6] = [
        ("Kv", "record"),
        ("Pair", "record"),
        ("Finger", "fingerprint"),
        ("Signature", "fingerprint"),
        ("H2", "fingerprint"),
        ("Epoch", "LogEpoch or RecoveryVersion"),
    ];
    // These words have other meanings in the lower layers. `Block` is absent, because `storage::alloc` hands out blocks
    // to tables as well.
    const NOT_IN_TABLES: [(&str, &str); 4] =
        [("Item", "record"), ("Cell", "slot"), ("Node", "bucket"), ("Tag", "fingerprint")];
    let in_table = !source.modules.is_empty() && !source.is_under(&[BASE, STORAGE, ERROR, TYPES]);
    let mut faults = Vec::new();
    for (name, line) in types.0 {
        // `LogEpoch`, and epochs of reclamation, are terms of the glossary.
        if name.contains("LogEpoch") || name.starts_with("Epoch") {
            continue;
        }
        let forbidden = NOWHERE.iter().chain(NOT_IN_TABLES.iter().filter(|_| in_table));
        for (word, instead) in forbidden {
            if camel_words(&name).contains(word) {
                let at = source.at(line);
                faults.push(format!("{at}: `{name}`: docs/glossary.md calls it {instead}"));
            }
        }
    }
    faults
}

/// The names of types and traits, with their lines.
struct Types(Vec<(String, usize)>);

impl Types {
    fn add(&mut self, name: &Ident) {
        self.0.push((name.to_string(), line(name.span())));
    }

    /// Iterators must use the name `Item`.
    fn add_type(&mut self, name: &Ident) {
        if name != "Item" {
            self.add(name);
        }
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.add(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add_type(&item.ident);
    }

    fn visit_trait_item_type(&mut self, item: &'ast TraitItemType) {
        self.add_type(&item.ident);
    }

    fn visit_impl_item_type(&mut self, item: &'ast ImplItemType) {
        self.add_type(&item.ident);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        macros::visit_body(self, called);
    }
}

/// Returns the words of a CamelCase name.
fn camel_words(name: &str) -> Vec<&str> {
    let mut starts: Vec<usize> =
        name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(i, _)| i).collect();
    starts.push(name.len());
    starts.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect()
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn source(in_crate: &str, text: &str) -> Source {
        Source::new(in_crate, in_crate, text)
    }

    #[test]
    fn faults_of_style_are_found() {
        let count = |text| faults(&source("dash/eh.rs", text)).len();
        for text in [
            concat!("// TO", "DO: later"),
            concat!("const X: u8 = 1; /* FIX", "ME */"),
            concat!("/// A stub. HA", "CK\nfn f() {}"),
            "fn f() { todo!() }",
            "fn f() { unsafe { g() } }",
            "// SAFETY: far away\n\nfn f() { unsafe { g() } }",
            "unsafe impl Send for X {}",
            "macro_rules! m { ($x:ty, $($y:ident),*) => { unsafe impl Send for $x {} }; }",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        assert_eq!(count("// SAFETY: g is fine.\nconst X: u8 = unsafe { g() };"), 0);
        assert_eq!(count("const S: &str = \"unsafe { TODO }\"; unsafe fn f() {}"), 0);
    }

    #[test]
    fn fences_that_nobody_checks_are_found() {
        let count = |path, text| unchecked_fences(&source(path, text)).len();
        assert_eq!(
            count(
                "engine/plush/op.rs",
                "fn f() { storage.fence(); self.storage.persist(cell); site.storage.fence() }"
            ),
            3
        );
        assert_eq!(
            count(
                "engine/plush/op.rs",
                "fn persist() { storage.try_fence()?; storage.settle()?; }"
            ),
            0
        );
        assert_eq!(count("dash/eh.rs", "fn f() { storage.fence(); }"), 0);
    }

    #[test]
    fn words_that_the_glossary_replaces_are_found() {
        let count = |path, text| glossary_faults(&source(path, text)).len();
        for text in [
            "struct KvStore;",
            "enum SlotTag {}",
            "type Pair = ();",
            "trait NodeLike {}",
            "struct Item;",
            "fn f() { struct Pair; }",
        ] {
            assert_eq!(count("dash/bucket.rs", text), 1, "{text}");
        }
        assert_eq!(
            count(
                "dash/bucket.rs",
                "type Item = u64; struct Stage; struct Table; struct LogEpoch;"
            ),
            0
        );
        assert_eq!(count("storage/alloc.rs", "struct Block; struct Cell64;"), 0);
    }
}
