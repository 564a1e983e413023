//! Hash joins that an aggregation needs: it groups by the key of the join, so the join has already distributed the
//! rows.
//!
//! A join with an index distributes no rows. If it returns all rows of the index, and an aggregation groups them by the
//! key, each thread has a part of nearly every group: the aggregation then merges the groups of all threads, which
//! costs more than the hash table of the index's side.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::JoinSide;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

/// The hash joins below aggregations that group by the key of one side.
#[derive(Default)]
pub struct Grouped {
    /// The places of the joins, and whether it is the left side.
    joins: HashSet<(usize, bool)>,
}

impl Grouped {
    /// Returns those of a plan.
    ///
    /// # Errors
    /// As [`TreeNode::apply`].
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        let mut grouped = Self::default();
        plan.apply(|plan| {
            if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
                let group = aggregate.group_expr().expr().iter();
                grouped.add(aggregate.input(), &columns_of(group.map(|(expr, _)| expr)));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(grouped)
    }

    /// Adds the join whose rows a plan returns, if its rows are grouped by these columns.
    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>, group: &[Option<usize>]) {
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let exprs = columns_of(projection.expr().iter().map(|one| &one.expr));
            let group: Vec<_> = group.iter().map(|&at| exprs[at?]).collect();
            return self.add(projection.input(), &group);
        }
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return };
        let of_join = |at: usize| match &join.projection {
            Some(projection) => projection[at],
            None => at,
        };
        let group = group.iter().flatten().map(|&at| of_join(at)).collect();
        for side in [JoinSide::Left, JoinSide::Right] {
            if has_key(&group, join, side) {
                self.joins.insert((address(plan), side == JoinSide::Left));
            }
        }
    }

    /// Returns whether an aggregation groups the rows of a join by the key of a side.
    pub fn has(&self, join: &Arc<dyn ExecutionPlan>, side: JoinSide) -> bool {
        self.joins.contains(&(address(join), side == JoinSide::Left))
    }
}

/// Plans are the same if they are in the same place; the plan that was searched is not yet freed.
fn address(plan: &Arc<dyn ExecutionPlan>) -> usize {
    Arc::as_ptr(plan).cast::<()>().addr()
}

/// Returns the columns that expressions are, `None` for other expressions.
fn columns_of<'a>(exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Vec<Option<usize>> {
    exprs.map(|expr| Some(expr.downcast_ref::<Column>()?.index())).collect()
}

/// Returns whether columns of a join have all columns of the key of a side.
fn has_key(columns: &HashSet<usize>, join: &HashJoinExec, side: JoinSide) -> bool {
    let of_left = join.left.schema().fields().len();
    join.on.iter().all(|(left, right)| {
        let (key, first) = if side == JoinSide::Left { (left, 0) } else { (right, of_left) };
        collect_columns(key).iter().all(|column| columns.contains(&(first + column.index())))
    })
}
