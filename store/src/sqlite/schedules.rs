//! Schedules, and what they were. What a tick does stands in `tick.rs`.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::Fire;
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    Backfill, Backfilled, Depth, FireFilter, Page, Remember, Reply, ScheduleFilter, Schedules, StoreError,
};
use punctual_domain::task::Task;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::list::Query;
use super::rows::{self, Columns, micros};
use super::tasks::{check_client_requests, use_client_requests};
use super::{SqliteStore, answers, broken, calendars, fires, settle};
use crate::text::{OWNER_ID, from_text, to_text};

#[async_trait]
impl Schedules for SqliteStore {
    async fn create_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError> {
        let schedule = schedule.clone();
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let made = create(connection, &schedule, now).await?;
                answers::keep(connection, remember, &made, now).await?;
                Ok(Reply::Made(made))
            }
            .boxed()
        })
        .await
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        self.read(move |connection, _| find(connection, id).boxed()).await
    }

    async fn schedule_by_name(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        const BY_NAME: &str = concat!(include_str!("sql/schedules.sql"), "WHERE name = ?1");
        let name = name.to_owned();
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query(BY_NAME).bind(name).fetch_optional(connection).await.map_err(broken)?;
                row.as_ref().map(rows::schedule).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn schedules(&self, filter: &ScheduleFilter, page: Page<ScheduleId>) -> Result<Vec<Schedule>, StoreError> {
        let mut query = list_schedules(filter, page);
        self.read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(rows::schedule).collect()
            }
            .boxed()
        })
        .await
    }

    async fn update_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError> {
        let schedule = schedule.clone();
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let updated = update(connection, &schedule, now).await?;
                answers::keep(connection, remember, &updated, now).await?;
                Ok(Reply::Made(updated))
            }
            .boxed()
        })
        .await
    }

    async fn delete_schedule(&self, id: ScheduleId, version: Option<u64>) -> Result<Option<Vec<Depth>>, StoreError> {
        self.write(move |connection, now| delete(connection, id, version, now).boxed()).await
    }

    async fn schedule_history(&self, id: ScheduleId) -> Result<Vec<(DateTime<Utc>, Option<Schedule>)>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(
                    "SELECT changed_at, schedule FROM punctual_schedule_history
                     WHERE schedule_id = ?1 ORDER BY version DESC",
                )
                .bind(id.0)
                .fetch_all(connection)
                .await
                .map_err(broken)?;
                found
                    .iter()
                    .map(|row| {
                        let mut columns = Columns::of(row);
                        let changed_at = columns.take_instant()?;
                        let schedule: Option<&str> = columns.take()?;
                        Ok((changed_at, schedule.map(|text| from_text("a former schedule", text)).transpose()?))
                    })
                    .collect()
            }
            .boxed()
        })
        .await
    }

    async fn trigger(
        &self,
        id: ScheduleId,
        tz_version: &str,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError> {
        let tz_version = tz_version.to_owned();
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let schedule = find(connection, id).await?.ok_or(StoreError::NotFound)?;
                let task = fires::trigger(connection, &schedule, &tz_version, now).await?;
                answers::keep(connection, remember, &task, now).await?;
                Ok(Reply::Made(task))
            }
            .boxed()
        })
        .await
    }

    async fn backfill(
        &self,
        id: ScheduleId,
        backfill: Backfill,
        remember: Option<Remember<Backfilled>>,
    ) -> Result<Reply<Backfilled>, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let schedule = find(connection, id).await?.ok_or(StoreError::NotFound)?;
                let done = fires::backfill(connection, &schedule, &backfill, now).await?;
                answers::keep(connection, remember, &done, now).await?;
                Ok(Reply::Made(done))
            }
            .boxed()
        })
        .await
    }

    async fn fires(&self, id: ScheduleId, filter: &FireFilter, page: Page<FireId>) -> Result<Vec<Fire>, StoreError> {
        fires::list(self, id, filter, page).await
    }

    async fn create_calendar(
        &self,
        calendar: &Calendar,
        remember: Option<Remember<Calendar>>,
    ) -> Result<Reply<Calendar>, StoreError> {
        calendars::create(self, calendar, remember).await
    }

    async fn put_calendar(&self, calendar: &Calendar) -> Result<bool, StoreError> {
        calendars::put(self, calendar).await
    }

    async fn calendars(&self) -> Result<Vec<Calendar>, StoreError> {
        self.read(|connection, _| calendars::all(connection).boxed()).await
    }

    async fn delete_calendar(&self, name: &str) -> Result<bool, StoreError> {
        calendars::delete(self, name).await
    }
}

async fn create(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
    now: DateTime<Utc>,
) -> Result<Schedule, StoreError> {
    check_client_requests(connection, schedule.client_request_id.as_deref().into_iter()).await?;
    check_name(connection, schedule).await?;
    calendars::check_known(connection, &schedule.definition.exclude_calendars).await?;
    let definition = &schedule.definition;
    sqlx::query(include_str!("sql/insert_schedule.sql"))
        .bind(schedule.id.0)
        .bind(&definition.name)
        .bind(&definition.topic)
        .bind(definition.metadata.get(OWNER_ID))
        .bind(to_text(definition)?)
        .bind(&schedule.client_request_id)
        .bind(schedule.enabled)
        .bind(&schedule.pause_note)
        .bind(schedule.paused_until.map(micros))
        .bind(schedule.last_fired_at.map(micros))
        .bind(schedule.next_fire_at.map(micros))
        .bind(schedule.fired_through.map(micros))
        .bind(to_i64(schedule.fires_made))
        .bind(micros(schedule.created_at))
        .bind(micros(schedule.updated_at))
        .bind(to_i64(schedule.version))
        .bind(&schedule.tz_version)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    let made = note(connection, schedule.id, now).await?;
    let request = schedule.client_request_id.as_deref().map(|request| (request, schedule.id.0));
    use_client_requests(connection, "schedule", request.into_iter()).await?;
    Ok(made)
}

async fn update(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
    now: DateTime<Utc>,
) -> Result<Schedule, StoreError> {
    let stored = find(connection, schedule.id).await?.ok_or(StoreError::NotFound)?;
    if stored.version != schedule.version {
        return Err(StoreError::VersionMismatch(stored.version));
    }
    if stored.fired_through != schedule.fired_through || stored.is_due(now) {
        return Err(StoreError::Moved);
    }
    check_name(connection, schedule).await?;
    calendars::check_known(connection, &schedule.definition.exclude_calendars).await?;
    let definition = &schedule.definition;
    sqlx::query(include_str!("sql/update_schedule.sql"))
        .bind(schedule.id.0)
        .bind(to_i64(schedule.version))
        .bind(&definition.name)
        .bind(&definition.topic)
        .bind(definition.metadata.get(OWNER_ID))
        .bind(to_text(definition)?)
        .bind(schedule.enabled)
        .bind(&schedule.pause_note)
        .bind(schedule.paused_until.map(micros))
        .bind(schedule.next_fire_at.map(micros))
        .bind(micros(now))
        .bind(&schedule.tz_version)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    note(connection, schedule.id, now).await
}

/// Deletes a schedule that is not due; answers what was cancelled with it.
async fn delete(
    connection: &mut SqliteConnection,
    id: ScheduleId,
    expected: Option<u64>,
    now: DateTime<Utc>,
) -> Result<Option<Vec<Depth>>, StoreError> {
    let Some(stored) = find(connection, id).await? else { return Ok(None) };
    if expected.is_some_and(|expected| expected != stored.version) {
        return Err(StoreError::VersionMismatch(stored.version));
    }
    if stored.is_due(now) {
        return Err(StoreError::Moved);
    }
    sqlx::query("DELETE FROM punctual_schedules WHERE id = ?1")
        .bind(id.0)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    note_change(connection, id, stored.version + 1, None, now).await?;
    let pending: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = ?1 AND status = 'pending'")
            .bind(id.0)
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    let pending: Vec<_> = pending.into_iter().map(TaskId).collect();
    settle::cancel(connection, &pending, now).await?;
    Ok(Some(settle::by_topic(connection, &pending).await?.into()))
}

/// Refuses a name that another schedule has.
async fn check_name(connection: &mut SqliteConnection, schedule: &Schedule) -> Result<(), StoreError> {
    let name = &schedule.definition.name;
    let is_taken: bool = sqlx::query_scalar("SELECT count(*) > 0 FROM punctual_schedules WHERE name = ?1 AND id <> ?2")
        .bind(name)
        .bind(schedule.id.0)
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    if is_taken { Err(StoreError::NameTaken(name.clone())) } else { Ok(()) }
}

/// Adds the schedule as it is stored now to its history, and answers it.
pub(super) async fn note(
    connection: &mut SqliteConnection,
    id: ScheduleId,
    now: DateTime<Utc>,
) -> Result<Schedule, StoreError> {
    let schedule = find(connection, id).await?.ok_or(StoreError::NotFound)?;
    note_change(connection, id, schedule.version, Some(&schedule), now).await?;
    Ok(schedule)
}

/// Keeps what a schedule became, for those who ask later what it was.
pub(super) async fn note_change(
    connection: &mut SqliteConnection,
    id: ScheduleId,
    version: u64,
    schedule: Option<&Schedule>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(include_str!("sql/note_schedule.sql"))
        .bind(id.0)
        .bind(to_i64(version))
        .bind(micros(now))
        .bind(schedule.map(to_text).transpose()?)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}

pub(super) async fn find(connection: &mut SqliteConnection, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
    const BY_ID: &str = concat!(include_str!("sql/schedules.sql"), "WHERE id = ?1");
    let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(rows::schedule).transpose()
}

fn list_schedules(filter: &ScheduleFilter, page: Page<ScheduleId>) -> Query {
    let mut query = Query::new(include_str!("sql/schedules.sql"));
    query.push("WHERE true");
    if let Some(after) = page.after {
        query.push(" AND id < ").push_bind(after.0);
    }
    if let Some(enabled) = filter.enabled {
        query.push(" AND enabled = ").push_bind(enabled);
    }
    for (condition, wanted) in
        [(" AND topic = ", &filter.topic), (" AND name = ", &filter.name), (" AND owner_id = ", &filter.owner_id)]
    {
        if let Some(wanted) = wanted {
            query.push(condition).push_bind(wanted.clone());
        }
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
