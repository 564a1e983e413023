#![doc = include_str!("../README.md")]

mod executor;
mod guard;
mod lost;
mod process;
mod scheduler;

use std::process::ExitCode;

use clap::Parser;

use executor::ExecutorOptions;
use scheduler::SchedulerOptions;

/// The program `icefield-scheduler`.
pub fn scheduler() -> ExitCode {
    let options = SchedulerOptions::parse();
    process::run(&options.common.clone(), options.run())
}

/// The program `icefield-executor`.
pub fn executor() -> ExitCode {
    let options = ExecutorOptions::parse();
    process::run(&options.common.clone(), options.run())
}
