//! The rule that replaces joins by [`IndexJoinExec`].

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{JoinFilter, JoinOn};
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};

use super::exec::IndexJoinExec;
use super::kind::{Join, Rows};
use super::parts::{PartExec, Spread};
use super::side::{IndexSide, KeyPlan};
use crate::registry::IndexRegistry;

/// Maximum number of parts of an index.
pub const MOST_PARTS: u32 = 1 << 16;

/// Replaces hash joins and sort-merge joins of which an index of the registry answers one side.
///
/// It runs after DataFusion has chosen the order of joins, and before it distributes rows among threads, because an
/// index join needs no distribution.
#[derive(Debug)]
pub struct IndexJoinRule {
    registry: IndexRegistry,
    /// True if the partitions of a plan may run in different processes.
    for_cluster: bool,
}

impl IndexJoinRule {
    /// Returns the rule for the indexes of a registry.
    pub fn new(registry: IndexRegistry) -> Self {
        Self { registry, for_cluster: false }
    }

    /// Returns the rule for plans whose partitions may run in different processes. Joins that emit rows of the index
    /// with or without a match then distribute the rows of their probe side.
    pub fn for_cluster(registry: IndexRegistry) -> Self {
        Self { registry, for_cluster: true }
    }
}

impl PhysicalOptimizerRule for IndexJoinRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.registry.refresh();
        let partitions = config.execution.target_partitions.clamp(1, MOST_PARTS as usize) as u32;
        let spread_to = self.for_cluster.then_some(partitions);
        plan.transform_up(|plan| {
            let Some(join) = Candidate::of(&plan) else { return Ok(Transformed::no(plan)) };
            match join.through_index(&self.registry, spread_to)? {
                Ok(exec) => {
                    let side = exec.join().index_side;
                    self.registry.decided(format!(
                        "{}: {side} side: index {}",
                        join.title(),
                        exec.join().side.index.name()
                    ));
                    Ok(Transformed::yes(Arc::new(exec)))
                }
                Err(reason) => {
                    self.registry.decided(format!("{}: no index: {reason}", join.title()));
                    Ok(Transformed::no(plan))
                }
            }
        })
        .data()
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
        })
    }

    fn title(&self) -> String {
        let on: Vec<_> = self.on.iter().map(|(left, right)| format!("{left} = {right}")).collect();
        format!("{:?} join on {}", self.join_type, on.join(", "))
    }

    /// Returns the join through an index, or the reason why no index answers it.
    fn through_index(
        &self,
        registry: &IndexRegistry,
        spread_to: Option<u32>,
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
            (Err(left), Err(right)) => return Ok(Err(format!("left: {left}; right: {right}"))),
        };
        let probe = if join.index_side == JoinSide::Left { self.right } else { self.left };
        let mut probe = Arc::clone(probe);
        if let Some(partitions) = spread_to
            && join.index_rows() != Rows::None
        {
            join.spread = Some(Spread { parts: partitions, probe: probe.schema() });
            let index = &join.side.index;
            let types = index.key_types().into_iter().cloned().collect();
            let (keys, form) = (join.keys.probe.clone(), index.stamp().form);
            probe = Arc::new(PartExec::new(probe, keys, form, types, partitions, partitions));
        }
        IndexJoinExec::new(probe, Arc::new(join), self.projection.clone()).map(Ok)
    }

    /// Returns the join with an index for one side, or the reason why there is none.
    fn through(
        &self,
        index_side: JoinSide,
        registry: &IndexRegistry,
    ) -> std::result::Result<Join, String> {
        let is_left = index_side == JoinSide::Left;
        let sides = IndexSide::of(if is_left { self.left } else { self.right }, registry)?;
        let on: Vec<_> = self
            .on
            .iter()
            .map(|(left, right)| {
                if is_left { (right.clone(), left.clone()) } else { (left.clone(), right.clone()) }
            })
            .collect();
        let mut reason = String::new();
        for side in sides {
            let stamp = side.index.stamp();
            if self.null_equality == NullEquality::NullEqualsNull {
                let name = side.index.name();
                if stamp.keyed_rows != stamp.rows {
                    reason = format!("{name}: nulls are compared, and the index has no null keys");
                    continue;
                }
                // The index has no nulls in its keys; other columns may have.
                if on.len() != stamp.keys.len() {
                    reason = format!("{name}: nulls of columns that are not keys are compared");
                    continue;
                }
            }
            match KeyPlan::of(&side, &on) {
                Ok(keys) => {
                    let (join_type, filter) = (self.join_type, self.filter.cloned());
                    return Ok(Join { join_type, index_side, side, keys, filter, spread: None });
                }
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }
}
