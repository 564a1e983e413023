//! Tables of other projects behind one interface, so that `icefield-bench` can compare them with Icefield's.
//!
//! This is the only crate that depends on competitors. [`built_in`] returns the kinds of tables that were compiled in
//! (features `rust`, `cpp` and `kv`), and [`load`] loads any table from a shared library with the functions of
//! `icefield_peer.h`.
//!
//! Every call takes an array of keys, so dynamic dispatch costs nothing per operation.

#[cfg(feature = "cpp")]
mod cpp;
#[cfg(feature = "kv")]
mod kv;
mod library;
#[cfg(feature = "rust")]
mod maps;
#[cfg(feature = "rust")]
mod memory;
mod peer;

pub use library::load;
#[cfg(feature = "rust")]
pub use memory::HugePages;
pub use peer::{Error, Found, Kind, Operation, Peer, Writes};

/// Compiles and runs the programs of the guide for users of other maps.
#[cfg(all(doctest, feature = "rust"))]
#[doc = include_str!("../../../docs/dlht-migration.md")]
struct Migration;

/// Returns the kinds of tables that were compiled in.
///
/// ```
/// let names: Vec<_> = icefield_peers::built_in().iter().map(|kind| kind.name().to_owned()).collect();
/// assert_eq!(names.contains(&"papaya".to_owned()), cfg!(feature = "rust"));
/// ```
#[must_use]
pub fn built_in() -> Vec<Box<dyn Kind>> {
    let kinds: Vec<Box<dyn Kind>> = Vec::new();
    #[cfg(feature = "rust")]
    let kinds = kinds.into_iter().chain(maps::all()).collect::<Vec<_>>();
    #[cfg(feature = "cpp")]
    let kinds = kinds.into_iter().chain(cpp::all()).collect::<Vec<_>>();
    #[cfg(feature = "kv")]
    let kinds = kinds.into_iter().chain(kv::all()).collect::<Vec<_>>();
    kinds
}

#[cfg(test)]
mod tests {
    /// docs/dlht-migration.md has each program with dashmap, papaya and DLHT, in this order.
    #[test]
    fn no_program_of_the_migration_guide_is_longer_than_with_dashmap() {
        let guide = include_str!("../../../docs/dlht-migration.md");
        let blocks: Vec<&str> =
            guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(blocks.len(), 12, "four programs with three maps");
        for program in blocks.chunks(3) {
            let [most, _, lines] = [0, 1, 2].map(|at| program[at].lines().count());
            assert!(program[0].contains("dashmap::") && program[2].contains("icefield::"));
            assert!(lines <= most, "{lines} lines, not {most}:\n{}", program[2]);
        }
    }
}
