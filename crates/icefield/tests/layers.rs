//! Rules that the compiler does not check, tested on the source text: allowed imports between modules, places for
//! code that depends on the processor or on loom, and a few matters of style.

#[path = "layers/calls.rs"]
mod calls;
#[path = "layers/examples.rs"]
mod examples;
#[path = "layers/orderings.rs"]
mod orderings;
#[path = "layers/source.rs"]
mod source;

use std::collections::HashMap;

use source::{Source, read_all};

/// Top-level modules of the library that are not a table design. Any other module counts as a design.
const BASE: &str = "base";
const STORAGE: &str = "storage";
const ERROR: &str = "error";
const KEY: &str = "key";
/// The common trait of all tables.
const CONTRACT: &str = "table";
/// Records as two words, and code that follows from it for every table with such slots.
const RECORD: &str = "record";
/// Opens tables of any design, at the edge of the library.
const ANY: &str = "any";

/// Code that also runs on disks, where each fence is a sync that may fail, and later stores must not rely on a failed
/// one.
const ON_DISKS: &[&str] = &["plush", "join", "storage/alloc", "storage/superblock"];

/// Returns fences whose failure would be ignored, in code for disks.
fn unchecked_fences(source: &Source) -> Vec<String> {
    let path = source.modules.join("/");
    if !ON_DISKS.iter().any(|home| path == *home || path.starts_with(&format!("{home}/"))) {
        return Vec::new();
    }
    let calls = source.tokens.iter().enumerate().filter(|(index, token)| {
        matches!(token.text.as_str(), "fence" | "persist")
            && source.text(index.wrapping_sub(1)) == "."
    });
    calls
        .map(|(_, token)| {
            format!("{}: `try_{}` may fail on a disk", source.at(token.line), token.text)
        })
        .collect()
}

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

/// Returns the module of each name that the crate's root exports.
fn root_exports(lib: &Source) -> HashMap<String, Vec<String>> {
    let mut exports = HashMap::new();
    for (index, token) in lib.tokens.iter().enumerate() {
        if token.text == "use" {
            let mut paths = Vec::new();
            lib.tree(index + 1, &mut Vec::new(), &mut paths);
            for path in paths {
                exports.extend(path.last().cloned().map(|name| (name, path)));
            }
        }
    }
    exports
}

/// Returns imports of `source` that violate the order of the layers.
fn layer_faults(source: &Source, exports: &HashMap<String, Vec<String>>) -> Vec<String> {
    let Some(from) = source.modules.first() else { return Vec::new() };
    let mut faults = Vec::new();
    for reference in source.references() {
        let [first, ..] = reference.segments.as_slice() else { continue };
        let to = exports.get(first).unwrap_or(&reference.segments);
        if to[0] == "*" || !may_name(from, to) {
            faults.push(format!(
                "{}: `{from}` names `{}`",
                source.at(reference.line),
                to.join("::")
            ));
        }
    }
    faults
}

/// Returns conditional compilation, processor instructions and thread-locals outside their modules.
fn home_faults(source: &Source) -> Vec<String> {
    let under = |folders: &[&str]| {
        let path = source.modules.join("/");
        folders.iter().any(|folder| path == *folder || path.starts_with(&format!("{folder}/")))
    };
    let mut faults = Vec::new();
    let mut check = |line, what: &str, homes: &[&str]| {
        if !under(homes) {
            faults.push(format!("{}: {what} belongs into {}", source.at(line), homes.join(" or ")));
        }
    };
    const PROCESSOR: &[&str] = &["base/group", "storage/arch"];
    for (index, token) in source.tokens.iter().enumerate() {
        match token.text.as_str() {
            "cfg" | "cfg_attr" => {
                for name in condition(source, index) {
                    if name.starts_with("target_") {
                        check(token.line, "`cfg(target_*)`", PROCESSOR);
                    } else if name == "loom" {
                        check(token.line, "`cfg(loom)`", &["base/sync"]);
                    }
                }
            }
            "arch" if matches!(source.text(index.saturating_sub(2)), "core" | "std") => {
                check(token.line, "`std::arch`", PROCESSOR);
            }
            "asm" if source.text(index + 1) == "!" => check(token.line, "`asm!`", PROCESSOR),
            "thread_local" => check(token.line, "`thread_local!`", &[BASE]),
            _ => {}
        }
    }
    faults
}

/// Returns the names inside the parentheses of the `cfg` at token `index`.
fn condition(source: &Source, index: usize) -> Vec<&str> {
    let mut open = index + 1;
    if source.text(open) == "!" {
        open += 1;
    }
    let mut depth = 0;
    let mut names = Vec::new();
    for token in &source.tokens[open.min(source.tokens.len())..] {
        match token.text.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            name => names.push(name),
        }
        if depth <= 0 {
            break;
        }
    }
    names
}

/// Returns notes to self, stubs, and `unsafe` without a reason.
fn style_faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (line, comment) in source.comments.iter().enumerate() {
        for word in comment.split(|c: char| !c.is_alphanumeric()) {
            if ["TODO", "FIXME", "XXX", "HACK"].contains(&word) {
                faults.push(format!("{}: `{word}`: do it, or open an issue", source.at(line)));
            }
        }
    }
    for (index, token) in source.tokens.iter().enumerate() {
        let next = source.text(index + 1);
        if matches!(token.text.as_str(), "todo" | "unimplemented") && next == "!" {
            faults.push(format!("{}: a stub", source.at(token.line)));
        }
        if token.text == "unsafe"
            && matches!(next, "{" | "impl")
            && !has_safety_comment(source, token.line)
        {
            faults.push(format!("{}: `unsafe` without `// SAFETY:`", source.at(token.line)));
        }
    }
    faults
}

/// Checks whether a reason is on the line, or above it without a blank line between.
fn has_safety_comment(source: &Source, line: usize) -> bool {
    const REACH: usize = 16;
    (line.saturating_sub(REACH)..=line)
        .rev()
        .take_while(|&line| !source.is_blank[line])
        .any(|line| source.comments[line].contains("SAFETY:"))
}

/// Returns types whose name contains a word for which the glossary has another one.
fn glossary_faults(source: &Source) -> Vec<String> {
    const NOWHERE: [(&str, &str); 6] = [
        ("Kv", "record"),
        ("Pair", "record"),
        ("Finger", "fingerprint"),
        ("Signature", "fingerprint"),
        ("H2", "fingerprint"),
        ("Epoch", "LogEpoch or RecoveryVersion"),
    ];
    // The lower layers have their own cells. `Block` is absent, because `storage::alloc` hands out blocks to tables as
    // well.
    const NOT_IN_TABLES: [(&str, &str); 4] =
        [("Item", "record"), ("Cell", "slot"), ("Node", "bucket"), ("Tag", "fingerprint")];
    let in_table = source
        .modules
        .first()
        .is_some_and(|module| ![BASE, STORAGE, ERROR, KEY].contains(&module.as_str()));
    let mut faults = Vec::new();
    for (index, token) in source.tokens.iter().enumerate() {
        let name = source.text(index + 1);
        let declares =
            matches!(token.text.as_str(), "struct" | "enum" | "union" | "trait" | "type");
        // Iterators must use the name `Item`. `LogEpoch`, and epochs of reclamation, are terms of the glossary.
        let is_epoch = name.contains("LogEpoch") || name.starts_with("Epoch");
        if !declares || token.text == "type" && name == "Item" || is_epoch {
            continue;
        }
        let forbidden = NOWHERE.iter().chain(NOT_IN_TABLES.iter().filter(|_| in_table));
        for (word, instead) in forbidden {
            if camel_words(name).contains(word) {
                faults.push(format!("{}: `{name}`: the word is {instead}", source.at(token.line)));
            }
        }
    }
    faults
}

/// Returns the words of a CamelCase name.
fn camel_words(name: &str) -> Vec<&str> {
    let mut starts: Vec<usize> =
        name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(i, _)| i).collect();
    starts.push(name.len());
    starts.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect()
}

fn library() -> Vec<Source> {
    let sources = read_all("crates/icefield/src");
    assert!(sources.len() > 20, "only {} files found", sources.len());
    sources
}

fn assert_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn layers_import_downwards_only() {
    let sources = library();
    let lib = sources
        .iter()
        .find(|source| source.path.ends_with("icefield/src/lib.rs"))
        .expect("lib.rs is there");
    let exports = root_exports(lib);
    assert!(exports.len() > 10, "the root exports {exports:?}");
    let references: usize = sources.iter().map(|source| source.references().len()).sum();
    assert!(references > 100, "only {references} paths found");
    assert_none(sources.iter().flat_map(|source| layer_faults(source, &exports)).collect());
}

#[test]
fn code_for_processors_models_and_threads_stays_at_home() {
    assert_none(library().iter().flat_map(home_faults).collect());
}

#[test]
fn fences_on_disks_are_checked() {
    assert_none(library().iter().flat_map(unchecked_fences).collect());
}

#[test]
fn loom_is_named_nowhere_else() {
    let sources = read_all("crates");
    let elsewhere =
        sources.iter().filter(|source| !source.path.ends_with("icefield/tests/loom.rs"));
    let faults = elsewhere.flat_map(home_faults).filter(|fault| fault.contains("cfg(loom)"));
    assert_none(faults.collect());
}

#[test]
fn sources_keep_the_style() {
    assert_none(read_all("crates").iter().flat_map(style_faults).collect());
}

#[test]
fn exported_types_and_calls_show_themselves() {
    assert_none(examples::faults(&library()));
}

#[test]
fn orderings_have_reasons() {
    assert_none(orderings::faults(&library()));
}

/// A call that is not in a list would not be tested for refusals.
#[test]
fn every_call_is_listed_as_changing_or_reading() {
    let found = examples::methods(&library());
    let of = |owner: &str| {
        let mine = found.iter().filter(|(found, _)| found == owner);
        mine.map(|(_, name)| name.as_str()).collect::<Vec<_>>()
    };
    let mut faults = Vec::new();
    for calls::Calls { owner, changing, reading } in calls::CALLS {
        let (found, listed) = (of(owner), [*changing, *reading].concat());
        let name = |name: &&str| format!("{owner}::{name}");
        let new = found.iter().filter(|name| !listed.contains(*name)).map(name);
        faults.extend(new.map(|name| format!("layers/calls.rs does not list `{name}`")));
        let gone = listed.iter().filter(|name| !found.contains(name)).map(name);
        faults.extend(gone.map(|name| format!("layers/calls.rs lists `{name}`, which is no call")));
        let twice = changing.iter().filter(|name| reading.contains(name)).map(name);
        faults.extend(twice.map(|name| format!("layers/calls.rs lists `{name}` twice")));
    }
    // A type with `sync` or `merge` is on a medium.
    let made = found.iter().filter(|(owner, _)| !owner.ends_with("Options"));
    for (owner, name) in made.filter(|(_, name)| matches!(name.as_str(), "sync" | "merge")) {
        if calls::CALLS.iter().all(|calls| calls.owner != owner) {
            faults.push(format!(
                "layers/calls.rs does not list the calls of `{owner}`, which has `{name}`"
            ));
        }
    }
    assert_none(faults);
}

/// Every design with a name in files must be in the scenarios that set, for each design, how often they run.
#[test]
fn every_design_is_in_every_scenario() {
    for scenario in
        ["corrupt", "corrupt/hostile", "crash", "designs", "faults", "kill", "linearize", "model"]
    {
        let path = source::repository().join(format!("crates/icefield/tests/{scenario}.rs"));
        let text = std::fs::read_to_string(&path).expect("the test is there");
        for design in icefield::AnyTable::DESIGNS {
            let module = format!("design!({},", design.replace('-', "_"));
            assert!(
                text.contains(&format!("\"{design}\"")) || text.contains(&module),
                "{}: nothing runs for `{design}`",
                path.display()
            );
        }
    }
}

/// Safe code could break the invariants of tables through `base` and `storage`.
#[test]
fn what_tables_are_made_of_is_public_for_tests_only() {
    let path = source::repository().join("crates/icefield/src/lib.rs");
    let lib = std::fs::read_to_string(path).expect("the crate's root");
    let gate = "#[cfg(feature = \"unstable-internals\")]\n";
    for module in ["base", "storage"] {
        let public = format!("pub mod {module};");
        assert_eq!(lib.matches(&public).count(), 1, "{module}");
        assert!(lib.contains(&format!("{gate}{public}")), "{module} is public without the feature");
    }
    let hidden = lib.matches("#[doc(hidden)]").count();
    let for_tests = "#[cfg(feature = \"sim\")]\n";
    let gated = [gate, for_tests].map(|gate| lib.matches(&format!("{gate}#[doc(hidden)]")).count());
    assert_eq!(hidden, gated.iter().sum(), "something hidden is public without the feature");
}

#[test]
fn types_are_called_by_the_glossary() {
    assert_none(library().iter().flat_map(glossary_faults).collect());
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
        layer_faults(&source(in_crate, text), &root_exports(&lib)).len()
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
                "// crate::storage is not imported\nlet s = \"crate::dash\"; r#\"use crate::dash;\"#;",
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

    #[test]
    fn conditions_far_from_home_are_found() {
        let count = |path, text| home_faults(&source(path, text)).len();
        for text in [
            "#[cfg(target_arch = \"x86_64\")]",
            "#[cfg(all(test, not(target_os = \"linux\")))]",
            "if cfg!(target_endian = \"big\") {}",
            "#[cfg_attr(loom, ignore)]",
            "use std::arch::x86_64::_mm_pause;",
            "core::arch::asm!(\"nop\");",
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
            count("dash/eh.rs", "#[cfg(test)] mod tests; #[target_feature(enable = \"avx2\")]"),
            0
        );
    }

    #[test]
    fn faults_of_style_are_found() {
        let count = |text| style_faults(&source("dash/eh.rs", text)).len();
        for text in [
            concat!("// TO", "DO: later"),
            concat!("let x = 1; /* FIX", "ME */"),
            "fn f() { todo!() }",
            "fn f() { unsafe { g() } }",
            "// SAFETY: far away\n\nfn f() { unsafe { g() } }",
            "unsafe impl Send for X {}",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        assert_eq!(count("// SAFETY: g is fine.\nunsafe { g() }"), 0);
        assert_eq!(count("let s = \"unsafe { TODO }\"; unsafe fn f() {}"), 0);
    }

    #[test]
    fn fences_that_nobody_checks_are_found() {
        let count = |path, text| unchecked_fences(&source(path, text)).len();
        assert_eq!(
            count(
                "plush/op.rs",
                "storage.fence(); self.storage.persist(cell); site.storage.fence()"
            ),
            3
        );
        assert_eq!(
            count("plush/op.rs", "storage.try_fence()?; storage.settle()?; fn persist() {}"),
            0
        );
        assert_eq!(count("dash/eh.rs", "storage.fence();"), 0);
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
