//! Schedules, what they were, their fires, and calendars. What a tick does stands in `tick.rs`.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{Fire, FireKind, NewFire, SkipReason, TaskOfFire};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Decide, FireFilter, Page, ScheduleFilter, Schedules, StoreError, Ticked};
use punctual_domain::task::TaskStatus;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::list::Query;
use super::rows::{self, Columns, instant, micros};
use super::tasks::{check_client_requests, use_client_requests};
use super::{SqliteStore, broken, settle, tick};
use crate::text::{OWNER_ID, from_text, to_text};

#[async_trait]
impl Schedules for SqliteStore {
    async fn create_schedule(&self, schedule: &Schedule) -> Result<(), StoreError> {
        let schedule = schedule.clone();
        self.write(move |connection, now| async move { create(connection, &schedule, now).await }.boxed()).await
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

    async fn update_schedule(&self, schedule: &Schedule) -> Result<Schedule, StoreError> {
        let schedule = schedule.clone();
        self.write(move |connection, now| async move { update(connection, &schedule, now).await }.boxed()).await
    }

    async fn delete_schedule(&self, id: ScheduleId) -> Result<bool, StoreError> {
        self.write(move |connection, now| delete(connection, id, now).boxed()).await
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

    async fn tick(&self, limit: u32, decide: &Decide) -> Result<Ticked, StoreError> {
        tick::tick(self, limit, decide).await
    }

    async fn next_fire_at(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.earliest(include_str!("sql/next_fire_at.sql")).await
    }

    async fn add_fires(
        &self,
        id: ScheduleId,
        kind: FireKind,
        fires: Vec<NewFire>,
        tz_version: &str,
    ) -> Result<Vec<FireId>, StoreError> {
        let tz_version = tz_version.to_owned();
        self.write(move |connection, now| {
            async move {
                find(connection, id).await?.ok_or(StoreError::NotFound)?;
                tick::add_fires(connection, id, kind, fires, &tz_version, now).await
            }
            .boxed()
        })
        .await
    }

    async fn fires(
        &self,
        id: ScheduleId,
        filter: &FireFilter,
        page: Page<(DateTime<Utc>, FireId)>,
    ) -> Result<Vec<Fire>, StoreError> {
        let mut query = list_fires(id, filter, page);
        self.read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(fire).collect()
            }
            .boxed()
        })
        .await
    }

    async fn put_calendar(&self, calendar: &Calendar) -> Result<bool, StoreError> {
        let text = to_text(calendar)?;
        let name = calendar.name.clone();
        self.write(move |connection, _| {
            async move {
                let updated = sqlx::query("UPDATE punctual_calendars SET definition = ?2 WHERE name = ?1")
                    .bind(&name)
                    .bind(&text)
                    .execute(&mut *connection)
                    .await
                    .map_err(broken)?;
                if updated.rows_affected() > 0 {
                    return Ok(false);
                }
                sqlx::query("INSERT INTO punctual_calendars (name, definition) VALUES (?1, ?2)")
                    .bind(name)
                    .bind(text)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    async fn calendars(&self) -> Result<Vec<Calendar>, StoreError> {
        self.read(|connection, _| calendars(connection).boxed()).await
    }

    async fn delete_calendar(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write(move |connection, _| {
            async move {
                let user: Option<String> = sqlx::query_scalar(include_str!("sql/calendar_user.sql"))
                    .bind(&name)
                    .fetch_optional(&mut *connection)
                    .await
                    .map_err(broken)?;
                if let Some(schedule) = user {
                    return Err(StoreError::CalendarInUse(schedule));
                }
                let deleted = sqlx::query("DELETE FROM punctual_calendars WHERE name = ?1")
                    .bind(name)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(deleted.rows_affected() > 0)
            }
            .boxed()
        })
        .await
    }
}

async fn create(connection: &mut SqliteConnection, schedule: &Schedule, now: DateTime<Utc>) -> Result<(), StoreError> {
    check_client_requests(connection, schedule.client_request_id.as_deref().into_iter()).await?;
    check_name(connection, schedule).await?;
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
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    note(connection, schedule.id, now).await?;
    let request = schedule.client_request_id.as_deref().map(|request| (request, schedule.id.0));
    use_client_requests(connection, "schedule", request.into_iter()).await
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
    check_name(connection, schedule).await?;
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
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    note(connection, schedule.id, now).await
}

async fn delete(connection: &mut SqliteConnection, id: ScheduleId, now: DateTime<Utc>) -> Result<bool, StoreError> {
    let version: Option<i64> = sqlx::query_scalar("DELETE FROM punctual_schedules WHERE id = ?1 RETURNING version")
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    let Some(version) = version else { return Ok(false) };
    sqlx::query(include_str!("sql/note_schedule.sql"))
        .bind(id.0)
        .bind(version + 1)
        .bind(micros(now))
        .bind(None::<String>)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    let pending: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = ?1 AND status = 'pending'")
            .bind(id.0)
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    settle::cancel(connection, &pending.into_iter().map(TaskId).collect::<Vec<_>>(), now).await?;
    Ok(true)
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
async fn note(connection: &mut SqliteConnection, id: ScheduleId, now: DateTime<Utc>) -> Result<Schedule, StoreError> {
    let schedule = find(connection, id).await?.ok_or(StoreError::NotFound)?;
    sqlx::query(include_str!("sql/note_schedule.sql"))
        .bind(id.0)
        .bind(to_i64(schedule.version))
        .bind(micros(now))
        .bind(to_text(&schedule)?)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(schedule)
}

async fn find(connection: &mut SqliteConnection, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
    const BY_ID: &str = concat!(include_str!("sql/schedules.sql"), "WHERE id = ?1");
    let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(rows::schedule).transpose()
}

/// All calendars, by name.
pub(super) async fn calendars(connection: &mut SqliteConnection) -> Result<Vec<Calendar>, StoreError> {
    let found: Vec<String> = sqlx::query_scalar("SELECT definition FROM punctual_calendars ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(|text| from_text("a calendar", text)).collect()
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

fn list_fires(id: ScheduleId, filter: &FireFilter, page: Page<(DateTime<Utc>, FireId)>) -> Query {
    let mut query = Query::new(include_str!("sql/fires.sql"));
    query.push("WHERE f.schedule_id = ").push_bind(id.0);
    if let Some((scheduled_at, id)) = page.after {
        query.push(" AND (f.scheduled_at, f.id) < (").push_bind(micros(scheduled_at));
        query.push(", ").push_bind(id.0).push(")");
    }
    if !filter.status.is_empty() || filter.skipped {
        query.push(if filter.skipped { " AND (f.reason IS NOT NULL OR " } else { " AND (" });
        let mut names = query.push("coalesce(t.status, h.status) IN (").separated(", ");
        for status in &filter.status {
            names.push_bind(status.as_str());
        }
        query.push("))");
    }
    if let Some(from) = filter.scheduled_at.from {
        query.push(" AND coalesce(f.until_at, f.scheduled_at) >= ").push_bind(micros(from));
    }
    if let Some(to) = filter.scheduled_at.to {
        query.push(" AND f.scheduled_at < ").push_bind(micros(to));
    }
    query.push(" ORDER BY f.scheduled_at DESC, f.id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

/// A row of `fires.sql`.
fn fire(row: &SqliteRow) -> Result<Fire, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Fire {
        id: FireId(columns.take()?),
        schedule_id: ScheduleId(columns.take()?),
        kind: columns.take_word(FireKind::from_name)?,
        scheduled_at: columns.take_instant()?,
        fired_at: columns.take_instant()?,
        reason: columns.take_word_if_any(SkipReason::from_name)?,
        until: columns.take_instant_if_any()?,
        count: columns.take_count()?,
        tz_version: columns.take()?,
        task: match columns.take::<Option<Uuid>>()? {
            None => None,
            Some(id) => Some(TaskOfFire {
                id: TaskId(id),
                status: columns.take_word_if_any(TaskStatus::from_name)?,
                attempt: columns.take_count()?,
                started_at: columns.take::<Option<i64>>()?.map(instant).transpose()?,
                completed_at: columns.take_instant_if_any()?,
                error: columns.take()?,
            }),
        },
    })
}

fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
