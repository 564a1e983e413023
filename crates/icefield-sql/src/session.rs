//! Sessions of DataFusion whose joins use indexes.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;

use crate::join::rule::IndexJoinRule;
use crate::registry::IndexRegistry;

/// The rule that chooses the order of joins.
const JOIN_SELECTION: &str = "join_selection";

/// Returns the state of a session whose joins use the indexes of a registry, with DataFusion's defaults otherwise.
pub fn session_state(registry: &IndexRegistry) -> SessionState {
    session_state_with(registry, SessionConfig::new())
}

/// Returns the state of a session with this configuration, whose joins use the indexes of a registry.
pub fn session_state_with(registry: &IndexRegistry, config: SessionConfig) -> SessionState {
    session_state_in(registry, config, Arc::new(RuntimeEnv::default()))
}

/// Returns the state of a session in this environment, which limits its memory and its temporary files.
pub fn session_state_in(
    registry: &IndexRegistry,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
) -> SessionState {
    SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(rules(registry))
        .build()
}

/// Returns DataFusion's rules for physical plans and the one for index joins, in the order in which they work.
pub fn rules(registry: &IndexRegistry) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let after = rules.iter().position(|rule| rule.name() == JOIN_SELECTION);
    rules.insert(after.map_or(0, |at| at + 1), Arc::new(IndexJoinRule::new(registry.clone())));
    rules
}

/// Returns the state of a session whose plans run in several processes, with index joins beside what it has already.
///
/// The rule for index joins works before all others, whichever they are: an engine may use its own rules at several
/// times during one query. The reasons for using an index or none are logged. `most_bytes` is that of
/// [`IndexJoinRule::for_cluster`].
pub fn cluster_session_state(
    registry: &IndexRegistry,
    most_bytes: u64,
    state: SessionState,
) -> SessionState {
    let planner = Arc::new(ClusterPlanner { registry: registry.clone(), most_bytes });
    SessionStateBuilder::new_from_existing(state).with_query_planner(planner).build()
}

#[derive(Debug)]
struct ClusterPlanner {
    registry: IndexRegistry,
    most_bytes: u64,
}

#[async_trait]
impl QueryPlanner for ClusterPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Only this kind of session has rules for plans.
        let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
            return DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await;
        };
        let rule: Arc<dyn PhysicalOptimizerRule + Send + Sync> =
            Arc::new(IndexJoinRule::for_cluster(self.registry.clone(), self.most_bytes));
        let rules = std::iter::once(rule).chain(state.physical_optimizers().iter().cloned());
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_physical_optimizer_rules(rules.collect())
            .build();
        let plan = DefaultPhysicalPlanner::default().create_physical_plan(plan, &state).await;
        self.registry.take_decisions().iter().for_each(|decision| log::info!("{decision}"));
        plan
    }
}
