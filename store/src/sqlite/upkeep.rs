//! What keeps the store in order and small, and what can be counted in it.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::event::{Event, EventKind};
use punctual_domain::store::{Counts, Depth, EventCursor, NextRepair, Pruned, StoreError, Upkeep};
use punctual_domain::topic::Topic;
use punctual_sdk::Either;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection};
use uuid::Uuid;

use super::answers::ANSWERS_KEPT;
use super::rows::{Columns, Hex, instant, micros, micros_before};
use super::{SqliteStore, broken, topics};
use crate::text::{KEEP_NODES, Retention, to_text};

/// How long plugins may take to give back their connections.
const PLUGINS_TIME: Duration = Duration::from_secs(1);

#[async_trait]
impl Upkeep for SqliteStore {
    async fn next_repair(&self) -> Result<NextRepair, StoreError> {
        self.read(|connection, now| {
            async move {
                let next = sqlx::query(include_str!("sql/next_repair.sql"));
                let row = next.fetch_one(connection).await.map_err(broken)?;
                let mut columns = Columns::of(&row);
                let (expiry_at, fire_at) = (columns.take_instant_if_any()?, columns.take_instant_if_any()?);
                Ok(NextRepair { now, expiry_at, fire_at })
            }
            .boxed()
        })
        .await
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<Pruned, StoreError> {
        // Looked up beside the writer: what ended never changes, and looking may take longer than removing.
        let ids = self.read(move |connection, now| prunable_tasks(connection, keep, limit, now).boxed()).await?;
        self.write(move |connection, now| async move { prune(connection, ids, keep, limit, now).await }.boxed()).await
    }

    async fn events(&self, after: &EventCursor, limit: u32) -> Result<Vec<Event>, StoreError> {
        let after = *after;
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/events.sql"))
                    .bind(micros(after.at))
                    .bind(i64::from(limit))
                    .bind(after.task_id.0)
                    .bind(after.is_end)
                    .bind(after.attempt)
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                let mut happened = found.iter().map(event).collect::<Result<Vec<_>, StoreError>>()?;
                // What follows a failure under the same number is noted, and no attempt.
                happened.dedup_by_key(|event| (event.kind, event.at, event.attempt, event.task.id));
                Ok(happened)
            }
            .boxed()
        })
        .await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let (Some(readers), Some(options)) = (&self.readers, &self.reopen) else { return Ok(()) };
        readers.close().await;
        if let Either::Sqlite(pool) = self.database.either() {
            // A plugin that keeps a connection is not waited for long.
            let _ = tokio::time::timeout(PLUGINS_TIME, pool.close()).await;
        }
        // Whoever copies the file alone then has everything.
        let mut connection = options.connect().await.map_err(broken)?;
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.map_err(broken)?;
        connection.close().await.map_err(broken)
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.read(|connection, now| counts(connection, now).boxed()).await
    }
}

async fn prunable_tasks(
    connection: &mut SqliteConnection,
    keep: Duration,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<Uuid>, StoreError> {
    let definitions = topics::definitions(connection).await?;
    let mut names: Vec<String> = Vec::new();
    if definitions.iter().any(|definition| definition.retention_days.is_some()) {
        names = sqlx::query_scalar(include_str!("sql/ended_topics.sql"))
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    }
    let retention = Retention::new(keep, &definitions, names.into_iter().map(Topic::from_stored));
    let own: Vec<_> = retention
        .special
        .iter()
        .flat_map(|(keep, topics)| topics.iter().map(|topic| (topic, micros_before(now, *keep))))
        .collect();
    sqlx::query_scalar(include_str!("sql/prunable_tasks.sql"))
        .bind(to_text(&own)?)
        .bind(micros_before(now, keep))
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await
        .map_err(broken)
}

async fn prune(
    connection: &mut SqliteConnection,
    ids: Vec<Uuid>,
    keep: Duration,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Pruned, StoreError> {
    let mut tasks = 0;
    if !ids.is_empty() {
        let ids = to_text(&ids.into_iter().map(Hex).collect::<Vec<_>>())?;
        sqlx::query(include_str!("sql/prune_attempts.sql"))
            .bind(&ids)
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
        let removed = sqlx::query(include_str!("sql/prune_tasks.sql")).bind(ids).execute(&mut *connection).await;
        tasks = removed.map_err(broken)?.rows_affected();
    }
    let mut removed = [0; 8];
    for (removed, (statement, before)) in removed.iter_mut().zip([
        (include_str!("sql/prune_fires.sql"), keep),
        (include_str!("sql/prune_missed_fires.sql"), keep),
        (include_str!("sql/prune_messages.sql"), keep),
        (include_str!("sql/prune_answers.sql"), ANSWERS_KEPT),
        (include_str!("sql/prune_audit.sql"), keep),
        (include_str!("sql/prune_nodes.sql"), KEEP_NODES),
        (include_str!("sql/prune_rates.sql"), keep),
        (include_str!("sql/prune_leader_changes.sql"), keep),
    ]) {
        let removal = sqlx::query(statement).bind(micros_before(now, before)).bind(i64::from(limit));
        *removed = removal.execute(&mut *connection).await.map_err(broken)?.rows_affected();
    }
    let [fires, missed, messages, answers, audit, nodes, ..] = removed;
    if fires > 0 {
        sqlx::query(include_str!("sql/note_pruned_fires.sql"))
            .bind(micros_before(now, keep))
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(Pruned { tasks, fires: fires + missed, messages, answers, audit, nodes })
}

async fn counts(connection: &mut SqliteConnection, now: DateTime<Utc>) -> Result<Counts, StoreError> {
    let due = sqlx::query(include_str!("sql/count_due.sql"))
        .bind(micros(now))
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let due = due
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Depth { topic: columns.take()?, of_schedules: columns.take()?, tasks: columns.take_count()? })
        })
        .collect::<Result<_, StoreError>>()?;
    let row =
        sqlx::query(include_str!("sql/counts.sql")).bind(micros(now)).fetch_one(connection).await.map_err(broken)?;
    let mut columns = Columns::of(&row);
    Ok(Counts {
        due,
        running: columns.take_count()?,
        outbox: columns.take_count()?,
        schedules: columns.take_count()?,
        schedule_lag: match columns.take::<Option<i64>>()? {
            Some(overdue) => (now - instant(overdue)?).to_std().unwrap_or_default(),
            None => Duration::ZERO,
        },
    })
}

/// A row of `events.sql`.
fn event(row: &SqliteRow) -> Result<Event, StoreError> {
    let mut columns = Columns::of(row);
    let has_ended: bool = columns.take()?;
    let at = columns.take_instant()?;
    let attempt = columns.take_count()?;
    let task = columns.take_task()?;
    let kind = if has_ended {
        EventKind::of_end(task.status)
            .ok_or_else(|| StoreError::Broken(format!("the ended task {} has the status {:?}", task.id, task.status)))?
    } else {
        EventKind::Arrived
    };
    Ok(Event { kind, at, attempt, task })
}
