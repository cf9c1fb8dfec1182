//! Schedules, and what they were.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::Fire;
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    Backfill, Backfilled, Depth, FireFilter, Page, Remember, Reply, ScheduleFilter, Schedules, StoreError,
};
use punctual_domain::task::Task;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::tasks::{Running, by_topic, end_as_cancelled, take_client_requests};
use super::{PostgresStore, answers, broken, calendars, fires, rows, violates};
use crate::instant::bounded;
use crate::text::{OWNER_ID, from_text, to_text};

const SELECT: &str = "SELECT id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, \
     next_fire_at, fired_through, tz_version, fires_made, created_at, updated_at, version FROM punctual_schedules ";

#[async_trait]
impl Schedules for PostgresStore {
    async fn create_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            let made = create(&mut transaction, schedule).await?;
            note_change(&mut transaction, made.id, made.version, Some(&made), self.now()).await?;
            answers::keep(&mut transaction, remember, &made).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(made))
        })
    }

    async fn schedule(&self, id: ScheduleId) -> Result<Option<Schedule>, StoreError> {
        lend!(self, |connection| {
            let mut query = QueryBuilder::new(SELECT);
            query.push("WHERE id = ").push_bind(id.0);
            one(connection, query).await
        })
    }

    async fn schedule_by_name(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        lend!(self, |connection| {
            let mut query = QueryBuilder::new(SELECT);
            query.push("WHERE name = ").push_bind(name.to_owned());
            one(connection, query).await
        })
    }

    async fn schedules(&self, filter: &ScheduleFilter, page: Page<ScheduleId>) -> Result<Vec<Schedule>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT);
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
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(schedule_row).collect()
        })
    }

    async fn update_schedule(
        &self,
        schedule: &Schedule,
        remember: Option<Remember<Schedule>>,
    ) -> Result<Reply<Schedule>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            let updated = update(&mut transaction, schedule, self.now()).await?;
            note_change(&mut transaction, updated.id, updated.version, Some(&updated), self.now()).await?;
            answers::keep(&mut transaction, remember, &updated).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(updated))
        })
    }

    async fn delete_schedule(&self, id: ScheduleId, expected: Option<u64>) -> Result<Option<Vec<Depth>>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let cancelled = delete(&mut transaction, id, expected, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(cancelled)
        })
    }

    async fn schedule_history(&self, id: ScheduleId) -> Result<Vec<(DateTime<Utc>, Option<Schedule>)>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(
                "SELECT changed_at, schedule FROM punctual_schedule_history
                 WHERE schedule_id = $1 ORDER BY version DESC",
            )
            .bind(id.0)
            .fetch_all(connection)
            .await
            .map_err(broken)?;
            found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    let changed_at = columns.take()?;
                    let text: Option<&str> = columns.take()?;
                    Ok((changed_at, text.map(|text| from_text("a schedule", text)).transpose()?))
                })
                .collect()
        })
    }

    async fn trigger(
        &self,
        id: ScheduleId,
        tz_version: &str,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            let (schedule, now) = lock(&mut transaction, id, self.now()).await?;
            let task = fires::trigger(&mut transaction, &schedule, tz_version, now).await?;
            answers::keep(&mut transaction, remember, &task).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(task))
        })
    }

    async fn backfill(
        &self,
        id: ScheduleId,
        backfill: Backfill,
        remember: Option<Remember<Backfilled>>,
    ) -> Result<Reply<Backfilled>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            let (schedule, now) = lock(&mut transaction, id, self.now()).await?;
            let done = fires::backfill(&mut transaction, &schedule, &backfill, now).await?;
            answers::keep(&mut transaction, remember, &done).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(done))
        })
    }

    async fn fires(&self, id: ScheduleId, filter: &FireFilter, page: Page<FireId>) -> Result<Vec<Fire>, StoreError> {
        let mut query = fires::matching(id, filter, page);
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(fires::fire).collect()
        })
    }

    async fn create_calendar(
        &self,
        calendar: &Calendar,
        remember: Option<Remember<Calendar>>,
    ) -> Result<Reply<Calendar>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            calendars::create(&mut transaction, calendar).await?;
            answers::keep(&mut transaction, remember, calendar).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(calendar.clone()))
        })
    }

    async fn put_calendar(&self, calendar: &Calendar) -> Result<bool, StoreError> {
        lend!(self, |connection| { calendars::put(connection, calendar).await })
    }

    async fn calendars(&self) -> Result<Vec<Calendar>, StoreError> {
        lend!(self, |connection| { calendars::all(connection).await })
    }

    async fn delete_calendar(&self, name: &str) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let was_there = calendars::delete(&mut transaction, name).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(was_there)
        })
    }
}

async fn create(connection: &mut PgConnection, schedule: &Schedule) -> Result<Schedule, StoreError> {
    if let Some(client_request_id) = &schedule.client_request_id {
        let request = (client_request_id.clone(), "schedule".to_owned(), schedule.id.0);
        take_client_requests(connection, vec![request]).await?;
    }
    let definition = &schedule.definition;
    calendars::check_known(connection, &definition.exclude_calendars).await?;
    let made = sqlx::query(include_str!("sql/insert_schedule.sql"))
        .bind(schedule.id.0)
        .bind(&definition.name)
        .bind(&definition.topic)
        .bind(definition.metadata.get(OWNER_ID))
        .bind(to_text(definition)?)
        .bind(&schedule.client_request_id)
        .bind(schedule.enabled)
        .bind(&schedule.pause_note)
        .bind(schedule.paused_until.map(bounded))
        .bind(schedule.last_fired_at)
        .bind(schedule.next_fire_at.map(bounded))
        .bind(schedule.fired_through)
        .bind(schedule.fires_made as i64)
        .bind(schedule.created_at)
        .bind(schedule.updated_at)
        .bind(schedule.version as i64)
        .bind(&schedule.tz_version)
        .fetch_one(connection)
        .await
        .map_err(|error| name_taken(error, schedule))?;
    schedule_row(&made)
}

async fn update(
    connection: &mut PgConnection,
    schedule: &Schedule,
    now: Option<DateTime<Utc>>,
) -> Result<Schedule, StoreError> {
    let (stored, now) = lock(connection, schedule.id, now).await?;
    if stored.version != schedule.version {
        return Err(StoreError::VersionMismatch(stored.version));
    }
    if stored.fired_through != schedule.fired_through || stored.is_due(now) {
        return Err(StoreError::Moved);
    }
    let definition = &schedule.definition;
    calendars::check_known(connection, &definition.exclude_calendars).await?;
    let updated = sqlx::query(include_str!("sql/update_schedule.sql"))
        .bind(now)
        .bind(schedule.id.0)
        .bind(&definition.name)
        .bind(&definition.topic)
        .bind(definition.metadata.get(OWNER_ID))
        .bind(to_text(definition)?)
        .bind(schedule.enabled)
        .bind(&schedule.pause_note)
        .bind(schedule.paused_until.map(bounded))
        .bind(schedule.next_fire_at.map(bounded))
        .bind(&schedule.tz_version)
        .fetch_one(connection)
        .await
        .map_err(|error| name_taken(error, schedule))?;
    schedule_row(&updated)
}

/// Deletes a schedule that is not due; answers what was cancelled with it.
async fn delete(
    connection: &mut PgConnection,
    id: ScheduleId,
    expected: Option<u64>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Vec<Depth>>, StoreError> {
    let (stored, now) = match lock(connection, id, now).await {
        Err(StoreError::NotFound) => return Ok(None),
        locked => locked?,
    };
    if expected.is_some_and(|expected| expected != stored.version) {
        return Err(StoreError::VersionMismatch(stored.version));
    }
    if stored.is_due(now) {
        return Err(StoreError::Moved);
    }
    sqlx::query("DELETE FROM punctual_schedules WHERE id = $1")
        .bind(id.0)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    let pending: Vec<Uuid> =
        sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = $1 AND status = 'pending'")
            .bind(id.0)
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    let cancelled = end_as_cancelled(connection, &pending, Running::Not, Some(now)).await?;
    // As of the instant up to which nothing was due.
    note_change(connection, id, stored.version + 1, None, Some(now)).await?;
    Ok(Some(by_topic(&cancelled).into()))
}

/// A schedule, locked against whoever else would change it until the transaction ends, and the present instant.
pub(super) async fn lock(
    connection: &mut PgConnection,
    id: ScheduleId,
    now: Option<DateTime<Utc>>,
) -> Result<(Schedule, DateTime<Utc>), StoreError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push("WHERE id = ").push_bind(id.0).push(" FOR UPDATE");
    let schedule = one(connection, query).await?.ok_or(StoreError::NotFound)?;
    // After the lock: waiting for it takes its time.
    let now = sqlx::query_scalar("SELECT coalesce($1, statement_timestamp())")
        .bind(now)
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    Ok((schedule, now))
}

async fn one(connection: &mut PgConnection, mut query: QueryBuilder<Postgres>) -> Result<Option<Schedule>, StoreError> {
    let row = query.build().fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(schedule_row).transpose()
}

/// Keeps what a schedule became, for those who ask later what it was.
pub(super) async fn note_change(
    connection: &mut PgConnection,
    id: ScheduleId,
    version: u64,
    schedule: Option<&Schedule>,
    now: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO punctual_schedule_history (schedule_id, version, changed_at, schedule)
         VALUES ($1, $2, coalesce($3, statement_timestamp()), $4)",
    )
    .bind(id.0)
    .bind(version as i64)
    .bind(now)
    .bind(schedule.map(to_text).transpose()?)
    .execute(connection)
    .await
    .map_err(broken)?;
    Ok(())
}

fn name_taken(error: sqlx::Error, schedule: &Schedule) -> StoreError {
    if violates(&error, "punctual_schedules_name_key") {
        StoreError::NameTaken(schedule.definition.name.clone())
    } else {
        broken(error)
    }
}

/// A row of [`SELECT`] or `due_schedules.sql`.
pub(super) fn schedule_row(row: &PgRow) -> Result<Schedule, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(Schedule {
        id: ScheduleId(columns.take()?),
        definition: from_text("a schedule", columns.take()?)?,
        client_request_id: columns.take()?,
        enabled: columns.take()?,
        pause_note: columns.take()?,
        paused_until: columns.take()?,
        last_fired_at: columns.take()?,
        next_fire_at: columns.take()?,
        fired_through: columns.take()?,
        tz_version: columns.take()?,
        fires_made: columns.take_count()?,
        created_at: columns.take()?,
        updated_at: columns.take()?,
        version: columns.take_count()?,
    })
}
