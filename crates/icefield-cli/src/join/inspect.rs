//! An index of any key type, for the commands that ask what it is made of.

use std::path::Path;

use icefield::pm::{Mapped, MappedOptions, superblock};
use icefield::{
    BackupReport, CheckReport, JoinIndex, JoinStats, KeyHash, RecoveryReport, Result, Word,
};

use super::stamp::Stamp;
use crate::create::warning;
use crate::failure::{Failure, Outcome};
use crate::json::{Line, Output};
use crate::terminal::{shell_word, shown_path};

/// The design that a superblock names.
const DESIGN: &str = "join";

/// What can be asked of an index whatever its keys are.
pub trait Inspect {
    /// As [`JoinIndex::stats`].
    fn stats(&self) -> Result<JoinStats>;
    /// As [`JoinIndex::check`].
    fn check(&self) -> Result<CheckReport>;
    /// As [`JoinIndex::backup`].
    fn backup(&self, path: &Path) -> Result<BackupReport>;
    /// As [`JoinIndex::recovery`].
    fn recovery(&self) -> RecoveryReport;
    /// The key type's name.
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

/// The index at `path`; `None` for a table of another design, and for what is no table at all.
pub fn open(path: &Path) -> std::result::Result<Option<Box<dyn Inspect>>, Failure> {
    let options = MappedOptions { beside_writer: true, ..MappedOptions::default() };
    let read = Mapped::open_read_only(path, options).and_then(|pm| superblock::read(&pm));
    let identity = match read {
        Ok((_, identity)) if identity.design == DESIGN => identity,
        // Whoever opens it as another table tells what is wrong.
        _ => return Ok(None),
    };
    let open: fn(&Path) -> Result<Box<dyn Inspect>> = match identity.key_type.as_str() {
        <u8 as Word>::TYPE => open_as::<u8>,
        <u16 as Word>::TYPE => open_as::<u16>,
        <u32 as Word>::TYPE => open_as::<u32>,
        <u64 as Word>::TYPE => open_as::<u64>,
        <i8 as Word>::TYPE => open_as::<i8>,
        <i16 as Word>::TYPE => open_as::<i16>,
        <i32 as Word>::TYPE => open_as::<i32>,
        <i64 as Word>::TYPE => open_as::<i64>,
        <bool as Word>::TYPE => open_as::<bool>,
        <char as Word>::TYPE => open_as::<char>,
        <KeyHash as Word>::TYPE => open_as::<KeyHash>,
        other => {
            let path = path.display();
            return Err(Failure::Usage(format!(
                "{path}: a join index of `{other}`, which only the program that made it knows"
            )));
        }
    };
    Ok(Some(open(path)?))
}

/// What to do instead of rescuing records, if `path` is an index, however damaged: it has nothing that is not in what it
/// was built of.
pub fn rebuild(path: &Path) -> Option<String> {
    let options = MappedOptions { beside_writer: true, ..MappedOptions::default() };
    let read = Mapped::open_read_only(path, options).and_then(|pm| superblock::read(&pm));
    let stamp = Stamp::read(path).ok().flatten();
    let is_index = stamp.is_some() || read.is_ok_and(|(_, known)| known.design == DESIGN);
    let (shown, word) = (shown_path(path), |path: &Path| shell_word(&path.to_string_lossy()));
    is_index.then(|| match stamp {
        Some(stamp) => format!(
            "{shown}: a join index, of which nothing has to be rescued: all of it is in the file. \
             `icefield check` tells whether it is damaged; to build it again: \
             icefield join build-index {} --on {} --index {} --replace",
            word(&stamp.file),
            shell_word(&stamp.column),
            word(path)
        ),
        None => format!(
            "{shown}: a join index, which `icefield salvage` does not take; `icefield check` tells whether it is \
             damaged: then build it again, by `JoinIndex::build`, of the pairs that it was built of"
        ),
    })
}

fn open_as<K: Word + 'static>(path: &Path) -> Result<Box<dyn Inspect>> {
    Ok(Box::new(JoinIndex::<K>::open_read_only(path)?))
}

/// `icefield stat` of an index.
pub fn stat(path: &Path, index: &dyn Inspect, out: &mut Output) -> Outcome {
    let (stats, recovery, stamp) = (index.stats()?, index.recovery(), Stamp::read(path)?);
    let durability = stats.durability.unwrap_or_default();
    out.say(format_args!("index         {}", path.display()))?;
    out.say(format_args!("types         {DESIGN}<{}>", index.key_type()))?;
    if let Some(stamp) = &stamp {
        out.say(format_args!("file          {}", stamp.file.display()))?;
        out.say(format_args!("column        {} ({})", stamp.column, stamp.key.values))?;
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
        .field("pm_bytes", &stats.file_bytes)
        .field("dram_bytes", &stats.dram_bytes)
        .field("was_clean", &recovery.was_clean)
        .field("open_ms", &(recovery.open_time.as_secs_f64() * 1e3));
    if let Some(stamp) = stamp {
        line = line
            .field("file", &stamp.file.display().to_string())
            .field("column", &stamp.column)
            .field("values", &stamp.key.values)
            .field("rows", &stamp.rows);
    }
    line
}
