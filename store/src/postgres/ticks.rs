//! What the leader writes about schedules, and what all nodes watch over. What a tick does stands in `tick.rs`.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::event::MissedFire;
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    Decide, FireAudit, Lateness, MissedCursor, NextTick, Replanned, StoreError, Ticked, Ticks,
};
use sqlx::Connection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::schedules::schedule_row;
use super::tick::{Which, tick};
use super::{PostgresStore, broken, micros, rows};
use crate::instant::bounded;

#[async_trait]
impl Ticks for PostgresStore {
    async fn tick(&self, lateness: Lateness, limit: u32, decide: &Decide<'_>) -> Result<Ticked, StoreError> {
        lend!(self.ticking, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let ticked = tick(&mut transaction, Which::All { lateness, limit }, decide, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(ticked)
        })
    }

    async fn tick_schedule(&self, id: ScheduleId, decide: &Decide<'_>) -> Result<Ticked, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let ticked = tick(&mut transaction, Which::One(id), decide, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(ticked)
        })
    }

    async fn next_tick_at(&self) -> Result<NextTick, StoreError> {
        lend!(self.ticking, |connection| {
            let row = sqlx::query(include_str!("sql/next_tick_at.sql")).fetch_one(connection).await.map_err(broken)?;
            let mut columns = rows::Columns::of(&row);
            Ok(NextTick { fire_at: columns.take()?, resume_at: columns.take()? })
        })
    }

    async fn due_tasks(&self, most: u32) -> Result<u64, StoreError> {
        lend!(self.ticking, |connection| {
            let row = sqlx::query(include_str!("sql/due_tasks.sql"))
                .bind(self.now())
                .bind(i64::from(most))
                .fetch_one(connection)
                .await
                .map_err(broken)?;
            rows::Columns::of(&row).take_count()
        })
    }

    async fn stale_plans(
        &self,
        tz_version: &str,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/stale_plans.sql"))
                .bind(self.now())
                .bind(tz_version)
                .bind(after.map(|id| id.0))
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(schedule_row).collect()
        })
    }

    async fn replan(&self, plans: &[Replanned], tz_version: &str) -> Result<u64, StoreError> {
        lend!(self, |connection| {
            let replanned = sqlx::query(include_str!("sql/replan.sql"))
                .bind(plans.iter().map(|plan| plan.id.0).collect::<Vec<_>>())
                .bind(plans.iter().map(|plan| plan.version as i64).collect::<Vec<_>>())
                .bind(plans.iter().map(|plan| plan.was.map(bounded)).collect::<Vec<_>>())
                .bind(plans.iter().map(|plan| plan.next_fire_at.map(bounded)).collect::<Vec<_>>())
                .bind(tz_version)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(replanned.rows_affected())
        })
    }

    async fn note_missed(&self, threshold: Duration, limit: u32) -> Result<Vec<MissedFire>, StoreError> {
        lend!(self, |connection| {
            let noted = sqlx::query(include_str!("sql/note_missed.sql"))
                .bind(self.now())
                .bind(micros(threshold))
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            noted.iter().map(missed_row).collect()
        })
    }

    async fn missed_fires(&self, after: &MissedCursor, limit: u32) -> Result<Vec<MissedFire>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/missed_fires.sql"))
                .bind(bounded(after.noted_at))
                .bind(after.schedule_id.0)
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(missed_row).collect()
        })
    }

    async fn audit_fires(&self, limit: u32) -> Result<FireAudit, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            // Whoever looks through them holds this row; the others let it.
            let through: Option<DateTime<Utc>> = sqlx::query_scalar(include_str!("sql/audited_through.sql"))
                .bind(self.now())
                .fetch_optional(&mut *transaction)
                .await
                .map_err(broken)?;
            let Some(through) = through else { return Ok(FireAudit::default()) };
            let row = sqlx::query(include_str!("sql/audit.sql"))
                .bind(through)
                .bind(self.now())
                .bind(i64::from(limit))
                .fetch_one(&mut *transaction)
                .await
                .map_err(broken)?;
            let mut columns = rows::Columns::of(&row);
            let tasks = columns.take_count()?;
            let through: Option<DateTime<Utc>> = columns.take()?;
            let schedules: Vec<Uuid> = columns.take()?;
            let instants: Vec<DateTime<Utc>> = columns.take()?;
            if let Some(through) = through {
                sqlx::query("UPDATE punctual_facts SET value = $1 WHERE name = 'audited_through'")
                    .bind(through.to_rfc3339())
                    .execute(&mut *transaction)
                    .await
                    .map_err(broken)?;
            }
            transaction.commit().await.map_err(broken)?;
            Ok(FireAudit { tasks, doubles: schedules.into_iter().map(ScheduleId).zip(instants).collect() })
        })
    }
}

/// A row of `note_missed.sql` or `missed_fires.sql`.
fn missed_row(row: &PgRow) -> Result<MissedFire, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(MissedFire {
        schedule_id: ScheduleId(columns.take()?),
        scheduled_at: columns.take()?,
        name: columns.take()?,
        topic: columns.take()?,
        noted_at: columns.take()?,
    })
}
