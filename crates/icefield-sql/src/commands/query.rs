//! `icefield-sql query`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use datafusion::common::utils::quote_identifier;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::interrupt::Interrupt;
use icefield_console::json::{Line, warn, with_output};

use super::output::RowsArgs;
use super::session::{NamedIndex, failure, named_index, on_runtime, open_indexes, register};
use crate::index::stamp::Stamp;
use crate::registry::IndexRegistry;

const EXAMPLES: &str = "\
Examples:
  icefield-sql query \"SELECT count(*) FROM orders JOIN 'lineitem.parquet' ON o_orderkey = l_orderkey\" \\
      --index orders.ice
  icefield-sql query \"EXPLAIN SELECT * FROM orders JOIN lines ON o_orderkey = l_orderkey\" \\
      --index orders.ice --table lines='lines/*.parquet'
  icefield-sql query \"SELECT * FROM t\" --table t=t.csv.gz -o t.parquet

The table of an index has the index's name: `orders` for orders.ice. --table names others; SQL may also name
files whose names end in .csv, .parquet, .json or .arrow, in quotes. A join of an indexed table by its keys probes the index, if the index includes all columns
that the query needs of the table; EXPLAIN shows IndexJoinExec then, and the reason otherwise. The columns that
an index has are also a table of the schema `indexes`, in which rows are looked up by key:
\"SELECT * FROM indexes.orders WHERE o_orderkey IN (7, 8)\".
--format, --delimiter, --null and such are for all tables of --table, and not for files in quotes. Write
conditions such as (a IS NOT DISTINCT FROM b) in parentheses: SQL takes what follows FROM for one expression.
The ending of the output's name determines its format: .csv, .tsv, .ndjson, .parquet or .arrow.
Exit status: 0 done, 1 a file has changed since it was indexed or cannot be read, 2 bad usage";

/// Run an SQL query over files and indexes
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Run this query
    #[arg(value_name = "SQL")]
    sql: String,
    /// Use the index in this directory, and name its table, if NAME= is given; may be given several times
    #[arg(long, value_name = "[NAME=]DIR", value_parser = named_index)]
    index: Vec<NamedIndex>,
    /// Name a table of a file, pattern or directory; may be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = named_table)]
    table: Vec<(String, String)>,
    #[command(flatten)]
    rows: RowsArgs,
}

impl Args {
    /// Returns the paths that the command reads, as far as the options name them.
    fn reads(&self) -> Vec<PathBuf> {
        let indexes = self.index.iter().map(|index| index.path.clone());
        let files = self.index.iter().filter_map(|index| Stamp::read(&index.path).ok());
        let files = files.flat_map(|stamp| stamp.files).map(|file| file.path);
        let tables = self.table.iter().map(|(_, source)| PathBuf::from(source));
        indexes.chain(tables).chain(files).collect()
    }
}

fn named_table(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), file.to_owned()))
        }
        _ => Err("NAME=FILE is expected".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    args.rows.refuse_two_outputs()?;
    if args.table.is_empty() && !args.rows.format.is_empty() {
        return Err(Failure::Usage(
            "--format, --delimiter, --null and such are for the tables of --table; name one"
                .to_owned(),
        ));
    }
    let reads = args.reads();
    let reads: Vec<&Path> = reads.iter().map(PathBuf::as_path).collect();
    with_output(&args.rows.json, &reads, |out| {
        let started = Instant::now();
        let interrupt = Interrupt::listen()?;
        let registry = IndexRegistry::default();
        let context = args.rows.session.context(&registry)?;
        let rows = on_runtime(args.rows.session.threads(), &interrupt, async {
            open_indexes(&context, &registry, &args.index, args.rows.allow_stale).await?;
            for (name, source) in &args.table {
                let format = args.rows.format.of(source)?;
                let sources = std::slice::from_ref(source);
                let table = format.table(&context.state(), sources).await.map_err(failure)?;
                register(&context, name, table, "--table NAME=FILE")?;
            }
            write_rows(args, &context, &reads, &registry).await
        })?;
        out.line(
            Line::new()
                .field("rows", &rows)
                .field("decisions", &registry.take_decisions())
                .field("seconds", &started.elapsed().as_secs_f64()),
        )?;
        Ok(true)
    })
}

async fn write_rows(
    args: &Args,
    context: &SessionContext,
    reads: &[&Path],
    registry: &IndexRegistry,
) -> Result<u64, Failure> {
    let frame = context.sql(&args.sql).await.map_err(|error| named_tables(context, error))?;
    let is_explain =
        matches!(frame.logical_plan(), LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let rows = frame.execute_stream().await.map_err(failure)?;
    let written = args.rows.write(rows, reads).await?;
    if is_explain {
        registry.take_decisions().iter().for_each(warn);
    }
    Ok(written)
}

/// Returns the failure for an error of a query, with the names of the tables if one was not found.
fn named_tables(context: &SessionContext, error: DataFusionError) -> Failure {
    let is_unknown = |text: &str| text.contains("table '") && text.contains("' not found");
    match failure(error) {
        Failure::Usage(text) if is_unknown(&text) => {
            let state = context.state();
            let options = &state.config_options().catalog;
            let catalog = context.catalog(&options.default_catalog);
            let schema = catalog.and_then(|catalog| catalog.schema(&options.default_schema));
            let names = schema.map(|schema| schema.table_names()).unwrap_or_default();
            let mut names: Vec<_> = names.iter().map(|name| quote_identifier(name)).collect();
            names.sort();
            let tables = match &names[..] {
                [] => "there are none".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            Failure::Usage(format!(
                "{text}; {tables}; --table NAME=FILE adds one, and files that end in .csv, .parquet, .json or .arrow may \
                 be named in quotes"
            ))
        }
        other => other,
    }
}
