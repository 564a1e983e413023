//! The rule that replaces joins by [`IndexJoinExec`].

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_plan::joins::utils::{JoinFilter, JoinOn};
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::exec::IndexJoinExec;
use super::grouped::Grouped;
use super::kind::{Join, Rows};
use super::order::InnerJoin;
use super::parts::{PartExec, Spread};
use super::scan;
use super::side::{IndexSide, KeyPlan};
use crate::index::Index;
use crate::registry::IndexRegistry;

type Expr = Arc<dyn PhysicalExpr>;

/// Replaces hash joins and sort-merge joins of which an index of the registry answers one side.
///
/// It runs after DataFusion has chosen the order of joins, and before it distributes rows among threads, because an
/// index join needs no distribution.
#[derive(Debug)]
pub struct IndexJoinRule {
    registry: IndexRegistry,
    /// For plans whose partitions may run in different processes: the size in bytes of the largest index that each of
    /// them can have in memory.
    most_bytes: Option<u64>,
}

impl IndexJoinRule {
    /// Returns the rule for the indexes of a registry.
    pub fn new(registry: IndexRegistry) -> Self {
        Self { registry, most_bytes: None }
    }

    /// Returns the rule for plans whose partitions may run in different processes. The rows of the probe side are
    /// distributed among them by key if the join emits rows of the index with or without a match, and if the index is
    /// divided into parts and has more than `most_bytes` bytes, so that each process needs some parts of it.
    pub fn for_cluster(registry: IndexRegistry, most_bytes: u64) -> Self {
        Self { registry, most_bytes: Some(most_bytes) }
    }
}

impl PhysicalOptimizerRule for IndexJoinRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.registry.refresh();
        /// With more there would be more parts of keys than are allowed.
        const MOST_PARTITIONS: usize = 1 << 13;
        let partitions = config.execution.target_partitions.clamp(1, MOST_PARTITIONS) as u32;
        // The plan that was searched must not be freed, so that no other plan takes the place of one of its joins.
        let (searched, grouped) = (Arc::clone(&plan), Grouped::of(&plan)?);
        let plan = plan.transform_up(|plan| {
            let Some(join) = Candidate::of(&plan) else { return Ok(Transformed::no(plan)) };
            let join = Candidate { most_bytes: self.most_bytes, ..join };
            let through = match join.through_index(&self.registry, partitions)? {
                Ok(exec)
                    if exec.join().index_rows() != Rows::None
                        && grouped.has(&plan, exec.join().index_side) =>
                {
                    Err("its rows are grouped by the key, by which a hash join distributes them"
                        .to_owned())
                }
                through => through,
            };
            match through {
                Ok(exec) => {
                    self.registry.decided(format!("{}: {}", join.title(), join.described(&exec)));
                    Ok(Transformed::yes(Arc::new(exec)))
                }
                Err(reason) => {
                    self.registry.decided(format!("{}: no index: {reason}", join.title()));
                    Ok(Transformed::no(plan))
                }
            }
        })?;
        drop(searched);
        // A cluster's engine chooses its joins itself, and its scans have no filters of joins.
        if !plan.transformed || self.most_bytes.is_some() {
            return Ok(plan.data);
        }
        // The joins with indexes know how many rows they return.
        let plan = JoinSelection::new().optimize(plan.data, config)?;
        scan::with_small_filtered(plan)
    }

    fn name(&self) -> &'static str {
        "icefield_index_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A join that an index may answer.
struct Candidate<'a> {
    left: &'a Arc<dyn ExecutionPlan>,
    right: &'a Arc<dyn ExecutionPlan>,
    on: &'a JoinOn,
    filter: Option<&'a JoinFilter>,
    join_type: JoinType,
    null_equality: NullEquality,
    null_aware: bool,
    projection: Option<Vec<usize>>,
    fetch: Option<usize>,
    most_bytes: Option<u64>,
}

impl<'a> Candidate<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return Some(Self {
                left: &join.left,
                right: &join.right,
                on: &join.on,
                filter: join.filter.as_ref(),
                join_type: join.join_type,
                null_equality: join.null_equality,
                null_aware: join.null_aware,
                projection: join.projection.as_ref().map(|projection| projection.to_vec()),
                fetch: join.fetch(),
                most_bytes: None,
            });
        }
        let join = plan.downcast_ref::<SortMergeJoinExec>()?;
        Some(Self {
            left: &join.left,
            right: &join.right,
            on: &join.on,
            filter: join.filter.as_ref(),
            join_type: join.join_type,
            null_equality: join.null_equality,
            null_aware: false,
            projection: None,
            fetch: None,
            most_bytes: None,
        })
    }

    fn title(&self) -> String {
        let on: Vec<_> = self.on.iter().map(|(left, right)| format!("{left} = {right}")).collect();
        format!("{:?} join on {}", self.join_type, on.join(", "))
    }

    /// Returns which index answers the join, and which side of it.
    fn described(&self, exec: &IndexJoinExec) -> String {
        let mut lowest = exec;
        // Joins with other indexes may have moved above.
        while ![self.left, self.right].into_iter().any(|side| Arc::ptr_eq(side, lowest.probe())) {
            let Some(below) = lowest.probe().downcast_ref() else { break };
            lowest = below;
        }
        let is_left = Arc::ptr_eq(lowest.probe(), self.right);
        let side = if is_left { JoinSide::Left } else { JoinSide::Right };
        let name = lowest.join().side.index.name();
        let moved = if std::ptr::eq(lowest, exec) { "" } else { ", before the joins of that side" };
        format!("{side} side: index {name}{moved}")
    }

    /// Returns the join through an index, or the reason why no index answers it.
    fn through_index(
        &self,
        registry: &IndexRegistry,
        partitions: u32,
    ) -> Result<std::result::Result<IndexJoinExec, String>> {
        if self.null_aware {
            return Ok(Err("NOT IN with nulls needs all keys of the other side".to_owned()));
        }
        if self.fetch.is_some() {
            return Ok(Err("the join returns a limited number of rows".to_owned()));
        }
        let left = self.through(JoinSide::Left, registry);
        let right = self.through(JoinSide::Right, registry);
        let mut join = match (left, right) {
            // The larger side is the one that a hash join would have to read, or to probe with.
            (Ok(left), Ok(right)) => {
                if left.side.index.columns().rows() >= right.side.index.columns().rows() {
                    left
                } else {
                    right
                }
            }
            (Ok(join), Err(_)) | (Err(_), Ok(join)) => join,
            (Err(left), Err(right)) => {
                let ordered = self.ordered(registry)?;
                return Ok(ordered.ok_or_else(|| format!("left: {left}; right: {right}")));
            }
        };
        let probe = if join.index_side == JoinSide::Left { self.right } else { self.left };
        let mut probe = Arc::clone(probe);
        if self.must_spread(&join)? {
            let index = &join.side.index;
            let parts = Spread::parts(index.parts().len() as u32, partitions);
            let types = index.key_types().into_iter().cloned().collect();
            let (keys, form) = (join.keys.probe.clone(), index.stamp().form);
            join.spread = Some(Spread { parts, probe: probe.schema() });
            probe = Arc::new(PartExec::new(probe, keys, form, types, parts, partitions));
        }
        IndexJoinExec::new(probe, Arc::new(join), self.projection.clone()).map(Ok)
    }

    /// Returns whether the rows of the probe side must be distributed by their keys.
    fn must_spread(&self, join: &Join) -> Result<bool> {
        let Some(most_bytes) = self.most_bytes else { return Ok(false) };
        if join.index_rows() != Rows::None {
            return Ok(true);
        }
        let index = &join.side.index;
        if index.parts().len() == 1 {
            return Ok(false);
        }
        let (of_join, of_columns) = index.bytes()?;
        Ok(of_join + of_columns > most_bytes)
    }

    /// Returns the join below joins with other indexes of one of its sides, if an index answers it there.
    fn ordered(&self, registry: &IndexRegistry) -> Result<Option<IndexJoinExec>> {
        if self.join_type != JoinType::Inner || self.filter.is_some() {
            return Ok(None);
        }
        let (of_left, of_right) =
            (self.left.schema().fields().len(), self.right.schema().fields().len());
        let whole = (0..of_left + of_right).collect();
        let projection = self.projection.as_ref().unwrap_or(&whole);
        for plan_side in [JoinSide::Left, JoinSide::Right] {
            let is_left = plan_side == JoinSide::Left;
            let (plan, other) =
                if is_left { (self.left, self.right) } else { (self.right, self.left) };
            let column = |&at: &usize| match at.checked_sub(of_left) {
                None => (plan_side, at),
                Some(at) => (plan_side.negate(), at),
            };
            let columns: Vec<_> = projection.iter().map(column).collect();
            let through = |plan: &Arc<dyn ExecutionPlan>, on: &[_]| {
                let join = self.through_plan(JoinSide::Left, plan, on, registry).ok()?;
                (!self.must_spread(&join).ok()?).then_some(join)
            };
            let on = self.on_of(plan_side);
            let join = InnerJoin { plan, other, on: &on, through: &through };
            if let Some(exec) = join.ordered(&columns)? {
                return Ok(Some(exec));
            }
        }
        Ok(None)
    }

    /// Returns what the join compares: an expression of the other side, and one of this side.
    fn on_of(&self, side: JoinSide) -> Vec<(Expr, Expr)> {
        let pair = |(left, right): &(Expr, Expr)| {
            let (left, right) = (Arc::clone(left), Arc::clone(right));
            if side == JoinSide::Left { (right, left) } else { (left, right) }
        };
        self.on.iter().map(pair).collect()
    }

    /// Returns the join with an index for one side, or the reason why there is none.
    fn through(
        &self,
        index_side: JoinSide,
        registry: &IndexRegistry,
    ) -> std::result::Result<Join, String> {
        let plan = if index_side == JoinSide::Left { self.left } else { self.right };
        self.through_plan(index_side, plan, &self.on_of(index_side), registry)
    }

    /// Returns the join with an index for `plan`, or the reason why there is none.
    fn through_plan(
        &self,
        index_side: JoinSide,
        plan: &Arc<dyn ExecutionPlan>,
        on: &[(Expr, Expr)],
        registry: &IndexRegistry,
    ) -> std::result::Result<Join, String> {
        let sides = IndexSide::of(plan, registry)?;
        let mut reason = String::new();
        for side in sides {
            match KeyPlan::of(&side, on) {
                Ok(keys) if keys.has_others(&side) && repeats(&side.index, self.null_equality) => {
                    let name = side.index.name();
                    reason = format!(
                        "{name}: many of its rows have the same key, and the join compares more than the key"
                    );
                }
                Ok(keys) => {
                    let (join_type, filter) = (self.join_type, self.filter.cloned());
                    let in_cluster = self.most_bytes.is_some();
                    let (nulls, spread) = (self.null_equality, None);
                    let join = Join {
                        join_type,
                        index_side,
                        side,
                        keys,
                        nulls,
                        filter,
                        in_cluster,
                        spread,
                    };
                    if !in_cluster || !join.exprs().any(has_subquery) {
                        return Ok(join);
                    }
                    let name = join.side.index.name();
                    reason = format!("{name}: values of subqueries do not reach other processes");
                }
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }
}

/// Returns whether many rows of an index have the same key, estimated from a few rows. A join that compares other columns,
/// too, would look at all of them for each row of the other side.
fn repeats(index: &Index, nulls: NullEquality) -> bool {
    /// Not measured: far from the 80,000 rows with which a query took 39 s, and from the 1 of a primary key.
    const MOST_PER_KEY: f64 = 64.0;
    // An error is that of the join, if it reads these rows.
    index.rows_per_key(nulls).is_ok_and(|rows| rows > MOST_PER_KEY)
}

/// Returns whether an expression uses the value of a subquery.
fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(expr.is::<ScalarSubqueryExpr>())).unwrap_or(true)
}
