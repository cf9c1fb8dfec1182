use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use super::{StoreError, TaskFilter};
use crate::fire::Fire;
use crate::id::{ScheduleId, TaskId};
use crate::schedule::Schedule;

/// What somebody sees who looks at everything at once. Every answer is bounded, however much there is.
#[async_trait]
pub trait Glance: Send + Sync {
    /// The newest fires of each of these schedules, at most `each`, those of one schedule together and newest first. Of
    /// long errors the beginning.
    async fn recent_fires(&self, ids: &[ScheduleId], each: u32) -> Result<Vec<Fire>, StoreError>;

    /// Enabled schedules in the order in which they fire next, overdue ones first, at most `limit`; without their
    /// payloads.
    async fn next_schedules(&self, limit: u32) -> Result<Vec<Schedule>, StoreError>;

    /// Pending tasks that become due after `from` and before `to`, in that order, at most `limit`.
    async fn coming_tasks(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<ComingTask>, StoreError>;

    /// What ended in each of so many minutes from `from` on, in order, also where nothing did.
    async fn ended_minutes(&self, from: DateTime<Utc>, minutes: u32) -> Result<Vec<EndedMinute>, StoreError>;

    /// Tasks that failed since then, those that failed last first, at most `limit`.
    async fn failures(&self, since: DateTime<Utc>, limit: u32) -> Result<Vec<Failure>, StoreError>;

    /// Whether an attempt began, a task ended or a fire was missed at or after an instant: cheap, however much did.
    async fn has_happened_since(&self, at: DateTime<Utc>) -> Result<bool, StoreError>;

    /// How many tasks match, counted up to `most`.
    async fn count_tasks(&self, filter: &TaskFilter, most: u32) -> Result<u32, StoreError>;
}

/// A task that becomes due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComingTask {
    /// The task.
    pub task_id: TaskId,
    /// Its topic.
    pub topic: String,
    /// The zone its instant is meant in.
    pub timezone: String,
    /// When it is due.
    pub run_at: DateTime<Utc>,
}

/// What ended in one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedMinute {
    /// Where it begins.
    pub at: DateTime<Utc>,
    /// How many tasks ended, however they did.
    pub ended: u64,
    /// How many of them failed.
    pub failed: u64,
    /// By how much the last of them began after their time, on average; no more than [`EndedMinute::SAMPLE`] count.
    pub lag: Option<TimeDelta>,
}

impl EndedMinute {
    /// How many tasks of a minute are looked at closely.
    pub const SAMPLE: u32 = 100;
}

/// A task that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The task.
    pub task_id: TaskId,
    /// Its topic.
    pub topic: String,
    /// The beginning of its error.
    pub error: String,
    /// When it failed.
    pub at: DateTime<Utc>,
    /// The schedule whose fire made it.
    pub schedule_id: Option<ScheduleId>,
}
