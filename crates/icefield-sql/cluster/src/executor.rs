//! An executor: runs tasks, with index joins, and keeps their results until they are fetched.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use datafusion::error::{DataFusionError, Result};
use icefield_sql::{IndexCodec, IndexRoot};
use tokio::net::TcpStream;

use crate::process::{CommonOptions, of_ballista};

const EXAMPLES: &str = "\
Examples:
  icefield-executor --index-root /srv/indexes
  icefield-executor --index-root /srv/indexes --scheduler scheduler.example.org:50050 --bind 0.0.0.0

All executors of one machine share the memory of its indexes. SIGTERM and Ctrl-C end an executor after its tasks.";

/// Run tasks of a Ballista cluster, with the join indexes below a directory
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "icefield-executor", version, after_help = EXAMPLES)]
pub struct ExecutorOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    /// The scheduler's address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050", value_parser = host_and_port)]
    scheduler: (String, u16),
    /// Wait at most this long for the scheduler to listen
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u16,
    /// Listen on this port, for other executors and clients that fetch results
    #[arg(long, value_name = "PORT", default_value_t = 50051)]
    port: u16,
    /// Listen on this port, for the scheduler
    #[arg(long, value_name = "PORT", default_value_t = 50052)]
    grpc_port: u16,
    /// The name or address by which other machines reach this one; by default the one from which the scheduler sees it
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Run N partitions at a time; without it as many as the machine has cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Write results for other tasks to this directory; without it to a temporary one, removed at the end
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
}

fn host_and_port(text: &str) -> std::result::Result<(String, u16), String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let (host, port) = parts.ok_or("a host and a port are expected, such as localhost:50050")?;
    Ok((host.to_owned(), port.parse().map_err(|_| format!("`{port}` is not a port"))?))
}

/// Waits until the scheduler listens.
async fn wait_for(host: &str, port: u16, longest: Duration) -> Result<()> {
    const AGAIN: Duration = Duration::from_millis(200);
    let start = Instant::now();
    loop {
        match TcpStream::connect((host, port)).await {
            Ok(_) => return Ok(()),
            Err(_) if start.elapsed() < longest => tokio::time::sleep(AGAIN).await,
            Err(error) => {
                let what = format!("the scheduler at {host}:{port} does not answer");
                return Err(DataFusionError::from(error).context(what));
            }
        }
    }
}

impl ExecutorOptions {
    /// Runs the executor.
    ///
    /// # Errors
    /// If the root is not a directory, a port cannot be used, or the scheduler is not there.
    pub async fn run(self) -> Result<()> {
        let root = IndexRoot::new(&self.common.index_root, true)?;
        let codec = IndexCodec::new(root, Arc::new(BallistaPhysicalExtensionCodec::default()));
        let temporary = match self.work_dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("icefield-executor-").tempdir()?),
        };
        let work_dir = self.work_dir.as_deref().or(temporary.as_ref().map(|dir| dir.path()));
        let work_dir = work_dir.and_then(|path| path.to_str()).ok_or_else(|| {
            DataFusionError::Configuration("--work-dir: not valid Unicode".to_owned())
        })?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let (scheduler_host, scheduler_port) = self.scheduler;
        wait_for(&scheduler_host, scheduler_port, Duration::from_secs(self.wait.into())).await?;
        let config = ExecutorProcessConfig {
            bind_host: self.common.bind.to_string(),
            external_host: self.advertise,
            port: self.port,
            grpc_port: self.grpc_port,
            scheduler_host,
            scheduler_port,
            vcores: self.threads.map_or_else(cores, usize::from),
            work_dir: Some(work_dir.to_owned()),
            job_data_ttl_seconds: 3600,
            job_data_clean_up_interval_seconds: 600,
            executor_heartbeat_interval_seconds: 1,
            override_physical_codec: Some(Arc::new(codec)),
            ..ExecutorProcessConfig::default()
        };
        start_executor_process(Arc::new(config)).await.map_err(of_ballista)
    }
}
