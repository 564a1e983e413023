//! A job that has lost results, as its client sees it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::{JobStatus, TaskStatus};
use ballista_core::serde::scheduler::{ExecutorMetadata, PartitionLocation};
use ballista_scheduler::scheduler_server::event::QueryStageSchedulerEvent;
use ballista_scheduler::state::execution_graph::{
    ExecutionGraph, ExecutionGraphBox, RunningTaskInfo,
};
use ballista_scheduler::state::execution_stage::{ExecutionStage, RunningStage};
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::ExecutionPlan;

/// The error that the client of such a job receives.
pub const ERROR: &str = "results of finished tasks were lost with an executor; repeat the query";

/// A job that ends with [`ERROR`] when the scheduler cancels it, instead of with the word `Cancelled`. In all else it
/// is the job that it was.
#[derive(Debug)]
pub struct LostJob(pub ExecutionGraphBox);

impl ExecutionGraph for LostJob {
    fn fail_job(&mut self, _: String) {
        self.0.fail_job(ERROR.to_owned());
    }

    fn fail_stage(&mut self, stage_id: usize, _: String) -> bool {
        self.0.fail_stage(stage_id, ERROR.to_owned())
    }

    fn job_id(&self) -> &JobId {
        self.0.job_id()
    }

    fn job_name(&self) -> &str {
        self.0.job_name()
    }

    fn session_id(&self) -> &str {
        self.0.session_id()
    }

    fn scheduler_id(&self) -> Option<&str> {
        self.0.scheduler_id()
    }

    fn session_config(&self) -> Arc<SessionConfig> {
        self.0.session_config()
    }

    fn status(&self) -> &JobStatus {
        self.0.status()
    }

    fn logical_plan(&self) -> Option<&str> {
        self.0.logical_plan()
    }

    fn physical_plan(&self) -> Arc<dyn ExecutionPlan> {
        self.0.physical_plan()
    }

    fn start_time(&self) -> u64 {
        self.0.start_time()
    }

    fn end_time(&self) -> u64 {
        self.0.end_time()
    }

    fn completed_stages(&self) -> usize {
        self.0.completed_stages()
    }

    fn is_successful(&self) -> bool {
        self.0.is_successful()
    }

    fn revive(&mut self) -> bool {
        self.0.revive()
    }

    fn update_task_status(
        &mut self,
        executor: &ExecutorMetadata,
        task_statuses: Vec<TaskStatus>,
        max_task_failures: usize,
        max_stage_failures: usize,
    ) -> Result<Vec<QueryStageSchedulerEvent>> {
        self.0.update_task_status(executor, task_statuses, max_task_failures, max_stage_failures)
    }

    fn running_stages(&self) -> Vec<usize> {
        self.0.running_stages()
    }

    fn running_tasks(&self) -> Vec<RunningTaskInfo> {
        self.0.running_tasks()
    }

    fn available_tasks(&self) -> usize {
        self.0.available_tasks()
    }

    fn fetch_running_stage(&mut self, black_list: &[usize]) -> Option<&mut RunningStage> {
        self.0.fetch_running_stage(black_list)
    }

    fn update_status(&mut self, status: JobStatus) {
        self.0.update_status(status);
    }

    fn output_locations(&self) -> Vec<PartitionLocation> {
        self.0.output_locations()
    }

    fn reset_stages_on_lost_executor(
        &mut self,
        executor_id: &str,
    ) -> Result<(HashSet<usize>, Vec<RunningTaskInfo>)> {
        self.0.reset_stages_on_lost_executor(executor_id)
    }

    fn resolve_stage(&mut self, stage_id: usize) -> Result<bool> {
        self.0.resolve_stage(stage_id)
    }

    fn succeed_stage(&mut self, stage_id: usize) -> bool {
        self.0.succeed_stage(stage_id)
    }

    fn rollback_running_stage(
        &mut self,
        stage_id: usize,
        failure_reasons: HashSet<String>,
    ) -> Result<Vec<RunningTaskInfo>> {
        self.0.rollback_running_stage(stage_id, failure_reasons)
    }

    fn rollback_resolved_stage(&mut self, stage_id: usize) -> Result<bool> {
        self.0.rollback_resolved_stage(stage_id)
    }

    fn rerun_successful_stage(&mut self, stage_id: usize) -> bool {
        self.0.rerun_successful_stage(stage_id)
    }

    fn succeed_job(&mut self) -> Result<()> {
        self.0.succeed_job()
    }

    fn stages(&self) -> &HashMap<usize, ExecutionStage> {
        self.0.stages()
    }

    fn stage_count(&self) -> usize {
        self.0.stage_count()
    }

    fn cloned(&self) -> ExecutionGraphBox {
        Box::new(Self(self.0.cloned()))
    }
}
