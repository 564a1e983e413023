//! Finds import cycles between files.
//!
//! Files that import one another cannot be read, tested or changed separately.

use std::collections::{BTreeMap, HashMap};

use super::graph::{Graph, Import, cycles};
use super::source::Source;

/// Returns, for each crate, its name and the imports between its files.
pub fn crates(workspace: &[Source]) -> Vec<(&str, Vec<Import>)> {
    let in_crates = workspace.iter().filter_map(|source| {
        let (name, _) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
        Some((name, source))
    });
    let mut crates: Vec<(&str, HashMap<&str, &Source>)> = Vec::new();
    for (name, source) in in_crates {
        if crates.last().is_none_or(|(last, _)| *last != name) {
            crates.push((name, HashMap::new()));
        }
        let (_, files) = crates.last_mut().expect("there is one");
        files.insert(&source.path, source);
    }
    let imports = |(name, files): (_, HashMap<&str, &_>)| {
        let mut roots: Vec<&Source> =
            files.values().copied().filter(|file| is_root(file)).collect();
        roots.sort_by_key(|root| &root.path);
        (name, roots.iter().flat_map(|root| Graph::new(root, &files).imports()).collect())
    };
    crates.into_iter().map(imports).collect()
}

/// Checks whether the file is the root of a library or of a program.
fn is_root(source: &Source) -> bool {
    match source.modules.as_slice() {
        [] => true,
        [folder, _] => folder == "bin",
        _ => false,
    }
}

/// Returns a message for each cycle.
pub fn faults(crates: &[(&str, Vec<Import>)]) -> Vec<String> {
    let in_crate = |(name, imports): &(&str, Vec<Import>)| {
        let describe = |cycle: Vec<&str>| {
            format!(
                "crates/{name}: an import cycle of {} files. Move what they share into a file that imports neither, \
                 or pass it as an argument:\n{}",
                cycle.len(),
                inside(&cycle, imports)
            )
        };
        cycles(imports).into_iter().map(describe).collect::<Vec<_>>()
    };
    crates.iter().flat_map(in_crate).collect()
}

/// Returns the imports between the files of a cycle, one line for each pair of files.
fn inside(cycle: &[&str], imports: &[Import]) -> String {
    let is_inside = |file: &String| cycle.contains(&file.as_str());
    let mut pairs: BTreeMap<(&str, &str), (usize, Vec<&str>)> = BTreeMap::new();
    for Import { from, line, to, name, .. } in imports {
        if is_inside(from) && is_inside(to) {
            let (first, names) = pairs.entry((from, to)).or_insert((*line, Vec::new()));
            *first = *line.min(first);
            names.push(name);
        }
    }
    let lines = pairs.iter().map(|((from, to), (line, names))| {
        format!("    {from}:{line}: names {} of {to}", names.join(", "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Violates the rule on purpose.
mod planted {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| {
            Source::new(&format!("crates/some/src/{path}"), path, text)
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        faults(&crates(&sources))
    }

    const LIB: (&str, &str) = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");

    #[test]
    fn cycles_are_found() {
        let both = |a: &str, b: &str| found(&[LIB, ("a.rs", a), ("b.rs", b)]).len();
        let b = "pub struct B; pub fn f(_: crate::a::A) {}";
        for a in [
            "use crate::b::B; pub struct A;",
            "use super::{b::B as C}; pub struct A;",
            "use crate::B; pub struct A;",
            "use crate::b::*; pub struct A(B);",
            "use super::b; pub struct A; fn f() { b::f(A) }",
            "pub struct A; impl super::b::B {}",
            "pub struct A; fn f() { use crate::b::f; }",
            "pub struct A; mod inner { use super::super::b::f; }",
            "pub struct A; fn f() { assert!(g(crate::b::B), \"\"); }",
            "pub struct A; macro_rules! m { ($($x:ty),*) => { $(impl $crate::b::B for $x {})* }; }",
        ] {
            assert_eq!(both(a, b), 1, "{a}");
        }
        // If a macro composes the name of an item, the name appears only where the item is used.
        assert_eq!(both("use crate::b::Composed; pub struct A;", "some! {} use super::A;"), 1);
    }

    #[test]
    fn other_imports_are_no_cycles() {
        let both = |a: &str, b: &str| found(&[LIB, ("a.rs", a), ("b.rs", b)]);
        let b = "pub struct B; pub fn f(_: crate::a::A) {}";
        for a in [
            "pub struct A; // crate::b::B",
            "use std::b::B; use ::b::f; pub struct A;",
            "pub use crate::b::B; pub struct A;",
            "use super::b; pub struct A;",
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            "pub struct A; #[cfg(test)] use crate::b::B;",
            "pub struct A; mod b { pub struct B; } use b::B;",
        ] {
            assert_eq!(both(a, b), [""; 0], "{a}");
        }
    }

    #[test]
    fn exports_lead_to_the_file_that_defines_an_item() {
        let lib = ("lib.rs", "mod a;");
        let a = "mod b; mod c; pub use b::*; pub use c::{C as D};";
        let (b, c) = ("use super::D; pub struct B;", "pub struct C;");
        let files = |a, b, c| found(&[lib, ("a/mod.rs", a), ("a/b.rs", b), ("a/c.rs", c)]);
        assert_eq!(files(a, b, c), [""; 0]);
        assert_eq!(files(a, b, "pub struct C; fn f(_: super::B) {}").len(), 1);
        assert_eq!(files(a, b, "pub struct C; use super::B;").len(), 1);
        // If the parent also uses an item that it re-exports, it imports the item.
        let used = format!("{a} pub struct A; fn f(_: B) {{}}");
        assert_eq!(files(&used, b, c), [""; 0]);
        assert_eq!(files(&used, "use super::A; pub struct B;", c).len(), 1);
    }
}
