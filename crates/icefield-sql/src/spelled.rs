//! CSV files with texts that are read as null.
//!
//! DataFusion ignores such texts when it infers types, but cannot read them as nulls. So it reads texts, which become
//! values here.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::project_schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

use crate::batch::batch_of;
use crate::index::keys::cast;
use crate::unary;

/// A table of CSV files with texts that are read as null.
#[derive(Debug)]
pub struct SpelledTable {
    texts: ListingTable,
    nulls: Arc<[String]>,
    place: String,
    schema: SchemaRef,
}

impl SpelledTable {
    /// Returns the table of these files, in which the texts `nulls` are nulls. Errors begin with `place`.
    ///
    /// # Errors
    /// If DataFusion cannot make a table of the files.
    pub fn new(files: ListingTableConfig, nulls: &[String], place: String) -> Result<Self> {
        let schema = files.file_schema.clone().unwrap_or_else(|| Arc::new(Schema::empty()));
        let text = |field: &Arc<Field>| Field::new(field.name(), DataType::Utf8, true);
        let texts = Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>());
        let texts = ListingTable::try_new(files.with_schema(Arc::new(texts)))?;
        Ok(Self { texts, nulls: nulls.into(), place, schema })
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
        Ok(Arc::new(SpelledExec::new(texts, Arc::clone(&self.nulls), self.place.clone(), schema)))
    }
}

/// Converts the texts of its input to values, and some of them to nulls.
#[derive(Debug)]
pub struct SpelledExec {
    input: Arc<dyn ExecutionPlan>,
    nulls: Arc<[String]>,
    place: String,
    properties: Arc<PlanProperties>,
}

impl SpelledExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        nulls: Arc<[String]>,
        place: String,
        schema: SchemaRef,
    ) -> Self {
        let properties = unary::properties(&input, schema, input.pipeline_behavior());
        Self { input, nulls, place, properties }
    }

    /// Returns the texts that become nulls.
    pub fn nulls(&self) -> &[String] {
        &self.nulls
    }
}

/// Returns whether a plan reads one file, by one thread.
fn has_one_file(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let scan = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
    let scan = scan.and_then(|scan| scan.downcast_ref::<FileScanConfig>());
    scan.is_some_and(|scan| matches!(&scan.file_groups[..], [one] if one.len() == 1))
}

/// Returns texts as values of the type of a field. `first` is the number of rows before them, if that is known.
fn values(
    texts: &StringArray,
    field: &Field,
    nulls: &[String],
    place: &str,
    first: Option<usize>,
) -> Result<ArrayRef> {
    let is_null = |text: Option<&str>| text.map(|text| nulls.iter().any(|one| one == text));
    let are_null: BooleanArray = texts.iter().map(is_null).collect();
    let texts = nullif(texts, &are_null)?;
    let values = match field.data_type() {
        DataType::Null => new_null_array(&DataType::Null, texts.len()),
        other => cast(&texts, other)?,
    };
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
        "{place}{row}column `{name}`: `{text}` is not of the type of the column, {}; if it means null, add --null",
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
        let (nulls, place) = (Arc::clone(&self.nulls), self.place.clone());
        Ok(Arc::new(Self::new(unary::only(children)?, nulls, place, self.schema())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        unary::with_inputs(self, children)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let texts = self.input.execute(partition, context)?;
        let (schema, nulls) = (self.schema(), Arc::clone(&self.nulls));
        let place = self.place.clone();
        let of_rows = Arc::clone(&schema);
        // The rows of several files, or of several threads, are not counted.
        let mut first = has_one_file(&self.input).then_some(0);
        let rows = texts.map(move |texts| -> Result<RecordBatch> {
            let texts = texts?;
            let fields = std::iter::zip(texts.columns(), of_rows.fields());
            let column = |(texts, field): (&ArrayRef, &Arc<Field>)| {
                values(texts.as_string(), field, &nulls, &place, first)
            };
            let columns = fields.map(column).collect::<Result<_>>()?;
            first = first.map(|first| first + texts.num_rows());
            Ok(batch_of(&of_rows, columns, texts.num_rows())?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
