//! Finds building blocks of tables that are public without a feature.

use syn::{Attribute, Item, Meta, Visibility};

use super::imports::{BASE, STORAGE};
use super::source::{Source, is_hidden, line};

/// Returns faults of the modules that are public for tests only, `base` and `storage`. Safe code could break the
/// invariants of tables through them.
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
