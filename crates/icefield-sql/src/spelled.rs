//! CSV files with texts that are read as null.
//!
//! DataFusion leaves such texts out when it infers types, but cannot read them as nulls. So it reads texts, which become
//! values here.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::project_schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

use crate::batch::batch_of;
use crate::unary;

/// A table of CSV files with texts that are read as null.
#[derive(Debug)]
pub struct SpelledTable {
    texts: ListingTable,
    nulls: Arc<[String]>,
    schema: SchemaRef,
}

impl SpelledTable {
    /// Returns the table of these files, in which the texts `nulls` are nulls.
    ///
    /// # Errors
    /// If DataFusion cannot make a table of the files.
    pub fn new(files: ListingTableConfig, nulls: &[String]) -> Result<Self> {
        let schema = files.file_schema.clone().unwrap_or_else(|| Arc::new(Schema::empty()));
        let text = |field: &Arc<Field>| Field::new(field.name(), DataType::Utf8, true);
        let texts = Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>());
        let texts = ListingTable::try_new(files.with_schema(Arc::new(texts)))?;
        Ok(Self { texts, nulls: nulls.into(), schema })
    }
}

#[async_trait]
impl TableProvider for SpelledTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let texts = self.texts.scan(state, projection, &[], limit).await?;
        let schema = project_schema(&self.schema, projection)?;
        Ok(Arc::new(SpelledExec::new(texts, Arc::clone(&self.nulls), schema)))
    }
}

/// Converts the texts of its input to values, and some of them to nulls.
#[derive(Debug)]
pub struct SpelledExec {
    input: Arc<dyn ExecutionPlan>,
    nulls: Arc<[String]>,
    properties: Arc<PlanProperties>,
}

impl SpelledExec {
    fn new(input: Arc<dyn ExecutionPlan>, nulls: Arc<[String]>, schema: SchemaRef) -> Self {
        let properties = unary::properties(&input, schema, input.pipeline_behavior());
        Self { input, nulls, properties }
    }

    /// Returns the texts that become nulls.
    pub fn nulls(&self) -> &[String] {
        &self.nulls
    }
}

/// Returns texts as values of the type of a field. `first` is the number of rows before them, if that is known.
fn values(
    texts: &StringArray,
    field: &Field,
    nulls: &[String],
    first: Option<usize>,
) -> Result<ArrayRef> {
    let is_null = |text: Option<&str>| text.map(|text| nulls.iter().any(|one| one == text));
    let are_null: BooleanArray = texts.iter().map(is_null).collect();
    let texts = nullif(texts, &are_null)?;
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let values = cast_with_options(&texts, field.data_type(), &options)?;
    if values.logical_null_count() == texts.null_count() {
        return Ok(values);
    }
    let of_values = values.logical_nulls();
    let is_lost =
        |at: &usize| texts.is_valid(*at) && of_values.as_ref().is_some_and(|one| one.is_null(*at));
    let at = (0..texts.len()).find(is_lost).unwrap_or(0);
    let (name, text) = (field.name(), texts.as_string::<i32>().value(at));
    let row = first.map_or_else(String::new, |first| format!("row {}, ", first + at + 1));
    Err(DataFusionError::Execution(format!(
        "{row}column `{name}`: `{text}` is not of type {}, which the rows before have",
        field.data_type()
    )))
}

impl DisplayAs for SpelledExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpelledExec: nulls={:?}", self.nulls)
    }
}

impl ExecutionPlan for SpelledExec {
    fn name(&self) -> &'static str {
        "SpelledExec"
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
        Ok(Arc::new(Self::new(unary::only(children)?, Arc::clone(&self.nulls), self.schema())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let texts = self.input.execute(partition, context)?;
        let (schema, nulls) = (self.schema(), Arc::clone(&self.nulls));
        let of_rows = Arc::clone(&schema);
        // Several partitions have the rows in no order.
        let mut first = (self.input.output_partitioning().partition_count() == 1).then_some(0);
        let rows = texts.map(move |texts| -> Result<RecordBatch> {
            let texts = texts?;
            let fields = std::iter::zip(texts.columns(), of_rows.fields());
            let column = |(texts, field): (&ArrayRef, &Arc<Field>)| {
                values(texts.as_string(), field, &nulls, first)
            };
            let columns = fields.map(column).collect::<Result<_>>()?;
            first = first.map(|first| first + texts.num_rows());
            Ok(batch_of(&of_rows, columns, texts.num_rows())?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
