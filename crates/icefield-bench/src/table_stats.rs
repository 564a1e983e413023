//! The figures of a result that come from the table's own statistics.

use icefield::Stats;

use crate::row::{Row, rounded};
use crate::table::{BenchTable, detail};

/// Returns whether the table is moving records because it is growing; `None` if its statistics do not include this.
pub(crate) fn is_moving(table: &dyn BenchTable) -> Option<bool> {
    let stats = table.stats();
    detail(&stats, "transferring").or(detail(&stats, "is_doubling")).map(|moving| moving == 1)
}

/// Returns the share of slots that hold a record; `None` where the design reports no slots.
pub(crate) fn load_factor_of(stats: &Stats) -> Option<f64> {
    let slots = detail(stats, "slots").filter(|slots| *slots > 0)?;
    Some(stats.len_estimate as f64 / slots as f64)
}

/// Reports bytes per record and the load factor, from the table's own statistics.
pub(crate) fn describe_space(row: &mut Row, table: &dyn BenchTable) {
    let stats = table.stats();
    if stats.len_estimate == 0 {
        return;
    }
    let bytes = stats.storage_bytes + stats.dram_bytes;
    row.bytes_per_key = Some(rounded(bytes as f64 / stats.len_estimate as f64));
    row.load_factor = load_factor_of(&stats).map(rounded);
}
