//! Files that a command writes.
//!
//! A file gets its final name when it is complete. Until then it is unnamed (or, if the file system does not support
//! this, has a hidden name in the same directory). A command that fails, is interrupted or is killed leaves the old
//! file unchanged. Pipes, devices and standard output are written directly.
//!
//! An output must not be a file that the same command reads, under any path or link, nor a file of a table that the
//! command reads.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use tempfile::TempPath;

use crate::failure::Failure;
use crate::terminal::shown_path;

/// An output that is being written.
pub struct Destination {
    /// The output's name in messages.
    name: PathBuf,
    file: File,
    state: State,
}

enum State {
    /// A pipe, a device or an open file: written directly, without a rename.
    AsItIs,
    /// An unnamed file, and the path that it will get.
    Unnamed(PathBuf),
    /// A file with a hidden name, and the path that it will get.
    Hidden(TempPath, PathBuf),
}

impl Destination {
    /// Starts an output at `path`, or at standard output for `-`. `reads` are the inputs of the command: files,
    /// directories of tables, and `-` for standard input.
    pub fn create(path: &Path, reads: &[&Path]) -> Result<Self, Failure> {
        refuse_reads(path, reads)?;
        let made = if is_stdout(path) {
            io::stdout().as_fd().try_clone_to_owned().map(|file| (File::from(file), State::AsItIs))
        } else if is_as_it_is(path) {
            // Appends, so that earlier output to the same redirected file is not overwritten.
            File::options().append(true).open(path).map(|file| (file, State::AsItIs))
        } else {
            begin(path)
        };
        let (file, state) = made.map_err(|error| Failure::io(path, &error))?;
        let name = if path == Path::new("-") { "output".into() } else { path.to_owned() };
        Ok(Self { name, file, state })
    }

    /// Returns the name in messages.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Makes the file durable and moves it to its path.
    pub fn finish(self) -> Result<(), Failure> {
        let name = self.name.clone();
        self.publish().map_err(|error| Failure::io(&name, &error))
    }

    fn publish(self) -> io::Result<()> {
        let place = match &self.state {
            State::AsItIs => return Ok(()),
            State::Unnamed(place) | State::Hidden(_, place) => place.clone(),
        };
        self.file.sync_all()?;
        match self.state {
            State::Hidden(hidden, _) => hidden.persist(&place)?,
            // `linkat` does not replace an existing file. So the file gets a hidden name first, and is then renamed to
            // its path.
            _ => tempfile::Builder::new()
                .prefix(&hidden_prefix(&place))
                .make_in(parent(&place), |hidden| {
                    let unnamed = descriptor_path(self.file.as_fd());
                    Ok(linkat(CWD, unnamed, CWD, hidden, AtFlags::SYMLINK_FOLLOW)?)
                })?
                .into_temp_path()
                .persist(&place)?,
        }
        File::open(parent(&place))?.sync_all()
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns whether a path means standard output. Such output is written through the inherited descriptor, so that other
/// writers that share the descriptor continue after it.
pub fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Returns whether an existing `path` is a pipe, a device or an open file of this process.
fn is_as_it_is(path: &Path) -> bool {
    let is_descriptor = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];
    is_descriptor.iter().any(|prefix| path.starts_with(prefix))
        || path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

fn begin(path: &Path) -> io::Result<(File, State)> {
    // Follows links, so that the file they point to is replaced.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let permissions = match place.metadata() {
        Ok(metadata) => Permissions::from_mode(metadata.mode() & 0o777),
        // The mode of a new file. The umask restricts it.
        Err(_) => Permissions::from_mode(0o666),
    };
    let unnamed = File::options()
        .read(true)
        .write(true)
        .mode(permissions.mode())
        .custom_flags(OFlags::TMPFILE.bits().cast_signed())
        .open(parent(&place));
    if let Ok(file) = unnamed
        && descriptor_path(file.as_fd()).exists()
    {
        return Ok((file, State::Unnamed(place)));
    }
    let made = tempfile::Builder::new()
        .prefix(&hidden_prefix(&place))
        .permissions(permissions)
        .tempfile_in(parent(&place))?;
    let (file, hidden) = made.into_parts();
    Ok((file, State::Hidden(hidden, place)))
}

fn descriptor_path(file: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn hidden_prefix(place: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(place.file_name().unwrap_or_default());
    prefix.push(".writing-");
    prefix
}

fn parent(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fails if an output is one of `reads`, or part of one.
pub fn refuse_reads(output: &Path, reads: &[&Path]) -> Result<(), Failure> {
    let stdio = |descriptor: BorrowedFd<'_>| {
        let file = descriptor.try_clone_to_owned().map(File::from);
        file.and_then(|file| file.metadata()).ok()
    };
    let is_stdout = is_stdout(output);
    let found = if is_stdout { stdio(io::stdout().as_fd()) } else { output.metadata().ok() };
    let found = found.filter(Metadata::is_file).map(|metadata| id(&metadata));
    let place = (!is_stdout).then(|| resolved(output)).flatten();
    let directory = place.as_deref().and_then(|place| parent(place).metadata().ok());
    for read in reads {
        let same = if *read == Path::new("-") {
            let stdin = stdio(io::stdin().as_fd()).filter(Metadata::is_file);
            stdin.is_some_and(|stdin| Some(id(&stdin)) == found)
        } else {
            match read.metadata() {
                Ok(table) if table.is_dir() => {
                    directory.as_ref().is_some_and(|directory| id(directory) == id(&table))
                        || found.is_some_and(|found| holds(read, found))
                }
                Ok(file) => Some(id(&file)) == found,
                // `read` may be another output of this command that does not exist yet, so paths are compared.
                Err(_) => place.is_some() && resolved(read) == place,
            }
        };
        if same {
            let (output, read) = (shown_path(output), shown_path(read));
            let what = match is_stdout {
                true => format!("standard output goes to {read}"),
                false if output == read => read,
                false => format!("{output}: the same file as {read}, or a part of it"),
            };
            return Err(Failure::Usage(format!(
                "{what}: the command already reads or writes it; write to another file"
            )));
        }
    }
    Ok(())
}

/// Returns the identity of a file, which is equal for all its paths.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns whether a directory contains a file, under any of the file's names.
fn holds(directory: &Path, file: (u64, u64)) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().any(|entry| entry.path().metadata().is_ok_and(|found| id(&found) == file))
}

/// Resolves the links in a path. The last component of the path need not exist.
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let directory = parent(path).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    })
}
