//! Shared by commands: the options of files and sessions, the runtime, and the failures of DataFusion.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::common::{SchemaError, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use icefield_console::failure::Failure;
use icefield_console::interrupt::Interrupt;
use icefield_console::size::size;

use crate::index::Index;
use crate::index::build::new_files;
use crate::index::format::{Dialect, Format, Kind};
use crate::registry::IndexRegistry;
use crate::session::session_state_in;
use crate::table::IndexTable;

/// The schema in which the indexes themselves are tables.
const INDEXES: &str = "indexes";
/// How often a command looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The options of files whose format does not follow from the name.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FormatArgs {
    /// Read the files as this format; without it the ending of the name determines it
    #[arg(long, value_name = "FORMAT", value_parser = kind)]
    format: Option<Kind>,
    /// Separate the fields of CSV by this character; `\t` is a tab
    #[arg(long, value_name = "CHAR", value_parser = character)]
    delimiter: Option<char>,
    /// Quote the fields of CSV with this character
    #[arg(long, value_name = "CHAR", value_parser = character)]
    quote: Option<char>,
    /// Escape characters in CSV with this one
    #[arg(long, value_name = "CHAR", value_parser = character)]
    escape: Option<char>,
    /// Skip the lines of CSV that begin with this character
    #[arg(long, value_name = "CHAR", value_parser = character)]
    comment: Option<char>,
    /// The first line of CSV is a row; the columns are column_1, column_2 and so on
    #[arg(long)]
    no_header: bool,
    /// Read this text of a field of CSV as null, in quotes or not, such as NULL, -1 or `\N`; several times for several
    /// texts. An empty field is null without it, too
    #[arg(long = "null", value_name = "TEXT", allow_hyphen_values = true)]
    nulls: Vec<String>,
}

fn kind(text: &str) -> Result<Kind, String> {
    Ok(match text {
        "parquet" => Kind::Parquet,
        "csv" | "tsv" => Kind::Csv,
        "json" | "ndjson" => Kind::Json,
        "arrow" => Kind::Arrow,
        _ => return Err("one of parquet, csv, json, arrow is expected".to_owned()),
    })
}

fn character(text: &str) -> Result<char, String> {
    let text = match text {
        "\\t" | "tab" => "\t",
        other => other,
    };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) if one.is_ascii() => Ok(one),
        _ => Err("one ASCII character is expected".to_owned()),
    }
}

impl FormatArgs {
    /// Returns the format of a source.
    pub fn of(&self, source: &str) -> Result<Format, Failure> {
        let mut format = match (Format::of_source(source), self.format) {
            (Ok(format), None) => format,
            (Ok(format), Some(kind)) => Format { kind, ..format },
            (Err(_), Some(kind)) => Format::of_kind(kind, source),
            (Err(error), None) => return Err(failure(error)),
        };
        let is_csv = format.kind == Kind::Csv;
        if !is_csv && self.has_dialect() {
            return Err(Failure::Usage(format!(
                "{source}: --delimiter, --quote, --escape, --comment, --no-header and --null are for CSV"
            )));
        }
        let Self { delimiter, quote, escape, comment, no_header, nulls, .. } = self;
        format.dialect = is_csv.then(|| {
            let usual = format.dialect.clone().unwrap_or_default();
            Dialect {
                delimiter: delimiter.unwrap_or(usual.delimiter),
                quote: quote.unwrap_or(usual.quote),
                escape: escape.or(usual.escape),
                comment: comment.or(usual.comment),
                header: !no_header,
                nulls: nulls.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect(),
            }
        });
        Ok(format)
    }

    /// Returns whether an option for CSV was given.
    fn has_dialect(&self) -> bool {
        let Self { delimiter, quote, escape, comment, no_header, nulls, .. } = self;
        let has_character = [delimiter, quote, escape, comment].iter().any(|one| one.is_some());
        has_character || *no_header || !nulls.is_empty()
    }

    /// Returns whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.format.is_none() && !self.has_dialect()
    }

    /// Returns the format of all these sources.
    pub fn of_all(&self, sources: &[String]) -> Result<Format, Failure> {
        let format = self.of(&sources[0])?;
        for source in &sources[1..] {
            let other = Format { ending: format.ending.clone(), ..self.of(source)? };
            if other != format {
                format.check_name(source).map_err(failure)?;
                return Err(Failure::Usage(format!(
                    "{source}: has other separators than {}; name both with --delimiter",
                    sources[0]
                )));
            }
        }
        Ok(format)
    }
}

/// The options of sessions.
#[derive(clap::Args, Clone, Debug)]
pub struct SessionArgs {
    /// Work with N threads; without it with as many as the machine has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Hold at most SIZE in memory for sorts, aggregations and DataFusion's own joins, such as 4GB; beyond it they
    /// write to temporary files
    #[arg(long, value_name = "SIZE", value_parser = some_memory)]
    memory: Option<u64>,
}

fn some_memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("more than 0 is needed".to_owned()),
        bytes => Ok(bytes),
    }
}

impl SessionArgs {
    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        )
    }

    /// Returns a session whose joins use the indexes of a registry. Its SQL may name files in quotes as tables.
    pub fn context(&self, registry: &IndexRegistry) -> Result<SessionContext, Failure> {
        let config = SessionConfig::new()
            .with_target_partitions(self.threads())
            .with_information_schema(true);
        let mut runtime =
            RuntimeEnvBuilder::new().with_disk_manager_builder(DiskManagerBuilder::default());
        if let Some(bytes) = self.memory {
            runtime = runtime.with_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX), 1.0);
        }
        let runtime = runtime.build_arc().map_err(failure)?;
        let state = session_state_in(registry, config, runtime);
        Ok(SessionContext::new_with_state(state).enable_url_table())
    }
}

/// Returns the failure for an error of DataFusion: its cause, and what the error was about.
pub fn failure(error: DataFusionError) -> Failure {
    let text = error.strip_backtrace().replace("\ncaused by\n", ": ").replace('\n', " ");
    match error.find_root() {
        DataFusionError::External(cause) => {
            if let Some(failure) = cause.downcast_ref::<Failure>() {
                return match failure {
                    Failure::Usage(text) => Failure::Usage(text.clone()),
                    Failure::Interrupted(text) => Failure::Interrupted(text.clone()),
                    other => Failure::Problem(other.to_string()),
                };
            }
            match cause.downcast_ref::<icefield::Error>() {
                Some(
                    icefield::Error::InvalidOption { .. }
                    | icefield::Error::Unsupported(_)
                    | icefield::Error::NotFound { .. }
                    | icefield::Error::AlreadyExists { .. },
                ) => Failure::Usage(cause.to_string()),
                Some(_) => Failure::Problem(cause.to_string()),
                None => Failure::Problem(text),
            }
        }
        DataFusionError::Configuration(_) => {
            Failure::Usage(plain(&text, "Invalid or Unsupported Configuration: "))
        }
        DataFusionError::Execution(_) => Failure::Problem(plain(&text, "Execution error: ")),
        DataFusionError::IoError(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            Failure::Usage(text)
        }
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::NotImplemented(_) => Failure::Usage(text),
        DataFusionError::SchemaError(cause, _) => match &**cause {
            SchemaError::FieldNotFound { .. } | SchemaError::AmbiguousReference { .. } => {
                Failure::Usage(text)
            }
            _ => Failure::Problem(text),
        },
        _ => Failure::Problem(text),
    }
}

/// Removes DataFusion's name of the error's kind.
fn plain(text: &str, kind: &str) -> String {
    text.replace(kind, "")
}

/// Runs a command's work, which looks for interruptions itself, on this thread and a few others.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Problem(format!("cannot start threads: {error}")))?;
    runtime.block_on(work)
}

/// Runs a command's work on a runtime, and ends it when the user interrupts it.
pub fn on_runtime<T>(
    threads: usize,
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .enable_all()
        .build()
        .map_err(|error| Failure::Problem(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(async {
        let interrupted = async {
            while !interrupt.asked() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = interrupted => Err(Failure::Interrupted("interrupted".to_owned())),
        }
    });
    // Work that still runs in other threads must not delay the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Opens the indexes that a command names. Registers their tables under the names of the indexes, and the columns that
/// the indexes have as tables of the schema [`INDEXES`].
pub async fn open_indexes(
    context: &SessionContext,
    registry: &IndexRegistry,
    named: &[NamedIndex],
    allow_stale: bool,
) -> Result<(), Failure> {
    let indexes = Arc::new(MemorySchemaProvider::new());
    let catalog = &context.state().config_options().catalog.default_catalog.clone();
    if let Some(catalog) = context.catalog(catalog) {
        catalog.register_schema(INDEXES, Arc::clone(&indexes) as _).map_err(failure)?;
    }
    for NamedIndex { name, path } in named {
        let index = open_index(registry, path, allow_stale).await?;
        let name = name.clone().unwrap_or_else(|| index.name());
        let stamp = index.stamp();
        let table = match stamp.format.table(&context.state(), &stamp.sources).await {
            Ok(table) => table,
            // The files are gone, and only the index has their rows.
            Err(_) if allow_stale => Arc::new(IndexTable::new(Arc::clone(&index))),
            Err(error) => return Err(failure(error)),
        };
        register(context, &name, table, "--index NAME=DIR")?;
        indexes.register_table(name, Arc::new(IndexTable::new(index))).map_err(failure)?;
    }
    Ok(())
}

/// Registers a table under a new name. `option` is how the user can choose another one.
pub fn register(
    context: &SessionContext,
    name: &str,
    table: Arc<dyn TableProvider>,
    option: &str,
) -> Result<(), Failure> {
    let reference = TableReference::bare(name);
    if context.table_exist(reference.clone()).map_err(failure)? {
        return Err(Failure::Usage(format!(
            "{option}: another table has the name `{name}`; choose another name"
        )));
    }
    context.register_table(reference, table).map_err(failure)?;
    Ok(())
}

/// Opens an index. Unless `allow_stale` is true, it must have all files that its sources name now.
pub async fn open_index(
    registry: &IndexRegistry,
    path: &Path,
    allow_stale: bool,
) -> Result<Arc<Index>, Failure> {
    as_index(path)?;
    let index = registry.open(path, allow_stale).map_err(failure)?;
    if !allow_stale {
        let new = new_files(&index).await.map_err(failure)?;
        if let Some(file) = new.first() {
            return Err(Failure::Problem(format!(
                "{}: {} of its files are new, such as {}; run update-index, or use it as it is (--allow-stale)",
                path.display(),
                new.len(),
                file.display()
            )));
        }
    }
    Ok(index)
}

/// Returns an error that says what to do if a path is not that of an index.
pub fn as_index(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "{path}: is a file, not an index; build one with build-index"
        )));
    }
    if !path.exists() {
        return Err(Failure::Usage(format!(
            "{}: no such index; build it with build-index",
            path.display()
        )));
    }
    Ok(())
}

/// A directory of an index, and the name of its tables.
#[derive(Clone, Debug)]
pub struct NamedIndex {
    name: Option<String>,
    /// The directory.
    pub path: PathBuf,
}

/// Reads `DIR` or `NAME=DIR`.
pub fn named_index(text: &str) -> Result<NamedIndex, String> {
    match text.split_once('=') {
        _ if text.is_empty() => Err("a directory is expected".to_owned()),
        Some((name, path)) if !Path::new(text).exists() && !name.is_empty() && !path.is_empty() => {
            Ok(NamedIndex { name: Some(name.to_owned()), path: path.into() })
        }
        _ => Ok(NamedIndex { name: None, path: text.into() }),
    }
}
