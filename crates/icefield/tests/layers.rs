//! Rules that the compiler does not check, tested on the syntax of the sources: allowed imports between modules, import
//! cycles between files, places for code that depends on the processor or on loom, and a few matters of style.
//!
//! `syn` parses the files. The modules named `planted` under `layers/` violate the rules on purpose.

#[path = "layers/calls.rs"]
mod calls;
#[path = "layers/cycles.rs"]
mod cycles;
#[path = "layers/examples.rs"]
mod examples;
#[path = "layers/graph.rs"]
mod graph;
#[path = "layers/homes.rs"]
mod homes;
#[path = "layers/imports.rs"]
mod imports;
#[path = "layers/limits.rs"]
mod limits;
#[path = "layers/listed.rs"]
mod listed;
#[path = "layers/macros.rs"]
mod macros;
#[path = "layers/orderings.rs"]
mod orderings;
#[path = "layers/paths.rs"]
mod paths;
#[path = "layers/source.rs"]
mod source;
#[path = "layers/style.rs"]
mod style;

use std::sync::LazyLock;

use source::{Source, read_all};

/// The faults that each rule found.
struct Findings {
    imports: Vec<String>,
    cycles: Vec<String>,
    user_types: Vec<String>,
    macros: Vec<String>,
    gates: Vec<String>,
    homes: Vec<String>,
    loom: Vec<String>,
    fences: Vec<String>,
    style: Vec<String>,
    orderings: Vec<String>,
    glossary: Vec<String>,
    examples: Vec<String>,
    calls: Vec<String>,
    folders: Vec<String>,
}

/// Threads cannot share syntax trees. Therefore one thread parses the files and checks all rules.
static FINDINGS: LazyLock<Findings> = LazyLock::new(find);

fn find() -> Findings {
    let workspace = read_all("crates");
    let in_library = |source: &&Source| source.path.starts_with("crates/icefield/src/");
    let library: Vec<&Source> = workspace.iter().filter(in_library).collect();
    let each = |rule: fn(&Source) -> Vec<String>| {
        library.iter().flat_map(|source| rule(source)).collect::<Vec<String>>()
    };
    let root = library.iter().find(|source| source.modules.is_empty()).expect("lib.rs is there");
    let exports = imports::root_exports(root);
    let references: usize = library.iter().map(|source| paths::references(source).len()).sum();
    assert!(references > 100 && exports.len() > 10, "{references} paths, exports {exports:?}");
    let elsewhere =
        workspace.iter().filter(|source| !source.path.ends_with("icefield/tests/loom.rs"));
    let crates = cycles::crates(&workspace);
    let (_, of_library) = crates.iter().find(|(name, _)| *name == "icefield").expect("the library");
    let folders = [style::ON_DISKS, homes::PROCESSOR, limits::WITHOUT_USER_TYPES].concat();
    Findings {
        imports: library.iter().flat_map(|source| imports::faults(source, &exports)).collect(),
        cycles: cycles::faults(&crates),
        user_types: limits::user_types(of_library, limits::WITHOUT_USER_TYPES),
        macros: limits::macros_beyond(&library, limits::MOST_MACROS),
        gates: limits::gates(root),
        homes: each(homes::faults),
        loom: elsewhere
            .flat_map(homes::faults)
            .filter(|fault| fault.contains("cfg(loom)"))
            .collect(),
        fences: each(style::unchecked_fences),
        style: workspace.iter().flat_map(style::faults).collect(),
        orderings: orderings::faults(&library),
        glossary: each(style::glossary_faults),
        examples: examples::faults(&library),
        calls: listed::faults(&examples::methods(&library)),
        folders: limits::missing_folders(&library, &folders),
    }
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn layers_import_downwards_only() {
    assert_none(&FINDINGS.imports);
}

#[test]
fn no_files_import_one_another() {
    assert_none(&FINDINGS.cycles);
}

#[test]
fn storage_knows_no_user_type() {
    assert_none(&FINDINGS.user_types);
}

#[test]
fn macros_are_few() {
    assert_none(&FINDINGS.macros);
}

#[test]
fn what_tables_are_made_of_is_public_for_tests_only() {
    assert_none(&FINDINGS.gates);
}

#[test]
fn code_for_processors_models_and_threads_stays_at_home() {
    assert_none(&FINDINGS.homes);
}

#[test]
fn loom_is_named_nowhere_else() {
    assert_none(&FINDINGS.loom);
}

#[test]
fn fences_on_disks_are_checked() {
    assert_none(&FINDINGS.fences);
}

#[test]
fn sources_keep_the_style() {
    assert_none(&FINDINGS.style);
}

#[test]
fn orderings_have_reasons() {
    assert_none(&FINDINGS.orderings);
}

#[test]
fn types_are_called_by_the_glossary() {
    assert_none(&FINDINGS.glossary);
}

#[test]
fn exported_types_and_calls_show_themselves() {
    assert_none(&FINDINGS.examples);
}

/// A call that is not in a list would not be tested for refusals.
#[test]
fn every_call_is_listed_as_changing_or_reading() {
    assert_none(&FINDINGS.calls);
}

#[test]
fn rules_name_folders_that_exist() {
    assert_none(&FINDINGS.folders);
}

/// Each of these tests lists the designs that it runs on, so a new design must be added to every list.
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
