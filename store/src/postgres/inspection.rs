//! What whoever asks "did it?" and "why not?" wants to know.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::fire::{Fire, FireKind, SkipReason};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::node::Leadership;
use punctual_domain::proof::LedgerRow;
use punctual_domain::store::{Inspection, Span, Standing, StoreError};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{PostgresStore, broken, cluster, fires, rows};
use crate::instant::bounded;

#[async_trait]
impl Inspection for PostgresStore {
    async fn ledger(
        &self,
        id: ScheduleId,
        span: Span,
        after: Option<(DateTime<Utc>, FireKind)>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, StoreError> {
        let (from, to) = bounds(span);
        let (after_at, after_kind) =
            after.map_or((bounded(DateTime::<Utc>::MIN_UTC), ""), |(at, kind)| (bounded(at), kind.as_str()));
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/ledger.sql"))
                .bind(id.0)
                .bind(from)
                .bind(to)
                .bind(after_at)
                .bind(after_kind)
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(ledger_row).collect()
        })
    }

    async fn several_tasks(
        &self,
        id: ScheduleId,
        span: Span,
        limit: u32,
    ) -> Result<Vec<(DateTime<Utc>, u64)>, StoreError> {
        let (from, to) = bounds(span);
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/several_tasks.sql"))
                .bind(id.0)
                .bind(from)
                .bind(to)
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok((columns.take()?, columns.take_count()?))
                })
                .collect()
        })
    }

    async fn schedules_ever(&self, after: Option<ScheduleId>, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        lend!(self, |connection| {
            let found: Vec<Uuid> = sqlx::query_scalar(
                "SELECT DISTINCT schedule_id FROM punctual_schedule_history
                 WHERE schedule_id > $1 ORDER BY schedule_id LIMIT $2",
            )
            .bind(after.map_or(Uuid::nil(), |id| id.0))
            .bind(i64::from(limit))
            .fetch_all(connection)
            .await
            .map_err(broken)?;
            Ok(found.into_iter().map(ScheduleId).collect())
        })
    }

    async fn schedule_was_ever(&self, id: ScheduleId) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM punctual_schedule_history WHERE schedule_id = $1)")
                .bind(id.0)
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn schedule_once_named(&self, name: &str) -> Result<Option<ScheduleId>, StoreError> {
        lend!(self, |connection| {
            let found: Option<Uuid> = sqlx::query_scalar(include_str!("sql/schedule_once_named.sql"))
                .bind(name)
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            Ok(found.map(ScheduleId))
        })
    }

    async fn fires_pruned_before(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            let found: Option<i64> =
                sqlx::query_scalar("SELECT value::bigint FROM punctual_facts WHERE name = 'fires_pruned_before'")
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
            Ok(found.and_then(DateTime::from_timestamp_micros))
        })
    }

    async fn fire(&self, id: FireId) -> Result<Option<Fire>, StoreError> {
        const BY_ID: &str = concat!(include_str!("sql/fires.sql"), "WHERE f.id = $1");
        lend!(self, |connection| {
            let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
            row.as_ref().map(fires::fire).transpose()
        })
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        lend!(self, |connection| {
            let row = sqlx::query(include_str!("sql/standing.sql"))
                .bind(id.0)
                .bind(PostgresStore::now(self))
                .bind(Standing::MOST as i64)
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            row.as_ref()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok(Standing {
                        ahead: columns.take_count()?,
                        running: columns.take_count()?,
                        serial: columns.take::<Option<Uuid>>()?.map(TaskId),
                    })
                })
                .transpose()
        })
    }

    async fn noted_tz_version(&self) -> Result<Option<String>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'tz_version'")
                .fetch_optional(connection)
                .await
                .map_err(broken)
        })
    }

    async fn leadership(&self, name: &str) -> Result<Option<Leadership>, StoreError> {
        lend!(self, |connection| {
            let row = sqlx::query(include_str!("sql/leadership.sql"))
                .bind(self.now())
                .bind(name)
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            row.as_ref().map(cluster::leadership).transpose()
        })
    }
}

/// The span as columns hold it; where it is open it reaches to the end of all instants.
fn bounds(span: Span) -> (DateTime<Utc>, DateTime<Utc>) {
    let (first, last) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
    (bounded(span.from.unwrap_or(first)), bounded(span.to.unwrap_or(last)))
}

/// A row of `ledger.sql`.
fn ledger_row(row: &PgRow) -> Result<LedgerRow, StoreError> {
    let mut columns = rows::Columns::of(row);
    let kind = rows::word(columns.take()?, FireKind::from_name)?;
    let (scheduled_at, fired_at) = (columns.take()?, columns.take()?);
    let reason: Option<&str> = columns.take()?;
    Ok(LedgerRow {
        kind,
        scheduled_at,
        fired_at,
        reason: reason.map(|reason| rows::word(reason, SkipReason::from_name)).transpose()?,
        until: columns.take()?,
        count: columns.take_count()?,
        tz_version: columns.take()?,
    })
}
