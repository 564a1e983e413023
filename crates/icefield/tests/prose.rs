//! A budget for phrases that make comments and documents hard to read.
//!
//! The rules ask for plain technical English: a sentence names its subject, code does not talk or know, and numbers are
//! stated. A hit is a place to check, not an error: a sentence that reads well may stay, within the budget. The test
//! reads Markdown, and comments on separate lines. It leaves out code.

use std::fs;
use std::path::{Path, PathBuf};

/// Hits per 10,000 words in the whole repository, and in each file of more than [`SHORT`] words.
const BUDGET: usize = 10;
const BUDGET_OF_FILE: usize = 25;
const SHORT: usize = 300;

/// Phrases, in lower case, and what to write instead. A `*` is any word.
const PHRASES: &[(&[&str], &str)] = &[
    (
        &["nobody", "somebody", "anybody", "everybody", "whoever"],
        "name the thread, the caller or the type",
    ),
    (&["tell", "tells", "told"], "code returns, reports or shows"),
    (
        &[
            "notices",
            "comes to know",
            "come to know",
            "knows nothing",
            "has to be told",
            "asks for its",
        ],
        "code reads, checks or requests",
    ),
    (&["so many", "so much"], "state the number or the noun"),
    (
        &[
            "what becomes",
            "whatever becomes",
            "in vain",
            "goes on",
            "go on",
            "went on",
            "give up",
            "gives up",
        ],
        "write the plain verb: continues, fails, stops",
    ),
    (
        &["of its own", "of that kind", "such a one", "as it stands", "by itself"],
        "write the adjective or the noun",
    ),
    (&["stands for", "stand for", "stands in", "stand in"], "write: means, replaces"),
    (&["is no *", "are no *"], "write what it is, or: is not a"),
];

/// Words that may follow "is no" and "are no".
const AFTER_NO: &[&str] = &["longer", "more"];

/// Words that begin a question, or a sentence without a subject.
const HEADLESS: &[&str] = &["Who", "Whose", "What", "Whether"];
const OF_HEADLESS: &str = "begin with the subject, or ask a question";

/// A word of the text, without the punctuation around it.
struct Word {
    text: String,
    line: usize,
    /// `true` for the first word after a full stop, a colon or a semicolon, and for the first word of a paragraph.
    begins: bool,
    /// `true` for the last word of a question.
    asks: bool,
}

struct Hit {
    line: usize,
    phrase: String,
    advice: &'static str,
}

/// Returns the words of a text, given its lines with their numbers. Code in quotes is one word without letters.
fn words<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut begins = true;
    for (line, text) in lines {
        let text = text.trim();
        let mut parts = text.split_whitespace();
        if text.is_empty() || text.starts_with(['|', '#']) {
            begins = true;
        }
        let is_mark = |word: &str| {
            matches!(word, "-" | "*" | ">")
                || word.ends_with('.') && word.starts_with(|c: char| c.is_ascii_digit())
        };
        let first = parts.clone().next().unwrap_or_default();
        if is_mark(first) {
            parts.next();
            begins = true;
        }
        let mut is_code = false;
        for part in parts {
            let quotes = part.matches('`').count();
            let quoted = is_code || quotes > 0;
            is_code ^= quotes % 2 == 1;
            let bare = part.trim_matches(|c: char| !c.is_alphanumeric());
            let is_end = part
                .trim_end_matches(['`', '*', '_', ')', '"', ']'])
                .ends_with(['.', ':', ';', '?', '!']);
            if part == "|" {
                begins = true;
                continue;
            }
            let text = if quoted { "`" } else { bare };
            words.push(Word { text: text.to_owned(), line, begins, asks: part.contains('?') });
            begins = is_end && !is_code;
        }
    }
    words
}

/// Returns the places where a phrase of the lists above occurs.
fn hits(words: &[Word]) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let rest = &words[index..];
        let hit = |phrase: &str, advice| Hit { line: word.line, phrase: phrase.to_owned(), advice };
        for (phrases, advice) in PHRASES {
            let found = phrases.iter().filter(|phrase| begins_with(rest, phrase));
            hits.extend(found.map(|phrase| hit(phrase, advice)));
        }
        if word.begins && HEADLESS.contains(&word.text.as_str()) && !is_question(rest) {
            hits.push(hit(&word.text, OF_HEADLESS));
        }
    }
    hits
}

/// Checks whether the phrase is at the start of `words`, within one sentence.
fn begins_with(words: &[Word], phrase: &str) -> bool {
    phrase.split(' ').enumerate().all(|(index, wanted)| {
        words.get(index).is_some_and(|word| {
            let text = word.text.to_lowercase();
            (index == 0 || !word.begins)
                && match wanted {
                    "*" => {
                        text.starts_with(|c: char| c.is_alphabetic())
                            && !AFTER_NO.contains(&text.as_str())
                    }
                    wanted => text == wanted,
                }
        })
    })
}

/// Checks whether the sentence that begins here is a question.
fn is_question(sentence: &[Word]) -> bool {
    let rest = sentence[1..].iter().take_while(|word| !word.begins);
    sentence[0].asks || rest.into_iter().any(|word| word.asks)
}

/// The language of a file, by the mark of its comments.
#[derive(Clone, Copy)]
enum Language {
    Markdown,
    Slashes,
    Hash,
}

fn language(path: &Path) -> Option<Language> {
    match path.extension()?.to_str()? {
        "md" => Some(Language::Markdown),
        "rs" | "c" | "h" | "cpp" | "hpp" => Some(Language::Slashes),
        "py" | "sh" | "toml" => Some(Language::Hash),
        _ => None,
    }
}

/// Returns the lines of prose with their numbers. A line of code is returned as an empty line.
fn prose(text: &str, language: Language) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let shown = match language {
            Language::Markdown => Some(line),
            Language::Slashes => {
                line.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']))
            }
            Language::Hash => line.strip_prefix('#').filter(|text| !text.starts_with(['!', '['])),
        };
        let Some(shown) = shown.map(str::trim) else {
            in_code = false;
            lines.push((index + 1, ""));
            continue;
        };
        let is_fence = shown.starts_with("```");
        in_code ^= is_fence;
        lines.push((index + 1, if in_code || is_fence { "" } else { shown }));
    }
    lines
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Adds the files of a folder, except for build outputs, measurements, and hidden files.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source tree is readable") {
        let path = entry.expect("the source tree is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let is_left_out = matches!(&*name, "target" | "results" | "corpus" | "artifacts");
            if !is_left_out && !name.starts_with('.') && !name.ends_with(".ice") {
                collect(&path, files);
            }
        } else if language(&path).is_some() {
            files.push(path);
        }
    }
}

/// Returns messages for hits beyond the budgets. `texts` are the paths and words of all files.
fn faults(texts: &[(String, Vec<Word>)]) -> Vec<String> {
    let (mut all_words, mut all_hits) = (0, Vec::new());
    let mut faults = Vec::new();
    for (path, words) in texts {
        let hits: Vec<String> = hits(words)
            .iter()
            .map(|Hit { line, phrase, advice }| format!("{path}:{line}: \"{phrase}\": {advice}"))
            .collect();
        if words.len() > SHORT && hits.len() * 10_000 > words.len() * BUDGET_OF_FILE {
            faults.push(over(path, hits.len(), words.len(), BUDGET_OF_FILE));
            faults.extend(hits.iter().cloned());
        }
        all_words += words.len();
        all_hits.extend(hits);
    }
    if all_hits.len() * 10_000 > all_words * BUDGET {
        faults.push(over("the repository", all_hits.len(), all_words, BUDGET));
        faults.extend(all_hits);
    }
    faults
}

fn over(what: &str, hits: usize, words: usize, budget: usize) -> String {
    format!("{what}: {hits} phrases to replace in {words} words, at most {budget} per 10,000:")
}

#[test]
fn phrases_that_are_hard_to_read_stay_within_the_budget() {
    let root = repository();
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("text files are UTF-8");
        let path = file.strip_prefix(&root).expect("found under the root");
        let language = language(file).expect("collected by its language");
        (path.to_string_lossy().into_owned(), words(prose(&text, language).into_iter()))
    };
    let texts: Vec<_> = files.iter().map(read).collect();
    let (words, hits) = texts.iter().fold((0, 0), |(all_words, all_hits), (_, words)| {
        (all_words + words.len(), all_hits + hits(words).len())
    });
    assert!(words > 100_000, "only {words} words found");
    println!("{hits} hits in {words} words of {} files", texts.len());
    let faults = faults(&texts);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Violates the rules on purpose.
mod planted {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let words = words(text.lines().enumerate());
        hits(&words).into_iter().map(|hit| hit.phrase).collect()
    }

    #[test]
    fn phrases_are_found() {
        for (text, phrase) in [
            ("A lock that nobody holds.", "nobody"),
            ("Nobody holds it.", "nobody"),
            ("The header tells where records are.", "tells"),
            ("The table (and so\nmany others) grows.", "so many"),
            ("This is no table.", "is no *"),
            ("It grows. What a segment holds moves.", "What"),
            ("- Whether it grows is in the header.", "Whether"),
            ("| who | Who writes waits. |", "Who"),
            ("A list: Whose lock it is.", "Whose"),
        ] {
            assert_eq!(found(text), [phrase], "{text}");
        }
    }

    #[test]
    fn plain_text_has_no_hits() {
        for text in [
            "The table is no longer open.",
            "What happens after a crash?",
            "It reads `nobody` and `so many` in code.",
            "It states what a segment holds, and who waits.",
            "There are so. Many others do it.",
            "Foretold, untold.",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn code_is_left_out() {
        let count = |text, language| {
            let words = words(prose(text, language).into_iter());
            (words.len(), hits(&words).len())
        };
        let rust = "let told = 1; // told\n/// A word.\n///\n/// ```\n/// let nobody = 2;\n/// ```\n// told\n";
        assert_eq!(count(rust, Language::Slashes), (3, 1));
        let shell = "#!/bin/sh\n# One word.\nmake so much # told\n";
        assert_eq!(count(shell, Language::Hash), (2, 0));
        let markdown = "# Title\n```sh\nmake told\n```\nIt goes on.\n";
        assert_eq!(count(markdown, Language::Markdown), (5, 1));
    }

    #[test]
    fn hits_beyond_a_budget_are_faults() {
        let text = |words, hits| {
            let text = "word ".repeat(words - hits) + &"told ".repeat(hits);
            ("some.md".to_owned(), super::words(text.lines().enumerate()))
        };
        let count = |texts: &[_]| faults(texts).len();
        assert_eq!(count(&[text(10_000, 10)]), 0);
        assert_eq!(count(&[text(10_000, 11)]), 1 + 11, "the repository");
        assert_eq!(count(&[text(1000, 3), text(5000, 0)]), 1 + 3, "one file");
        assert_eq!(count(&[text(300, 3), text(5000, 0)]), 0, "a short file");
    }
}
