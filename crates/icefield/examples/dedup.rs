//! A pipeline stage that passes each line once: lines that earlier runs have seen are dropped, too.
//!
//! ```sh
//! cargo run --release -p icefield --example dedup -- seen.ice < events.log > new-events.log
//! ```

use std::error::Error;
use std::io::{self, BufRead, BufWriter, Write};
use std::{env, iter};

use icefield::Iceberg;

/// Number of lines that share one wait for the medium. A larger batch would only delay the first line.
const BATCH: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(path) = env::args().nth(1) {
        let seen = Iceberg::<str, u64>::open_or_create(path)?;
        let (read, passed) = dedup(&seen, io::stdin().lock(), BufWriter::new(io::stdout().lock()))?;
        eprintln!("{read} lines, {passed} of them new; {} seen so far", seen.len()?);
        return Ok(());
    }

    let directory = tempfile::tempdir()?;
    let path = directory.path().join("seen.ice");
    let events: String = (0..3000).map(|event| format!("event {}\n", event % 1000)).collect();
    for run in 1..=2 {
        let seen = Iceberg::<str, u64>::open_or_create(&path)?;
        let (read, passed) = dedup(&seen, events.as_bytes(), io::sink())?;
        println!("run {run}: {read} lines, {passed} of them new");
        assert_eq!(passed, if run == 1 { 1000 } else { 0 });
    }
    Ok(())
}

/// Copies the lines of `input` that are not in `seen`; returns how many lines were read, and how many were copied.
fn dedup(
    seen: &Iceberg<str, u64>,
    input: impl BufRead,
    mut output: impl Write,
) -> Result<(u64, u64), Box<dyn Error>> {
    let mut lines = input.lines();
    let (mut read, mut passed) = (0, 0);
    loop {
        let batch: Vec<String> = lines.by_ref().take(BATCH).collect::<io::Result<_>>()?;
        if batch.is_empty() {
            break;
        }
        let records: Vec<_> = iter::zip(batch.iter().map(String::as_str), read..).collect();
        let mut outcomes = vec![Ok(()); batch.len()];
        // A line that occurs twice in a batch passes once: a batch has the same results as single calls in order.
        seen.try_insert_batch(&records, &mut outcomes)?;
        for (line, _) in iter::zip(&batch, &outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            writeln!(output, "{line}")?;
            passed += 1;
        }
        read += batch.len() as u64;
    }
    output.flush()?;
    Ok((read, passed))
}
