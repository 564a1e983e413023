//! The operator that joins its input with an index.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{
    JoinSide, JoinType, NullEquality, Statistics, internal_err, project_schema,
};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::utils::{collect_columns, conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{
    EmbeddedProjection, ProjectionExec, try_embed_projection,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};

use super::filter::{MatchExpr, SharedPredicate};
use super::kind::{Join, Rows};
use super::names::{are_unique, is_unique, names_of};
use super::predicate::Predicate;
use super::rows::{RowSet, Shared};
use super::scan;
use super::side::replaced;
use super::stream;
use crate::unary;

/// Joins its input, the probe side, with the rows of an index. It builds nothing, so it probes the first batch at once.
#[derive(Debug)]
pub struct IndexJoinExec {
    probe: Arc<dyn ExecutionPlan>,
    join: Arc<Join>,
    /// The columns of the join that are returned; `None` for all.
    projection: Option<Vec<usize>>,
    /// Expressions over the probe side that are true for all rows that the joins above need.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The predicate, if the probe side has a filter by it.
    predicate: Option<Arc<SharedPredicate>>,
    /// All columns of the join.
    join_schema: SchemaRef,
    column_indices: Vec<ColumnIndex>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    shared: OnceLock<Arc<Shared>>,
}

impl IndexJoinExec {
    /// Returns the join of `probe` with an index.
    ///
    /// # Errors
    /// If the projection does not fit.
    pub(crate) fn new(
        probe: Arc<dyn ExecutionPlan>,
        join: Arc<Join>,
        projection: Option<Vec<usize>>,
    ) -> Result<Self> {
        let of_index = &join.side.schema;
        let of_probe = match &join.spread {
            Some(spread) => Arc::clone(&spread.probe),
            None => probe.schema(),
        };
        let (join_schema, column_indices) =
            joined(join.join_type, join.index_side, of_index, &of_probe)?;
        let schema = project_schema(&join_schema, projection.as_ref())?;
        // The rows of the index follow when the probe side has ended.
        let emission = match join.index_rows() {
            Rows::None => probe.pipeline_behavior(),
            _ => EmissionType::Both,
        };
        let properties = unary::properties(&probe, schema, emission);
        Ok(Self {
            probe,
            join,
            projection,
            filters: Vec::new(),
            predicate: None,
            join_schema,
            column_indices,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            shared: OnceLock::new(),
        })
    }

    /// Returns the join.
    pub(crate) fn join(&self) -> &Arc<Join> {
        &self.join
    }

    /// Returns the columns of the join that are returned; `None` for all.
    pub(crate) fn projection(&self) -> Option<&[usize]> {
        self.projection.as_deref()
    }

    /// Returns the probe side.
    pub(super) fn probe(&self) -> &Arc<dyn ExecutionPlan> {
        &self.probe
    }

    /// Returns where the columns of the output come from.
    pub(super) fn output_columns(&self) -> Vec<ColumnIndex> {
        match &self.projection {
            Some(projection) => {
                projection.iter().map(|&at| self.column_indices[at].clone()).collect()
            }
            None => self.column_indices.clone(),
        }
    }

    /// Returns the same join with another input.
    fn with_probe(&self, probe: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let (filters, predicate) = (self.filters.clone(), self.predicate.clone());
        let new = Self::new(probe, Arc::clone(&self.join), self.projection.clone())?;
        Ok(Self { filters, predicate, ..new })
    }

    /// Returns a filter on the output as one on the rows of the index, if the join may leave out all other rows of it.
    fn as_predicate(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        // Rows of the probe side without a match have nulls for the columns of the index. The filters of other joins
        // do not reach other processes.
        if self.join.probe_rows() != Rows::None || is_volatile(filter) || self.join.in_cluster {
            return Ok(None);
        }
        let columns = self.output_columns();
        let used = collect_columns(filter);
        let schema = self.schema();
        let of_index = |at: usize| {
            columns.get(at).is_some_and(|column| column.side == self.join.index_side)
                && is_unique(&schema, schema.field(at).name())
        };
        if used.is_empty() || !used.iter().all(|column| of_index(column.index())) {
            return Ok(None);
        }
        let outputs = &self.join.side.outputs;
        let by: Vec<_> = columns
            .iter()
            .map(|column| {
                // The columns of the other side are not used.
                let at = if column.side == self.join.index_side { column.index } else { 0 };
                Arc::clone(&outputs[at])
            })
            .collect();
        replaced(filter, &by).map(Some)
    }

    /// Returns the join whose index side has these predicates, too.
    fn join_with(&self, predicates: Vec<Arc<dyn PhysicalExpr>>) -> Arc<Join> {
        if predicates.is_empty() {
            return Arc::clone(&self.join);
        }
        let mut join = Join::clone(&self.join);
        join.side.predicate = Some(conjunction(join.side.predicate.into_iter().chain(predicates)));
        Arc::new(join)
    }

    /// Returns whether rows of the probe side without a pair may be left out, by a filter that no null passes.
    fn takes_filter(&self) -> bool {
        let Join { nulls, in_cluster, .. } = *self.join;
        matches!(self.join.probe_rows(), Rows::None | Rows::Matched)
            && nulls == NullEquality::NullEqualsNothing
            && !in_cluster
    }

    /// Returns the positions of the columns of the output that are those of the probe side, and whose filters may go
    /// there. None may if the join emits rows without a row of that side, whose columns are null then.
    fn probe_columns(&self) -> HashSet<usize> {
        if self.join.index_rows() != Rows::None || self.join.spread.is_some() {
            return HashSet::new();
        }
        let (schema, columns) = (self.schema(), self.output_columns());
        let of_probe = |at: &usize| {
            let name = schema.field(*at).name();
            columns[*at].side == self.join.index_side.negate()
                && is_unique(&schema, name)
                && are_unique(&self.probe, std::slice::from_ref(name))
        };
        (0..columns.len()).filter(of_probe).collect()
    }

    /// Returns a filter on the output as one on the probe side, if it uses only columns of that side.
    fn of_probe(&self, filter: &Arc<dyn PhysicalExpr>) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let (allowed, used) = (self.probe_columns(), collect_columns(filter));
        if used.is_empty() || !used.iter().all(|column| allowed.contains(&column.index())) {
            return Ok(None);
        }
        let schema = self.probe.schema();
        let column = |column: &ColumnIndex| -> Arc<dyn PhysicalExpr> {
            // Other columns are not used.
            let of_probe = column.side == self.join.index_side.negate();
            let at = if of_probe { column.index } else { 0 };
            Arc::new(Column::new(schema.field(at).name(), at))
        };
        let by: Vec<_> = self.output_columns().iter().map(column).collect();
        replaced(filter, &by).map(Some)
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        if let Some(shared) = self.shared.get() {
            return Ok(Arc::clone(shared));
        }
        let needs_matched = self.join.index_rows() != Rows::None;
        let matched = needs_matched.then(|| RowSet::new(self.join.side.index.columns().chunks()));
        let partitions = self.probe.output_partitioning().partition_count();
        let predicate = match &self.predicate {
            Some(predicate) => Some(predicate.get()),
            None => Predicate::of(&self.join.side)?.map(Arc::new),
        };
        let Join { side, filter, nulls, .. } = &*self.join;
        // Without a condition on pairs, equal keys have the same matches.
        let may_share = !self.join.emits_pairs() && filter.is_none();
        let looks_up_once = may_share && side.index.rows_per_key(*nulls)? > SEVERAL;
        let shared = Arc::new(Shared::new(matched, predicate, looks_up_once, partitions));
        Ok(Arc::clone(self.shared.get_or_init(|| shared)))
    }
}

/// Returns the columns of a join, and where they come from.
///
/// # Errors
/// If the index answers no side.
pub(crate) fn joined(
    join_type: JoinType,
    index_side: JoinSide,
    of_index: &Schema,
    of_probe: &Schema,
) -> Result<(SchemaRef, Vec<ColumnIndex>)> {
    let (schema, columns) = match index_side {
        JoinSide::Left => build_join_schema(of_index, of_probe, &join_type),
        JoinSide::Right => build_join_schema(of_probe, of_index, &join_type),
        JoinSide::None => return internal_err!("an index join without an index"),
    };
    Ok((Arc::new(schema), columns))
}

/// With more rows of a key than this, equal keys of a batch are looked up once. Not measured: a primary key has 1.
const SEVERAL: f64 = 4.0;

/// A scan evaluates the filter of a join that at most this part of the rows passes. Then it skips more than a hundred
/// rows between two that pass, and does not decode their other columns. With 0.7 % of the rows this saves a tenth of
/// TPC-H's Q8; with 4 % it costs a fifth of Q4.
const FOR_SCAN: f64 = 0.01;

/// Returns whether a plan has a join that can use a filter by keys.
fn has_index_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<IndexJoinExec>() || plan.children().into_iter().any(has_index_join)
}

impl DisplayAs for IndexJoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Join { join_type, index_side, side, keys, nulls, filter, .. } = &*self.join;
        let on: Vec<_> = std::iter::zip(&side.index.stamp().keys, &keys.probe)
            .map(|(key, probe)| format!("{key} = {probe}"))
            .collect();
        if t == DisplayFormatType::TreeRender {
            writeln!(f, "index={}", side.index.name())?;
            writeln!(f, "join_type={join_type:?}")?;
            return writeln!(f, "on={}", on.join(", "));
        }
        write!(
            f,
            "IndexJoinExec: index={} ({index_side}), join_type={join_type:?}, on=[{}]",
            side.index.name(),
            on.join(", ")
        )?;
        if *nulls == NullEquality::NullEqualsNull {
            write!(f, ", nulls are equal")?;
        }
        if let Some(predicate) = &side.predicate {
            write!(f, ", predicate={predicate}")?;
        }
        if let Some(filter) = filter {
            write!(f, ", filter={}", filter.expression())?;
        }
        if !self.filters.is_empty() {
            let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", key_filters=[{}]", filters.join(", "))?;
        }
        if let Some(projection) = &self.projection {
            let names: Vec<_> = projection
                .iter()
                .map(|&at| format!("{}@{at}", self.join_schema.field(at).name()))
                .collect();
            write!(f, ", projection=[{}]", names.join(", "))?;
        }
        Ok(())
    }
}

impl EmbeddedProjection for IndexJoinExec {
    fn with_projection(&self, projection: Option<Vec<usize>>) -> Result<Self> {
        let projection = match (projection, &self.projection) {
            (Some(outer), Some(inner)) => Some(outer.iter().map(|&at| inner[at]).collect()),
            (None, inner) => inner.clone(),
            (outer, None) => outer,
        };
        let (filters, predicate) = (self.filters.clone(), self.predicate.clone());
        let new = Self::new(Arc::clone(&self.probe), Arc::clone(&self.join), projection)?;
        Ok(Self { filters, predicate, ..new })
    }
}

impl ExecutionPlan for IndexJoinExec {
    fn name(&self) -> &'static str {
        "IndexJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.probe]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let compared = self.join.keys.compared.iter().map(|(probe, _)| probe);
        let filter = self.join.filter.iter().map(JoinFilter::expression);
        let exprs = self.join.keys.probe.iter().chain(compared).chain(filter);
        // A hash join makes its filter only if a plan below has it.
        let exprs = exprs.chain(&self.join.side.predicate).chain(&self.filters);
        datafusion::physical_plan::apply_expression_roots(exprs, f)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![match &self.join.spread {
            Some(spread) => spread.distribution(),
            None => Distribution::UnspecifiedDistribution,
        }])
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_probe(unary::only(children)?)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        unary::with_inputs(self, children)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(predicate) = &self.predicate {
            predicate.reset()?;
        }
        Ok(Arc::new(self.with_probe(Arc::clone(&self.probe))?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch_size = context.session_config().batch_size();
        let probe = self.probe.execute(partition, context)?;
        let columns = self.output_columns();
        let metrics = stream::Metrics::new(&self.metrics, partition);
        let partition_join = stream::PartitionJoin {
            join: Arc::clone(&self.join),
            shared: match &self.join.spread {
                Some(_) => Arc::new(self.shared()?.of_one(&self.join.side)),
                None => self.shared()?,
            },
            columns,
            filters: self.filters.clone(),
            batch_size,
        };
        stream::start(partition_join, self.schema(), probe, metrics)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let [probe] = inputs
            && let Some(&probe_rows) = probe.num_rows.get_value()
        {
            let rows = self.join.estimated_rows(probe_rows as f64);
            statistics.num_rows = Precision::Inexact(rows as usize);
        }
        Ok(Arc::new(statistics))
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let of_probe = self.probe_columns();
        let mut child = ChildFilterDescription::from_child_with_allowed_indices(
            &filters,
            of_probe,
            &self.probe,
        )?;
        let takes_filter = self.takes_filter()
            && self.predicate.is_none()
            && config.optimizer.enable_join_dynamic_filter_pushdown
            && are_unique(&self.probe, &names_of(self.join.keys.probe.iter()));
        if phase == FilterPushdownPhase::Post && takes_filter {
            let predicates = filters.iter().map(|filter| self.as_predicate(filter));
            let predicates = predicates.filter_map(Result::transpose).collect::<Result<_>>()?;
            let join = self.join_with(predicates);
            if let Some(predicate) = SharedPredicate::of(&join.side)?
                && (has_index_join(&self.probe)
                    || predicate.selectivity() <= FOR_SCAN && scan::reads_parquet(&self.probe))
            {
                let filter = MatchExpr::new(join.keys.probe.clone(), predicate);
                child = child.with_self_filter(Arc::new(filter));
            }
        }
        Ok(FilterDescription::new().with_child(child))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut predicates = Vec::new();
        let mut filters = self.filters.clone();
        let mut support = Vec::new();
        for parent in &result.parent_filters {
            if let Some(predicate) = self.as_predicate(&parent.filter)? {
                predicates.push(predicate);
                support.push(PushedDown::Yes);
                continue;
            }
            let is_done = parent.any();
            if matches!(is_done, PushedDown::No) && parent.filter.is::<MatchExpr>() {
                filters.extend(self.of_probe(&parent.filter)?);
            }
            support.push(is_done);
        }
        let own = result.self_filters.first().and_then(|filters| filters.first());
        let own = own.and_then(|filter| filter.predicate.downcast_ref::<MatchExpr>());
        let own = own.map(|filter| Arc::clone(filter.predicate()));
        let new = FilterPushdownPropagation::with_parent_pushdown_result(support);
        if predicates.is_empty() && own.is_none() && filters.len() == self.filters.len() {
            return Ok(new);
        }
        let join = self.join_with(predicates);
        let mut predicate = own.or_else(|| self.predicate.clone());
        if !filters.is_empty() && self.takes_filter() {
            // The filter of this join is one of them, in the order of the rows that they remove.
            predicate =
                predicate.map_or_else(|| SharedPredicate::of(&join.side), |one| Ok(Some(one)))?;
            if let Some(predicate) = &predicate {
                let own = MatchExpr::new(join.keys.probe.clone(), Arc::clone(predicate));
                let own: Arc<dyn PhysicalExpr> = Arc::new(own);
                if !filters.contains(&own) {
                    filters.push(own);
                }
            }
        }
        let mut probe = Arc::clone(&self.probe);
        if let Some(predicate) = predicate.as_ref().filter(|one| one.selectivity() <= FOR_SCAN)
            && let Some(filtered) = scan::filtered_by(&probe, predicate)?
        {
            probe = filtered;
        }
        let node = Self::new(probe, join, self.projection.clone())?;
        Ok(new.with_updated_node(Arc::new(Self { filters, predicate, ..node })))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        try_embed_projection(projection, self)
    }
}
