//! The scheduler: plans queries, with index joins, and gives their tasks to executors.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::utils::default_session_builder;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service};
use datafusion::error::Result;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use icefield_console::size::{of_machine, size};
use icefield_sql::{IndexCodec, IndexRegistry, IndexRoot, cluster_session_state};
use tokio::sync::mpsc::unbounded_channel;

use crate::guard::Guard;
use crate::lost::{self, LostJob};
use crate::process::{CommonOptions, of_ballista};

const EXAMPLES: &str = "\
Examples:
  icefield-scheduler --index-root /srv/indexes
  icefield-scheduler --index-root /srv/indexes --bind 0.0.0.0 --advertise scheduler.example.org

Every program that reaches the port can run queries that read any file the executors can read: let only trusted machines connect.";

/// Plan the queries of a Ballista cluster, with the join indexes below a directory
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "icefield-scheduler", version, after_help = EXAMPLES)]
pub struct SchedulerOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    /// Listen on this port, for clients and executors
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    port: u16,
    /// The name or address by which executors reach this machine; by default the one of --bind
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Use indexes whose files have changed since the build, too
    #[arg(long)]
    allow_stale: bool,
    /// Give each executor only some partitions of an index that is larger than SIZE, such as 64G: the rows that are
    /// joined with it are sent to the executors by key; without it half of this machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size)]
    split_above: Option<u64>,
    /// Give up an executor that has not reported for this number of seconds, and run its tasks elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    executor_timeout: u64,
}

impl SchedulerOptions {
    /// Runs the scheduler.
    ///
    /// # Errors
    /// If the root is not a directory, or the port cannot be used.
    pub async fn run(self) -> Result<()> {
        let root = IndexRoot::new(&self.common.index_root, self.allow_stale)?;
        let (indexes, problems) = root.indexes();
        for index in indexes {
            tracing::info!("index {}", index.path().display());
        }
        problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        let registry = IndexRegistry::below(root.clone());
        let most_bytes = self.split_above.unwrap_or_else(|| of_machine() / 2);
        let codec = IndexCodec::new(root, Arc::new(BallistaPhysicalExtensionCodec::default()));
        let config = SchedulerConfig {
            bind_host: self.common.bind.to_string(),
            bind_port: self.port,
            external_host: self.advertise.unwrap_or_else(|| self.common.bind.to_string()),
            task_distribution: TaskDistributionPolicy::RoundRobin,
            executor_timeout_seconds: self.executor_timeout,
            expire_dead_executor_interval_seconds: (self.executor_timeout / 2).min(15),
            no_executors_grace_period_seconds: self.executor_timeout,
            override_session_builder: Some(Arc::new(move |config| {
                Ok(cluster_session_state(&registry, most_bytes, default_session_builder(config)?))
            })),
            override_physical_codec: Some(Arc::new(codec)),
            ..SchedulerConfig::default()
        };
        let address = SocketAddr::new(self.common.bind, self.port);
        serve(config, address).await.map_err(of_ballista)
    }
}

async fn serve(config: SchedulerConfig, address: SocketAddr) -> ballista_core::error::Result<()> {
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let (send, mut disturbed) = unbounded_channel();
    let guard = Guard::new(cluster.cluster_state(), send);
    let cluster = BallistaCluster::new(Arc::new(guard), cluster.job_state());
    config.validate()?;
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await?;
    let jobs = scheduler.clone();
    tokio::spawn(async move {
        // A job may be seen several times before it ends.
        let mut known = HashSet::new();
        while let Some((id, job)) = disturbed.recv().await {
            if !known.insert(id.clone()) {
                continue;
            }
            tracing::warn!("job {id}: {}", lost::ERROR);
            {
                let mut graph = job.execution_graph.write().await;
                *graph = Box::new(LostJob(graph.cloned()));
            }
            if let Err(error) = jobs.cancel_job(id).await {
                tracing::error!("{error}");
            }
        }
    });
    start_grpc_service(address, scheduler).await
}
