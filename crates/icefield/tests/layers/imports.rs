//! Finds imports that violate the order of the layers.

use std::collections::HashMap;

use syn::ItemUse;
use syn::visit::Visit;

use super::paths::{leaves, references};
use super::source::Source;

/// The layers, which are top-level modules of the library, from the bottom up.
pub const BASE: &str = "base";
pub const STORAGE: &str = "storage";
const ENGINE: &str = "engine";
const TABLE: &str = "table";
/// Opens tables of any design, at the edge of the library.
const ANY: &str = "any";
/// Leaves: types that every layer may name.
pub const ERROR: &str = "error";
pub const TYPES: &str = "types";
const OUTCOME: &str = "outcome";
const REPORT: &str = "report";

/// The designs under `engine`, which do not import one another.
const DESIGNS: [&str; 3] = ["dash", "iceberg", "plush"];

/// Checks whether module `from` may name `to`, both paths from the crate's root.
fn may_name(from: &[String], to: &[String]) -> bool {
    let [target, rest @ ..] = to else { return true };
    let is_leaf = matches!(target.as_str(), ERROR | TYPES | OUTCOME | REPORT);
    let is_low = is_leaf || matches!(target.as_str(), STORAGE | BASE);
    if target == ENGINE && from[0] == ENGINE {
        let other = rest.first().filter(|module| DESIGNS.contains(&module.as_str()));
        return other.is_none_or(|other| from.get(1) == Some(other));
    }
    if *target == from[0] {
        return true;
    }
    match from[0].as_str() {
        BASE | TYPES | OUTCOME => target == ERROR,
        ERROR => false,
        REPORT => target == ERROR || target == STORAGE,
        STORAGE => {
            matches!(target.as_str(), ERROR | TYPES)
                || target == BASE
                    && rest.first().is_some_and(|module| module != "hash" && module != "*")
        }
        ENGINE => is_low,
        TABLE => is_low || target == ENGINE,
        ANY => true,
        _in_memory_or_join => is_low || target == TABLE,
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
    let [from, ..] = source.modules.as_slice() else { return Vec::new() };
    let mut faults = Vec::new();
    for reference in references(source) {
        let [first, ..] = reference.segments.as_slice() else { continue };
        let to = exports.get(first).unwrap_or(&reference.segments);
        if to[0] == "*" || !may_name(&source.modules, to) {
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
        let lib =
            source("lib.rs", "pub use error::{Error, Result}; pub use table::{DashEh, Table};");
        faults(&source(in_crate, text), &root_exports(&lib)).len()
    }

    #[test]
    fn forbidden_imports_are_found() {
        let forbidden = [
            ("engine/dash/split.rs", "use crate::engine::plush::Level;"),
            ("engine/dash/split.rs", "use super::super::plush::Level;"),
            ("engine/dash/eh.rs", "fn f() { crate::engine::iceberg::layout::grow(); }"),
            ("engine/dash/eh.rs", "use crate::{base::hash::Hash, engine::plush};"),
            ("engine/dash/eh.rs", "use crate::*;"),
            ("engine/plush/mod.rs", "use crate::DashEh;"),
            ("engine/plush/mod.rs", "use crate::any::AnyTable;"),
            ("storage/blob.rs", "use crate::engine::dash::Dash;"),
            ("storage/blob.rs", "use crate::{Result, Table};"),
            ("storage/blob.rs", "use crate::base::hash::Hash;"),
            ("storage/blob.rs", "use crate::base::{counter, hash::{self, Hash}};"),
            ("storage/blob.rs", "use crate::base;"),
            ("base/hash.rs", "use crate::storage::Medium;"),
            ("base/group/mod.rs", "use super::super::storage::LINE_BYTES;"),
            ("base/mod.rs", "mod tests { use super::super::engine::dash::Dash; }"),
            ("base/mod.rs", "use crate::types::Word;"),
            ("base/mod.rs", "impl From<crate::storage::Region> for X {}"),
            ("table/op.rs", "use crate::any::AnyTable;"),
            ("engine/slots/mod.rs", "use crate::engine::dash::Dash;"),
            ("storage/blob.rs", "use crate::engine::slots::Records;"),
            ("error.rs", "use crate::storage::Region;"),
            ("storage/blob.rs", "fn f() { assert!(x, \"{}\", crate::engine::dash::Dash) }"),
            ("storage/blob.rs", "fn f() { odd!(a -> crate::engine::dash::Dash => b) }"),
            (
                "storage/blob.rs",
                "macro_rules! m { ($x:ty $(, $y:ident)*) => { $(impl $crate::engine::dash::$y for $x {})* }; }",
            ),
            ("storage/blob.rs", "#[derive(crate::engine::dash::Dash)] struct X;"),
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
                "engine/dash/eh.rs",
                "use crate::base::{hash::Hash, pipeline::{rolling, self}}; use crate::storage::*;",
            ),
            (
                "engine/dash/eh.rs",
                "use super::{bucket, segment::Segment as S}; use crate::{Error, engine::slots::Records};",
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
            ("any/mod.rs", "use crate::engine::dash::Dash;"),
            ("lib.rs", "pub use crate::engine::dash::Dash;"),
        ];
        for (path, text) in permitted {
            assert_eq!(faults_of_layers(path, text), 0, "{path}: {text}");
        }
    }
}
