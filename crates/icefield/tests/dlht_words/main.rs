//! DLHT tables and sets of words as a user of the standard library sees them: entries and `drain` among threads, the
//! traits of maps and sets, calls that are refused, and the features `serde` and `rayon`.

mod drains;
mod entries;
mod formats;
mod parallel;
mod refusals;
mod traits;
