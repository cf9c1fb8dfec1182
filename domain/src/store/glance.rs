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

    /// What fired from `from` on until before `to`; of each no more than the first `most` are looked at, and `named` schedules are named.
    async fn fired(&self, from: DateTime<Utc>, to: DateTime<Utc>, most: u32, named: u32) -> Result<Fired, StoreError>;

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

/// What fired in a stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fired {
    /// How many fires made a task.
    pub fires: u64,
    /// How many tasks of fires failed.
    pub failures: u64,
    /// Whose they are: those that failed first, then those that fired the least.
    pub schedules: Vec<FiredSchedule>,
}

impl Fired {
    /// From the schedules, each with how many fires and failures there are of all of them.
    pub fn of(found: Vec<(FiredSchedule, u64, u64)>) -> Self {
        let (fires, failures) = found.first().map_or((0, 0), |(_, fires, failures)| (*fires, *failures));
        Self { fires, failures, schedules: found.into_iter().map(|(schedule, ..)| schedule).collect() }
    }
}

/// What became of one schedule in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredSchedule {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Its name, unless it was deleted.
    pub name: Option<String>,
    /// When the first of it happened.
    pub at: DateTime<Utc>,
    /// How many of its fires made a task.
    pub fires: u64,
    /// How many of its tasks failed.
    pub failures: u64,
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
