//! The planner that uses join indexes.
//!
//! It receives a logical plan from DataFusion's package, plans it here, and returns the physical plan as bytes, because
//! the plans of two libraries are opaque to each other. The operators of joins with indexes stay in this library; all
//! others are made from the bytes by the package.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_ffi::execution_plan::ForeignExecutionPlan;
use icefield_sql::{IndexJoinExec, IndexJoinRule, IndexRegistry};
use tokio::runtime::Handle;

/// Plans queries whose joins can use an index, and leaves the others to another planner.
#[derive(Debug)]
pub struct Planner {
    registry: IndexRegistry,
    fallback: Arc<dyn QueryPlanner + Send + Sync>,
    runtime: Handle,
}

impl Planner {
    /// Returns the planner with the indexes of a registry.
    pub fn new(
        registry: IndexRegistry,
        fallback: Arc<dyn QueryPlanner + Send + Sync>,
        runtime: Handle,
    ) -> Self {
        Self { registry, fallback, runtime }
    }

    /// Returns the plan that DataFusion makes with the rule for indexes.
    async fn with_indexes(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Operators are sent as bytes, as to the processes of a cluster. But all of them have the memory of one.
        let rule: Arc<dyn PhysicalOptimizerRule + Send + Sync> =
            Arc::new(IndexJoinRule::for_cluster(self.registry.clone(), u64::MAX));
        let rules = std::iter::once(rule).chain(PhysicalOptimizer::new().rules);
        let state = SessionStateBuilder::new()
            .with_config(session.config().clone())
            .with_default_features()
            .with_physical_optimizer_rules(rules.collect())
            .build();
        let planner = DefaultPhysicalPlanner::default();
        let LogicalPlan::Explain(explain) = plan else {
            return planner.create_physical_plan(plan, &state).await;
        };
        // The bytes of a plan do not say that it has been optimized, which it always has been here.
        let explain = Explain { logical_optimization_succeeded: true, ..explain.clone() };
        planner.create_physical_plan(&LogicalPlan::Explain(explain), &state).await
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if writes(plan) {
            return self.fallback.create_physical_plan(plan, session).await;
        }
        let mut planning = pin!(self.with_indexes(plan, session));
        // The caller's threads belong to another copy of Tokio.
        let planned = poll_fn(|context| {
            let _entered = self.runtime.enter();
            planning.as_mut().poll(context)
        });
        match planned.await {
            Ok(plan) if plan.is::<ExplainExec>() || uses_index(&plan)? => Ok(plan),
            // The other planner also reports why a query cannot be planned.
            _ => self.fallback.create_physical_plan(plan, session).await,
        }
    }
}

/// Returns whether a plan, or the one that it explains, writes to a table. Only the library that has the table knows what
/// it needs of its rows.
fn writes(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Explain(explain) => writes(&explain.plan),
        LogicalPlan::Analyze(analyze) => writes(&analyze.input),
        plan => matches!(plan, LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Ddl(_)),
    }
}

/// Returns whether a plan joins with an index, and this library knows what all of its operators need of their inputs.
fn uses_index(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    let mut is_known = true;
    plan.apply(|plan| {
        found |= plan.is::<IndexJoinExec>();
        is_known &= !plan.is::<ForeignExecutionPlan>() || plan.children().is_empty();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found && is_known)
}
