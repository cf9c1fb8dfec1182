use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Bulk, Depth, Page, Remember, Reply, Span, StoreError};
use crate::calendar::Calendar;
use crate::fire::{Fire, FireStatus};
use crate::id::{FireId, ScheduleId};
use crate::schedule::Schedule;
use crate::task::Task;

/// Schedules, their fires, and the calendars that exclude them.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Writes a schedule and the first row of its history. With `remember`, the answer is kept as for tasks.
    ///
    /// # Errors
    /// `NameTaken`, `ClientRequestIdInUse`, `UnknownCalendar`, `IdempotencyKeyReused`.
    async fn create_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError>;

    /// One schedule.
    async fn schedule(&self, id: ScheduleId) -> Result<Option<Schedule>, StoreError>;

    /// The schedule of that name.
    async fn schedule_by_name(&self, name: &str) -> Result<Option<Schedule>, StoreError>;

    /// Schedules that match, newest first.
    async fn schedules(&self, filter: &ScheduleFilter, page: Page<ScheduleId>) -> Result<Vec<Schedule>, StoreError>;

    /// Writes an edited schedule, if it still has `schedule.version`, and a row of its history. Its version grows by
    /// one, the store says when it was edited, and what fires write (`last_fired_at`, `fired_through`, `fires_made`)
    /// stays as stored.
    ///
    /// What was due before the edit is due as it was: while the schedule is due, or if it has fired since it was read
    /// (`fired_through` tells), nothing is written. Whoever edits lets
    /// [`Ticks::tick_schedule`](super::Ticks::tick_schedule) decide it, and reads it again.
    ///
    /// # Errors
    /// `NotFound`, `VersionMismatch`, `Moved`, `NameTaken`, `UnknownCalendar`, `IdempotencyKeyReused`.
    async fn update_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError>;

    /// Deletes a schedule, if it has this version or none is given, and cancels its pending tasks; running ones finish,
    /// fires stay. Answers how many tasks were cancelled, by topic and origin; `None` if the schedule is unknown.
    ///
    /// No instant is lost: while the schedule is due, nothing is deleted. Whoever deletes lets
    /// [`Ticks::tick_schedule`](super::Ticks::tick_schedule) decide it first, by
    /// [`decide_before_deletion`](crate::fire::decide_before_deletion).
    ///
    /// # Errors
    /// `VersionMismatch`, `Moved`.
    async fn delete_schedule(&self, id: ScheduleId, version: Option<u64>) -> Result<Option<Vec<Depth>>, StoreError>;

    /// What the schedule was, newest first: when each version came to be, and the schedule as it then was; `None`
    /// where it was deleted.
    async fn schedule_history(&self, id: ScheduleId) -> Result<Vec<(DateTime<Utc>, Option<Schedule>)>, StoreError>;

    /// Makes a fire of kind `manual`, and its task, at an instant of its own. The schedule's next instant stays.
    ///
    /// # Errors
    /// `NotFound`, `IdempotencyKeyReused`.
    async fn trigger(
        &self,
        id: ScheduleId,
        tz_version: &str,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError>;

    /// Makes fires of kind `backfill`, and their tasks, at those instants that have no fire of any kind that made one.
    /// Instants that the schedule itself has still to decide are left to it: they would fire twice. Its next instant
    /// stays.
    ///
    /// # Errors
    /// `NotFound`, `TooManyFires` (and makes none), `IdempotencyKeyReused`.
    async fn backfill(
        &self,
        id: ScheduleId,
        backfill: Backfill,
        remember: Option<Remember<Backfilled>>,
    ) -> Result<Reply<Backfilled>, StoreError>;

    /// A schedule's fires with where their tasks stand, newest first: those that were made last.
    async fn fires(&self, id: ScheduleId, filter: &FireFilter, page: Page<FireId>) -> Result<Vec<Fire>, StoreError>;

    /// Writes a calendar of a new name.
    ///
    /// # Errors
    /// `NameTaken`, `IdempotencyKeyReused`.
    async fn create_calendar(
        &self,
        calendar: &Calendar,
        remember: Option<Remember<Calendar>>,
    ) -> Result<Reply<Calendar>, StoreError>;

    /// Writes a calendar; `true` if it is new.
    async fn put_calendar(&self, calendar: &Calendar) -> Result<bool, StoreError>;

    /// All calendars, by name.
    async fn calendars(&self) -> Result<Vec<Calendar>, StoreError>;

    /// Deletes a calendar; `false` if unknown.
    ///
    /// # Errors
    /// `CalendarInUse`.
    async fn delete_calendar(&self, name: &str) -> Result<bool, StoreError>;
}

/// Which schedules are meant: all that match everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleFilter {
    /// Enabled or not.
    pub enabled: Option<bool>,
    /// This topic.
    pub topic: Option<String>,
    /// This name.
    pub name: Option<String>,
    /// `metadata.ownerId`.
    pub owner_id: Option<String>,
}

/// Which fires are meant: all that match everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FireFilter {
    /// One of these; none is any.
    pub status: Vec<FireStatus>,
    /// The instant, or any of a run of skipped ones, falls in this stretch.
    pub scheduled_at: Span,
}

impl FireFilter {
    /// The statuses with a task that are asked for: those of tasks, and `dispatched`.
    pub fn statuses_with_task(&self) -> impl Iterator<Item = &'static str> {
        let with_task = self.status.iter().filter(|status| **status != FireStatus::Skipped);
        with_task.map(|status| status.as_str())
    }

    /// Whether skipped fires are among what is asked for.
    pub fn asks_for_skipped(&self) -> bool {
        self.status.contains(&FireStatus::Skipped)
    }
}

/// A stretch of the past to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    /// The instants, in order.
    pub instants: Vec<DateTime<Utc>>,
    /// How many fires it may make at the most.
    pub most: u64,
    /// Whether they are made or only counted.
    pub bulk: Bulk,
    /// The release of the zone data that the instants were found with.
    pub tz_version: String,
}

impl Backfill {
    /// The instants before `due_at`; all of them if there is no such instant.
    pub fn instants_before(&self, due_at: Option<DateTime<Utc>>) -> Vec<DateTime<Utc>> {
        self.instants.iter().copied().filter(|at| due_at.is_none_or(|due_at| *at < due_at)).collect()
    }
}

/// What a backfill did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// The instants that it made fires at, in order.
    pub made: Vec<DateTime<Utc>>,
    /// How many instants had fired before.
    pub already_fired: u64,
    /// How many instants are left to the schedule, which has still to decide them.
    pub left: u64,
}
