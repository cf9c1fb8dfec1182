//! What the leader writes about schedules, and what is watched over. What a tick does stands in `tick.rs`.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use punctual_domain::event::MissedFire;
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    Decide, FireAudit, Lateness, MissedCursor, NextTick, Replanned, StoreError, Ticked, Ticks,
};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::rows::{self, Columns, Hex, micros, micros_before};
use super::{SqliteStore, broken, tick};
use crate::text::to_text;

/// What ended so recently is left to the next audit.
const SETTLING: TimeDelta = TimeDelta::seconds(10);

#[async_trait]
impl Ticks for SqliteStore {
    async fn tick(&self, lateness: Lateness, limit: u32, decide: &Decide<'_>) -> Result<Ticked, StoreError> {
        tick::tick(self, tick::Which::All { lateness, limit }, decide).await
    }

    async fn tick_schedule(&self, id: ScheduleId, decide: &Decide<'_>) -> Result<Ticked, StoreError> {
        tick::tick(self, tick::Which::One(id), decide).await
    }

    async fn next_tick_at(&self) -> Result<NextTick, StoreError> {
        self.read(|connection, _| {
            async move {
                let row =
                    sqlx::query(include_str!("sql/next_tick_at.sql")).fetch_one(connection).await.map_err(broken)?;
                let mut columns = Columns::of(&row);
                Ok(NextTick { fire_at: columns.take_instant_if_any()?, resume_at: columns.take_instant_if_any()? })
            }
            .boxed()
        })
        .await
    }

    async fn due_tasks(&self, most: u32) -> Result<u64, StoreError> {
        self.read(move |connection, now| {
            async move {
                let row = sqlx::query(include_str!("sql/due_tasks.sql"))
                    .bind(micros(now))
                    .bind(i64::from(most))
                    .fetch_one(connection)
                    .await
                    .map_err(broken)?;
                Columns::of(&row).take_count()
            }
            .boxed()
        })
        .await
    }

    async fn stale_plans(
        &self,
        tz_version: &str,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let tz_version = tz_version.to_owned();
        self.read(move |connection, now| {
            async move {
                let found = sqlx::query(include_str!("sql/stale_plans.sql"))
                    .bind(micros(now))
                    .bind(tz_version)
                    .bind(after.map(|id| id.0))
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(rows::schedule).collect()
            }
            .boxed()
        })
        .await
    }

    async fn replan(&self, plans: &[Replanned], tz_version: &str) -> Result<u64, StoreError> {
        let plans: Vec<_> = plans
            .iter()
            .map(|plan| (Hex(plan.id.0), plan.version, plan.was.map(micros), plan.next_fire_at.map(micros)))
            .collect();
        let (plans, tz_version) = (to_text(&plans)?, tz_version.to_owned());
        self.write(move |connection, _| {
            async move {
                let replanned = sqlx::query(include_str!("sql/replan.sql"))
                    .bind(plans)
                    .bind(tz_version)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(replanned.rows_affected())
            }
            .boxed()
        })
        .await
    }

    async fn note_missed(&self, threshold: Duration, limit: u32) -> Result<Vec<MissedFire>, StoreError> {
        // Beside the writer first: nearly always there is nothing to note.
        let next = self.next_tick_at().await?.fire_at;
        if next.is_none_or(|next| micros(next) >= micros_before(self.now.now(), threshold)) {
            return Ok(Vec::new());
        }
        self.write(move |connection, now| {
            async move {
                let noted = sqlx::query(include_str!("sql/note_missed.sql"))
                    .bind(micros(now))
                    .bind(micros_before(now, threshold))
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                noted.iter().map(missed).collect()
            }
            .boxed()
        })
        .await
    }

    async fn missed_fires(&self, after: &MissedCursor, limit: u32) -> Result<Vec<MissedFire>, StoreError> {
        let after = *after;
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/missed_fires.sql"))
                    .bind(micros(after.noted_at))
                    .bind(after.schedule_id.0)
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(missed).collect()
            }
            .boxed()
        })
        .await
    }

    async fn audit_fires(&self, limit: u32) -> Result<FireAudit, StoreError> {
        self.write(move |connection, now| audit(connection, limit, now).boxed()).await
    }
}

async fn audit(connection: &mut SqliteConnection, limit: u32, now: DateTime<Utc>) -> Result<FireAudit, StoreError> {
    let known: Option<String> = sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'audited_through'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    // What was there before anybody looked is taken as it is.
    let (audit, through) = match known.and_then(|micros| micros.parse().ok()) {
        None => (FireAudit::default(), Some(micros(now))),
        Some(from) => audit_after(connection, from, limit, now).await?,
    };
    if let Some(through) = through {
        sqlx::query("INSERT OR REPLACE INTO punctual_facts (name, value) VALUES ('audited_through', ?1)")
            .bind(through.to_string())
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(audit)
}

/// What the tasks that ended after a moment show, and up to which they were looked through.
async fn audit_after(
    connection: &mut SqliteConnection,
    from: i64,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<(FireAudit, Option<i64>), StoreError> {
    let row = sqlx::query(include_str!("sql/audited_tasks.sql"))
        .bind(from)
        .bind(micros(now - SETTLING))
        .bind(i64::from(limit))
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let mut columns = Columns::of(&row);
    let tasks = columns.take_count()?;
    let through: Option<i64> = columns.take()?;
    let Some(through) = through else { return Ok((FireAudit::default(), None)) };
    let found = sqlx::query(include_str!("sql/double_fires.sql"))
        .bind(from)
        .bind(through)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let doubles = found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((ScheduleId(columns.take()?), columns.take_instant()?))
        })
        .collect::<Result<_, StoreError>>()?;
    Ok((FireAudit { tasks, doubles }, Some(through)))
}

/// A row of `note_missed.sql` or `missed_fires.sql`.
fn missed(row: &SqliteRow) -> Result<MissedFire, StoreError> {
    let mut columns = Columns::of(row);
    Ok(MissedFire {
        schedule_id: ScheduleId(columns.take()?),
        scheduled_at: columns.take_instant()?,
        name: columns.take()?,
        topic: columns.take()?,
        noted_at: columns.take_instant()?,
    })
}
