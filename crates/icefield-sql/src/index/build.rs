//! Builds an index of the key columns of a table's files.
//!
//! The rows are read once, in order: their columns go to the file of columns, their words stay in memory, 8 bytes a
//! row, until the index is built from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, RecordBatch, UInt64Array};
use arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use icefield::{Durability, JoinIndex, JoinSource, JoinStats};
use icefield_console::failure::Failure;
use icefield_console::site::Site;

use super::columns::{Columns, ColumnsWriter};
use super::format::{Format, named};
use super::keys::KeyForm;
use super::source::{SourceFile, files_of};
use super::stamp::Stamp;
use super::FILES;
use crate::error::{of_index, usage};

/// Number of pairs that a source shows at once.
const SHOWN: usize = 4096;

/// What to build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Files, patterns and directories.
    pub sources: Vec<String>,
    /// How they are read.
    pub format: Format,
    /// The names of the key columns.
    pub keys: Vec<String>,
    /// The names of other columns that the index answers; all columns, if one is `*`.
    pub include: Vec<String>,
    /// The directory to create.
    pub target: PathBuf,
    /// Whether to replace an index that exists there.
    pub replace: bool,
    /// Number of threads; by default one for each core.
    pub threads: Option<usize>,
    /// Filter bits of each key; by default those of the library.
    pub filter_bits: Option<u32>,
    /// The failures that the index survives.
    pub durability: Durability,
}

impl BuildOptions {
    /// Returns the options for an index of these sources by these keys, without other columns.
    ///
    /// # Errors
    /// If the names of the sources do not tell their format.
    pub fn new(sources: Vec<String>, keys: Vec<String>, target: PathBuf) -> Result<Self> {
        let Some(first) = sources.first() else { return Err(usage("no file to index")) };
        Ok(Self {
            format: Format::of_source(first)?,
            sources,
            keys,
            include: Vec::new(),
            target,
            replace: false,
            threads: None,
            filter_bits: None,
            durability: Durability::Auto,
        })
    }
}

/// An index that has been built.
#[derive(Clone, Debug)]
pub struct Built {
    /// What it was built from.
    pub stamp: Stamp,
    /// Its statistics.
    pub stats: JoinStats,
    /// Seconds for reading the rows and writing the columns, and for building the index.
    pub seconds: (f64, f64),
}

/// Receives reports about the progress of a build.
pub trait Progress: Sync {
    /// The number of rows that will be read, if it is known.
    fn total(&self, rows: Option<u64>);
    /// The number of rows that have been read.
    fn read(&self, rows: u64);
    /// Returns an error if the build is to end.
    ///
    /// # Errors
    /// The error that ends it.
    fn check(&self) -> Result<()>;
}

/// Builds an index. It appears under its name when it is complete and durable; until then, and after an error, there is
/// the former index or none.
///
/// # Errors
/// If a file cannot be read or changes meanwhile, a column does not exist or cannot be a key, or there is no space.
pub async fn build(options: &BuildOptions, progress: &dyn Progress) -> Result<Built> {
    let started = Instant::now();
    let config = SessionConfig::new().with_target_partitions(1);
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    let context = SessionContext::new_with_state(state);
    let table = options.format.table(&context.state(), &options.sources).await?;
    let schema = table.schema();
    let columns = columns_of(options, &schema)?;
    let plan = context.read_table(table)?.select_columns(&columns)?.create_physical_plan().await?;
    let files = source_files(&plan)?;
    if files.is_empty() {
        return Err(usage(format!("{}: no files to index", options.sources.join(", "))));
    }
    let form = form_of(options, &plan.schema())?;
    let statistics = StatisticsContext::new().compute(&*plan, &StatisticsArgs::new())?;
    progress.total(statistics.num_rows.get_value().map(|&rows| rows as u64));

    let site = Site::new(&options.target, &FILES).map_err(external)?;
    // The index comes first, because the library creates its directory; the columns follow into it.
    let columns_at = site.path().with_extension("columns");
    std::fs::create_dir(&columns_at).map_err(|error| crate::error::at_path(&columns_at, error))?;
    let reading = Reading { options, form, progress, columns_at: &columns_at };
    let words = reading.run(plan, &context).await.map_err(|error| named(&options.sources, error))?;
    let read = started.elapsed().as_secs_f64();

    let mut stamp = Stamp::new(options.format.clone(), options.keys.clone(), form);
    (stamp.rows, stamp.keyed_rows) = (words.rows, words.keyed_rows());
    let mut settings = JoinIndex::<u64>::options().durability(options.durability);
    if let Some(threads) = options.threads {
        settings = settings.threads(threads);
    }
    if let Some(bits) = options.filter_bits {
        settings = settings.filter_bits_per_key(bits);
    }
    let source = Source { words: &words, progress };
    let built = settings.build_from(site.path(), &source);
    // An interrupted source is the cause of the library's error.
    progress.check()?;
    let join = built.map_err(of_index)?;
    stamp.uuid = format!("{:032x}", join.uuid());
    let stats = join.stats().map_err(of_index)?;
    drop(join);
    let name = super::columns::NAME;
    std::fs::rename(columns_at.join(name), site.path().join(name))
        .and_then(|()| std::fs::remove_dir(&columns_at))
        .map_err(|error| crate::error::at_path(&columns_at, error))?;
    stamp.columns_sum = Columns::open(&site.path(), stamp.rows, None)?.sum();
    for file in files {
        if file != SourceFile::read(&file.path)? {
            let path = file.path.display();
            return Err(DataFusionError::Execution(format!("{path}: changed while it was read")));
        }
        stamp.files.push(file);
    }
    stamp.write(&site.path())?;
    progress.check()?;
    site.publish(options.replace).map_err(external)?;
    let seconds = (read, started.elapsed().as_secs_f64() - read);
    Ok(Built { stamp, stats, seconds })
}

fn external(failure: Failure) -> DataFusionError {
    DataFusionError::External(Box::new(failure))
}

/// Returns the names of the columns to store: the keys, then the others.
fn columns_of<'a>(options: &'a BuildOptions, schema: &'a Schema) -> Result<Vec<&'a str>> {
    let mut columns: Vec<&str> = Vec::new();
    let all = options.include.iter().any(|name| name == "*");
    let others: Vec<&str> = match all {
        true => schema.fields().iter().map(|field| field.name().as_str()).collect(),
        false => options.include.iter().map(String::as_str).collect(),
    };
    for (option, name) in
        options.keys.iter().map(|key| ("on", key.as_str())).chain(others.iter().map(|&name| ("include", name)))
    {
        if schema.index_of(name).is_err() {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let (sources, names) = (options.sources.join(", "), names.join(", "));
            return Err(usage(format!("--{option}: {sources} has no column `{name}`; it has {names}")));
        }
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    Ok(columns)
}

fn form_of(options: &BuildOptions, schema: &Schema) -> Result<KeyForm> {
    let types = options.keys.iter().map(|key| Ok(schema.field_with_name(key)?.data_type()));
    let types = types.collect::<Result<Vec<_>>>()?;
    KeyForm::of(&types, icefield::base::hash::random_seed()).map_err(|(at, reason)| {
        usage(format!("--on: {}: `{}`: {reason}", options.sources.join(", "), options.keys[at]))
    })
}

/// Returns the states of the files that a plan reads, in the order of their rows.
fn source_files(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    plan.apply(|node| {
        let scan = node.downcast_ref::<DataSourceExec>();
        if let Some(scan) = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>()) {
            for file in files_of(scan).map_err(usage)? {
                let path = Path::new("/").join(datafusion_path(file.object_meta.location.as_ref()));
                files.push(SourceFile::read(&path)?);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(files)
}

/// Returns the file system's name of a path of DataFusion, which encodes some characters as in addresses.
fn datafusion_path(location: &str) -> PathBuf {
    percent_encoding::percent_decode_str(location).decode_utf8_lossy().into_owned().into()
}

/// The first step of a build.
struct Reading<'a> {
    options: &'a BuildOptions,
    form: KeyForm,
    progress: &'a dyn Progress,
    columns_at: &'a Path,
}

impl Reading<'_> {
    /// Reads all rows: writes their columns and returns their words.
    async fn run(self, plan: Arc<dyn ExecutionPlan>, context: &SessionContext) -> Result<Words> {
        let schema = plan.schema();
        let keys = self.options.keys.iter().map(|key| schema.index_of(key));
        let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
        let types: Vec<_> = keys.iter().map(|&key| schema.field(key).data_type()).collect();
        let mut writer = ColumnsWriter::create(self.columns_at, &schema)?;
        let mut rows = datafusion::physical_plan::execute_stream(plan, context.task_ctx())?;
        let mut words = Words { batches: Vec::new(), rows: 0 };
        while let Some(batch) = rows.next().await {
            let batch: RecordBatch = batch?;
            self.progress.check()?;
            writer.push(&batch)?;
            let columns: Vec<_> = keys.iter().map(|&key| Arc::clone(batch.column(key))).collect();
            words.push(self.form.words(&columns, &types)?);
            self.progress.read(words.rows);
        }
        writer.finish()?;
        Ok(words)
    }
}

/// The words of all rows, in order.
struct Words {
    /// The number of the first row, and the words of a batch.
    batches: Vec<(u64, UInt64Array)>,
    rows: u64,
}

impl Words {
    fn push(&mut self, words: UInt64Array) {
        let first = self.rows;
        self.rows += words.len() as u64;
        self.batches.push((first, words));
    }

    fn keyed_rows(&self) -> u64 {
        self.batches.iter().map(|(_, words)| (words.len() - words.null_count()) as u64).sum()
    }
}

/// The pairs of words and row numbers.
struct Source<'a> {
    words: &'a Words,
    progress: &'a dyn Progress,
}

impl JoinSource for Source<'_> {
    fn read(
        &self,
        part: usize,
        parts: usize,
        show: &mut dyn FnMut(&[u64], &[u64]) -> icefield::Result<()>,
    ) -> icefield::Result<()> {
        let (mut keys, mut rows) = (Vec::with_capacity(SHOWN), Vec::with_capacity(SHOWN));
        for (first, words) in self.words.batches.iter().skip(part).step_by(parts.max(1)) {
            self.progress
                .check()
                .map_err(|error| icefield::Error::Source { detail: error.to_string() })?;
            for start in (0..words.len()).step_by(SHOWN) {
                let end = words.len().min(start + SHOWN);
                (keys.clear(), rows.clear());
                for at in (start..end).filter(|&at| words.is_valid(at)) {
                    keys.push(words.value(at));
                    rows.push(first + at as u64);
                }
                show(&keys, &rows)?;
            }
        }
        Ok(())
    }
}

/// Reports nothing and never ends a build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn total(&self, _: Option<u64>) {}

    fn read(&self, _: u64) {}

    fn check(&self) -> Result<()> {
        Ok(())
    }
}
