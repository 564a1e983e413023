//! Converts the bytes of an input to text: decompressed, in UTF-8, without a byte-order mark. Compression and encoding
//! are determined by the first bytes of the input, not by its name.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::row::Input;
use icefield_console::failure::Failure;

/// Formats that cannot be loaded: the first bytes by which each is recognized, and advice on how to convert the file.
const OTHERS: &[(&[u8], &str)] = &[
    (
        b"PAR1\x15",
        "a Parquet file, which `load` does not read; convert it to CSV, or index it with `icefield-sql build-index \
         FILE --on COLUMN`",
    ),
    (b"ARROW1\0\0", "an Arrow file, which `load` does not read; convert it to CSV or NDJSON"),
    (
        b"SQLite format 3\0",
        "an SQLite database; export its table as CSV: sqlite3 -header -csv FILE 'SELECT ...'",
    ),
    (b"\xFD7zXZ\0", "an xz file; decompress it: xz -dc FILE | icefield load TABLE -"),
    (b"BZh91AY&SY", "a bzip2 file; decompress it: bzip2 -dc FILE | icefield load TABLE -"),
    (b"\x04\x22\x4D\x18", "an lz4 file; decompress it: lz4 -dc FILE | icefield load TABLE -"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\xFF\xFE\0\0", "text in UTF-32; convert it: iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xFE\xFF", "text in UTF-32; convert it: iconv -f UTF-32 -t UTF-8"),
];
const GZIP: &[u8] = b"\x1F\x8B";
const ZSTD: &[u8] = b"\x28\xB5\x2F\xFD";
/// The number of bytes that are read to recognize a format.
const HEAD_BYTES: usize = 16;

/// Returns the text of an input.
pub fn text(input: Input) -> Result<Input, Failure> {
    let fault = |error: io::Error| Failure::Problem(format!("the input: {error}"));
    let (head, input) = begun(input).map_err(fault)?;
    refuse_others(&head)?;
    let input: Input = if head.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(BufReader::new(input)))
    } else if head.starts_with(ZSTD) {
        Box::new(Zstd::new(input))
    } else {
        input
    };
    let (head, mut input) = begun(input).map_err(fault)?;
    refuse_others(&head)?;
    let mark = if head.starts_with(b"\xEF\xBB\xBF") {
        3
    } else if head.starts_with(b"\xFF\xFE") || head.starts_with(b"\xFE\xFF") {
        2
    } else {
        return Ok(input);
    };
    input.read_exact(&mut [0; 3][..mark]).map_err(fault)?;
    Ok(match head[0] {
        0xEF => input,
        first => Box::new(Utf16::new(input, first == 0xFE)),
    })
}

fn refuse_others(head: &[u8]) -> Result<(), Failure> {
    match OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        None => Ok(()),
        Some((_, what)) => Err(Failure::Usage(format!("the input is {what}"))),
    }
}

/// Reads the first bytes of an input. Returns them, and an input that yields the same bytes again.
fn begun(mut input: Input) -> io::Result<(Vec<u8>, Input)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    let whole = Cursor::new(head.clone()).chain(input);
    Ok((head, Box::new(whole)))
}

/// A sequence of zstd frames.
struct Zstd {
    input: BufReader<Input>,
    decoder: FrameDecoder,
    /// True while a frame is being decompressed.
    is_open: bool,
}

impl Zstd {
    fn new(input: Input) -> Self {
        Self { input: BufReader::new(input), decoder: FrameDecoder::new(), is_open: false }
    }

    /// Starts the next frame; returns `false` at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.input.by_ref().take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    fn verify(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "zstd: checksum mismatch"));
        }
        Ok(())
    }
}

impl Read for Zstd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_open {
                self.is_open = self.begin()?;
                if !self.is_open {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.input, blocks);
                decoded.map_err(io::Error::other)?;
            }
            let bytes = self.decoder.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            self.verify()?;
            self.is_open = false;
        }
    }
}

/// Decodes UTF-16 to UTF-8.
struct Utf16 {
    input: BufReader<Input>,
    big_endian: bool,
    /// A code unit that was read in advance.
    next: Option<u16>,
    /// Decoded text that has not been read yet.
    text: Cursor<Vec<u8>>,
}

/// Bytes of text decoded at a time.
const CHUNK_BYTES: usize = 1 << 14;

impl Utf16 {
    fn new(input: Input, big_endian: bool) -> Self {
        let text = Cursor::new(Vec::with_capacity(CHUNK_BYTES + 4));
        Self { input: BufReader::with_capacity(1 << 16, input), big_endian, next: None, text }
    }

    fn unit(&mut self) -> io::Result<Option<u16>> {
        if let Some(unit) = self.next.take() {
            return Ok(Some(unit));
        }
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut bytes = [0; 2];
        self.input.read_exact(&mut bytes)?;
        Ok(Some(match self.big_endian {
            true => u16::from_be_bytes(bytes),
            false => u16::from_le_bytes(bytes),
        }))
    }

    fn character(&mut self) -> io::Result<Option<char>> {
        let Some(unit) = self.unit()? else { return Ok(None) };
        let second = match unit {
            0xD800..=0xDBFF => self.unit()?,
            _ => None,
        };
        match char::decode_utf16([unit].into_iter().chain(second)).next() {
            Some(Ok(character)) => Ok(Some(character)),
            _ => {
                let detail = format!("not UTF-16: the unit {unit:#06x} is an unpaired surrogate");
                Err(io::Error::new(io::ErrorKind::InvalidData, detail))
            }
        }
    }
}

impl Read for Utf16 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.text.position() == self.text.get_ref().len() as u64 {
            let mut text = std::mem::take(self.text.get_mut());
            text.clear();
            while text.len() < CHUNK_BYTES
                && let Some(character) = self.character()?
            {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            self.text = Cursor::new(text);
        }
        self.text.read(buffer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let mut input =
            text(Box::new(Cursor::new(bytes.to_vec()))).map_err(|failure| failure.to_string())?;
        let mut read = String::new();
        input.read_to_string(&mut read).map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn marks_of_unicode_are_no_text() {
        let words = "key,value\n1,é漢\u{1f600}\n";
        assert_eq!(read(words.as_bytes()).unwrap(), words);
        assert_eq!(read(format!("\u{feff}{words}").as_bytes()).unwrap(), words);
        let units: Vec<u16> = "\u{feff}"
            .chars()
            .chain(words.chars())
            .flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec())
            .collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        assert_eq!(
            (read(&little).unwrap(), read(&big).unwrap()),
            (words.to_owned(), words.to_owned())
        );
        assert!(read(b"\xFF\xFEa\0\0\xD8").unwrap_err().contains("0xd800"));
        assert!(read(b"\xFF\xFEa\0b").is_err());
        assert!(read(b"\xFF\xFE\0\0a\0\0\0").unwrap_err().contains("UTF-32"));
        assert_eq!(read(b"").unwrap(), "");
    }

    #[test]
    fn compressed_inputs_are_read_to_their_ends() {
        let part = |text: &str| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let gzip = [part("\u{feff}one,"), part("two\n")].concat();
        assert_eq!(read(&gzip).unwrap(), "one,two\n");
        assert!(read(&gzip[..gzip.len() - 9]).is_err(), "cut off");

        let frame = |text: &str| {
            let level = ruzstd::encoding::CompressionLevel::Uncompressed;
            ruzstd::encoding::compress_to_vec(text.as_bytes(), level)
        };
        let skipped = [&b"\x50\x2A\x4D\x18\x03\0\0\0"[..], b"abc"].concat();
        let zstd = [frame("one,"), skipped, frame("two\n")].concat();
        assert_eq!(read(&zstd).unwrap(), "one,two\n");
        assert!(read(&zstd[..zstd.len() - 5]).is_err(), "cut off");
    }

    #[test]
    fn other_formats_are_named() {
        for (magic, what) in OTHERS {
            assert!(read(magic).unwrap_err().contains(what));
        }
        assert!(read(b"PAR1\x15\x04").unwrap_err().contains("icefield-sql build-index"));
        assert!(read(b"PAR1,BZh\n1,2\n").is_ok(), "names of columns");
    }
}
