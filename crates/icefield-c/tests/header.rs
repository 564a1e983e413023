//! The committed header is the one that cbindgen generates from the sources.
//!
//! `ICEFIELD_UPDATE=1 cargo test -p icefield-c --test header` writes it again.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = here.join("include/icefield.h");
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_crate(here)
        .with_config(config)
        .generate()
        .expect("the sources have a header");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).expect("a header is text");
    if std::env::var_os("ICEFIELD_UPDATE").is_some() {
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the header is there");
    assert!(
        committed == generated,
        "include/icefield.h is not that of the sources; write it again with `ICEFIELD_UPDATE=1 cargo test -p \
         icefield-c --test header`"
    );
}

/// Each exported function is in the header, and nothing else is.
#[test]
fn the_header_has_the_listed_symbols() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name| std::fs::read_to_string(here.join(name)).expect("the file is there");
    let (header, listed) = (read("include/icefield.h"), read("symbols.txt"));
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.trim_start().starts_with(['*', '/']))
        .filter_map(|line| line.split_once('(').map(|(name, _)| name))
        .filter_map(|name| name.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("icefield_"))
        .collect();
    declared.sort_unstable();
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(declared, listed, "header and symbols.txt");
}
