//! An index as a table of its columns, in which rows can be looked up by key.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{NullEquality, ScalarValue, project_schema};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::batch::batch_of;
use crate::index::Index;
use crate::index::keys::comparable;

/// Maximum number of keys that are looked up. A filter with more is evaluated for all rows.
const MOST_KEYS: usize = 1 << 16;

/// The columns of an index as a table. A filter such as `key = 7` or `key IN (7, 8)`, for all key columns, is a lookup;
/// every other query reads all rows.
#[derive(Debug)]
pub struct IndexTable {
    index: Arc<Index>,
}

impl IndexTable {
    /// Returns the table of an index.
    pub fn new(index: Arc<Index>) -> Self {
        Self { index }
    }

    /// Returns the rows whose keys satisfy the filters, in order; `None` if the filters name no keys.
    fn looked_up(&self, filters: &[Expr]) -> Result<Option<Vec<u64>>> {
        let index = &self.index;
        let mut keys: Vec<Vec<ScalarValue>> = Vec::new();
        for &key in index.keys() {
            let field = index.schema().field(key);
            let named = filters.iter().find_map(|filter| values_of(filter, field.name()));
            let Some(values) = named else { return Ok(None) };
            if values.iter().any(|value| !comparable(field.data_type(), &value.data_type())) {
                return Ok(None);
            }
            keys.push(values);
        }
        let count = keys.iter().try_fold(1_usize, |count, values| count.checked_mul(values.len()));
        let Some(count) = count.filter(|&count| count <= MOST_KEYS) else { return Ok(None) };
        // All combinations of the columns' values.
        let mut every = 1;
        let mut columns = Vec::new();
        for values in &keys {
            let column = (0..count).map(|at| values[at / every % values.len()].clone());
            columns.push(ScalarValue::iter_to_array(column)?);
            every *= values.len();
        }
        let nulls = NullEquality::NullEqualsNothing;
        let words = index.stamp().form.words(&columns, &index.key_types(), nulls)?;
        let words: Vec<u64> = words.iter().flatten().collect();
        index.rows_of(&words).map(Some)
    }
}

/// Returns the values that a filter allows for a column; `None` if it allows others, too.
fn values_of(filter: &Expr, column: &str) -> Option<Vec<ScalarValue>> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(found) if found.name == column);
    let literal = |expr: &Expr| match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        _ => None,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            if is_column(left) {
                literal(right).map(|value| vec![value])
            } else {
                literal(left).filter(|_| is_column(right)).map(|value| vec![value])
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut values = values_of(left, column)?;
            values.extend(values_of(right, column)?);
            Some(values)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            values_of(left, column).or_else(|| values_of(right, column))
        }
        Expr::InList(list) if !list.negated && is_column(&list.expr) => {
            list.list.iter().map(literal).collect()
        }
        _ => None,
    }
}

#[async_trait]
impl TableProvider for IndexTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.index.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.index.schema().fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let rows = self.looked_up(filters)?;
        let partitions = state.config().target_partitions();
        Ok(Arc::new(IndexScanExec::new(Arc::clone(&self.index), columns, rows, partitions)?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Different keys may have the same hash, so the filter is evaluated again.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// Reads the columns of an index, in all rows or in some.
#[derive(Clone, Debug)]
pub struct IndexScanExec {
    index: Arc<Index>,
    columns: Vec<usize>,
    rows: Option<Arc<[u64]>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl IndexScanExec {
    /// Returns the scan of these columns, in these rows or in all.
    ///
    /// # Errors
    /// If a column does not exist.
    pub fn new(
        index: Arc<Index>,
        columns: Vec<usize>,
        rows: Option<Vec<u64>>,
        partitions: usize,
    ) -> Result<Self> {
        let schema = project_schema(index.schema(), Some(&columns))?;
        let partitions = match rows {
            Some(_) => 1,
            None => partitions.min(index.columns().chunks()).max(1),
        };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let (rows, metrics) = (rows.map(Arc::from), ExecutionPlanMetricsSet::new());
        Ok(Self { index, columns, rows, schema, properties, metrics })
    }

    /// Returns the index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Returns the positions of the columns that are read, and whether all rows are.
    pub fn reads(&self) -> (&[usize], bool) {
        (&self.columns, self.rows.is_none())
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        Ok(batch_of(&self.schema, columns, rows)?)
    }

    /// Returns a chunk.
    fn chunk(&self, chunk: usize) -> Result<RecordBatch> {
        let columns =
            self.columns.iter().map(|&column| self.index.columns().chunk(column, chunk).cloned());
        self.batch(columns.collect::<Result<_>>()?, self.index.columns().extent(chunk).0)
    }

    /// Returns some of the rows.
    fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        let columns = self.columns.iter().map(|&column| self.index.columns().take(column, rows));
        self.batch(columns.collect::<Result<_>>()?, rows.len())
    }
}

impl DisplayAs for IndexScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "IndexScanExec: index={}, columns=[{}]", self.index.name(), names.join(", "))?;
        match &self.rows {
            Some(rows) => write!(f, ", rows looked up={}", rows.len()),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for IndexScanExec {
    fn name(&self) -> &'static str {
        "IndexScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch_size = context.session_config().batch_size().max(1);
        let partitions = self.properties.partitioning.partition_count();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let scan = self.clone();
        let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match self.rows.clone()
        {
            Some(rows) => Box::new(
                (0..rows.len())
                    .step_by(batch_size)
                    .map(move |start| scan.take(&rows[start..rows.len().min(start + batch_size)])),
            ),
            None => {
                let chunks = (partition..self.index.columns().chunks()).step_by(partitions);
                Box::new(chunks.flat_map(move |chunk| slices(scan.chunk(chunk), batch_size)))
            }
        };
        let counted = batches.inspect(move |batch| {
            if let Ok(batch) = batch {
                metrics.record_output(batch.num_rows());
            }
        });
        let stream = futures::stream::iter(counted);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Returns the parts of a chunk.
fn slices(
    chunk: Result<RecordBatch>,
    batch_size: usize,
) -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
    match chunk {
        Err(error) => Box::new(std::iter::once(Err::<RecordBatch, DataFusionError>(error))),
        Ok(chunk) => Box::new(
            (0..chunk.num_rows())
                .step_by(batch_size)
                .map(move |start| Ok(chunk.slice(start, batch_size.min(chunk.num_rows() - start)))),
        ),
    }
}
