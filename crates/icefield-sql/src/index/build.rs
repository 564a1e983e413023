//! Builds an index of the key columns of a table's files.
//!
//! The files are read one after the other, and their columns are written, to a file for each part of the index. Then
//! each part is built from the key columns in its file. An update takes the rows of unchanged files from the columns of
//! the former index, and reads only files that are new or have changed.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

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
use icefield::{Durability, JoinIndex};
use icefield_console::site::Site;

use super::columns::Columns;
use super::file::ColumnsFile;
use super::format::{Format, named};
use super::keys::{KeyForm, MOST_PARTS};
pub use super::progress::{Progress, Quiet};
use super::ranks::{self, Ranks};
use super::rows::{Rows, Source};
use super::source::{SourceFile, files_of, local_path};
use super::stamp::{Part, Stamp};
use super::writer::{CHUNK_ROWS, stored_schema};
use super::{COLUMNS, FILES, Index, part_path};
use crate::error::{at_path, of_command, of_index, usage};

/// The settings of a build.
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
    /// Number of parts, 1 to [`MOST_PARTS`]. The processes of a cluster can each work with some parts of the index.
    pub parts: u32,
    /// The directory to create.
    pub target: PathBuf,
    /// True if an index that exists there is replaced.
    pub replace: bool,
    /// Number of threads that build the index; by default one for each core.
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
    /// If the format of the sources does not follow from their names.
    pub fn new(sources: Vec<String>, keys: Vec<String>, target: PathBuf) -> Result<Self> {
        let Some(first) = sources.first() else { return Err(usage("no file to index")) };
        Ok(Self {
            format: Format::of_source(first)?,
            sources,
            keys,
            include: Vec::new(),
            parts: 1,
            target,
            replace: false,
            threads: None,
            filter_bits: None,
            durability: Durability::Auto,
        })
    }

    /// Returns the options with which an index was built, to build it again in its place.
    fn of(index: &Index, durability: Durability) -> Self {
        let stamp = index.stamp();
        let names = index.schema().fields().iter().map(|field| field.name().clone());
        Self {
            sources: stamp.sources.clone(),
            format: stamp.format.clone(),
            keys: stamp.keys.clone(),
            include: names.filter(|name| !stamp.keys.contains(name)).collect(),
            parts: stamp.parts.len() as u32,
            target: index.path().to_owned(),
            replace: true,
            threads: None,
            filter_bits: None,
            durability,
        }
    }
}

/// An index that has been built.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its sources.
    pub stamp: Stamp,
    /// The number of bytes of the indexes from words to row numbers, without the columns.
    pub index_bytes: u64,
    /// The failures that the index survives.
    pub durability: Durability,
    /// Number of rows that were read from files, and not from a former index.
    pub rows_read: u64,
    /// Seconds for reading the rows and writing the columns, and for building the index.
    pub seconds: (f64, f64),
}

/// Builds an index. It appears under its name when it is complete and durable; until then, and after an error, there is
/// the former index or none.
///
/// # Errors
/// If a file cannot be read or is changed during the build, a column does not exist or cannot be a key, or space is
/// missing.
pub async fn build(options: &BuildOptions, progress: &dyn Progress) -> Result<Built> {
    if !(1..=MOST_PARTS).contains(&options.parts) {
        let parts = options.parts;
        return Err(usage(format!(
            "--partitions {parts}: a number from 1 to {MOST_PARTS} is expected"
        )));
    }
    let build = Build::new(options, progress);
    build.run(build.listing().await?, None).await
}

/// Builds the index at `path` again from the files that its sources name now, and replaces it. Reads only files that
/// are new or have changed, and leaves out the rows of files of patterns and directories that do not exist any more.
/// Sources that do not exist are dropped if `drop_missing` is true, and an error otherwise. Returns `None` if nothing
/// has changed.
///
/// # Errors
/// As [`build`], or if `path` is not an index.
pub async fn update(
    path: &Path,
    more: &[String],
    drop_missing: bool,
    progress: &dyn Progress,
) -> Result<Option<Built>> {
    let former = Index::open(path, true)?;
    let stats = former.parts()[0].stats().map_err(of_index)?;
    let durability = stats.durability.unwrap_or_default();
    let mut options = BuildOptions::of(&former, durability);
    let is_missing = |source: &String| {
        !source.contains("://") && !source.contains(['*', '?', '[']) && !Path::new(source).exists()
    };
    if drop_missing {
        options.sources.retain(|source| !is_missing(source));
    } else if let Some(source) = options.sources.iter().find(|&source| is_missing(source)) {
        return Err(usage(format!(
            "{source}: is gone; --drop-missing updates the index without its rows"
        )));
    }
    for source in more {
        options.format.check_name(source)?;
        let source = absolute(source)?;
        if !options.sources.contains(&source) {
            options.sources.push(source);
        }
    }
    let build = Build::new(&options, progress);
    let listing = build.listing().await?;
    let is_same = |(now, then): (&SourceFile, &SourceFile)| {
        now.path == then.path && then.changes(now).is_empty()
    };
    let (files, known) = (&listing.files, &former.stamp().files);
    if files.len() == known.len() && std::iter::zip(files, known).all(is_same) {
        return Ok(None);
    }
    build.run(listing, Some(&former)).await.map(Some)
}

/// Returns the files that the sources of an index name now, and that the index does not have.
///
/// # Errors
/// If a source does not exist.
pub async fn new_files(index: &Index) -> Result<Vec<PathBuf>> {
    let stamp = index.stamp();
    let state = SessionContext::new().state();
    let known: HashSet<_> = stamp.files.iter().map(|file| &file.path).collect();
    let mut new = Vec::new();
    for location in stamp.format.files(&state, &stamp.sources).await? {
        let path = local_path(&location)?;
        if !known.contains(&path) {
            new.push(path);
        }
    }
    Ok(new)
}

/// The table of a build, and the present states of its files in the order of their rows.
struct Listing {
    table: Arc<dyn TableProvider>,
    files: Vec<SourceFile>,
}

/// A build.
struct Build<'a> {
    options: &'a BuildOptions,
    progress: &'a dyn Progress,
    context: SessionContext,
}

impl<'a> Build<'a> {
    fn new(options: &'a BuildOptions, progress: &'a dyn Progress) -> Self {
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        Self { options, progress, context: SessionContext::new_with_state(state) }
    }

    async fn listing(&self) -> Result<Listing> {
        let table = self.options.format.table(&self.context.state(), &self.options.sources).await?;
        let scan = self.context.read_table(Arc::clone(&table))?;
        let plan = scan.create_physical_plan().await?;
        let files = source_files(&plan)?;
        if files.is_empty() {
            return Err(usage(format!("{}: no files to index", self.options.sources.join(", "))));
        }
        let statistics = StatisticsContext::new().compute(&*plan, &StatisticsArgs::new())?;
        self.progress.total(statistics.num_rows.get_value().map(|&rows| rows as u64));
        Ok(Listing { table, files })
    }

    /// Builds the index, with the rows of unchanged files taken from a former one.
    async fn run(&self, mut listing: Listing, former: Option<&Index>) -> Result<Built> {
        let started = Instant::now();
        let options = self.options;
        let schema = listing.table.schema();
        let columns = columns_of(options, &schema)?;
        let stored = Arc::new(schema.project(&columns)?);
        let form = match former {
            Some(former) => {
                same_types(former, &stored)?;
                former.stamp().form
            }
            None => form_of(options, &stored)?,
        };
        let site = Site::new(&options.target, &FILES).map_err(of_command)?;
        let keys = options.keys.iter().map(|key| stored.index_of(key));
        let keys = keys.collect::<std::result::Result<_, _>>()?;
        let rows = Rows::new(options.parts, keys, &site, form, &stored, self.progress)?;
        let (rows, rows_read) = self.read(&mut listing, &columns, former, rows).await?;
        let read = started.elapsed().as_secs_f64();

        let mut stamp = Stamp::new(
            options.sources.iter().map(|source| absolute(source)).collect::<Result<_>>()?,
            options.format.clone(),
            options.keys.clone(),
            names_of(&schema),
            names_of(&stored),
            form,
        );
        (stamp.rows, stamp.nulls) = (rows.count, rows.nulls);
        let (index_bytes, durability) = self.build_parts(&site, rows, &mut stamp)?;
        stamp.files = unchanged(listing.files)?;
        stamp.write(&site.path())?;
        self.progress.check()?;
        site.publish(options.replace).map_err(of_command)?;
        let seconds = (read, started.elapsed().as_secs_f64() - read);
        Ok(Built { stamp, index_bytes, durability, rows_read, seconds })
    }

    /// Writes the columns of all rows. Returns the rows, and the number of those that were read from files.
    async fn read(
        &self,
        listing: &mut Listing,
        columns: &[usize],
        former: Option<&Index>,
        mut rows: Rows<'a>,
    ) -> Result<(Rows<'a>, u64)> {
        let mut rows_read = 0;
        for file in &mut listing.files {
            let (before, of_parts) = (rows.count, rows.of_parts());
            match former.and_then(|former| Some((former, kept(former, file)?))) {
                Some((former, ranges)) => {
                    ranges.into_iter().try_for_each(|range| rows.take(former, range))?;
                }
                None => {
                    let table = names_of(&listing.table.schema());
                    let state = self.context.state();
                    let header = self.options.format.header(&state, &file.path);
                    // DataFusion finds the columns of all files by their positions.
                    if let Some(names) = header.await?.filter(|names| *names != table) {
                        return Err(usage(format!(
                            "{}: has the columns {}, and other files {}",
                            file.path.display(),
                            names.join(", "),
                            table.join(", ")
                        )));
                    }
                    let part = self.options.format.part(&file.path, listing.table.schema())?;
                    let sources = [file.path.display().to_string()];
                    rows.read(part, columns, &self.context)
                        .await
                        .map_err(|error| named(&sources, error))?;
                    rows_read += rows.count - before;
                }
            }
            file.rows =
                std::iter::zip(rows.of_parts(), of_parts).map(|(now, then)| now - then).collect();
        }
        Ok((rows, rows_read))
    }

    /// Builds the parts of the index from their columns. Returns the number of their bytes, and their durability.
    fn build_parts(
        &self,
        site: &Site,
        rows: Rows<'_>,
        stamp: &mut Stamp,
    ) -> Result<(u64, Durability)> {
        let mut settings = JoinIndex::<u64>::options().durability(self.options.durability);
        if let Some(threads) = self.options.threads {
            settings = settings.threads(threads);
        }
        if let Some(bits) = self.options.filter_bits {
            settings = settings.filter_bits_per_key(bits);
        }
        let (keys, form) = (rows.keys.clone(), rows.form);
        let counts = rows.of_parts();
        let waiting = rows.finish()?;
        let open = |(path, &rows): (&PathBuf, &u64)| ColumnsFile::open(path.clone(), rows, None);
        let files = std::iter::zip(&waiting, &counts).map(open).collect::<Result<Vec<_>>>()?;
        let columns = Columns::of(&site.path(), files)?;
        if counts.len() > 1 {
            std::fs::create_dir(site.path()).map_err(|error| at_path(&site.path(), error))?;
        }
        let (mut bytes, mut durability) = (0, Durability::default());
        for (at, waiting) in waiting.iter().enumerate() {
            let chunks = columns.chunks_of(at);
            let source =
                Source { columns: &columns, keys: &keys, form, chunks, progress: self.progress };
            let path = part_path(&site.path(), at, counts.len());
            let built = settings.build_from(&path, &source);
            // An interrupted source is the cause of the library's error.
            self.progress.check()?;
            let join = built.map_err(of_index)?;
            let stats = join.stats().map_err(of_index)?;
            (bytes, durability) = (bytes + stats.file_bytes, stats.durability.unwrap_or_default());
            let (uuid, rows) = (format!("{:032x}", join.uuid()), counts[at]);
            let file = &columns.files()[at];
            let columns_sum = file.sum(|_| self.progress.check())?;
            stamp.parts.push(Part { uuid, rows, columns_sums: file.sums(), columns_sum });
            move_to(waiting, &path)?;
        }
        // A part has keys from the whole range, so it has fewer of them than are dense.
        if counts.len() == 1 && form == KeyForm::Word && stamp.nulls == 0 {
            let words = |chunk| columns.words(chunk, &keys, form);
            let path = site.path().join(ranks::NAME);
            stamp.ranks_sum = Ranks::write(&path, columns.chunks(), stamp.rows, words)?;
        }
        Ok((bytes, durability))
    }
}

/// Moves a file of columns from its directory, which has nothing else, to that of its part; durably, as the stamp is
/// written later.
fn move_to(waiting: &Path, part: &Path) -> Result<()> {
    let moved = || {
        std::fs::rename(waiting, part.join(COLUMNS))?;
        File::open(part)?.sync_all()?;
        waiting.parent().map_or(Ok(()), std::fs::remove_dir)
    };
    moved().map_err(|error| at_path(waiting, error))
}

/// Returns a source as an absolute path or pattern.
fn absolute(source: &str) -> Result<String> {
    if source.contains("://") {
        return Ok(source.to_owned());
    }
    let path = std::path::absolute(source).map_err(|error| at_path(Path::new(source), error))?;
    let text = path.to_str().ok_or_else(|| usage(format!("{source}: a path that is not UTF-8")))?;
    // DataFusion takes a path that ends with a slash for a directory.
    Ok(if source.ends_with('/') {
        format!("{}/", text.trim_end_matches('/'))
    } else {
        text.to_owned()
    })
}

/// Returns the positions of the columns to store: the keys, then the others.
fn columns_of(options: &BuildOptions, schema: &Schema) -> Result<Vec<usize>> {
    let all = options.include.iter().any(|name| name == "*");
    let mut columns = Vec::new();
    let keys = options.keys.iter().map(|name| ("on", name));
    let others = options.include.iter().filter(|_| !all).map(|name| ("include", name));
    for (option, name) in keys.chain(others) {
        let Ok(at) = schema.index_of(name) else {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let (sources, names) = (options.sources.join(", "), names.join(", "));
            return Err(usage(format!(
                "--{option}: {sources} has no column `{name}`; it has {names}"
            )));
        };
        columns.push(at);
    }
    if all {
        columns.extend(0..schema.fields().len());
    }
    if let Some(at) =
        (1..options.keys.len()).find(|&at| options.keys[..at].contains(&options.keys[at]))
    {
        return Err(usage(format!("--on: `{}` is named twice", options.keys[at])));
    }
    let mut seen = vec![false; schema.fields().len()];
    columns.retain(|&at| !std::mem::replace(&mut seen[at], true));
    Ok(columns)
}

fn names_of(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn form_of(options: &BuildOptions, schema: &Schema) -> Result<KeyForm> {
    let types = options.keys.iter().map(|key| Ok(schema.field_with_name(key)?.data_type()));
    let types = types.collect::<Result<Vec<_>>>()?;
    KeyForm::of(&types, icefield::base::hash::random_seed()).map_err(|(at, reason)| {
        usage(format!("--on: {}: `{}`: {reason}", options.sources.join(", "), options.keys[at]))
    })
}

/// Returns an error unless the columns of a former index have the types of the files' columns.
fn same_types(former: &Index, schema: &Schema) -> Result<()> {
    let now = stored_schema(schema);
    let pairs = std::iter::zip(former.schema().fields(), now.fields());
    for (then, now) in pairs {
        if then.data_type() != now.data_type() {
            let (name, then, now) = (now.name(), then.data_type(), now.data_type());
            return Err(usage(format!(
                "the type of `{name}` was {then} and is {now}; build the index again"
            )));
        }
    }
    Ok(())
}

/// Returns the rows that a former index has of a file, if the file is unchanged: a range of each part.
fn kept(former: &Index, file: &SourceFile) -> Option<Vec<Range<u64>>> {
    let files = &former.stamp().files;
    let at = files.iter().position(|one| one.path == file.path && one.changes(file).is_empty())?;
    let range = |(part, &rows): (usize, &u64)| {
        let before: u64 = files[..at].iter().map(|file| file.rows[part]).sum();
        let start = (former.columns().chunks_of(part).start * CHUNK_ROWS) as u64 + before;
        start..start + rows
    };
    Some(files[at].rows.iter().enumerate().map(range).collect())
}

/// Returns the states of the files that a plan reads, in the order of their rows.
fn source_files(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    plan.apply(|node| {
        let scan = node.downcast_ref::<DataSourceExec>();
        if let Some(scan) =
            scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
        {
            for file in files_of(scan).map_err(usage)? {
                files.push(SourceFile::read(&local_path(&file.object_meta.location)?)?);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(files)
}

/// Returns the files, or an error if one of them has changed since it was listed.
fn unchanged(files: Vec<SourceFile>) -> Result<Vec<SourceFile>> {
    for file in &files {
        let now = SourceFile::read(&file.path)?;
        if !file.changes(&now).is_empty() {
            let path = file.path.display();
            return Err(DataFusionError::Execution(format!("{path}: changed while it was read")));
        }
    }
    Ok(files)
}
