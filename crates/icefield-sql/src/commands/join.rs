//! `icefield-sql join`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, JoinType};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{DataFrame, Expr, SessionContext};
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{Line, Output, with_output};
use std::sync::Arc;

use super::output::RowsArgs;
use super::session::{failure, on_runtime, open_index};
use crate::index::Index;
use crate::join::exec::IndexJoinExec;
use crate::registry::IndexRegistry;
use crate::table::IndexTable;

const EXAMPLES: &str = "\
Examples:
  icefield-sql join lineitem.parquet --index orders.ice --on l_orderkey
  icefield-sql join lineitem.parquet --index orders.ice --on l_orderkey --semi -o matched.parquet
  icefield-sql join 'lines/*.csv.gz' --index orders.ice --on order,line --anti | head
  icefield-sql join lineitem.parquet --index orders.ice --on l_orderkey \\
      --select l_orderkey,l_quantity,orders.o_orderdate -o joined.parquet

A pair is a row of FILE and a row of the indexed table with equal keys; null equals nothing. --count (the
default) prints the number of pairs. --semi writes the rows of FILE that have a pair, --anti those that have
none (also rows without a key, like NOT EXISTS). The others write pairs: --inner, and --left, --right or --full
with the rows of FILE, of the indexed table, or of both that have none. --select names their columns: NAME,
left.NAME (FILE), right.NAME or INDEXED.NAME (the indexed table, by the name of the index); `*` is all that
FILE and the index have. Numbers are compared by value, whatever their types, and timestamps of all units.
Exit status: 0 done, 1 the files have changed since they were indexed or cannot be read, 2 bad usage";

/// Join files with an indexed table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Read these files: a name, pattern or directory
    #[arg(value_name = "FILE")]
    file: String,
    /// Probe the index in this directory
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Take the keys from these columns; without it from those with the names of the indexed columns
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    on: Vec<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Return these columns of each pair
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with_all = ["count", "semi", "anti"])]
    select: Vec<String>,
    #[command(flatten)]
    rows: RowsArgs,
}

/// The kind of result.
#[derive(clap::Args, Debug)]
#[group(multiple = false)]
struct Wanted {
    /// Count the pairs
    #[arg(long)]
    count: bool,
    /// Return the rows of FILE that have a pair
    #[arg(long)]
    semi: bool,
    /// Return the rows of FILE that have no pair
    #[arg(long)]
    anti: bool,
    /// Return the pairs
    #[arg(long)]
    inner: bool,
    /// Return the pairs, and the rows of FILE that have none
    #[arg(long)]
    left: bool,
    /// Return the pairs, and the rows of the indexed table that have none
    #[arg(long)]
    right: bool,
    /// Return the pairs, and the rows of both that have none
    #[arg(long)]
    full: bool,
}

impl Args {
    /// Returns the type of the join; `None` to count.
    fn join_type(&self) -> Option<JoinType> {
        let Wanted { semi, anti, inner, left, right, full, .. } = self.wanted;
        match () {
            () if semi => Some(JoinType::LeftSemi),
            () if anti => Some(JoinType::LeftAnti),
            () if left => Some(JoinType::Left),
            () if right => Some(JoinType::Right),
            () if full => Some(JoinType::Full),
            () if inner || !self.select.is_empty() => Some(JoinType::Inner),
            () => None,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let writes_rows = args.join_type().is_some();
    if writes_rows {
        args.rows.refuse_two_outputs()?;
    }
    if !writes_rows && !args.rows.takes_stdout() {
        return Err(Failure::Usage(
            "-o: --count writes no rows; add --semi, --anti, --inner, --left, --right, --full or --select".to_owned(),
        ));
    }
    let file = PathBuf::from(&args.file);
    let reads = [file.as_path(), args.index.as_path()];
    with_output(&args.rows.json, &reads, |out| {
        let started = Instant::now();
        let interrupt = Interrupt::listen()?;
        let registry = IndexRegistry::default();
        let context = args.rows.session.context(&registry)?;
        on_runtime(args.rows.session.threads(), &interrupt, async {
            let index = open_index(&registry, &args.index, args.rows.allow_stale).await?;
            let frame = frame(args, &context, &index).await?;
            let plan = plan(frame, &registry).await?;
            match args.join_type() {
                None => count(plan, &context, started, out).await,
                Some(_) => rows(args, plan, &context, &reads, started, out).await,
            }
        })?;
        Ok(true)
    })
}

/// Returns the join.
async fn frame(
    args: &Args,
    context: &SessionContext,
    index: &Arc<Index>,
) -> Result<DataFrame, Failure> {
    let state = context.state();
    let source = std::slice::from_ref(&args.file);
    let probe = args.rows.format.of(&args.file)?.table(&state, source).await.map_err(failure)?;
    let stamp = index.stamp();
    let left = context.read_table(probe).and_then(|frame| frame.alias("left")).map_err(failure)?;
    let indexed = Arc::new(IndexTable::new(Arc::clone(index)));
    let right = context.read_table(indexed).and_then(|frame| frame.alias("right"));
    let right = right.map_err(failure)?;
    let on = if args.on.is_empty() { &stamp.keys } else { &args.on };
    if on.len() != stamp.keys.len() {
        return Err(Failure::Usage(format!(
            "--on: {} columns, but the index has the keys {}",
            on.len(),
            stamp.keys.join(", ")
        )));
    }
    for name in on {
        known(name, &left, &args.file)?;
    }
    let equal =
        std::iter::zip(on, &stamp.keys).map(|(probe, key)| of("left", probe).eq(of("right", key)));
    let join_type = args.join_type();
    let chosen = chosen(args, index, &left, &right)?;
    let joined =
        left.join_on(right, join_type.unwrap_or(JoinType::Inner), equal).map_err(failure)?;
    match join_type {
        None => joined.aggregate(
            vec![],
            vec![datafusion::functions_aggregate::expr_fn::count(datafusion::prelude::lit(1))],
        ),
        Some(JoinType::LeftSemi | JoinType::LeftAnti) => Ok(joined),
        Some(_) => joined.select(chosen),
    }
    .map_err(failure)
}

fn of(table: &str, column: &str) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(table)), column))
}

fn known(name: &str, frame: &DataFrame, source: &str) -> Result<(), Failure> {
    let fields = frame.schema().fields();
    if fields.iter().any(|field| field.name() == name) {
        return Ok(());
    }
    let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
    Err(Failure::Usage(format!("{source}: no column `{name}`; it has {}", names.join(", "))))
}

/// Returns the columns of pairs, each under a name that no other one has.
fn chosen(
    args: &Args,
    index: &Index,
    left: &DataFrame,
    right: &DataFrame,
) -> Result<Vec<Expr>, Failure> {
    let names = |frame: &DataFrame| {
        frame.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    let (of_left, of_right, indexed) = (names(left), names(right), index.name());
    let mut chosen: Vec<(&str, String)> = Vec::new();
    let all = ["*".to_owned()];
    for wanted in if args.select.is_empty() { &all[..] } else { &args.select[..] } {
        if wanted == "*" {
            chosen.extend(of_left.iter().map(|name| ("left", name.clone())));
            chosen.extend(of_right.iter().map(|name| ("right", name.clone())));
            continue;
        }
        let sided = wanted.split_once('.').and_then(|(side, name)| match side {
            "left" => Some(("left", name)),
            "right" => Some(("right", name)),
            side if side == indexed => Some(("right", name)),
            _ => None,
        });
        let (side, name) = match sided {
            Some(sided) => sided,
            None => match (of_left.contains(wanted), of_right.contains(wanted)) {
                (true, true) => {
                    return Err(Failure::Usage(format!(
                        "--select: both sides have a column `{wanted}`; write left.{wanted} or right.{wanted}"
                    )));
                }
                (false, true) => ("right", wanted.as_str()),
                _ => ("left", wanted.as_str()),
            },
        };
        let (frame, source) =
            if side == "left" { (left, args.file.as_str()) } else { (right, indexed.as_str()) };
        known(name, frame, source)?;
        chosen.push((side, name.to_owned()));
    }
    let mut taken: Vec<String> = Vec::new();
    let mut exprs = Vec::new();
    for (side, name) in chosen {
        let column = of(side, &name);
        let name = if taken.contains(&name) { format!("{side}.{name}") } else { name };
        if taken.contains(&name) {
            return Err(Failure::Usage(format!("--select: `{name}` is selected twice")));
        }
        exprs.push(column.alias(&name));
        taken.push(name);
    }
    Ok(exprs)
}

/// Returns the plan, or the reason why it does not use the index.
async fn plan(
    frame: DataFrame,
    registry: &IndexRegistry,
) -> Result<Arc<dyn ExecutionPlan>, Failure> {
    let plan = frame.create_physical_plan().await.map_err(failure)?;
    if plan.exists(|node| Ok(node.is::<IndexJoinExec>())).map_err(failure)? {
        return Ok(plan);
    }
    let reasons = registry.take_decisions().join("; ");
    Err(Failure::Usage(format!("the index cannot answer this join: {reasons}")))
}

async fn count(
    plan: Arc<dyn ExecutionPlan>,
    context: &SessionContext,
    started: Instant,
    out: &mut Output,
) -> Result<(), Failure> {
    let batches =
        datafusion::physical_plan::collect(plan, context.task_ctx()).await.map_err(failure)?;
    let counts = batches.iter().filter(|batch| batch.num_rows() > 0).map(|batch| {
        datafusion::common::cast::as_int64_array(batch.column(0)).map(|counts| counts.value(0))
    });
    let pairs: i64 = counts.sum::<datafusion::error::Result<i64>>().map_err(failure)?;
    out.say(pairs)?;
    out.line(Line::new().field("pairs", &pairs).field("seconds", &started.elapsed().as_secs_f64()))
}

async fn rows(
    args: &Args,
    plan: Arc<dyn ExecutionPlan>,
    context: &SessionContext,
    reads: &[&Path],
    started: Instant,
    out: &mut Output,
) -> Result<(), Failure> {
    let rows = execute_stream(plan, context.task_ctx()).map_err(failure)?;
    let written = args.rows.write(rows, reads).await?;
    out.line(Line::new().field("rows", &written).field("seconds", &started.elapsed().as_secs_f64()))
}
