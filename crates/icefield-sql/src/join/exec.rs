//! The operator that joins its input with an index.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, JoinType, internal_err, project_schema};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{
    EmbeddedProjection, ProjectionExec, try_embed_projection,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};

use super::kind::{Join, Rows};
use super::rows::Shared;
use super::stream;

/// Joins its input, the probe side, with the rows of an index. It builds nothing, so it probes the first batch at once.
#[derive(Debug)]
pub struct IndexJoinExec {
    probe: Arc<dyn ExecutionPlan>,
    join: Arc<Join>,
    /// The columns of the join that are returned; `None` for all.
    projection: Option<Vec<usize>>,
    /// All columns of the join.
    join_schema: SchemaRef,
    column_indices: Vec<ColumnIndex>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    shared: OnceLock<Arc<Shared>>,
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
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(probe.output_partitioning().partition_count()),
            emission,
            probe.boundedness(),
        ));
        Ok(Self {
            probe,
            join,
            projection,
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

    /// Returns where the columns of the output come from.
    fn output_columns(&self) -> Vec<ColumnIndex> {
        match &self.projection {
            Some(projection) => {
                projection.iter().map(|&at| self.column_indices[at].clone()).collect()
            }
            None => self.column_indices.clone(),
        }
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        if let Some(shared) = self.shared.get() {
            return Ok(Arc::clone(shared));
        }
        let needs_matched = self.join.index_rows() != Rows::None;
        let partitions = self.probe.output_partitioning().partition_count();
        let shared = Arc::new(Shared::new(&self.join.side, needs_matched, partitions)?);
        Ok(Arc::clone(self.shared.get_or_init(|| shared)))
    }
}

impl DisplayAs for IndexJoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Join { join_type, index_side, side, keys, filter, .. } = &*self.join;
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
        if let Some(predicate) = &side.predicate {
            write!(f, ", predicate={predicate}")?;
        }
        if let Some(filter) = filter {
            write!(f, ", filter={}", filter.expression())?;
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
        Self::new(Arc::clone(&self.probe), Arc::clone(&self.join), projection)
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
        let [probe] = <[_; 1]>::try_from(children).map_err(|children| {
            datafusion::error::DataFusionError::Internal(format!("{} inputs", children.len()))
        })?;
        Ok(Arc::new(Self::new(probe, Arc::clone(&self.join), self.projection.clone())?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(
            Arc::clone(&self.probe),
            Arc::clone(&self.join),
            self.projection.clone(),
        )?))
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
            batch_size,
        };
        stream::start(partition_join, self.schema(), probe, metrics)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        // A filter on columns of the probe side may go below the join, unless the join emits rows without a row of
        // that side, whose columns are null there.
        let join = &self.join;
        let child = if join.index_rows() == Rows::None && join.spread.is_none() {
            // The columns of a filter are found by name, so the name must belong to one column.
            let schema = self.probe.schema();
            let has_own_name = |at: usize| {
                let name = schema.field(at).name();
                schema.fields().iter().filter(|field| field.name() == name).count() == 1
            };
            let columns = self.output_columns();
            let of_probe = (0..columns.len()).filter(|&at| {
                columns[at].side == join.index_side.negate() && has_own_name(columns[at].index)
            });
            ChildFilterDescription::from_child_with_allowed_indices(
                &filters,
                of_probe.collect(),
                &self.probe,
            )?
        } else {
            ChildFilterDescription::all_unsupported(&filters)
        };
        Ok(FilterDescription::new().with_child(child))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        try_embed_projection(projection, self)
    }
}
