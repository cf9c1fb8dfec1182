//! What whoever asks "did it?" and "why not?" wants to know.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::fire::{Fire, FireKind, SkipReason};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::node::Leadership;
use punctual_domain::proof::LedgerRow;
use punctual_domain::store::{Inspection, Span, Standing, StoreError};
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::rows::{Columns, instant, micros};
use super::{SqliteStore, broken, cluster, fires};

#[async_trait]
impl Inspection for SqliteStore {
    async fn ledger(
        &self,
        id: ScheduleId,
        span: Span,
        after: Option<(DateTime<Utc>, FireKind)>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, StoreError> {
        let (from, to) = bounds(span);
        let (after_at, after_kind) = after.map_or((i64::MIN, ""), |(at, kind)| (micros(at), kind.as_str()));
        self.read(move |connection, _| {
            async move {
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
            }
            .boxed()
        })
        .await
    }

    async fn several_tasks(
        &self,
        id: ScheduleId,
        span: Span,
        limit: u32,
    ) -> Result<Vec<(DateTime<Utc>, u64)>, StoreError> {
        let (from, to) = bounds(span);
        self.read(move |connection, _| {
            async move {
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
                        let mut columns = Columns::of(row);
                        Ok((columns.take_instant()?, columns.take_count()?))
                    })
                    .collect()
            }
            .boxed()
        })
        .await
    }

    async fn schedules_ever(&self, after: Option<ScheduleId>, limit: u32) -> Result<Vec<ScheduleId>, StoreError> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        self.read(move |connection, _| {
            async move {
                let found: Vec<Uuid> = sqlx::query_scalar(
                    "SELECT DISTINCT schedule_id FROM punctual_schedule_history
                     WHERE schedule_id > ?1 ORDER BY schedule_id LIMIT ?2",
                )
                .bind(after)
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
                Ok(found.into_iter().map(ScheduleId).collect())
            }
            .boxed()
        })
        .await
    }

    async fn schedule_was_ever(&self, id: ScheduleId) -> Result<bool, StoreError> {
        self.read(move |connection, _| {
            async move {
                sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM punctual_schedule_history WHERE schedule_id = ?1)")
                    .bind(id.0)
                    .fetch_one(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn schedule_once_named(&self, name: &str) -> Result<Option<ScheduleId>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection, _| {
            async move {
                let found: Option<Uuid> = sqlx::query_scalar(include_str!("sql/schedule_once_named.sql"))
                    .bind(name)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                Ok(found.map(ScheduleId))
            }
            .boxed()
        })
        .await
    }

    async fn fires_pruned_before(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.read(|connection, _| {
            async move {
                let found: Option<i64> = sqlx::query_scalar(
                    "SELECT CAST(value AS INTEGER) FROM punctual_facts WHERE name = 'fires_pruned_before'",
                )
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
                found.map(instant).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn fire(&self, id: FireId) -> Result<Option<Fire>, StoreError> {
        const BY_ID: &str = concat!(include_str!("sql/fires.sql"), "WHERE f.id = ?1");
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
                row.as_ref().map(fires::fire).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError> {
        self.read(move |connection, now| {
            async move {
                let row = sqlx::query(include_str!("sql/standing.sql"))
                    .bind(id.0)
                    .bind(micros(now))
                    .bind(Standing::MOST as i64)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                row.as_ref()
                    .map(|row| {
                        let mut columns = Columns::of(row);
                        Ok(Standing {
                            ahead: columns.take_count()?,
                            running: columns.take_count()?,
                            serial: columns.take::<Option<Uuid>>()?.map(TaskId),
                        })
                    })
                    .transpose()
            }
            .boxed()
        })
        .await
    }

    async fn noted_tz_version(&self) -> Result<Option<String>, StoreError> {
        self.read(|connection, _| {
            async move {
                sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'tz_version'")
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn leadership(&self, name: &str) -> Result<Option<Leadership>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection, now| {
            async move {
                let row = sqlx::query(include_str!("sql/leadership.sql"))
                    .bind(name)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                row.as_ref().map(|row| cluster::leadership(row, now)).transpose()
            }
            .boxed()
        })
        .await
    }
}

/// The span as columns hold it; where it is open it reaches to the end of all instants.
fn bounds(span: Span) -> (i64, i64) {
    (span.from.map_or(i64::MIN, micros), span.to.map_or(i64::MAX, micros))
}

/// A row of `ledger.sql`.
fn ledger_row(row: &SqliteRow) -> Result<LedgerRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(LedgerRow {
        kind: columns.take_word(FireKind::from_name)?,
        scheduled_at: columns.take_instant()?,
        fired_at: columns.take_instant()?,
        reason: columns.take_word_if_any(SkipReason::from_name)?,
        until: columns.take_instant_if_any()?,
        count: columns.take_count()?,
        tz_version: columns.take()?,
    })
}
