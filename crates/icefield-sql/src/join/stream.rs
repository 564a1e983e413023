//! One partition of a join: probes batch by batch.
//!
//! A batch's keys become words, and the index returns pairs of a position in the batch and a row number, at most
//! [`PAIRS`] at a time unless one key has more. Pairs that only share a hash, or whose row or condition is false, are
//! removed. The others give rows of both sides, and decide which rows have a match. When the last partition has ended,
//! it emits the rows of the index that the join returns with or without a match.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::filter;
use arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, NullEquality};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use icefield::Pairs;

use super::filter::wanted;
use super::found::Found;
use super::kind::{Join, Rows};
use super::output::Output;
use super::predicate;
use super::probe::{Batch, null_positions};
use super::rest::Rest;
use super::rows::Shared;
use super::side::{Taker, booleans};
use crate::batch::batch_of;
use crate::error::of_index;
use crate::index::keys::{KeyForm, equal};
use crate::index::no_row;
use crate::index::ranks::Ranks;

/// Number of pairs that are found at a time.
const PAIRS: usize = 1 << 16;

/// The counters of a partition.
pub struct Metrics {
    baseline: BaselineMetrics,
    probe_rows: Count,
    pairs: Count,
}

impl Metrics {
    /// Registers the counters of a partition.
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(set, partition),
            probe_rows: MetricBuilder::new(set).counter("probe_rows", partition),
            pairs: MetricBuilder::new(set).counter("pairs", partition),
        }
    }
}

/// The join of a partition.
pub struct PartitionJoin {
    /// The join.
    pub join: Arc<Join>,
    /// The state that all partitions share.
    pub shared: Arc<Shared>,
    /// Where the output's columns come from.
    pub columns: Vec<ColumnIndex>,
    /// Expressions over the probe side that are true for all rows that the joins above need.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Number of rows in a batch of the output.
    pub batch_size: usize,
}

/// Returns the output of a partition.
///
/// # Errors
/// If an expression uses a column that does not exist.
pub fn start(
    partition: PartitionJoin,
    schema: SchemaRef,
    probe: SendableRecordBatchStream,
    metrics: Metrics,
) -> Result<SendableRecordBatchStream> {
    let state = State::new(partition, Arc::clone(&schema), metrics)?;
    let stream =
        futures::stream::try_unfold((state, Some(probe)), |(mut state, mut probe)| async move {
            loop {
                if let Some(batch) = state.output.next()? {
                    state.metrics.baseline.record_output(batch.num_rows());
                    return Ok(Some((batch, (state, probe))));
                }
                let timer = state.metrics.baseline.elapsed_compute().clone();
                if state.has_work() {
                    {
                        let _timer = timer.timer();
                        state.work()?;
                    }
                    // Many pieces of work may give no rows. Between them other tasks run, such as the one that
                    // cancels the query.
                    tokio::task::yield_now().await;
                    continue;
                }
                let Some(stream) = &mut probe else { return Ok(None) };
                match stream.next().await {
                    Some(batch) => {
                        let _timer = timer.timer();
                        state.begin(batch?)?;
                    }
                    None => {
                        let _timer = timer.timer();
                        probe = None;
                        state.end()?;
                    }
                }
            }
        });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream.into_stream())))
}

struct State {
    partition: PartitionJoin,
    metrics: Metrics,
    output: Output,
    /// The columns of the output that come from the index.
    outputs: Taker,
    /// The columns of the filter that come from the index.
    filtered: Taker,
    /// The compared expressions of the index.
    compared: Taker,
    batch: Option<Batch>,
    /// The rows of the index that are emitted at the end.
    rest: Rest,
}

impl State {
    fn new(partition: PartitionJoin, schema: SchemaRef, metrics: Metrics) -> Result<Self> {
        let Join { side, keys, filter, index_side, .. } = &*partition.join;
        let of_index = |columns: &[ColumnIndex]| {
            let columns = columns.iter().filter(|column| column.side == *index_side);
            Taker::new(
                &side.index,
                &columns.map(|column| Arc::clone(&side.outputs[column.index])).collect::<Vec<_>>(),
            )
        };
        let compared: Vec<_> =
            keys.compared.iter().map(|(_, of_index)| Arc::clone(of_index)).collect();
        let parts = partition.join.spread.as_ref().map_or(0, |spread| spread.parts as usize);
        Ok(Self {
            output: Output::new(schema, partition.batch_size),
            outputs: of_index(&partition.columns)?,
            filtered: of_index(filter.as_ref().map_or(&[], |filter| filter.column_indices()))?,
            compared: Taker::new(&side.index, &compared)?,
            partition,
            metrics,
            batch: None,
            rest: Rest::new(parts),
        })
    }

    fn has_work(&self) -> bool {
        self.batch.is_some() || self.rest.has_some()
    }

    /// Takes over a batch of the probe side.
    fn begin(&mut self, batch: RecordBatch) -> Result<()> {
        let Join { side, keys, nulls, spread, .. } = &*self.partition.join;
        let batch = match spread {
            Some(spread) => spread.rows(&batch, |part| self.rest.own(part))?,
            None => batch,
        };
        self.metrics.probe_rows.add(batch.num_rows());
        let batch = wanted(batch, &self.partition.filters)?;
        let rows = batch.num_rows();
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&batch)?.into_array(rows);
        let columns = keys.probe.iter().map(evaluate).collect::<Result<Vec<_>>>()?;
        let compared =
            keys.compared.iter().map(|(probe, _)| evaluate(probe)).collect::<Result<_>>()?;
        let form = side.index.stamp().form;
        let words = form.words(&columns, &side.index.key_types(), *nulls)?;
        let predicate = self.partition.shared.predicate.as_ref();
        // Lookups by ranks cost no more than the filter. The filter reads the keys of all parts, of which this process
        // may need few.
        let has_all = spread.is_none() || side.index.parts().len() == 1;
        let filter = match predicate {
            Some(predicate) if has_all && side.index.ranks().is_none() => {
                predicate.may_accept(&side.index, &words)?
            }
            _ => None,
        };
        let is_marked = self.partition.join.probe_rows() != Rows::None;
        let parts = side.index.parts().len() as u32;
        let mut batch = Batch::new(batch, words, filter, compared, parts, is_marked);
        if *nulls == NullEquality::NullEqualsNull && form == KeyForm::Word {
            let positions = null_positions(&columns[0]);
            if !positions.is_empty() && !side.index.null_rows()?.is_empty() {
                batch.nulls = positions;
            }
        }
        if self.partition.shared.looks_up_once && !self.needs_existence_alone() {
            batch.look_up_once();
        }
        self.batch = Some(batch);
        Ok(())
    }

    /// Does a bounded part of the work.
    fn work(&mut self) -> Result<()> {
        if let Some(mut batch) = self.batch.take() {
            if batch.probed < batch.keys().len() {
                self.probe(&mut batch)?;
                self.batch = Some(batch);
                return Ok(());
            }
            if !batch.nulls.is_empty() {
                self.pair_nulls(&mut batch)?;
                self.batch = Some(batch);
                return Ok(());
            }
            if !batch.repeated.is_empty() {
                batch.settle_repeated(self.partition.join.nulls)?;
                self.batch = Some(batch);
                return Ok(());
            }
            return self.emit_probe_rows(batch);
        }
        let PartitionJoin { join, shared, batch_size, .. } = &self.partition;
        match self.rest.next(join, shared, *batch_size)? {
            Some(rows) => self.emit_index_rows(&rows),
            None => self.output.finish(),
        }
    }

    /// Ends the probe side.
    fn end(&mut self) -> Result<()> {
        let is_last = self.partition.shared.is_last();
        if is_last && self.partition.join.index_rows() != Rows::None {
            self.rest.begin();
            return Ok(());
        }
        self.output.finish()
    }

    /// Probes for the next keys of a batch.
    fn probe(&mut self, batch: &mut Batch) -> Result<()> {
        let join = Arc::clone(&self.partition.join);
        let index = &join.side.index;
        if let Some(ranks) = index.ranks() {
            return self.probe_ranks(batch, ranks);
        }
        let first = batch.probed;
        let (keys, part) = batch.next_keys();
        let part = &index.parts()[part];
        if self.needs_existence_alone() {
            let found = part.semi(keys).map_err(of_index)?;
            batch.probed += keys.len();
            let mut positions: Vec<_> = found.ones().map(|at| at as u64).collect();
            batch.place(&mut positions, first);
            positions.iter().for_each(|&at| batch.matched.set_bit(at as usize, true));
            return Ok(());
        }
        if self.needs_number_alone() {
            let pairs = part.probe_count(keys).map_err(of_index)? as usize;
            batch.probed += keys.len();
            self.metrics.pairs.add(pairs);
            return self.output.push(Vec::new(), pairs);
        }
        let mut pairs = Pairs::default();
        let count = part.probe_some(keys, PAIRS, &mut pairs).map_err(of_index)?;
        batch.probed += count;
        self.metrics.pairs.add(pairs.len());
        let (mut positions, rows) = pairs.into_parts();
        if let Some(row) = index.columns().missing(&rows) {
            return Err(no_row(index, row));
        }
        batch.place(&mut positions, first);
        self.take_all(batch, positions, rows)
    }

    /// Pairs the next of the null keys of a batch with the rows of the index that have none.
    fn pair_nulls(&mut self, batch: &mut Batch) -> Result<()> {
        let join = Arc::clone(&self.partition.join);
        let rows = join.side.index.null_rows()?;
        if self.needs_existence_alone() {
            for at in std::mem::take(&mut batch.nulls) {
                batch.matched.set_bit(at as usize, true);
            }
            return Ok(());
        }
        if self.needs_number_alone() {
            let pairs = rows.len() * std::mem::take(&mut batch.nulls).len();
            self.metrics.pairs.add(pairs);
            return self.output.push(Vec::new(), pairs);
        }
        let (positions, rows) = batch.null_pairs(rows, PAIRS);
        self.metrics.pairs.add(rows.len());
        self.take_all(batch, positions, rows)
    }

    /// Probes for all keys of a batch that are left, each of which has one pair at most.
    fn probe_ranks(&mut self, batch: &mut Batch, ranks: &Ranks) -> Result<()> {
        let count = batch.keys().len();
        let first = std::mem::replace(&mut batch.probed, count);
        let keys = &batch.keys()[first..];
        let (mut positions, mut rows) =
            (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        let join = Arc::clone(&self.partition.join);
        let shared = Arc::clone(&self.partition.shared);
        let predicate = shared.predicate.as_deref();
        let predicate = predicate.filter(|predicate| predicate.pays(&join.side.index, keys.len()));
        let mut rows_of = predicate::Rows::new(&join.side.index, ranks, predicate);
        for (at, &key) in keys.iter().enumerate() {
            if let Some(row) = rows_of.row(key)? {
                let at = first + at;
                positions.push(batch.position(at));
                rows.push(row);
            }
        }
        self.metrics.pairs.add(rows.len());
        if self.needs_number_alone() {
            return self.output.push(Vec::new(), rows.len());
        }
        let found = Found::new(positions, rows, batch.batch.num_rows());
        self.take_parts(batch, found, predicate.is_some())
    }

    /// Takes pairs of a position in the batch and a row; those of a position follow one another.
    fn take_all(&mut self, batch: &mut Batch, positions: Vec<u64>, rows: Vec<u64>) -> Result<()> {
        let mut found = Found::new(positions, rows, batch.batch.num_rows());
        let join = Arc::clone(&self.partition.join);
        if join.emits_pairs() || join.probe_rows() == Rows::None {
            return self.take_parts(batch, found, false);
        }
        // A position needs one pair that satisfies the conditions. Few keys need more than their first pairs.
        let mut each = 1;
        while !found.is_empty() {
            let has_match = |position| batch.matched.get_bit(position as usize);
            let (first, rest) = found.first_of_each(each, has_match);
            self.take_parts(batch, first, false)?;
            (found, each) = (rest, each * 8);
        }
        Ok(())
    }

    /// Takes pairs, at most the size of a batch at a time. `is_accepted` is true if their rows satisfy the predicate.
    fn take_parts(&mut self, batch: &mut Batch, found: Found, is_accepted: bool) -> Result<()> {
        let emits_pairs = self.partition.join.emits_pairs();
        for mut part in found.parts(self.partition.batch_size) {
            if let Some(matched) = &self.partition.shared.matched
                && !emits_pairs
            {
                // A row of the index needs one pair, too.
                let rows = part.rows.values();
                part.keep(&rows.iter().map(|&row| Some(!matched.has(row))).collect())?;
            }
            if !part.is_empty() {
                self.take_pairs(batch, part, is_accepted)?;
            }
        }
        Ok(())
    }

    /// Removes pairs that do not satisfy all conditions; marks the rows of the others, and emits them.
    /// `is_accepted` is true if their rows satisfy the predicate.
    fn take_pairs(&mut self, batch: &mut Batch, mut found: Found, is_accepted: bool) -> Result<()> {
        let join = Arc::clone(&self.partition.join);
        self.remove_unwanted(batch, &mut found, is_accepted)?;
        if join.probe_rows() != Rows::None {
            found
                .positions
                .values()
                .iter()
                .for_each(|&at| batch.matched.set_bit(at as usize, true));
        }
        if let Some(matched) = &self.partition.shared.matched {
            found.rows.values().iter().for_each(|&row| matched.add(row));
        }
        if join.emits_pairs() {
            self.emit_pairs(batch, &found)?;
        }
        Ok(())
    }

    /// Returns whether it suffices to know which keys are in the index.
    fn needs_existence_alone(&self) -> bool {
        self.accepts_every_pair() && !self.partition.join.emits_pairs()
    }

    /// Returns whether it suffices to know how many pairs there are.
    fn needs_number_alone(&self) -> bool {
        self.accepts_every_pair()
            && self.partition.join.probe_rows() == Rows::None
            && self.partition.columns.is_empty()
    }

    /// Returns whether every pair that is found is one of the join, and no row of the index is marked.
    fn accepts_every_pair(&self) -> bool {
        let Join { side, keys, filter, .. } = &*self.partition.join;
        let has_condition =
            side.predicate.is_some() || !keys.compared.is_empty() || filter.is_some();
        !has_condition && self.partition.join.index_rows() == Rows::None
    }

    /// Removes pairs that do not satisfy all conditions.
    fn remove_unwanted(&self, batch: &Batch, found: &mut Found, is_accepted: bool) -> Result<()> {
        let Join { side, nulls, filter, index_side, .. } = &*self.partition.join;
        if let Some(predicate) = &self.partition.shared.predicate
            && !is_accepted
        {
            found.keep(&predicate.accepts(&side.index, found.rows.values())?)?;
        }
        if !batch.compared.is_empty() && !found.is_empty() {
            let of_index = self.compared.take(&side.index, found.rows.values())?;
            let mut all: Option<BooleanArray> = None;
            for (of_probe, of_index) in std::iter::zip(&batch.compared, &of_index) {
                let are_equal = equal(&found.of_probe(of_probe)?, of_index, *nulls)?;
                all = Some(match all {
                    Some(all) => arrow::compute::and(&all, &are_equal)?,
                    None => are_equal,
                });
            }
            if let Some(all) = all {
                found.keep(&all)?;
            }
        }
        if let Some(filter) = filter
            && !found.is_empty()
        {
            let mut of_index = self.filtered.take(&side.index, found.rows.values())?.into_iter();
            let mut columns = Vec::new();
            for column in filter.column_indices() {
                if column.side == *index_side {
                    columns.extend(of_index.next());
                } else {
                    columns.push(found.of_probe(batch.batch.column(column.index))?);
                }
            }
            let pairs = batch_of(filter.schema(), columns, found.len())?;
            let wanted = filter.expression().evaluate(&pairs)?.into_array(found.len())?;
            found.keep(&booleans(&wanted)?)?;
        }
        Ok(())
    }

    fn emit_pairs(&mut self, batch: &Batch, found: &Found) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let join = Arc::clone(&self.partition.join);
        let mut of_index = self.outputs.take(&join.side.index, found.rows.values())?.into_iter();
        let mut columns = Vec::with_capacity(self.partition.columns.len());
        for column in &self.partition.columns {
            if column.side == join.index_side {
                columns.extend(of_index.next());
            } else {
                columns.push(found.of_probe(batch.batch.column(column.index))?);
            }
        }
        self.output.push(columns, found.len())
    }

    /// Emits the rows of a batch that are emitted with or without a match.
    fn emit_probe_rows(&mut self, mut batch: Batch) -> Result<()> {
        let matched = BooleanArray::new(batch.matched.finish(), None);
        let chosen = match self.partition.join.probe_rows() {
            Rows::None => return Ok(()),
            Rows::Matched => matched.clone(),
            Rows::Unmatched => arrow::compute::not(&matched)?,
            Rows::Marked => BooleanArray::from(vec![true; matched.len()]),
        };
        let rows = chosen.true_count();
        if rows == 0 {
            return Ok(());
        }
        let of_index = self.partition.join.side.schema.fields();
        let index_side = self.partition.join.index_side;
        let columns = self.partition.columns.iter().map(|column| match column.side {
            JoinSide::None => Ok(Arc::new(matched.clone()) as ArrayRef),
            side if side == index_side => {
                Ok(new_null_array(of_index[column.index].data_type(), rows))
            }
            _ => Ok(filter(batch.batch.column(column.index), &chosen)?),
        });
        let columns = columns.collect::<Result<_>>()?;
        self.output.push(columns, rows)
    }

    /// Emits rows of the index.
    fn emit_index_rows(&mut self, rows: &[u64]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let join = Arc::clone(&self.partition.join);
        let mut of_index = self.outputs.take(&join.side.index, rows)?.into_iter();
        let mut columns = Vec::with_capacity(self.partition.columns.len());
        for (at, column) in self.partition.columns.iter().enumerate() {
            match column.side {
                JoinSide::None => {
                    let marks = rows.iter().map(|&row| Some(self.partition.shared.is_matched(row)));
                    columns.push(Arc::new(marks.collect::<BooleanArray>()) as ArrayRef);
                }
                side if side == join.index_side => columns.extend(of_index.next()),
                _ => {
                    let data_type = self.output.schema.field(at).data_type();
                    columns.push(new_null_array(data_type, rows.len()));
                }
            }
        }
        self.output.push(columns, rows.len())
    }
}
