//! Schedules, their fires, and calendars.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{Disposition, Fire, FireKind, NewFire, SkipReason, TaskOfFire};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Decide, FireFilter, Page, ScheduleFilter, Schedules, StoreError, Ticked};
use punctual_domain::task::TaskStatus;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Postgres, QueryBuilder, Row};
use uuid::Uuid;

use super::tasks::{Running, cancel_tasks, insert_tasks, take_client_requests};
use super::tick::{FireToWrite, insert_fires, tick};
use super::{PostgresStore, broken, rows, violates};
use crate::instant::bounded;
use crate::text::{OWNER_ID, from_text, to_text};

const SELECT: &str = "SELECT id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, \
     next_fire_at, fired_through, fires_made, created_at, updated_at, version FROM punctual_schedules ";

#[async_trait]
impl Schedules for PostgresStore {
    async fn create_schedule(&self, schedule: &Schedule) -> Result<(), StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(client_request_id) = &schedule.client_request_id {
                let request = (client_request_id.clone(), "schedule".to_owned(), schedule.id.0);
                take_client_requests(&mut transaction, vec![request]).await?;
            }
            let definition = &schedule.definition;
            sqlx::query(
                "INSERT INTO punctual_schedules (
                    id, name, topic, owner_id, definition, client_request_id, enabled, pause_note, paused_until,
                    last_fired_at, next_fire_at, fired_through, fires_made, created_at, updated_at, version)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
            )
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
            .execute(&mut *transaction)
            .await
            .map_err(|error| name_taken(error, schedule))?;
            note_change(&mut transaction, schedule.id, schedule.version, Some(schedule), self.now()).await?;
            transaction.commit().await.map_err(broken)
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

    async fn update_schedule(&self, schedule: &Schedule) -> Result<Schedule, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let definition = &schedule.definition;
            let updated = sqlx::query(include_str!("sql/update_schedule.sql"))
                .bind(self.now())
                .bind(schedule.id.0)
                .bind(schedule.version as i64)
                .bind(&definition.name)
                .bind(&definition.topic)
                .bind(definition.metadata.get(OWNER_ID))
                .bind(to_text(definition)?)
                .bind(schedule.enabled)
                .bind(&schedule.pause_note)
                .bind(schedule.paused_until.map(bounded))
                .bind(schedule.next_fire_at.map(bounded))
                .fetch_optional(&mut *transaction)
                .await
                .map_err(|error| name_taken(error, schedule))?;
            let Some(updated) = updated else {
                let version: Option<i64> = sqlx::query_scalar("SELECT version FROM punctual_schedules WHERE id = $1")
                    .bind(schedule.id.0)
                    .fetch_optional(&mut *transaction)
                    .await
                    .map_err(broken)?;
                return Err(version.map_or(StoreError::NotFound, |version| StoreError::VersionMismatch(version as u64)));
            };
            let updated = schedule_row(&updated)?;
            note_change(&mut transaction, updated.id, updated.version, Some(&updated), self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(updated)
        })
    }

    async fn delete_schedule(&self, id: ScheduleId) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let version: Option<i64> =
                sqlx::query_scalar("DELETE FROM punctual_schedules WHERE id = $1 RETURNING version")
                    .bind(id.0)
                    .fetch_optional(&mut *transaction)
                    .await
                    .map_err(broken)?;
            let Some(version) = version else { return Ok(false) };
            let pending: Vec<Uuid> =
                sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = $1 AND status = 'pending'")
                    .bind(id.0)
                    .fetch_all(&mut *transaction)
                    .await
                    .map_err(broken)?;
            cancel_tasks(&mut transaction, &pending, Running::Not, self.now()).await?;
            note_change(&mut transaction, id, version as u64 + 1, None, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(true)
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

    async fn tick(&self, limit: u32, decide: &Decide) -> Result<Ticked, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let ticked = tick(&mut transaction, limit, decide, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(ticked)
        })
    }

    async fn next_fire_at(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(
                "SELECT min(next_fire_at) FROM punctual_schedules WHERE next_fire_at IS NOT NULL AND enabled",
            )
            .fetch_one(connection)
            .await
            .map_err(broken)
        })
    }

    async fn add_fires(
        &self,
        id: ScheduleId,
        kind: FireKind,
        fires: Vec<NewFire>,
        tz_version: &str,
    ) -> Result<Vec<FireId>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            // Locked against a tick or a delete in between.
            let now: Option<DateTime<Utc>> = sqlx::query_scalar(
                "SELECT coalesce($2, statement_timestamp()) FROM punctual_schedules WHERE id = $1 FOR UPDATE",
            )
            .bind(id.0)
            .bind(self.now())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(broken)?;
            let now = now.ok_or(StoreError::NotFound)?;
            let fires: Vec<_> = fires
                .into_iter()
                .map(|fire| FireToWrite { schedule_id: id, tz_version: tz_version.to_owned(), fire })
                .collect();
            let written = insert_fires(&mut transaction, kind, &fires, now).await?;
            let fires: Vec<_> = fires.into_iter().map(|f| f.fire).filter(|fire| written.contains(&fire.id)).collect();
            let ids: Vec<_> = fires.iter().map(|fire| fire.id).collect();
            let tasks: Vec<_> = fires
                .into_iter()
                .filter_map(|fire| match fire.disposition {
                    Disposition::Fired(task) => Some(*task),
                    Disposition::Skipped { .. } => None,
                })
                .collect();
            if !tasks.is_empty() {
                insert_tasks(&mut transaction, tasks, Some(now)).await?;
                sqlx::query("UPDATE punctual_schedules SET last_fired_at = $2 WHERE id = $1")
                    .bind(id.0)
                    .bind(now)
                    .execute(&mut *transaction)
                    .await
                    .map_err(broken)?;
            }
            transaction.commit().await.map_err(broken)?;
            Ok(ids)
        })
    }

    async fn fires(
        &self,
        id: ScheduleId,
        filter: &FireFilter,
        page: Page<(DateTime<Utc>, FireId)>,
    ) -> Result<Vec<Fire>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(include_str!("sql/fires.sql"));
        query.push("WHERE f.schedule_id = ").push_bind(id.0);
        if let Some((scheduled_at, after)) = page.after {
            query.push(" AND (f.scheduled_at, f.id) < (").push_bind(bounded(scheduled_at));
            query.push(", ").push_bind(after.0).push(")");
        }
        if !filter.status.is_empty() || filter.skipped {
            let names: Vec<_> = filter.status.iter().map(|status| status.as_str()).collect();
            query.push(" AND (coalesce(t.status, h.status) = ANY (").push_bind(names);
            query.push(") OR (f.reason IS NOT NULL AND ").push_bind(filter.skipped).push("))");
        }
        // A run of skipped instants is in the stretch if any of it is.
        if let Some(from) = filter.scheduled_at.from {
            query.push(" AND coalesce(f.until_at, f.scheduled_at) >= ").push_bind(bounded(from));
        }
        if let Some(to) = filter.scheduled_at.to {
            query.push(" AND f.scheduled_at < ").push_bind(bounded(to));
        }
        query.push(" ORDER BY f.scheduled_at DESC, f.id DESC LIMIT ").push_bind(i64::from(page.limit));
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(fire_row).collect()
        })
    }

    async fn put_calendar(&self, calendar: &Calendar) -> Result<bool, StoreError> {
        let text = to_text(calendar)?;
        lend!(self, |connection| {
            // A row that was inserted has no deleting transaction yet; one that was updated has.
            sqlx::query_scalar(
                "INSERT INTO punctual_calendars (name, definition) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
                 RETURNING xmax = 0",
            )
            .bind(&calendar.name)
            .bind(text)
            .fetch_one(connection)
            .await
            .map_err(broken)
        })
    }

    async fn calendars(&self) -> Result<Vec<Calendar>, StoreError> {
        lend!(self, |connection| { all_calendars(connection).await })
    }

    async fn delete_calendar(&self, name: &str) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let user: Option<String> = sqlx::query_scalar(
                "SELECT name FROM punctual_schedules
                 WHERE definition::jsonb -> 'excludeCalendars' ? $1 ORDER BY name LIMIT 1",
            )
            .bind(name)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(broken)?;
            if let Some(user) = user {
                return Err(StoreError::CalendarInUse(user));
            }
            let deleted = sqlx::query("DELETE FROM punctual_calendars WHERE name = $1")
                .bind(name)
                .execute(&mut *transaction)
                .await
                .map_err(broken)?;
            transaction.commit().await.map_err(broken)?;
            Ok(deleted.rows_affected() > 0)
        })
    }
}

async fn one(connection: &mut PgConnection, mut query: QueryBuilder<Postgres>) -> Result<Option<Schedule>, StoreError> {
    let row = query.build().fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(schedule_row).transpose()
}

/// All calendars, by name.
pub(super) async fn all_calendars(connection: &mut PgConnection) -> Result<Vec<Calendar>, StoreError> {
    let found = sqlx::query("SELECT definition FROM punctual_calendars ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(|row| from_text("a calendar", row.get(0))).collect()
}

/// Keeps what a schedule became, for those who ask later what it was.
async fn note_change(
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
        fires_made: columns.take_count()?,
        created_at: columns.take()?,
        updated_at: columns.take()?,
        version: columns.take_count()?,
    })
}

fn fire_row(row: &PgRow) -> Result<Fire, StoreError> {
    let mut columns = rows::Columns::of(row);
    let id = FireId(columns.take()?);
    let schedule_id = ScheduleId(columns.take()?);
    let kind = rows::word(columns.take()?, FireKind::from_name)?;
    let scheduled_at = columns.take()?;
    let fired_at = columns.take()?;
    let reason: Option<&str> = columns.take()?;
    let until = columns.take()?;
    let count = columns.take_count()?;
    let tz_version = columns.take()?;
    let task_id: Option<Uuid> = columns.take()?;
    let status: Option<&str> = columns.take()?;
    let attempt = columns.take_small()?;
    let (started_at, completed_at, error) = (columns.take()?, columns.take()?, columns.take()?);
    let status = status.map(|status| rows::word(status, TaskStatus::from_name)).transpose()?;
    Ok(Fire {
        id,
        schedule_id,
        kind,
        scheduled_at,
        fired_at,
        reason: reason.map(|reason| rows::word(reason, SkipReason::from_name)).transpose()?,
        until,
        count,
        tz_version,
        task: task_id.map(|id| TaskOfFire { id: TaskId(id), status, attempt, started_at, completed_at, error }),
    })
}
