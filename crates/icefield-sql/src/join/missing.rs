//! An index join whose index is not where the plan is executed.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties, ReplaceChildrenOptions,
};

use crate::unary;

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
        let properties = unary::properties(&input, schema, input.pipeline_behavior());
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
        Ok(Arc::new(Self::with_error(
            unary::only(children)?,
            self.schema(),
            Arc::clone(&self.error),
        )))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        unary::with_inputs(self, children)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Shared(Arc::clone(&self.error)))
    }
}
