//! The file in which `icefield-sql` describes the sources of an index, and how small files beside a table are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The name of the file in the directory of an index.
pub const NAME: &str = "source.json";
/// The version of its format. Former programs wrote versions 1 to 3.
pub const VERSION: u32 = 4;
/// Maximum length of a small file in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The part of the file that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads the description in the directory of an index, or a part of it, and its text; `None` if there is none.
pub fn read<T: DeserializeOwned>(directory: &Path) -> Result<Option<(T, String)>, Failure> {
    let path = directory.join(NAME);
    let text = match read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::io(&path, &error)),
    };
    let problem = |error: &dyn std::fmt::Display| {
        Failure::Problem(format!("{}: {error}; build the index again", path.display()))
    };
    let Version { version } = serde_json::from_str(&text).map_err(|error| problem(&error))?;
    if version != VERSION {
        return Err(problem(&format!(
            "version {version}, but this program reads version {VERSION}"
        )));
    }
    let description = serde_json::from_str(&text).map_err(|error| problem(&error))?;
    Ok(Some((description, text)))
}

/// Returns the text of a small file that a command stored in a table's directory. Fails for anything but a regular
/// file, because reading a pipe would block.
pub fn read_small(path: &Path) -> io::Result<String> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a plain file of at most 64 MiB",
        ));
    }
    io::read_to_string(file.take(MOST_BYTES))
}
