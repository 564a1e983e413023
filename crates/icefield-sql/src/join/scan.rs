//! Scans of Parquet files that evaluate filters.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_expr::utils::conjunction;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::filter::{MatchExpr, SharedPredicate};
use crate::unary;

/// Number of rows up to which a table is small.
const SMALL: usize = 8192;

/// Returns a plan in which scans of small Parquet files evaluate their filters.
///
/// A hash join hands a filter of its keys to the scan of the other side. By default a scan only leaves out row groups
/// by it. A small table has one row group, so all its rows remain, and the filter of the join with this table has the
/// keys of all of them. If its scan evaluates the filter, the joins with indexes below get the filter of the rows that
/// remain: of the nations of one region, for example.
pub fn with_small_filtered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let Some((scan, parquet)) = parquet_scan(&plan) else { return Ok(Transformed::no(plan)) };
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
        if statistics.num_rows.get_value().is_none_or(|&rows| rows > SMALL) {
            return Ok(Transformed::no(plan));
        }
        let parquet = parquet.clone().with_pushdown_filters(true);
        Ok(Transformed::yes(with_source(scan, parquet)))
    })
    .data()
}

/// Returns whether the rows of a plan come from a Parquet scan, below no more than filters.
pub fn reads_parquet(plan: &Arc<dyn ExecutionPlan>) -> bool {
    parquet_scan(plan).is_some() || passes_filters(plan) && reads_parquet(plan.children()[0])
}

/// Returns the plan whose scan evaluates the filter by this predicate, if the scan has it: before it decodes other
/// columns than the keys, and evaluates its other filters.
pub fn filtered_by(
    plan: &Arc<dyn ExecutionPlan>,
    predicate: &Arc<SharedPredicate>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if passes_filters(plan) {
        let Some(child) = filtered_by(plan.children()[0], predicate)? else { return Ok(None) };
        return unary::with_inputs(Arc::clone(plan), vec![child]).map(Some);
    }
    let Some((scan, parquet)) = parquet_scan(plan) else { return Ok(None) };
    let filters = parquet.filter();
    let filters = filters.as_ref().map(split_conjunction).unwrap_or_default();
    let of_join = |filter: &&&Arc<dyn PhysicalExpr>| {
        let filter = filter.downcast_ref::<MatchExpr>();
        filter.is_some_and(|filter| Arc::ptr_eq(filter.predicate(), predicate))
    };
    let Some(&first) = filters.iter().find(of_join) else { return Ok(None) };
    // The join evaluates the filters of other joins with indexes.
    let others = filters.iter().filter(|filter| !filter.is::<MatchExpr>());
    let filters = std::iter::once(first).chain(others.copied()).cloned();
    let parquet = parquet.with_predicate(conjunction(filters)).with_pushdown_filters(true);
    Ok(Some(with_source(scan, parquet)))
}

fn passes_filters(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>() || plan.is::<CooperativeExec>()
}

fn parquet_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<(&FileScanConfig, &ParquetSource)> {
    let scan = plan.downcast_ref::<DataSourceExec>()?.data_source();
    let scan = scan.downcast_ref::<FileScanConfig>()?;
    Some((scan, scan.file_source.downcast_ref::<ParquetSource>()?))
}

fn with_source(scan: &FileScanConfig, parquet: ParquetSource) -> Arc<dyn ExecutionPlan> {
    let scan = FileScanConfigBuilder::from(scan.clone()).with_source(Arc::new(parquet)).build();
    DataSourceExec::from_data_source(scan)
}
