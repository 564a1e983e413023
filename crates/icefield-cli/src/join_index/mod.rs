//! Join indexes in the commands that take any kind of table: `stat`, `check`, `backup`, `salvage`.

pub mod stamp;

use std::path::Path;

use icefield::storage::{Mapped, MappedOptions, superblock};
use icefield::{
    BackupReport, CheckReport, JoinIndex, JoinStats, KeyHash, RecoveryReport, Result,
    SalvageReport, Word,
};

use crate::create::warning;
use icefield_console::failure::{Failure, Outcome};
use icefield_console::json::{Line, Output};
use icefield_console::terminal::{shell_word, shown, shown_path};
use stamp::Stamp;

/// The design named in the superblock.
const DESIGN: &str = "join";

/// The operations on an index that are the same for all key types.
pub trait Inspect {
    /// Calls [`JoinIndex::stats`].
    fn stats(&self) -> Result<JoinStats>;
    /// Calls [`JoinIndex::check`].
    fn check(&self) -> Result<CheckReport>;
    /// Calls [`JoinIndex::backup`].
    fn backup(&self, path: &Path) -> Result<BackupReport>;
    /// Calls [`JoinIndex::recovery`].
    fn recovery(&self) -> RecoveryReport;
    /// Returns the key type's name.
    fn key_type(&self) -> &'static str;
}

impl<K: Word> Inspect for JoinIndex<K> {
    fn stats(&self) -> Result<JoinStats> {
        Self::stats(self)
    }

    fn check(&self) -> Result<CheckReport> {
        Self::check(self)
    }

    fn backup(&self, path: &Path) -> Result<BackupReport> {
        Self::backup(self, path)
    }

    fn recovery(&self) -> RecoveryReport {
        Self::recovery(self).clone()
    }

    fn key_type(&self) -> &'static str {
        K::TYPE
    }
}

/// The operations that depend on the key type of an index, selected by the type's name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The key type's name.
    pub key_type: &'static str,
    open: fn(&Path) -> Result<Box<dyn Inspect>>,
    /// Calls [`JoinOptions::salvage`](icefield::JoinOptions::salvage).
    pub salvage: fn(&Path, &Path) -> Result<SalvageReport>,
}

impl Kind {
    const fn of<K: Word + 'static>() -> Self {
        Self {
            key_type: K::TYPE,
            open: |path| Ok(Box::new(JoinIndex::<K>::open_read_only(path)?)),
            salvage: |path, new| JoinIndex::<K>::options().salvage(path, new),
        }
    }
}

const KINDS: [Kind; 11] = [
    Kind::of::<u8>(),
    Kind::of::<u16>(),
    Kind::of::<u32>(),
    Kind::of::<u64>(),
    Kind::of::<i8>(),
    Kind::of::<i16>(),
    Kind::of::<i32>(),
    Kind::of::<i64>(),
    Kind::of::<bool>(),
    Kind::of::<char>(),
    Kind::of::<KeyHash>(),
];

/// Returns the kind of the index at `path`; `None` if `path` holds a table of another design, or no table.
pub fn kind(path: &Path) -> std::result::Result<Option<Kind>, Failure> {
    let options = MappedOptions { beside_writer: true, ..MappedOptions::default() };
    let read = Mapped::open_read_only(path, options).and_then(|storage| superblock::read(&storage));
    let key_type = match read {
        Ok((_, identity)) if identity.design == DESIGN => identity.key_type,
        Err(_) if is_divided(path) => {
            let path = shown_path(path);
            return Err(Failure::Usage(format!(
                "{path}: a join index in several parts; name one of them, such as {path}/part-000 (`icefield-sql \
                 inspect` shows the whole index)"
            )));
        }
        // The caller then opens the path as a table of another design, and that call returns the fitting error.
        _ => return Ok(None),
    };
    match KINDS.into_iter().find(|kind| kind.key_type == key_type) {
        Some(kind) => Ok(Some(kind)),
        None => Err(Failure::Usage(format!(
            "{}: a join index of `{key_type}`, a type that only the program that built it can read",
            path.display()
        ))),
    }
}

/// Returns whether `icefield-sql` has built an index in several parts at `path`: each is an index in a directory below.
fn is_divided(path: &Path) -> bool {
    path.join(icefield_console::stamp::NAME).is_file() && path.join("part-000").is_dir()
}

/// Opens the index at `path`; `None` if `path` holds a table of another design, or no table.
pub fn open(path: &Path) -> std::result::Result<Option<Box<dyn Inspect>>, Failure> {
    let kind = kind(path)?;
    Ok(kind.map(|kind| (kind.open)(path)).transpose()?)
}

/// Returns advice with the command that rebuilds the index at `path`, which may be damaged; `None` if the index was not
/// built from a file. An index of the salvaged pairs alone would not be an index of that file.
pub fn rebuild(path: &Path) -> Option<String> {
    let stamp = Stamp::read(path).ok().flatten()?;
    let words =
        |texts: &[String]| texts.iter().map(|text| shell_word(text)).collect::<Vec<_>>().join(" ");
    let others: Vec<_> =
        stamp.columns.iter().filter(|name| !stamp.keys.contains(name)).cloned().collect();
    let include = match &others[..] {
        [] => String::new(),
        others => format!(" --include {}", shell_word(&others.join(","))),
    };
    Some(format!(
        "to build it again: icefield-sql build-index {} --on {}{include} --index {} --replace",
        words(&stamp.sources),
        shell_word(&stamp.keys.join(",")),
        shell_word(&path.to_string_lossy())
    ))
}

/// Runs `icefield stat` on an index.
pub fn stat(path: &Path, index: &dyn Inspect, out: &mut Output) -> Outcome {
    let (stats, recovery, stamp) = (index.stats()?, index.recovery(), Stamp::read(path)?);
    let durability = stats.durability.unwrap_or_default();
    out.say(format_args!("index         {}", shown_path(path)))?;
    out.say(format_args!("types         {DESIGN}<{}>", index.key_type()))?;
    if let Some(stamp) = &stamp {
        for file in &stamp.files {
            out.say(format_args!("file          {}", shown_path(&file.path)))?;
        }
        out.say(format_args!("keys          {}", shown(&stamp.keys.join(", "))))?;
        out.say(format_args!("columns       {}", shown(&stamp.columns.join(", "))))?;
        out.say(format_args!("rows          {}", stamp.rows))?;
    }
    out.say(format_args!("durability    {durability}"))?;
    out.say(format_args!("pairs         {}", stats.pairs))?;
    out.say(format_args!(
        "bytes         {} on the medium, {} in memory",
        stats.file_bytes, stats.dram_bytes
    ))?;
    if stats.pairs > 0 {
        let each = stats.file_bytes as f64 / stats.pairs as f64;
        out.say(format_args!("bytes/pair    {each:.1}"))?;
    }
    out.say(format_args!("generation    {}", stats.generation))?;
    out.say(format_args!(
        "changes       {} since it was built or merged, {} possible",
        stats.delta_changes, stats.delta_limit
    ))?;
    out.say(format_args!("groups        {}, {} of them wide", stats.groups, stats.wide_groups))?;
    out.say(format_args!(
        "filter        {} bits a key, lets {:.2} % of absent keys pass",
        stats.filter_bits_per_key,
        stats.filter_pass_rate * 100.0
    ))?;
    if let Some(warning) = warning(durability) {
        out.say(warning)?;
    }
    out.line(stat_line(path, index, &stats, &recovery, stamp.as_ref()))?;
    Ok(true)
}

fn stat_line(
    path: &Path,
    index: &dyn Inspect,
    stats: &JoinStats,
    recovery: &RecoveryReport,
    stamp: Option<&Stamp>,
) -> Line {
    let durability = stats.durability.unwrap_or_default();
    let mut line = Line::new()
        .field("table", &path.display().to_string())
        .field("design", DESIGN)
        .field("key", index.key_type())
        .field("durability", &durability.to_string())
        .field("survives_power_cut", &warning(durability).is_none())
        .field("pairs", &stats.pairs)
        .field("base_pairs", &stats.base_pairs)
        .field("delta_changes", &stats.delta_changes)
        .field("delta_limit", &stats.delta_limit)
        .field("generation", &stats.generation)
        .field("groups", &stats.groups)
        .field("wide_groups", &stats.wide_groups)
        .field("filter_bits_per_key", &stats.filter_bits_per_key)
        .field("filter_pass_rate", &stats.filter_pass_rate)
        .field("bucket_sizes", &stats.bucket_sizes)
        .field("storage_bytes", &stats.file_bytes)
        .field("dram_bytes", &stats.dram_bytes)
        .field("was_clean", &recovery.was_clean)
        .field("open_ms", &(recovery.open_time.as_secs_f64() * 1e3));
    if let Some(stamp) = stamp {
        let files: Vec<_> =
            stamp.files.iter().map(|file| file.path.display().to_string()).collect();
        line = line
            .field("files", &files)
            .field("keys", &stamp.keys)
            .field("columns", &stamp.columns)
            .field("rows", &stamp.rows);
    }
    line
}
