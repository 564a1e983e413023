//! Selects tables from the options, and the bare loop that bounds the speed of a call.

use crate::designs::DESIGNS;
use crate::limit::{Loop, Pace};
use crate::prelude::*;

/// Returns the tables that `admits` accepts.
///
/// # Errors
/// `admits` accepts none of the tables.
pub(crate) fn named(
    designs: impl IntoIterator<Item = DesignRef>,
    admits: impl Fn(DesignRef) -> bool,
) -> Outcome<Vec<DesignRef>> {
    let admitted: Vec<_> = designs.into_iter().filter(|design| admits(design)).collect();
    if admitted.is_empty() {
        return Err(Error::option(
            "tables",
            "none of these tables supports the experiment; see `icefield-bench list`",
        ));
    }
    Ok(admitted)
}

pub(crate) fn design_named(name: &str) -> Option<DesignRef> {
    DESIGNS.iter().find(|design| design.name == name).copied()
}

/// Returns whether `design` supports the medium of the options.
pub(crate) fn fits(args: &Args, design: DesignRef) -> bool {
    args.medium.is_none_or(|medium| design.lives_in(medium))
}

/// Returns the tables that `--tables` names, or all usual ones that support the medium of the options.
pub(crate) fn chosen_designs(args: &Args) -> Outcome<Vec<DesignRef>> {
    let hashes = |design: DesignRef| args.hash.is_none() || design.offers_hashes;
    if args.tables.is_empty() {
        let able = |design: DesignRef| design.is_usual && fits(args, design) && hashes(design);
        return named(DESIGNS.iter().copied(), able);
    }
    let find = |name: &String| -> Outcome<DesignRef> {
        let known = || DESIGNS.iter().map(|design| design.name).collect::<Vec<_>>().join(", ");
        let unknown = || Error::option("tables", format!("`{name}` is not one of {}", known()));
        let design = design_named(name).ok_or_else(unknown)?;
        if let Some(medium) = args.medium.filter(|_| !fits(args, design)) {
            let (asked, usual) = (medium.name(), design.usual_medium().name());
            let detail =
                format!("{name} does not support the medium {asked}; its default is {usual}");
            return Err(Error::option("medium", detail));
        }
        if !hashes(design) {
            return Err(Error::option("hash", format!("{name} has only one hash function")));
        }
        Ok(design)
    };
    args.tables.iter().map(find).collect()
}

/// Returns the pace with which a bare loop hides memory latency in the same way as a table does under `batch`.
pub(crate) fn pace(batch: Batch) -> Pace {
    match batch {
        Batch::None => Pace::Single,
        Batch::Of(size) => Pace::Batch(size),
        Batch::Stream => Pace::Ring(64),
    }
}

/// Returns the bare loop whose speed bounds that of `call` on `medium`; `None` if no loop is a meaningful bound.
pub(crate) fn ceiling(call: Call, medium: Medium, batch: Batch) -> Option<Loop> {
    match (call, medium) {
        (_, Medium::Disk | Medium::Sim) => None,
        (Call::Get | Call::GetMiss, _) => Some(Loop::Read(pace(batch))),
        (_, Medium::Memory | Medium::Process) => Some(Loop::Cas(pace(batch))),
        (_, Medium::Pmem) => Some(Loop::Persist(if batch == Batch::None { 1 } else { 32 })),
    }
}
