use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Page, Span, StoreError};
use crate::calendar::Calendar;
use crate::fire::{DueSchedule, Fire, FireKind, NewFire, Tick};
use crate::id::{FireId, ScheduleId};
use crate::schedule::Schedule;
use crate::task::TaskStatus;

/// Decides about a due schedule at the store's present instant; `None` leaves it as it is, to be looked at again. One
/// that nobody can decide stays first in line: whoever ticks should move it on or disable it.
pub type Decide = dyn Fn(&DueSchedule, DateTime<Utc>) -> Option<Tick> + Send + Sync;

/// Schedules, their fires, and the calendars that exclude them.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Writes a schedule and the first row of its history.
    ///
    /// # Errors
    /// `NameTaken`, `ClientRequestIdInUse`.
    async fn create_schedule(&self, schedule: &Schedule) -> Result<(), StoreError>;

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
    /// # Errors
    /// `NotFound`, `VersionMismatch`, `NameTaken`.
    async fn update_schedule(&self, schedule: &Schedule) -> Result<Schedule, StoreError>;

    /// Deletes a schedule and cancels its pending tasks; running ones finish, fires stay. `false` if unknown.
    async fn delete_schedule(&self, id: ScheduleId) -> Result<bool, StoreError>;

    /// What the schedule was, newest first: when each version came to be, and the schedule as it then was; `None`
    /// where it was deleted.
    async fn schedule_history(&self, id: ScheduleId) -> Result<Vec<(DateTime<Utc>, Option<Schedule>)>, StoreError>;

    /// Decides due schedules, at most `limit`, the longest due first, and writes the decisions in one transaction:
    /// fires, their tasks, the cancelling of earlier tasks, the next instant and the watermark.
    ///
    /// Schedules that another node is deciding right now are passed over. A fire whose instant is not after the
    /// watermark, or that is there already, is not written, and makes no task.
    async fn tick(&self, limit: u32, decide: &Decide) -> Result<Ticked, StoreError>;

    /// The earliest instant at which a schedule is, was or becomes due.
    async fn next_fire_at(&self) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// Writes fires of another kind than `schedule`, with their tasks, leaving the schedule's next instant alone.
    /// Answers those that were written: one that is there already is not.
    ///
    /// # Errors
    /// `NotFound`.
    async fn add_fires(
        &self,
        id: ScheduleId,
        kind: FireKind,
        fires: Vec<NewFire>,
        tz_version: &str,
    ) -> Result<Vec<FireId>, StoreError>;

    /// A schedule's fires with where their tasks stand, newest instant first.
    async fn fires(
        &self,
        id: ScheduleId,
        filter: &FireFilter,
        page: Page<(DateTime<Utc>, FireId)>,
    ) -> Result<Vec<Fire>, StoreError>;

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
    /// The task's status is one of these, or the fire was skipped; nothing given is any.
    pub status: Vec<TaskStatus>,
    /// Whether skipped fires are among what `status` asks for.
    pub skipped: bool,
    /// The instant, or any of a run of skipped ones, falls in this stretch.
    pub scheduled_at: Span,
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
}
