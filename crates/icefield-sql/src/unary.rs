//! Shared by operators with one input.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

/// Returns the properties of an operator with these columns and the partitions of its input.
pub fn properties(
    input: &Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    emission: EmissionType,
) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
        emission,
        input.boundedness(),
    ))
}

/// Returns a plan with other inputs.
///
/// # Errors
/// As [`ExecutionPlan::replace_children`].
pub fn with_inputs(
    plan: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Returns the only input.
///
/// # Errors
/// If there are none or several.
pub fn only(inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    match <[_; 1]>::try_from(inputs) {
        Ok([input]) => Ok(input),
        Err(inputs) => internal_err!("{} inputs of an operator with one", inputs.len()),
    }
}
