//! Replaces `Mutex<HashMap<String, u64>>`: counts the words of files, with one thread for each file.
//!
//! ```sh
//! cargo run --release -p icefield --example word_count -- README.md docs/*.md
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, fs, thread};

use icefield::DlhtMap;

fn main() -> Result<(), Box<dyn Error>> {
    let mut texts = Vec::new();
    for path in env::args().skip(1) {
        texts.push(fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?);
    }
    if texts.is_empty() {
        texts.push(include_str!("word_count.rs").to_owned());
    }

    let counts = DlhtMap::<String, AtomicU64>::new();
    thread::scope(|scope| {
        for text in &texts {
            scope.spawn(|| count(&counts, text));
        }
    });

    let guard = counts.pin();
    let mut words: Vec<_> =
        counts.iter(&guard).map(|(word, count)| (count.load(Relaxed), word)).collect();
    words.sort_by(|one, other| other.cmp(one));
    println!(
        "{} words, {} of them different",
        words.iter().map(|one| one.0).sum::<u64>(),
        words.len()
    );
    for (count, word) in words.iter().take(10) {
        println!("{count:7} {word}");
    }
    Ok(())
}

/// Adds the words of a text. The guard keeps the returned references alive, so one guard for the whole text is enough.
fn count(counts: &DlhtMap<String, AtomicU64>, text: &str) {
    let guard = counts.pin();
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
    {
        counts.entry(word.to_owned(), &guard).or_default().fetch_add(1, Relaxed);
    }
}
