//! Distribution of the rows of a join's probe side by parts of the index.
//!
//! The partitions of a plan may run in different processes, which then do not see one another's matches. A join that
//! emits rows of the index with or without a match needs all rows of the probe side that can match a row of the index
//! in one place. So the keys are divided into parts by a hash of their words, and [`PartExec`] adds the part of each row
//! as a column, by which the engine distributes the rows. Engines number partitions as they like, so a partition does
//! not know from its number which parts it has: each partition below the distribution also sends a row without values,
//! a mark, to each part, and a partition above it has the parts whose marks it receives.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array, new_null_array,
};
use arrow::compute::{filter_record_batch, is_null};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{NullEquality, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

use crate::batch::batch_of;
use crate::index::keys::{KeyForm, part_of};
use crate::unary;

/// Maximum number of parts, and of partitions.
pub const MOST_PARTS: u32 = 1 << 16;

/// How the rows of the probe side are distributed.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Number of parts.
    pub parts: u32,
    /// The columns of the probe side, before those that [`PartExec`] adds.
    pub probe: SchemaRef,
}

/// The columns that [`PartExec`] adds: a number by which rows are distributed, and the part in a mark, null in rows.
const ADDED: [(&str, DataType, bool); 2] =
    [("icefield_part", DataType::UInt64, false), ("icefield_mark", DataType::UInt32, true)];

impl Spread {
    /// Returns the number of parts for this number of partitions, and an index in `of_index` parts. Each part is within
    /// one of the index's parts, and no partition has many more parts than others.
    pub fn parts(of_index: u32, partitions: u32) -> u32 {
        /// Number of parts of each partition, if the index's parts cannot be distributed evenly.
        const PER_PARTITION: u32 = 4;
        if partitions.is_multiple_of(of_index) || of_index.is_multiple_of(partitions) {
            return of_index.max(partitions);
        }
        of_index * (partitions * PER_PARTITION).div_ceil(of_index)
    }

    /// Returns the distribution that a join needs.
    pub fn distribution(&self) -> Distribution {
        let column = Column::new(ADDED[0].0, self.probe.fields().len());
        Distribution::KeyPartitioned(vec![Arc::new(column)])
    }

    /// Splits a batch into its rows, without the added columns, and its marks, of which each is passed to `owned`.
    ///
    /// # Errors
    /// If the batch does not come from [`PartExec`].
    pub fn rows(&self, batch: &RecordBatch, mut owned: impl FnMut(u32)) -> Result<RecordBatch> {
        let columns = self.probe.fields().len();
        if batch.num_columns() != columns + ADDED.len() {
            return internal_err!("{} columns of rows with parts", batch.num_columns());
        }
        let marks = batch.column(columns + 1).as_primitive::<UInt32Type>();
        let rows = if marks.null_count() == batch.num_rows() {
            batch.clone()
        } else {
            marks.iter().flatten().for_each(&mut owned);
            filter_record_batch(batch, &is_null(marks)?)?
        };
        let columns = rows.columns()[..columns].to_vec();
        Ok(batch_of(&self.probe, columns, rows.num_rows())?)
    }
}

/// Returns for each part a number whose hash distributes the parts evenly among partitions. Other numbers would be as
/// correct, but leave some partitions empty.
fn numbers(parts: u32, partitions: u32) -> Result<Vec<u64>> {
    let (parts, partitions) = (parts as usize, partitions.max(1) as usize);
    let mut numbers: Vec<Option<u64>> = vec![None; parts];
    let mut missing = parts;
    // Parts that follow one another are in the same partition, because they are in the same part of the index.
    let first_of = |partition: usize| (partition * parts).div_ceil(partitions);
    let mut next: Vec<usize> = (0..partitions).map(first_of).collect();
    for first in (0_u64..).step_by(1024) {
        if missing == 0 {
            break;
        }
        let candidates = UInt64Array::from_iter_values(first..first + 1024);
        let mut hashes = vec![0; 1024];
        let candidates: ArrayRef = Arc::new(candidates);
        create_hashes([&candidates], REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
        for (number, hash) in (first..).zip(hashes) {
            let partition = (hash % partitions as u64) as usize;
            let part = &mut next[partition];
            if *part < first_of(partition + 1) {
                numbers[*part] = Some(number);
                *part += 1;
                missing -= 1;
            }
        }
    }
    Ok(numbers.into_iter().flatten().collect())
}

/// Adds to the rows of its input the parts of the index in which their keys are, and emits a mark for each part.
#[derive(Clone, Debug)]
pub struct PartExec {
    input: Arc<dyn ExecutionPlan>,
    /// The keys of the rows.
    pub keys: Vec<Arc<dyn PhysicalExpr>>,
    /// How keys become words.
    pub form: KeyForm,
    /// The types of the keys in the index.
    pub types: Vec<DataType>,
    /// Number of parts.
    pub parts: u32,
    /// Number of partitions among which the parts are distributed.
    pub partitions: u32,
    properties: Arc<PlanProperties>,
}

impl PartExec {
    /// Returns the operator for the rows of `input`.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        form: KeyForm,
        types: Vec<DataType>,
        parts: u32,
        partitions: u32,
    ) -> Self {
        // The columns of a mark are null.
        let input_schema = input.schema();
        let of_input =
            input_schema.fields().iter().map(|field| Field::clone(field).with_nullable(true));
        let added = ADDED.map(|(name, data_type, nullable)| Field::new(name, data_type, nullable));
        let schema = Schema::new(of_input.chain(added).collect::<Vec<_>>());
        let properties = unary::properties(&input, Arc::new(schema), input.pipeline_behavior());
        Self { input, keys, form, types, parts, partitions, properties }
    }

    /// Returns the marks of all parts.
    fn marks(&self, schema: &SchemaRef, numbers: &[u64]) -> Result<RecordBatch> {
        let of_input = schema.fields().len() - ADDED.len();
        let mut columns: Vec<ArrayRef> = schema.fields()[..of_input]
            .iter()
            .map(|field| new_null_array(field.data_type(), numbers.len()))
            .collect();
        columns.push(Arc::new(UInt64Array::from(numbers.to_vec())));
        columns.push(Arc::new(UInt32Array::from_iter_values(0..self.parts)));
        Ok(batch_of(schema, columns, numbers.len())?)
    }

    /// Returns a batch of the input with the added columns.
    fn with_parts(
        &self,
        schema: &SchemaRef,
        numbers: &[u64],
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let keys = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let types: Vec<_> = self.types.iter().collect();
        // As the rows of the index are distributed.
        let nulls = NullEquality::NullEqualsNull;
        let words = self.form.words(&keys.collect::<Result<Vec<_>>>()?, &types, nulls)?;
        let of_rows = words.iter().map(|word| numbers[part_of(word, self.parts) as usize]);
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter_values(of_rows)));
        columns.push(new_null_array(&ADDED[1].1, rows));
        Ok(batch_of(schema, columns, rows)?)
    }
}

impl DisplayAs for PartExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "PartExec: keys=[{}], parts={}", keys.join(", "), self.parts)
    }
}

impl ExecutionPlan for PartExec {
    fn name(&self) -> &'static str {
        "PartExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        datafusion::physical_plan::apply_expression_roots(&self.keys, f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Self { keys, form, types, parts, partitions, .. } = Self::clone(&self);
        Ok(Arc::new(Self::new(unary::only(children)?, keys, form, types, parts, partitions)))
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
        let numbers = numbers(self.parts, self.partitions)?;
        let schema = self.schema();
        let marks = self.marks(&schema, &numbers);
        let input = self.input.execute(partition, context)?;
        let (exec, of_rows) = (self.clone(), Arc::clone(&schema));
        let rows = input.map(move |batch| exec.with_parts(&of_rows, &numbers, &batch?));
        let stream = futures::stream::iter([marks]).chain(rows);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn parts_are_distributed_evenly() {
        for (parts, partitions) in [(1, 1), (8, 8), (8, 3), (3, 8), (64, 16), (5, 1), (1, 5)] {
            let numbers = numbers(parts, partitions).unwrap();
            assert_eq!(numbers.len(), parts as usize);
            let array: ArrayRef = Arc::new(UInt64Array::from(numbers));
            let mut hashes = vec![0; parts as usize];
            create_hashes([&array], REPARTITION_RANDOM_STATE.random_state(), &mut hashes).unwrap();
            let mut of_partition = vec![0; partitions as usize];
            hashes
                .iter()
                .for_each(|hash| of_partition[(hash % u64::from(partitions)) as usize] += 1);
            let most = parts.div_ceil(partitions);
            assert!(of_partition.iter().all(|&parts| parts <= most), "{of_partition:?}");
        }
    }
}
