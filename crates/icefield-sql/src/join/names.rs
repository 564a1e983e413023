//! Columns that a filter may use. DataFusion finds the columns of a filter by name, and takes the wrong one if several
//! have this name.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

/// Returns whether a name belongs to one column at most.
pub fn is_unique(schema: &Schema, name: &str) -> bool {
    schema.fields().iter().filter(|field| field.name() == name).count() <= 1
}

/// Returns whether each of these names belongs to one column at most, in a plan and in all plans below it through which
/// a filter on these columns may pass.
pub fn are_unique(plan: &Arc<dyn ExecutionPlan>, names: &[String]) -> bool {
    if names.is_empty() {
        return true;
    }
    let schema = plan.schema();
    if !names.iter().all(|name| is_unique(&schema, name)) {
        return false;
    }
    let below = plan.downcast_ref::<ProjectionExec>().map(|projection| {
        let used = projection.expr().iter().filter(|one| names.contains(&one.alias));
        names_of(used.map(|one| &one.expr))
    });
    let names = below.as_deref().unwrap_or(names);
    plan.children().into_iter().all(|child| are_unique(child, names))
}

/// Returns the names of the columns that expressions use.
pub fn names_of<'a>(exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Vec<String> {
    exprs.flat_map(collect_columns).map(|column| column.name().to_owned()).collect()
}
