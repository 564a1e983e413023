//! DLHT tables and sets of words as a user of the standard library sees them: entries and `drain` among threads, the
//! traits of maps and sets, calls that are refused.

mod drains;
mod entries;
mod refusals;
mod traits;
