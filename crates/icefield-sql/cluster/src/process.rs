//! Code that both programs share.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use ballista_core::error::BallistaError;
use datafusion::error::{DataFusionError, Result};
use tracing_subscriber::EnvFilter;

/// The options that both programs have.
#[derive(clap::Args, Clone, Debug)]
pub struct CommonOptions {
    /// Use the indexes below this directory, and open no others
    #[arg(long, value_name = "DIR")]
    pub index_root: PathBuf,
    /// Listen on this address only; 0.0.0.0 lets other machines connect
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Log to the standard error at these levels, such as `warn` or `info,icefield_sql=debug`
    #[arg(long, value_name = "LEVELS", default_value = "warn,icefield_sql=info")]
    pub log: String,
}

/// Runs a program until it ends, and reports its error.
pub fn run(options: &CommonOptions, program: impl Future<Output = Result<()>>) -> ExitCode {
    match start(options, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.strip_backtrace());
            ExitCode::from(1)
        }
    }
}

fn start(options: &CommonOptions, program: impl Future<Output = Result<()>>) -> Result<()> {
    let filter = EnvFilter::try_new(&options.log).map_err(|error| {
        DataFusionError::Configuration(format!("--log {}: {error}", options.log))
    })?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .init();
    // Plans are visited by recursion, and can be deep.
    const STACK: usize = 32 << 20;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()?
        .block_on(program)
}

/// Wraps an error of Ballista.
pub fn of_ballista(error: BallistaError) -> DataFusionError {
    match error {
        BallistaError::DataFusionError(error) => *error,
        other => DataFusionError::External(Box::new(other)),
    }
}
