//! Finds what the architecture does not allow: too many macros, user types in modules below the tables, building blocks
//! of tables that are public without a feature.

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMacro, Macro, Meta, Visibility};

use super::graph::Import;
use super::imports::{BASE, STORAGE};
use super::macros;
use super::source::{Source, is_hidden, is_under, line};

/// Maximum number of `macro_rules!` in the library. An editor does not find the definition of a method that a macro
/// composes. Lower the number when a macro is gone.
pub const MOST_MACROS: usize = 6;

/// Returns all macros of the library if there are more than `most`.
pub fn macros_beyond(sources: &[&Source], most: usize) -> Vec<String> {
    struct Macros<'a>(&'a Source, Vec<String>);
    impl<'ast> Visit<'ast> for Macros<'_> {
        fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
            if let Some(name) = &item.ident {
                self.1.push(format!("{}: `macro_rules! {name}`", self.0.at(line(name.span()))));
            }
            visit::visit_item_macro(self, item);
        }

        fn visit_macro(&mut self, called: &'ast Macro) {
            macros::visit_body(self, called);
        }
    }
    let mut found = Vec::new();
    for source in sources {
        let mut macros = Macros(source, Vec::new());
        macros.visit_file(&source.syntax);
        found.extend(macros.1);
    }
    if found.len() <= most {
        return Vec::new();
    }
    let count = found.len();
    found.push(format!("{count} macros, at most {most}: write a generic function or a trait"));
    found
}

/// The traits of types that users store, and the modules that may define them.
const USER_TYPES: [&str; 4] = ["Key", "Value", "Data", "Word"];
const OF_USERS: [&str; 1] = ["types"];

/// Directories whose files must not name user types.
pub const WITHOUT_USER_TYPES: &[&str] = &["base", "engine", "storage"];

/// Returns imports of user types in files under `folders` of the library, and user types that no file imports.
pub fn user_types(imports: &[Import], folders: &[&str]) -> Vec<String> {
    let is_user_type = |import: &&Import| {
        import.module.first().is_some_and(|module| OF_USERS.contains(&module.as_str()))
            && USER_TYPES.contains(&import.name.as_str())
    };
    let named: Vec<&Import> = imports.iter().filter(is_user_type).collect();
    let mut faults = Vec::new();
    for name in USER_TYPES {
        if named.iter().all(|import| import.name != name) {
            faults.push(format!(
                "layers/limits.rs: no file imports the trait `{name}`: correct the names of the traits and their modules"
            ));
        }
    }
    let below = named.iter().filter(|import| {
        import.from.split_once("/src/").is_some_and(|(_, path)| is_under(path, folders))
    });
    faults.extend(below.map(|Import { from, line, name, .. }| {
        format!("{from}:{line}: `{name}` is of users: take words and byte strings instead")
    }));
    faults
}

/// Returns folders in the rules that contain no file: a rule with such a folder would check nothing.
pub fn missing_folders(sources: &[&Source], folders: &[&str]) -> Vec<String> {
    let is_missing = |folder: &&&str| !sources.iter().any(|source| source.is_under(&[**folder]));
    let missing = folders.iter().filter(is_missing);
    missing
        .map(|folder| {
            format!("tests/layers: a rule names `{folder}`, which has no file: correct it")
        })
        .collect()
}

/// Returns the public modules and hidden exports that no feature guards: through these, safe code could break the
/// invariants of tables. Also reports `base` and `storage` if they are not public.
pub fn gates(lib: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let mut missing = vec![BASE, STORAGE];
    for item in &lib.syntax.items {
        let (attributes, span, features): (_, _, &[&str]) = match item {
            Item::Mod(item) if matches!(item.vis, Visibility::Public(_)) => {
                (&item.attrs, item.ident.span(), &["unstable-internals"])
            }
            Item::Use(item) if is_hidden(&item.attrs) => {
                (&item.attrs, item.use_token.span, &["unstable-internals", "sim"])
            }
            _ => continue,
        };
        if let Item::Mod(item) = item {
            missing.retain(|module| item.ident != module);
        }
        let is_gate = |attribute: &Attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => features
                .iter()
                .any(|feature| list.tokens.to_string() == format!("feature = \"{feature}\"")),
            _ => false,
        };
        if !attributes.iter().any(is_gate) {
            let at = lib.at(line(span));
            faults.push(format!("{at}: public without the feature {}", features.join(" or ")));
        }
    }
    let at = lib.at(1);
    faults.extend(missing.iter().map(|module| format!("{at}: `{module}` is not public for tests")));
    faults
}

/// Violates each rule on purpose.
mod planted {
    use super::*;

    fn source(in_crate: &str, text: &str) -> Source {
        Source::new(in_crate, in_crate, text)
    }

    #[test]
    fn macros_are_counted() {
        let text = "macro_rules! a { () => { macro_rules! b { () => {}; } }; } fn f() { a!(); }";
        let source = source("any.rs", text);
        assert_eq!(macros_beyond(&[&source], 2), [""; 0]);
        assert_eq!(macros_beyond(&[&source], 1).len(), 3);
        assert_eq!(macros_beyond(&[&source, &source], 3).len(), 5);
    }

    #[test]
    fn user_types_are_found() {
        let import = |from: &str, name: &str| Import {
            from: format!("crates/icefield/src/{from}"),
            line: 1,
            to: "crates/icefield/src/types/data.rs".to_owned(),
            module: vec!["types".to_owned()],
            name: name.to_owned(),
        };
        let mut imports: Vec<Import> =
            USER_TYPES.iter().map(|name| import("table/op.rs", name)).collect();
        assert_eq!(user_types(&imports, &["storage"]), [""; 0]);
        imports.extend([import("storage/blob/mod.rs", "Word"), import("storage/io.rs", "Form")]);
        assert_eq!(user_types(&imports, &["storage"]).len(), 1);
        assert_eq!(user_types(&imports, &["base", "dash"]), [""; 0]);
        imports.retain(|import| import.name != "Data");
        assert_eq!(user_types(&imports, &["base"]).len(), 1, "no file names `Data`");
    }

    #[test]
    fn folders_that_are_gone_are_found() {
        let source = source("storage/io/mod.rs", "");
        assert_eq!(missing_folders(&[&source], &["storage", "storage/io"]), [""; 0]);
        assert_eq!(missing_folders(&[&source], &["storage/io", "stor", "plush"]).len(), 2);
    }

    #[test]
    fn public_building_blocks_are_found() {
        let count = |text: &str| gates(&source("lib.rs", text)).len();
        let base = "#[cfg(feature = \"unstable-internals\")] pub mod base;";
        let storage = "#[cfg(feature = \"unstable-internals\")] pub mod storage;";
        let hidden = "#[cfg(feature = \"sim\")] #[doc(hidden)] pub use dash::Whole;";
        assert_eq!(count(&format!("{base}{storage}{hidden} mod dash; pub use dash::Dash;")), 0);
        assert_eq!(count(&format!("{base} pub mod storage;")), 1);
        assert_eq!(count(&format!("{base} mod storage;")), 1);
        assert_eq!(count(&format!("{base}{storage} pub mod dash;")), 1);
        assert_eq!(count(&format!("{base}{storage} #[doc(hidden)] pub use dash::Whole;")), 1);
        let other = "#[cfg(feature = \"other\")] #[doc(hidden)] pub use dash::Whole;";
        assert_eq!(count(&format!("{base}{storage}{other}")), 1);
    }
}
