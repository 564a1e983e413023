//! The side of a join that an index answers: which plan it replaces, and how the plan's rows follow from the index.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::utils::{collect_columns, conjunction, reassign_expr_columns};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::expressions::{CastExpr, Column};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use crate::batch::batch_of;
use crate::index::Index;
use crate::index::format::Kind;
use crate::index::keys::{KeyForm, comparable, values_of};
use crate::index::source::files_of;
use crate::index::writer::stored_type;
use crate::registry::IndexRegistry;
use crate::spelled::SpelledExec;
use crate::table::IndexScanExec;

type Expr = Arc<dyn PhysicalExpr>;

/// The rows of a plan, as an index has them.
#[derive(Clone, Debug)]
pub struct IndexSide {
    /// The index.
    pub index: Arc<Index>,
    /// The columns of the plan.
    pub schema: SchemaRef,
    /// Their values, as expressions over the columns of the index.
    pub outputs: Vec<Expr>,
    /// The rows of the plan are those for which this expression over the columns of the index is true.
    pub predicate: Option<Expr>,
}

impl IndexSide {
    /// Returns the ways in which an index gives the rows of `plan`, or the reason why none does.
    pub fn of(
        plan: &Arc<dyn ExecutionPlan>,
        registry: &IndexRegistry,
    ) -> std::result::Result<Vec<Self>, String> {
        let indexes = match source_of(plan)? {
            Source::Index(index) => vec![index],
            Source::Files(scan) => registry.of_files(&files_of(scan)?),
        };
        if indexes.is_empty() {
            return Err("no index of exactly these files, unchanged".to_owned());
        }
        let mut sides = Vec::new();
        let mut reason = String::new();
        for index in indexes {
            match rows_of(plan, &index) {
                Ok((outputs, predicates)) if outputs.iter().chain(&predicates).any(is_volatile) => {
                    reason = "an expression has another value at each evaluation".to_owned();
                }
                Ok((outputs, predicates)) => sides.push(Self {
                    index,
                    schema: plan.schema(),
                    outputs,
                    predicate: (!predicates.is_empty()).then(|| conjunction(predicates)),
                }),
                Err(why) => reason = format!("{}: {why}", index.name()),
            }
        }
        if sides.is_empty() { Err(reason) } else { Ok(sides) }
    }
}

/// Where the rows of a plan come from.
enum Source<'a> {
    Files(&'a FileScanConfig),
    Index(Arc<Index>),
}

/// Returns the source below filters, projections, and what only moves rows between threads.
fn source_of(plan: &Arc<dyn ExecutionPlan>) -> std::result::Result<Source<'_>, String> {
    if let Some(scan) = plan.downcast_ref::<IndexScanExec>() {
        return Ok(Source::Index(Arc::clone(scan.index())));
    }
    if let Some(source) = plan.downcast_ref::<DataSourceExec>() {
        return source
            .data_source()
            .downcast_ref::<FileScanConfig>()
            .map(Source::Files)
            .ok_or_else(|| "the rows do not come from files".to_owned());
    }
    let is_row_by_row =
        plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<SpelledExec>();
    if is_row_by_row || moves_rows(plan) {
        return source_of(plan.children()[0]);
    }
    Err(format!("the rows come from {}, not from a table", plan.name()))
}

fn moves_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>()
}

/// Returns the plan's columns and predicates as expressions over the columns of the index.
fn rows_of(
    plan: &Arc<dyn ExecutionPlan>,
    index: &Index,
) -> std::result::Result<(Vec<Expr>, Vec<Expr>), String> {
    let failed = |error: datafusion::error::DataFusionError| error.to_string();
    if let Some(scan) = plan.downcast_ref::<IndexScanExec>() {
        let (columns, reads_all) = scan.reads();
        if !reads_all {
            return Err("rows of the index are looked up".to_owned());
        }
        let column =
            |&at: &usize| -> Expr { Arc::new(Column::new(index.schema().field(at).name(), at)) };
        return Ok((columns.iter().map(column).collect(), Vec::new()));
    }
    if let Some(source) = plan.downcast_ref::<DataSourceExec>() {
        let scan = source.data_source().downcast_ref::<FileScanConfig>();
        let scan = scan.ok_or("the rows do not come from files")?;
        return Ok((scan_outputs(scan, index)?, Vec::new()));
    }
    if let Some(spelled) = plan.downcast_ref::<SpelledExec>() {
        return Ok((spelled_outputs(spelled, index)?, Vec::new()));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        if filter.fetch().is_some() {
            return Err("only a limited number of rows is read".to_owned());
        }
        let (outputs, mut predicates) = rows_of(filter.input(), index)?;
        predicates.push(replaced(filter.predicate(), &outputs).map_err(failed)?);
        let outputs = match filter.projection() {
            Some(projection) => projection.iter().map(|&at| Arc::clone(&outputs[at])).collect(),
            None => outputs,
        };
        return Ok((outputs, predicates));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let (outputs, predicates) = rows_of(projection.input(), index)?;
        let outputs = projection.expr().iter().map(|one| replaced(&one.expr, &outputs));
        return Ok((outputs.collect::<Result<_>>().map_err(failed)?, predicates));
    }
    if moves_rows(plan) {
        if plan.fetch().is_some() {
            return Err("only a limited number of rows is read".to_owned());
        }
        return rows_of(plan.children()[0], index);
    }
    Err(format!("the rows come from {}, not from a table", plan.name()))
}

/// Returns the columns of files with spellings of null as columns of the index.
fn spelled_outputs(spelled: &SpelledExec, index: &Index) -> std::result::Result<Vec<Expr>, String> {
    let scan = match source_of(spelled.children()[0])? {
        Source::Files(scan) if scan.limit.is_none() => scan,
        _ => return Err("only a limited number of rows is read".to_owned()),
    };
    index.stamp().format.is_of(scan, spelled.nulls())?;
    has_columns_of(scan, index)?;
    let schema = spelled.schema();
    let column = |field: &Arc<Field>| {
        can_be_read_as(index, field, true)?;
        index_column(index, field)
            .ok_or_else(|| format!("the index does not include the column `{}`", field.name()))
    };
    schema.fields().iter().map(column).collect()
}

/// Returns an error if a scan of CSV, whose columns DataFusion finds by their positions, has other columns than the
/// files had for the index.
fn has_columns_of(scan: &FileScanConfig, index: &Index) -> std::result::Result<(), String> {
    let stamp = index.stamp();
    let table = scan.file_source.table_schema().table_schema();
    let names = table.fields().iter().map(|field| field.name());
    if stamp.format.kind == Kind::Csv && !names.eq(&stamp.table) {
        return Err(format!(
            "the columns of the files are {} in the index",
            stamp.table.join(", ")
        ));
    }
    Ok(())
}

/// Returns an error if the index has a column whose values are others when the files are read with this type.
/// `is_text` is true if the type determines what the texts of a file become.
fn can_be_read_as(index: &Index, field: &Field, is_text: bool) -> std::result::Result<(), String> {
    let Ok(indexed) = index.schema().field_with_name(field.name()) else { return Ok(()) };
    let (from, to) = (indexed.data_type(), field.data_type());
    let keeps = match is_text {
        true => from == to || is_string(from) && is_string(to),
        false => from == to || *from == stored_type(to) || keeps_values(from, to),
    };
    if keeps {
        return Ok(());
    }
    Err(format!("the column `{}` is read as {to}, and indexed as {from}", field.name()))
}

/// Returns a column of the index as one of the type of `field`.
fn index_column(index: &Index, field: &Field) -> Option<Expr> {
    let at = index.schema().index_of(field.name()).ok()?;
    let column: Expr = Arc::new(Column::new(field.name(), at));
    let is_same = index.schema().field(at).data_type() == field.data_type();
    Some(if is_same {
        column
    } else {
        Arc::new(CastExpr::new(column, field.data_type().clone(), None))
    })
}

/// Returns the columns of a scan as columns of the index.
fn scan_outputs(scan: &FileScanConfig, index: &Index) -> std::result::Result<Vec<Expr>, String> {
    if scan.limit.is_some() {
        return Err("only a limited number of rows is read".to_owned());
    }
    if scan.file_source.filter().is_some() {
        return Err("the scan has a filter of its own".to_owned());
    }
    let stamp = index.stamp();
    stamp.format.is_of(scan, &[])?;
    let table = scan.file_source.table_schema().table_schema();
    let is_text = matches!(stamp.format.kind, Kind::Csv | Kind::Json);
    has_columns_of(scan, index)?;
    table.fields().iter().try_for_each(|field| can_be_read_as(index, field, is_text))?;
    let columns: Vec<Option<Expr>> =
        table.fields().iter().map(|field| index_column(index, field)).collect();
    let missing =
        |at: usize| format!("the index does not include the column `{}`", table.field(at).name());
    let Some(projection) = scan.file_source.projection() else {
        return columns
            .into_iter()
            .enumerate()
            .map(|(at, column)| column.ok_or_else(|| missing(at)))
            .collect();
    };
    // The columns that no expression uses may be anything.
    let all: Vec<Expr> = columns
        .iter()
        .map(|column| column.clone().unwrap_or_else(|| Arc::new(Column::new("", 0))))
        .collect();
    let mut outputs = Vec::new();
    for one in projection.iter() {
        if let Some(lacking) =
            collect_columns(&one.expr).iter().find(|column| columns[column.index()].is_none())
        {
            return Err(missing(lacking.index()));
        }
        outputs.push(replaced(&one.expr, &all).map_err(|error| error.to_string())?);
    }
    Ok(outputs)
}

/// Returns an expression with its columns replaced by the expressions at their positions.
pub(super) fn replaced(expr: &Expr, by: &[Expr]) -> Result<Expr> {
    let replace = |expr: Expr| {
        Ok(match expr.downcast_ref::<Column>() {
            Some(column) => Transformed::yes(Arc::clone(&by[column.index()])),
            None => Transformed::no(expr),
        })
    };
    Arc::clone(expr).transform_up(replace).data()
}

/// How the keys of a join are looked up.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    /// The keys of the probe side, for the index's key columns in order.
    pub probe: Vec<Expr>,
    /// Pairs that the words do not decide: an expression of the probe side, and one over the columns of the index.
    pub compared: Vec<(Expr, Expr)>,
}

impl KeyPlan {
    /// Returns how an index answers the equalities `on`, pairs of an expression of the probe side and one of the plan
    /// that the index replaces; or the reason why it does not.
    pub fn of(side: &IndexSide, on: &[(Expr, Expr)]) -> std::result::Result<Self, String> {
        let schema = side.index.schema();
        let mut probe: Vec<Option<Expr>> = vec![None; side.index.keys().len()];
        let mut compared = Vec::new();
        let is_word = side.index.stamp().form == KeyForm::Word;
        for (of_probe, of_plan) in on {
            let key = replaced(of_plan, &side.outputs).map_err(|error| error.to_string())?;
            let compared_as = key.data_type(schema).map_err(|error| error.to_string())?;
            let place = column_of(&key, schema)
                .filter(|&column| comparable(schema.field(column).data_type(), &compared_as))
                .and_then(|column| side.index.keys().iter().position(|&one| one == column));
            match place.map(|place| &mut probe[place]) {
                Some(probe) if probe.is_none() => {
                    *probe = Some(Arc::clone(of_probe));
                    if !is_word {
                        compared.push((Arc::clone(of_probe), key));
                    }
                }
                _ => compared.push((Arc::clone(of_probe), key)),
            }
        }
        if let Some((_, key)) = compared.iter().find(|(_, key)| is_nested(key, schema)) {
            return Err(format!("{}: {key} has values of several parts", side.index.name()));
        }
        let missing = probe.iter().position(Option::is_none);
        match missing {
            Some(at) => Err(format!(
                "{}: the join does not compare the key `{}`, or not in a way that keeps its value",
                side.index.name(),
                side.index.stamp().keys[at]
            )),
            None => Ok(Self { probe: probe.into_iter().flatten().collect(), compared }),
        }
    }
    /// Returns whether the join compares more than the keys.
    pub fn has_others(&self, side: &IndexSide) -> bool {
        let of_keys = match side.index.stamp().form {
            KeyForm::Word => 0,
            KeyForm::Hash(_) => self.probe.len(),
        };
        self.compared.len() > of_keys
    }
}

/// Returns whether the values of an expression are lists, structures or maps, which Arrow does not compare.
fn is_nested(expr: &Expr, schema: &Schema) -> bool {
    expr.data_type(schema).is_ok_and(|data_type| values_of(&data_type).is_nested())
}

/// Returns the column whose value an expression has, possibly with another type.
fn column_of(expr: &Expr, schema: &Schema) -> Option<usize> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(column.index());
    }
    let inner = expr.downcast_ref::<CastExpr>()?;
    let from = inner.expr().data_type(schema).ok()?;
    if !keeps_values(&from, inner.cast_type()) {
        return None;
    }
    column_of(inner.expr(), schema)
}

/// Returns whether a cast changes no value.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    use DataType as D;
    if from == to {
        return true;
    }
    match (from, to) {
        (D::Dictionary(_, values), _) => keeps_values(values, to),
        (_, D::Dictionary(_, values)) => keeps_values(from, values),
        (D::Timestamp(one, _), D::Timestamp(other, _))
        | (D::Time32(one) | D::Time64(one), D::Time32(other) | D::Time64(other))
        | (D::Duration(one), D::Duration(other)) => one <= other && comparable(from, to),
        _ if from.is_decimal() && to.is_decimal() => scale(from) <= scale(to),
        _ if from.is_integer() && to.is_decimal() => scale(to) >= 0,
        _ if from.is_integer() && to.is_integer() => holds(to, from),
        _ => !from.is_decimal() && comparable(from, to),
    }
}

/// Returns whether an integer type has all values of another one.
fn holds(to: &DataType, from: &DataType) -> bool {
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(8);
    match (from.is_unsigned_integer(), to.is_unsigned_integer()) {
        (true, false) => bits(from) < bits(to),
        (false, true) => false,
        _ => bits(from) <= bits(to),
    }
}

fn is_string(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// Evaluates expressions over the columns of an index, of which it takes only those that the expressions use.
#[derive(Clone, Debug)]
pub struct Taker {
    columns: Vec<usize>,
    schema: SchemaRef,
    exprs: Vec<Expr>,
}

impl Taker {
    /// Returns the taker of `exprs`, expressions over the columns of `index`.
    ///
    /// # Errors
    /// If an expression uses a column that does not exist.
    pub fn new(index: &Index, exprs: &[Expr]) -> Result<Self> {
        let mut columns: Vec<usize> =
            exprs.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        columns.sort_unstable();
        columns.dedup();
        let schema = Arc::new(index.schema().project(&columns)?);
        let exprs = exprs.iter().map(|expr| reassign_expr_columns(Arc::clone(expr), &schema));
        let exprs = exprs.collect::<Result<_>>()?;
        Ok(Self { columns, schema, exprs })
    }

    /// Returns the values of the expressions in the given rows.
    ///
    /// # Errors
    /// If the index is damaged, or an expression fails.
    pub fn take(&self, index: &Index, rows: &[u64]) -> Result<Vec<ArrayRef>> {
        let columns = self.columns.iter().map(|&column| index.columns().take(column, rows));
        self.evaluate(columns.collect::<Result<_>>()?, rows.len())
    }

    /// Returns the values of the expressions in a chunk of the index.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn chunk(&self, index: &Index, chunk: usize, rows: usize) -> Result<Vec<ArrayRef>> {
        let columns =
            self.columns.iter().map(|&column| index.columns().chunk(column, chunk).cloned());
        self.evaluate(columns.collect::<Result<_>>()?, rows)
    }

    fn evaluate(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<Vec<ArrayRef>> {
        let batch = batch_of(&self.schema, columns, rows)?;
        self.exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(rows)).collect()
    }
}

/// Returns the result of a predicate as booleans.
///
/// # Errors
/// If the predicate has another type.
pub fn booleans(array: &ArrayRef) -> Result<BooleanArray> {
    let array = match array.data_type() {
        DataType::Boolean => Arc::clone(array),
        _ => cast(array, &DataType::Boolean)?,
    };
    Ok(datafusion::common::cast::as_boolean_array(&array)?.clone())
}
