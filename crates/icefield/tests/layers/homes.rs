//! Finds conditional compilation, processor instructions and thread-locals outside the modules that may contain them.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemUse, Macro, Path};

use super::imports::BASE;
use super::macros;
use super::paths::{leaves, names};
use super::source::{Source, line, names_in, names_of};

/// Returns conditional compilation, processor instructions and thread-locals outside the modules that may contain them.
pub fn faults(source: &Source) -> Vec<String> {
    let mut homes = Homes { source, faults: Vec::new() };
    homes.visit_file(&source.syntax);
    homes.faults
}

/// Modules that may contain processor instructions.
pub const PROCESSOR: &[&str] = &["base/group", "storage/arch"];

struct Homes<'a> {
    source: &'a Source,
    faults: Vec<String>,
}

impl Homes<'_> {
    fn check(&mut self, span: Span, what: &str, homes: &[&str]) {
        if !self.source.is_under(homes) {
            let at = self.source.at(line(span));
            self.faults.push(format!("{at}: {what} belongs into {}", homes.join(" or ")));
        }
    }

    fn condition(&mut self, span: Span, names: &[String]) {
        for name in names {
            if name.starts_with("target_") {
                self.check(span, "`cfg(target_*)`", PROCESSOR);
            } else if name == "loom" {
                self.check(span, "`cfg(loom)`", &["base/sync"]);
            }
        }
    }

    fn path(&mut self, span: Span, names: &[String]) {
        let is_arch =
            |pair: &[String]| matches!(pair[0].as_str(), "core" | "std") && pair[1] == "arch";
        if names.windows(2).any(is_arch) {
            self.check(span, "`std::arch`", PROCESSOR);
        }
        match names.last().map(String::as_str) {
            Some("asm" | "global_asm" | "naked_asm") => self.check(span, "`asm!`", PROCESSOR),
            Some("thread_local") => self.check(span, "`thread_local!`", &[BASE]),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Homes<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let path = attribute.path();
        if path.is_ident("cfg") || path.is_ident("cfg_attr") {
            self.condition(path.segments[0].ident.span(), &names_in(&attribute.meta));
        }
        visit::visit_attribute(self, attribute);
        macros::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        if called.path.is_ident("cfg") {
            let mut names = Vec::new();
            names_of(&called.tokens, &mut names);
            self.condition(called.path.segments[0].ident.span(), &names);
        }
        visit::visit_macro(self, called);
        macros::visit_body(self, called);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.path(path.segments[0].ident.span(), &names(path));
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        for leaf in leaves(&import.tree) {
            self.path(leaf.span, &leaf.segments);
        }
        visit::visit_item_use(self, import);
    }
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn source(in_crate: &str, text: &str) -> Source {
        Source::new(in_crate, in_crate, text)
    }

    #[test]
    fn conditions_far_from_home_are_found() {
        let count = |path, text| faults(&source(path, text)).len();
        for text in [
            "#[cfg(target_arch = \"x86_64\")] fn f() {}",
            "#[cfg(all(test, not(target_os = \"linux\")))] fn f() {}",
            "fn f() { if cfg!(target_endian = \"big\") {} }",
            "macro_rules! m { ($($x:ty),*) => { $(#[cfg(loom)] type A = $x;)* }; }",
            "fn f() { assert!(cfg!(loom), \"{}\", 1) }",
            "#[cfg_attr(loom, ignore)] fn f() {}",
            "use std::arch::x86_64::_mm_pause;",
            "use std::{arch, fmt};",
            "fn f() { core::arch::asm!(\"nop\"); }",
            "thread_local! {}",
        ] {
            assert!(count("dash/eh.rs", text) > 0, "{text}");
        }
        assert_eq!(
            count("base/group/avx2.rs", "#[cfg(target_arch = \"x86_64\")] use core::arch::x86_64;"),
            0
        );
        assert_eq!(count("storage/arch/mod.rs", "#[cfg(target_arch = \"x86_64\")] mod x86_64;"), 0);
        assert_eq!(count("base/sync.rs", "#[cfg(not(loom))] use std::hint;"), 0);
        assert_eq!(count("base/counter.rs", "thread_local! {}"), 0);
        assert_eq!(
            count(
                "dash/eh.rs",
                "#[cfg(test)] mod tests; #[target_feature(enable = \"avx2\")] fn f() {}"
            ),
            0
        );
    }
}
