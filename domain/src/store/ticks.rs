use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{Depth, StoreError};
use crate::event::MissedFire;
use crate::fire::{DueSchedule, Tick};
use crate::id::{ScheduleId, TaskId};
use crate::schedule::Schedule;
use crate::topic::Topic;

/// Decides about a due schedule at the store's present instant; `None` leaves it as it is, to be looked at again.
pub type Decide<'d> = dyn Fn(&DueSchedule, DateTime<Utc>) -> Option<Tick> + Send + Sync + 'd;

/// What the leader writes about schedules, and what all nodes watch over.
#[async_trait]
pub trait Ticks: Send + Sync {
    /// Decides due schedules that are that late, at most `limit`, the longest due first, and writes the decisions in one
    /// transaction: fires, their tasks, the cancelling of earlier tasks, the next instant and the watermark. Those whose
    /// pause has ended come first, unless only late ones are asked for.
    ///
    /// Schedules that another node is deciding right now are passed over. A fire whose instant is not after the
    /// watermark, or that is there already, is not written, and makes no task. A schedule that cannot be read is paused.
    async fn tick(&self, lateness: Lateness, limit: u32, decide: &Decide<'_>) -> Result<Ticked, StoreError>;

    /// The same for one schedule, if it is due; one that another node is deciding is waited for.
    async fn tick_schedule(&self, id: ScheduleId, decide: &Decide<'_>) -> Result<Ticked, StoreError>;

    /// When there is something to tick.
    async fn next_tick_at(&self) -> Result<NextTick, StoreError>;

    /// How many tasks are due and wait to be claimed, counted up to `most`.
    async fn due_tasks(&self, most: u32) -> Result<u64, StoreError>;

    /// Schedules whose next instant lies ahead and was computed with other zone data than that release, in the order of
    /// their ids, after `after`.
    async fn stale_plans(
        &self,
        tz_version: &str,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError>;

    /// Writes new next instants, where the schedule is still as it was. No edit: its version stays. Answers how many.
    async fn replan(&self, plans: &[Replanned], tz_version: &str) -> Result<u64, StoreError>;

    /// Notes enabled schedules whose next instant is further past than `threshold` and that nobody is catching up, at
    /// most `limit`. Each instant is noted once, by one node: the answer is what this call noted.
    async fn note_missed(&self, threshold: Duration, limit: u32) -> Result<Vec<MissedFire>, StoreError>;

    /// Missed fires noted after that one, in the order they were noted, at most `limit`.
    async fn missed_fires(&self, after: &MissedCursor, limit: u32) -> Result<Vec<MissedFire>, StoreError>;

    /// Looks through ended tasks of fires that nobody has looked through yet, about `limit`, for instants that made more
    /// than one. Each task is looked through once, by one node: the answer is what this call found.
    async fn audit_fires(&self, limit: u32) -> Result<FireAudit, StoreError>;
}

/// How late a schedule is: how long ago its next instant was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lateness {
    /// Whatever it is.
    Any,
    /// This or less.
    AtMost(TimeDelta),
    /// More than this.
    Over(TimeDelta),
}

impl Lateness {
    /// The stretch of next instants that are that late at `now`, both ends included.
    pub fn span(self, now: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
        let first = DateTime::<Utc>::MIN_UTC;
        let before = |late| now.checked_sub_signed(late).unwrap_or(first);
        match self {
            Self::Any => (first, now),
            Self::AtMost(late) => (before(late), now),
            Self::Over(late) => (first, before(late + TimeDelta::microseconds(1))),
        }
    }
}

/// What a tick did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticked {
    /// How many schedules were decided.
    pub schedules: u64,
    /// How many fires made a task.
    pub fired: u64,
    /// How many instants were skipped.
    pub skipped: u64,
    /// How many fires somebody else had made before.
    pub lost_races: u64,
    /// How late each fire that made a task was.
    pub lags: Vec<TimeDelta>,
    /// The topics of the tasks that were made, with when the first of each is due.
    pub due: BTreeMap<Topic, DateTime<Utc>>,
    /// Tasks that were cancelled while they ran.
    pub stopped: Vec<TaskId>,
    /// All tasks that were cancelled, by topic and origin.
    pub cancelled: Vec<Depth>,
    /// Schedules that were paused because they cannot be read or understood any more, and why.
    pub paused: Vec<(ScheduleId, String)>,
}

impl Ticked {
    /// Counts a fire that made a task of `topic`.
    pub fn made(&mut self, topic: &Topic, run_at: DateTime<Utc>, lag: TimeDelta) {
        self.fired += 1;
        self.lags.push(lag);
        match self.due.get_mut(topic) {
            Some(first) => *first = run_at.min(*first),
            None => drop(self.due.insert(topic.clone(), run_at)),
        }
    }
}

/// When there is something to tick.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextTick {
    /// The earliest instant at which an enabled schedule is, was or becomes due.
    pub fire_at: Option<DateTime<Utc>>,
    /// The earliest instant at which a paused one resumes.
    pub resume_at: Option<DateTime<Utc>>,
}

/// A next instant that was computed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replanned {
    /// The schedule.
    pub id: ScheduleId,
    /// The version it must still have.
    pub version: u64,
    /// The next instant it must still have.
    pub was: Option<DateTime<Utc>>,
    /// The next instant it gets.
    pub next_fire_at: Option<DateTime<Utc>>,
}

/// A place in the order of missed fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedCursor {
    /// When it was noted.
    pub noted_at: DateTime<Utc>,
    /// Of which schedule; one is noted once at a time.
    pub schedule_id: ScheduleId,
}

impl MissedCursor {
    /// The place before everything that was noted at `at` or later.
    pub fn since(at: DateTime<Utc>) -> Self {
        Self { noted_at: at, schedule_id: ScheduleId(Uuid::nil()) }
    }

    /// The place of a missed fire.
    pub fn of(missed: &MissedFire) -> Self {
        Self { noted_at: missed.noted_at, schedule_id: missed.schedule_id }
    }
}

/// What looking through ended tasks of fires found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FireAudit {
    /// How many were looked through.
    pub tasks: u64,
    /// Instants that made more than one task.
    pub doubles: Vec<(ScheduleId, DateTime<Utc>)>,
}
