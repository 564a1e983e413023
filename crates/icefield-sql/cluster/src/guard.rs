//! Ends jobs that have lost results, instead of running parts of them again.
//!
//! When an executor is lost, results of finished tasks are lost with it. A job that ran these tasks again, beside the
//! results that are still there, could count some of them twice; so no such job gets another task. It is cancelled, and
//! the client repeats the query.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::ExecutorHeartbeat;
use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::task_status::Status;
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::state::execution_graph::ExecutionGraph;
use ballista_scheduler::state::execution_stage::ExecutionStage;
use ballista_scheduler::state::task_manager::JobInfoCache;
use tokio::sync::mpsc::UnboundedSender;

/// A cluster that gives no tasks to jobs that have lost results, and sends these jobs to a channel.
pub struct Guard {
    inner: Arc<dyn ClusterState>,
    disturbed: UnboundedSender<(JobId, JobInfoCache)>,
}

impl Guard {
    /// Returns the guard of a cluster.
    pub fn new(
        inner: Arc<dyn ClusterState>,
        disturbed: UnboundedSender<(JobId, JobInfoCache)>,
    ) -> Self {
        Self { inner, disturbed }
    }
}

/// Returns whether results of finished tasks of a job have been lost.
fn has_lost_results(job: &dyn ExecutionGraph) -> bool {
    job.stages().values().any(|stage| {
        let attempts = match stage {
            ExecutionStage::UnResolved(stage) => stage.stage_attempt_num,
            ExecutionStage::Resolved(stage) => stage.stage_attempt_num,
            ExecutionStage::Running(stage) => stage.stage_attempt_num,
            ExecutionStage::Successful(stage) => stage.stage_attempt_num,
            ExecutionStage::Failed(_) => 0,
        };
        let is_lost = |status: &Status| match status {
            Status::Failed(task) => matches!(
                task.failed_reason,
                Some(FailedReason::ResultLost(_) | FailedReason::FetchPartitionError(_))
            ),
            _ => false,
        };
        let mut tasks = stage.task_infos().unwrap_or_default().iter();
        attempts > 0 || tasks.any(|task| is_lost(&task.task_status))
    })
}

#[async_trait]
impl ClusterState for Guard {
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }

    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        jobs: Arc<HashMap<JobId, JobInfoCache>>,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        let mut whole = HashMap::new();
        for (id, job) in jobs.iter() {
            if has_lost_results(job.execution_graph.read().await.as_ref()) {
                // Without a receiver, the scheduler is about to end.
                let _ = self.disturbed.send((id.clone(), job.clone()));
            } else {
                whole.insert(id.clone(), job.clone());
            }
        }
        self.inner.bind_schedulable_tasks(distribution, Arc::new(whole), executors).await
    }

    async fn unbind_tasks(&self, slots: Vec<ExecutorSlot>) -> Result<()> {
        self.inner.unbind_tasks(slots).await
    }

    async fn register_executor(
        &self,
        metadata: ExecutorMetadata,
        data: ExecutorData,
    ) -> Result<()> {
        self.inner.register_executor(metadata, data).await
    }

    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        self.inner.save_executor_metadata(metadata).await
    }

    async fn get_executor_metadata(&self, executor: &str) -> Result<ExecutorMetadata> {
        self.inner.get_executor_metadata(executor).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.inner.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.inner.save_executor_heartbeat(heartbeat).await
    }

    async fn remove_executor(&self, executor: &str) -> Result<()> {
        self.inner.remove_executor(executor).await
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.inner.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor: &str) -> Option<ExecutorHeartbeat> {
        self.inner.get_executor_heartbeat(executor)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.inner.cluster_state_events().await
    }
}
