//! An index join whose index is not where the plan is executed.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};

/// An index join that fails when it is executed.
#[derive(Debug)]
pub struct MissingExec {
    input: Arc<dyn ExecutionPlan>,
    error: Arc<DataFusionError>,
    properties: Arc<PlanProperties>,
}

impl MissingExec {
    /// Returns the operator in the place of a join with these columns.
    pub fn new(input: Arc<dyn ExecutionPlan>, schema: SchemaRef, error: DataFusionError) -> Self {
        Self::with_error(input, schema, Arc::new(error))
    }

    fn with_error(
        input: Arc<dyn ExecutionPlan>,
        schema: SchemaRef,
        error: Arc<DataFusionError>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        ));
        Self { input, error, properties }
    }
}

impl DisplayAs for MissingExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MissingExec: {}", self.error)
    }
}

impl ExecutionPlan for MissingExec {
    fn name(&self) -> &'static str {
        "MissingExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("a MissingExec has one input");
        };
        Ok(Arc::new(Self::with_error(input, self.schema(), Arc::clone(&self.error))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Shared(Arc::clone(&self.error)))
    }
}
