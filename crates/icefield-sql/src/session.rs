//! Sessions of DataFusion whose joins use indexes.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
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
