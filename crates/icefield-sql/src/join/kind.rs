//! The description of a join through an index: its sides, and the rows that it returns.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;

use super::filter::selectivity;
use super::parts::Spread;
use super::side::{IndexSide, KeyPlan};

/// Which rows of one side a join emits besides pairs of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// None.
    None,
    /// Those with a match.
    Matched,
    /// Those without a match.
    Unmatched,
    /// All, with a column that is true for those with a match.
    Marked,
}

/// A join of a plan with an index.
#[derive(Clone, Debug)]
pub struct Join {
    /// The type of the join.
    pub join_type: JoinType,
    /// The side that the index answers.
    pub index_side: JoinSide,
    /// The rows of that side.
    pub side: IndexSide,
    /// How keys are looked up.
    pub keys: KeyPlan,
    /// How nulls in keys are compared.
    pub nulls: NullEquality,
    /// A condition on pairs beyond the equality of keys.
    pub filter: Option<JoinFilter>,
    /// True if the partitions may run in different processes, which cannot share filters.
    pub in_cluster: bool,
    /// How the rows of the probe side are distributed; `None` if all partitions run in one process.
    pub spread: Option<Spread>,
}

impl Join {
    /// Returns all expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        let KeyPlan { probe, compared } = &self.keys;
        let compared = compared.iter().flat_map(|(of_probe, of_index)| [of_probe, of_index]);
        let filter = self.filter.iter().map(JoinFilter::expression);
        let of_side = self.side.outputs.iter().chain(&self.side.predicate);
        probe.iter().chain(compared).chain(filter).chain(of_side)
    }

    /// Returns whether the join emits pairs of rows.
    pub fn emits_pairs(&self) -> bool {
        use JoinType as T;
        matches!(self.join_type, T::Inner | T::Left | T::Right | T::Full)
    }

    /// Returns which rows of the index side are emitted besides pairs.
    pub fn index_rows(&self) -> Rows {
        rows(self.join_type, self.index_side)
    }

    /// Returns which rows of the probe side are emitted besides pairs.
    pub fn probe_rows(&self) -> Rows {
        rows(self.join_type, self.index_side.negate())
    }

    /// Returns an estimate of the number of rows that the join returns. It supposes that each row of the probe side has
    /// one row of the index, and other rows than the others have. That is right if the key is a primary one and the
    /// probe side has its rows, which is why people build an index.
    pub fn estimated_rows(&self, probe_rows: f64) -> f64 {
        let selected = selectivity(&self.side);
        let index_rows = selected * self.side.index.columns().rows() as f64;
        let pairs = selected * probe_rows;
        let of_side = |rows: Rows, all: f64| match rows {
            Rows::None => 0.0,
            Rows::Matched => pairs.min(all),
            Rows::Unmatched => all - pairs.min(all),
            Rows::Marked => all,
        };
        let of_pairs = if self.emits_pairs() { pairs } else { 0.0 };
        of_pairs + of_side(self.probe_rows(), probe_rows) + of_side(self.index_rows(), index_rows)
    }
}

fn rows(join_type: JoinType, side: JoinSide) -> Rows {
    use JoinSide::{Left, Right};
    match (join_type, side) {
        (JoinType::Left, Left) | (JoinType::Right, Right) | (JoinType::Full, _) => Rows::Unmatched,
        (JoinType::LeftSemi, Left) | (JoinType::RightSemi, Right) => Rows::Matched,
        (JoinType::LeftAnti, Left) | (JoinType::RightAnti, Right) => Rows::Unmatched,
        (JoinType::LeftMark, Left) | (JoinType::RightMark, Right) => Rows::Marked,
        _ => Rows::None,
    }
}
