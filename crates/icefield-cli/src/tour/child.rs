//! The hidden subcommand that the tour starts and kills: its name and its options.

use std::path::PathBuf;

pub const CHILD: &str = "tour-child";

/// Load orders until killed (a part of `tour`)
#[derive(clap::Args, Debug)]
pub struct ChildArgs {
    /// Load the tour's table with this number
    #[arg(long)]
    pub index: usize,
    /// Create the table at this path
    #[arg(long)]
    pub table: PathBuf,
    /// Read the orders from this file
    #[arg(long)]
    pub orders: PathBuf,
    /// Write the number of durable orders to this file after each order
    #[arg(long)]
    pub acknowledged: PathBuf,
}
