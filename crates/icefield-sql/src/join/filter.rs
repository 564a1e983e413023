//! The filter of the probe side of a join: the keys that may have a pair.
//!
//! A join whose index side has a predicate hands this filter to the plan below it, like a hash join of DataFusion.
//! Joins with other indexes there remove rows by it before they take any columns for them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::utils::conjunction;
use datafusion::physical_expr::{DynamicFilterTracking, split_conjunction};
use datafusion::physical_plan::PhysicalExpr;

use super::predicate::{Passed, Predicate};
use super::side::{IndexSide, Taker, booleans};
use crate::index::Index;

/// The predicate of a join, which the join shares with the filters that it has handed to other plans.
#[derive(Debug)]
pub struct SharedPredicate {
    side: IndexSide,
    /// The part of the rows that satisfy it, as far as that is known before the query runs.
    selectivity: f64,
    predicate: RwLock<Arc<Predicate>>,
}

impl SharedPredicate {
    /// Returns the predicate of a side; `None` if all rows satisfy it.
    ///
    /// # Errors
    /// As [`Predicate::of`].
    pub fn of(side: &IndexSide) -> Result<Option<Arc<Self>>> {
        let Some(predicate) = Predicate::of(side)? else { return Ok(None) };
        let (side, predicate) = (side.clone(), RwLock::new(Arc::new(predicate)));
        let selectivity = selectivity(&side);
        Ok(Some(Arc::new(Self { side, selectivity, predicate })))
    }

    /// Returns the part of the rows of the index that satisfy the predicate, as far as that is known before the query
    /// runs.
    pub fn selectivity(&self) -> f64 {
        self.selectivity
    }

    /// Returns the predicate of the present execution.
    pub fn get(&self) -> Arc<Predicate> {
        Arc::clone(&self.predicate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets which rows satisfy the predicate: filters of other joins in it may change before the next execution.
    ///
    /// # Errors
    /// As [`Predicate::of`].
    pub fn reset(&self) -> Result<()> {
        if let Some(predicate) = Predicate::of(&self.side)? {
            *self.predicate.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(predicate);
        }
        Ok(())
    }

    fn index(&self) -> &Index {
        &self.side.index
    }
}

/// Returns the part of the rows of a side that satisfy its predicate: of a sample, without filters that other joins
/// make while the query runs.
pub fn selectivity(side: &IndexSide) -> f64 {
    const SAMPLE: usize = 2048;
    let mut of_others = 1.0;
    let mut known = Vec::new();
    for part in side.predicate.iter().flat_map(split_conjunction) {
        if let Some(filter) = part.downcast_ref::<MatchExpr>() {
            of_others *= filter.predicate.selectivity;
        } else if !DynamicFilterTracking::classify(part).contains_dynamic_filter() {
            known.push(Arc::clone(part));
        }
    }
    // Reading other chunks would take longer than a wrong choice costs.
    let columns = side.index.columns();
    if known.is_empty() || columns.chunks() == 0 {
        return of_others;
    }
    let (rows, _) = columns.extent(0);
    let sample: Vec<u64> = (0..rows as u64).step_by(rows.div_ceil(SAMPLE)).collect();
    let values = Taker::new(&side.index, &[conjunction(known)])
        .and_then(|taker| booleans(&taker.take(&side.index, &sample)?[0]));
    // The query returns the error, if it evaluates the predicate for such a row.
    values.map_or(1.0, |values| of_others * values.true_count() as f64 / sample.len() as f64)
}

/// An expression over the probe side of a join that is false for rows whose key has no pair. It may be true for any
/// row.
#[derive(Debug)]
pub struct MatchExpr {
    /// The keys of the probe side.
    keys: Vec<Arc<dyn PhysicalExpr>>,
    predicate: Arc<SharedPredicate>,
    passed: Arc<Passed>,
}

impl MatchExpr {
    /// Returns the filter of `keys`, the keys of the probe side for the key columns of the index.
    pub fn new(keys: Vec<Arc<dyn PhysicalExpr>>, predicate: Arc<SharedPredicate>) -> Self {
        Self { keys, predicate, passed: Arc::default() }
    }

    /// Returns the predicate.
    pub fn predicate(&self) -> &Arc<SharedPredicate> {
        &self.predicate
    }
}

/// Returns the rows of a batch for which all filters are true.
///
/// # Errors
/// If a filter fails.
pub fn wanted(batch: RecordBatch, filters: &[Arc<dyn PhysicalExpr>]) -> Result<RecordBatch> {
    /// Rows are copied when at most one in this number of them is wanted, and at the end.
    const ONE_IN: usize = 2;
    let mut filters: Vec<_> = filters.iter().collect();
    // Those first that remove most rows.
    let rate = |filter: &&Arc<dyn PhysicalExpr>| {
        filter.downcast_ref::<MatchExpr>().map_or(1024, |filter| filter.passed.rate())
    };
    filters.sort_by_cached_key(rate);
    let mut batch = batch;
    let mut wanted: Option<BooleanArray> = None;
    for filter in filters {
        let rows = batch.num_rows();
        let bits = match filter.evaluate(&batch)? {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => continue,
            value => booleans(&value.into_array(rows)?)?,
        };
        let both = match wanted.take() {
            Some(wanted) => arrow::compute::and(&wanted, &bits)?,
            None => bits,
        };
        if both.true_count() <= rows / ONE_IN {
            batch = filter_record_batch(&batch, &both)?;
        } else {
            wanted = Some(both);
        }
    }
    match wanted {
        Some(wanted) if wanted.has_false() || wanted.null_count() > 0 => {
            Ok(filter_record_batch(&batch, &wanted)?)
        }
        _ => Ok(batch),
    }
}

impl PartialEq for MatchExpr {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.predicate, &other.predicate) && self.keys == other.keys
    }
}

impl Eq for MatchExpr {}

impl Hash for MatchExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.predicate).hash(state);
        self.keys.hash(state);
    }
}

impl fmt::Display for MatchExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "{}({})", self.predicate.index().name(), keys.join(", "))
    }
}

impl PhysicalExpr for MatchExpr {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let every = ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)));
        if self.passed.is_useless() {
            return Ok(every);
        }
        let (rows, index) = (batch.num_rows(), self.predicate.index());
        let columns = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let nulls = NullEquality::NullEqualsNothing;
        let words = index.stamp().form.words(&columns, &index.key_types(), nulls)?;
        let Some(bits) = self.predicate.get().may_accept(index, &words)? else { return Ok(every) };
        self.passed.count(rows, bits.count_set_bits());
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(bits, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let (predicate, passed) = (Arc::clone(&self.predicate), Arc::clone(&self.passed));
        Ok(Arc::new(Self { keys, predicate, passed }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
