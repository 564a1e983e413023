//! A better order of joins: a join whose one side is a table with an index, already joined with other indexes.
//!
//! DataFusion joins `(customer JOIN orders) JOIN lineitem` in this order, because it must build a hash table of orders
//! in any case. With an index of orders, `lineitem` probes it first, and `customer` then: nothing is built.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::projection::{EmbeddedProjection, ProjectionExec};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::exec::IndexJoinExec;
use super::kind::Join;
use super::side::{KeyPlan, replaced};

type Expr = Arc<dyn PhysicalExpr>;
/// Equalities of an expression over another plan and one over the plan that is joined with it.
type On = [(Expr, Expr)];
/// A function that makes the join with an index from a plan that it answers.
type Through<'a> = &'a dyn Fn(&Arc<dyn ExecutionPlan>, &On) -> Option<Join>;

/// The inner join of a plan with another one.
pub struct InnerJoin<'a> {
    /// A plan that an index may answer, after other joins.
    pub plan: &'a Arc<dyn ExecutionPlan>,
    /// The plan that probes it.
    pub other: &'a Arc<dyn ExecutionPlan>,
    /// The equalities of the join.
    pub on: &'a On,
    /// Makes the join with an index from a plan that it answers.
    pub through: Through<'a>,
}

/// The columns that are needed of each side.
#[derive(Default)]
struct Needed {
    of_plan: BTreeSet<usize>,
    of_other: BTreeSet<usize>,
}

/// A join in the new order.
struct Ordered {
    exec: IndexJoinExec,
    /// The positions in its output of the columns of each side that are needed.
    of_plan: Vec<Option<usize>>,
    of_other: Vec<Option<usize>>,
}

impl InnerJoin<'_> {
    /// Returns the join with the columns `columns`, pairs of a side (`Left` for `plan`, `Right` for `other`) and a
    /// position; `None` if the join does not have this form.
    ///
    /// # Errors
    /// If DataFusion does not accept a projection.
    pub fn ordered(&self, columns: &[(JoinSide, usize)]) -> Result<Option<IndexJoinExec>> {
        let mut needed = Needed::default();
        for &(side, at) in columns {
            let of_side =
                if side == JoinSide::Left { &mut needed.of_plan } else { &mut needed.of_other };
            of_side.insert(at);
        }
        let Some(join) = joined_after(self.plan) else { return Ok(None) };
        let Some(ordered) = self.through_join(join, self.on, &needed)? else { return Ok(None) };
        let place = |&(side, at): &(JoinSide, usize)| {
            if side == JoinSide::Left { ordered.of_plan[at] } else { ordered.of_other[at] }
        };
        let Some(projection) = columns.iter().map(place).collect() else { return Ok(None) };
        ordered.exec.with_projection(Some(projection)).map(Some)
    }

    fn order(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        on: &On,
        needed: &Needed,
    ) -> Result<Option<Ordered>> {
        if let Some(join) = (self.through)(plan, on) {
            let (of_plan, of_other) = (plan.schema().fields().len(), self.other.schema());
            let projection: Vec<usize> = needed
                .of_plan
                .iter()
                .copied()
                .chain(needed.of_other.iter().map(|at| of_plan + at))
                .collect();
            let places = |first: usize, count: usize| {
                let place = |at| projection.iter().position(|&one| one == first + at);
                (0..count).map(place).collect()
            };
            let (of_plan, of_other) =
                (places(0, of_plan), places(of_plan, of_other.fields().len()));
            let exec =
                IndexJoinExec::new(Arc::clone(self.other), Arc::new(join), Some(projection))?;
            return Ok(Some(Ordered { exec, of_plan, of_other }));
        }
        match joined_after(plan) {
            Some(join) => self.through_join(join, on, needed),
            None => Ok(None),
        }
    }

    /// Moves the join below a join with an index.
    fn through_join(
        &self,
        upper: JoinedAfter<'_>,
        on: &On,
        needed: &Needed,
    ) -> Result<Option<Ordered>> {
        let JoinedAfter { exec: upper, columns } = upper;
        let join = upper.join();
        let outputs = upper.output_columns();
        let place = |at: usize| &outputs[columns[at]];
        let is_of_probe = |at: usize| place(at).side == join.index_side.negate();
        if on
            .iter()
            .any(|(_, key)| collect_columns(key).iter().any(|column| !is_of_probe(column.index())))
        {
            return Ok(None);
        }
        let schema = upper.probe().schema();
        let by: Vec<Expr> = (0..columns.len())
            .map(|at| {
                let at = if is_of_probe(at) { place(at).index } else { 0 };
                Arc::new(Column::new(schema.field(at).name(), at)) as Expr
            })
            .collect();
        let below = on.iter().map(|(other, key)| Ok((Arc::clone(other), replaced(key, &by)?)));
        let below = below.collect::<Result<Vec<_>>>()?;
        let mut needed_below =
            Needed { of_plan: BTreeSet::new(), of_other: needed.of_other.clone() };
        let needed_of_probe = needed.of_plan.iter().filter(|&&at| is_of_probe(at));
        needed_below.of_plan.extend(needed_of_probe.map(|&at| place(at).index));
        let exprs = join.keys.probe.iter().chain(join.keys.compared.iter().map(|(probe, _)| probe));
        let used = exprs.flat_map(collect_columns).map(|column| column.index());
        needed_below.of_plan.extend(used);
        let of_filter = join.filter.iter().flat_map(JoinFilter::column_indices);
        let of_filter = of_filter.filter(|column| column.side != join.index_side);
        needed_below.of_plan.extend(of_filter.map(|column| column.index));
        let Some(lower) = self.order(upper.probe(), &below, &needed_below)? else {
            return Ok(None);
        };
        let Some(join) = moved(join, &lower)? else { return Ok(None) };
        // The columns of the new join, before its projection.
        let of_index = join.side.schema.fields().len();
        let of_lower = lower.exec.schema().fields().len();
        let (first_of_index, first_of_lower) =
            if join.index_side == JoinSide::Left { (0, of_index) } else { (of_lower, 0) };
        let mut projection = Vec::new();
        let mut of_plan = vec![None; columns.len()];
        for &at in &needed.of_plan {
            let whole = if is_of_probe(at) {
                lower.of_plan[place(at).index].map(|lower| first_of_lower + lower)
            } else {
                Some(first_of_index + place(at).index)
            };
            let Some(whole) = whole else { return Ok(None) };
            of_plan[at] = Some(projection.len());
            projection.push(whole);
        }
        let mut of_other = vec![None; lower.of_other.len()];
        for &at in &needed.of_other {
            let Some(lower) = lower.of_other[at] else { return Ok(None) };
            of_other[at] = Some(projection.len());
            projection.push(first_of_lower + lower);
        }
        let exec = IndexJoinExec::new(Arc::new(lower.exec), Arc::new(join), Some(projection))?;
        Ok(Some(Ordered { exec, of_plan, of_other }))
    }
}

/// An inner join with an index, and which of its columns a plan returns.
struct JoinedAfter<'a> {
    exec: &'a IndexJoinExec,
    columns: Vec<usize>,
}

/// Returns the join with an index whose rows a plan returns.
fn joined_after(plan: &Arc<dyn ExecutionPlan>) -> Option<JoinedAfter<'_>> {
    if let Some(exec) = plan.downcast_ref::<IndexJoinExec>() {
        let columns = (0..exec.schema().fields().len()).collect();
        let join = exec.join();
        // Rows that are distributed cannot be those of an index.
        let can_move = join.join_type == JoinType::Inner && join.spread.is_none();
        return can_move.then_some(JoinedAfter { exec, columns });
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let JoinedAfter { exec, columns: below } = joined_after(projection.input())?;
    let column = |one: &Expr| one.downcast_ref::<Column>().map(|column| below[column.index()]);
    let columns = projection.expr().iter().map(|one| column(&one.expr)).collect::<Option<_>>()?;
    Some(JoinedAfter { exec, columns })
}

/// Returns a join with the output of another plan instead of its probe side.
fn moved(join: &Join, lower: &Ordered) -> Result<Option<Join>> {
    let schema = lower.exec.schema();
    let place = |at: usize| lower.of_plan.get(at).copied().flatten();
    let by: Vec<Expr> = (0..lower.of_plan.len())
        .map(|at| {
            // Columns that are not in the output are not used.
            let at = place(at).unwrap_or(0);
            Arc::new(Column::new(schema.field(at).name(), at)) as Expr
        })
        .collect();
    let probe = join.keys.probe.iter().map(|key| replaced(key, &by)).collect::<Result<_>>()?;
    let compared = join.keys.compared.iter();
    let compared = compared.map(|(key, index)| Ok((replaced(key, &by)?, Arc::clone(index))));
    let keys = KeyPlan { probe, compared: compared.collect::<Result<_>>()? };
    let filter = match &join.filter {
        None => None,
        Some(filter) => {
            let mut columns = filter.column_indices().to_vec();
            for column in columns.iter_mut().filter(|column| column.side != join.index_side) {
                let Some(at) = place(column.index) else { return Ok(None) };
                column.index = at;
            }
            let (expression, schema) = (Arc::clone(filter.expression()), filter.schema());
            Some(JoinFilter::new(expression, columns, Arc::clone(schema)))
        }
    };
    Ok(Some(Join { keys, filter, ..join.clone() }))
}
