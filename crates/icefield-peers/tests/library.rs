//! Tests a table in a shared library, built with the installed compilers. Without a compiler there is nothing to
//! test.

#![allow(clippy::unwrap_used, reason = "a test program: to panic is to fail")]

use std::path::{Path, PathBuf};
use std::process::Command;

use icefield_peers::{Error, Found, Operation, load};

/// Compiles `source` (C or C++ by its extension) to a shared library in `dir`; `None` without a compiler.
fn compiled(source: &Path, dir: &Path) -> Option<PathBuf> {
    let library = dir.join("libpeer.so");
    let home = env!("CARGO_MANIFEST_DIR");
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let (compiler, language) = if is_c { ("cc", "-std=c11") } else { ("g++", "-std=c++17") };
    let mut compiler = Command::new(compiler);
    compiler.args(["-O2", language, "-Wall", "-Werror", "-shared", "-fPIC", "-I", home, "-o"]);
    let status = compiler.arg(&library).arg(source).status().ok()?;
    assert!(status.success(), "the example does not compile");
    Some(library)
}

#[test]
fn the_example_is_a_peer() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples-cpp/std_unordered_map.cpp");
    let Some(library) = compiled(&source, dir.path()) else { return };
    let kind = load(&library).unwrap();
    assert_eq!(kind.name(), "std-unordered-map");
    assert!(kind.offers(Operation::Update) && kind.offers(Operation::InsDel));
    let table = kind.create(100, Some(dir.path())).unwrap();
    table.thread(0, true);
    assert_eq!(table.insert(&[1, 2, u64::MAX], &[10, 20, u64::MAX]), 3);
    assert_eq!(table.insert(&[1], &[11]), 0);
    assert_eq!(table.get(&[1, 2, 3, u64::MAX]), Found { hits: 3, sum: 29 });
    assert_eq!(table.update(&[1, 3], &[11, 30]), 1);
    assert_eq!(table.remove(&[2, 3]), 1);
    assert_eq!(table.insdel(&[1, 2]), 1);
    assert_eq!(table.get(&[1, 2, 3]), Found { hits: 1, sum: 11 });
    table.thread(0, false);
}

#[test]
fn a_library_may_leave_things_out() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("little.cpp");
    let text = r#"
        #include "icefield_peer.h"
        extern "C" {
        void *icefield_peer_create(uint64_t capacity, const char *) { return capacity == 7 ? nullptr : new int; }
        void icefield_peer_destroy(void *table) { delete static_cast<int *>(table); }
        uint64_t icefield_peer_insert(void *, const uint64_t *, const uint64_t *, uint64_t n) { return n; }
        uint64_t icefield_peer_get(void *, const uint64_t *, uint64_t n, uint64_t *sum) { *sum = 1; return n; }
        }"#;
    std::fs::write(&source, text).unwrap();
    let Some(library) = compiled(&source, dir.path()) else { return };
    let kind = load(&library).unwrap();
    assert_eq!(kind.name(), "libpeer", "the file's name, for it has none of its own");
    assert!(!kind.offers(Operation::Update) && !kind.offers(Operation::InsDel));
    assert!(matches!(kind.create(7, None), Err(Error::NotMade(_))));
    let table = kind.create(8, None).unwrap();
    assert_eq!((table.remove(&[1]), table.update(&[1], &[1])), (0, 0));
}

/// A table in C: one value for each key below 64.
#[test]
fn a_table_in_c_is_a_peer() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("array.c");
    let text = r#"
        #include <stdlib.h>
        #include "icefield_peer.h"
        const char *icefield_peer_name(void) { return "array"; }
        void *icefield_peer_create(uint64_t capacity, const char *dir) {
            (void)capacity; (void)dir;
            return calloc(64, sizeof(uint64_t));
        }
        void icefield_peer_destroy(void *table) { free(table); }
        uint64_t icefield_peer_insert(void *table, const uint64_t *keys, const uint64_t *values, uint64_t n) {
            uint64_t *array = table, done = 0;
            for (uint64_t at = 0; at < n; at++)
                if (array[keys[at]] == 0) { array[keys[at]] = values[at]; done++; }
            return done;
        }
        uint64_t icefield_peer_get(void *table, const uint64_t *keys, uint64_t n, uint64_t *sum) {
            uint64_t *array = table, found = 0;
            for (uint64_t at = 0; at < n; at++)
                if (array[keys[at]] != 0) { found++; *sum += array[keys[at]]; }
            return found;
        }"#;
    std::fs::write(&source, text).unwrap();
    let Some(library) = compiled(&source, dir.path()) else { return };
    let kind = load(&library).unwrap();
    assert_eq!((kind.name(), kind.offers(Operation::Remove)), ("array", false));
    let table = kind.create(64, None).unwrap();
    assert_eq!(table.insert(&[1, 2, 1], &[10, 20, 30]), 2);
    assert_eq!(table.get(&[1, 2, 3]), Found { hits: 2, sum: 30 });
}

#[test]
fn what_is_no_peer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(load(&dir.path().join("none.so")), Err(Error::NotLoaded { .. })));
    let text = dir.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    assert!(matches!(load(&text), Err(Error::NotLoaded { .. })));
    let source = dir.path().join("empty.cpp");
    std::fs::write(&source, "int nothing;").unwrap();
    if let Some(library) = compiled(&source, dir.path()) {
        assert!(
            matches!(load(&library), Err(Error::NoSymbol { symbol, .. }) if symbol == "icefield_peer_create")
        );
    }
}
