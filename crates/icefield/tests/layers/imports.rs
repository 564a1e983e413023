//! Finds imports against the order of the layers.

use std::collections::HashMap;

use syn::ItemUse;
use syn::visit::Visit;

use super::paths::{leaves, references};
use super::source::Source;

/// Top-level modules of the library that are not a table design. Any other module counts as a design.
pub const BASE: &str = "base";
pub const STORAGE: &str = "storage";
pub const ERROR: &str = "error";
pub const KEY: &str = "key";
/// The common trait of all tables.
const CONTRACT: &str = "table";
/// Records as two words, and code that follows from it for every table with such slots.
const RECORD: &str = "record";
/// Opens tables of any design, at the edge of the library.
const ANY: &str = "any";

/// Checks whether module `from` may name `to`, a path from the crate's root.
fn may_name(from: &str, to: &[String]) -> bool {
    let [target, rest @ ..] = to else { return true };
    let target = target.as_str();
    if target == from {
        return true;
    }
    match from {
        BASE | KEY => target == ERROR,
        ERROR => false,
        STORAGE => {
            matches!(target, ERROR | KEY)
                || target == BASE
                    && rest.first().is_some_and(|module| module != "hash" && module != "*")
        }
        CONTRACT => matches!(target, ERROR | KEY | STORAGE | BASE),
        RECORD => matches!(target, ERROR | KEY | CONTRACT | STORAGE | BASE),
        ANY => true,
        _design => matches!(target, ERROR | KEY | CONTRACT | RECORD | STORAGE | BASE),
    }
}

/// Returns the path of each name that the crate's root exports.
pub fn root_exports(lib: &Source) -> HashMap<String, Vec<String>> {
    struct Exports(HashMap<String, Vec<String>>);
    impl<'ast> Visit<'ast> for Exports {
        fn visit_item_use(&mut self, import: &'ast ItemUse) {
            let leaves = leaves(&import.tree).into_iter();
            self.0.extend(leaves.map(|leaf| (leaf.name, leaf.segments)));
        }
    }
    let mut exports = Exports(HashMap::new());
    exports.visit_file(&lib.syntax);
    exports.0
}

/// Returns imports of `source` that violate the order of the layers.
pub fn faults(source: &Source, exports: &HashMap<String, Vec<String>>) -> Vec<String> {
    let Some(from) = source.modules.first() else { return Vec::new() };
    let mut faults = Vec::new();
    for reference in references(source) {
        let [first, ..] = reference.segments.as_slice() else { continue };
        let to = exports.get(first).unwrap_or(&reference.segments);
        if to[0] == "*" || !may_name(from, to) {
            faults.push(format!(
                "{}: `{from}` names `{}`, which is not below it: see ARCHITECTURE.md",
                source.at(reference.line),
                to.join("::")
            ));
        }
    }
    faults
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn source(in_crate: &str, text: &str) -> Source {
        Source::new(in_crate, in_crate, text)
    }

    fn faults_of_layers(in_crate: &str, text: &str) -> usize {
        let lib = source(
            "lib.rs",
            "pub use error::{Error, Result}; pub use dash::DashEh; pub use table::Table;",
        );
        faults(&source(in_crate, text), &root_exports(&lib)).len()
    }

    #[test]
    fn forbidden_imports_are_found() {
        let forbidden = [
            ("dash/split.rs", "use crate::plush::Level;"),
            ("dash/split.rs", "use super::super::plush::Level;"),
            ("dash/eh.rs", "fn f() { crate::iceberg::layout::grow(); }"),
            ("dash/eh.rs", "use crate::{base::hash::Hash, plush};"),
            ("dash/eh.rs", "use crate::*;"),
            ("plush/mod.rs", "use crate::DashEh;"),
            ("plush/mod.rs", "use crate::any::AnyTable;"),
            ("storage/blob.rs", "use crate::dash::Dash;"),
            ("storage/blob.rs", "use crate::{Result, Table};"),
            ("storage/blob.rs", "use crate::base::hash::Hash;"),
            ("storage/blob.rs", "use crate::base::{counter, hash::{self, Hash}};"),
            ("storage/blob.rs", "use crate::base;"),
            ("base/hash.rs", "use crate::storage::Medium;"),
            ("base/group/mod.rs", "use super::super::storage::LINE_BYTES;"),
            ("base/mod.rs", "mod tests { use super::super::dash::Dash; }"),
            ("base/mod.rs", "use crate::key::Word;"),
            ("base/mod.rs", "impl From<crate::storage::Region> for X {}"),
            ("table.rs", "use crate::dash::Dash;"),
            ("record/engine.rs", "use crate::dash::Dash;"),
            ("storage/blob.rs", "use crate::record::Records;"),
            ("error.rs", "use crate::storage::Region;"),
            ("storage/blob.rs", "fn f() { assert!(x, \"{}\", crate::dash::Dash) }"),
            ("storage/blob.rs", "fn f() { odd!(a -> crate::dash::Dash => b) }"),
            (
                "storage/blob.rs",
                "macro_rules! m { ($x:ty $(, $y:ident)*) => { $(impl $crate::dash::$y for $x {})* }; }",
            ),
            ("storage/blob.rs", "#[derive(crate::dash::Dash)] struct X;"),
        ];
        for (path, text) in forbidden {
            assert_eq!(
                faults_of_layers(path, text),
                1 + usize::from(text.contains("{self")),
                "{path}: {text}"
            );
        }
    }

    #[test]
    fn permitted_imports_are_not() {
        let permitted = [
            (
                "dash/eh.rs",
                "use crate::base::{hash::Hash, pipeline::{rolling, self}}; use crate::storage::*;",
            ),
            (
                "dash/eh.rs",
                "use super::{bucket, segment::Segment as S}; use crate::{Error, Table};",
            ),
            (
                "storage/blob.rs",
                "use crate::base::version_lock::LockCell; use super::Medium; use crate::Result;",
            ),
            ("base/group/avx2.rs", "use super::{Isa, Sse2}; use super::super::sync;"),
            (
                "base/group/mod.rs",
                "mod tests { use super::super::sync; use super::*; } use super::sync::fence;",
            ),
            (
                "base/sync.rs",
                "// crate::storage is not imported\nconst S: [&str; 2] = [\"crate::dash\", r#\"crate::dash\"#];",
            ),
            (
                "base/sync.rs",
                "fn f<'a>(c: char) -> bool { c == '\"' } /* crate::storage /* */ crate::dash */ fn g() {}",
            ),
            ("any/mod.rs", "use crate::dash::Dash;"),
            ("lib.rs", "pub use crate::dash::Dash;"),
        ];
        for (path, text) in permitted {
            assert_eq!(faults_of_layers(path, text), 0, "{path}: {text}");
        }
    }
}
