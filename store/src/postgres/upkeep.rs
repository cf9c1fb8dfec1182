//! What keeps the store in order and small, and what can be counted in it.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::event::{Event, EventKind};
use punctual_domain::id::TaskId;
use punctual_domain::store::{Cluster, Counts, Depth, EventCursor, NextRepair, Pruned, StoreError, Topics, Upkeep};
use punctual_domain::task::Task;
use punctual_domain::topic::{Topic, TopicDefinition};
use punctual_sdk::Either;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{PostgresStore, broken, rows};
use crate::instant;
use crate::text::{KEEP_NODES, Retention};

/// How long answers are kept under their Idempotency-Key.
const KEEP_ANSWERS: Duration = Duration::from_secs(24 * 60 * 60);

/// How long plugins may take to give back their connections.
const PLUGINS_TIME: Duration = Duration::from_secs(1);

#[async_trait]
impl Upkeep for PostgresStore {
    async fn next_repair(&self) -> Result<NextRepair, StoreError> {
        lend!(self, |connection| {
            let row = sqlx::query(include_str!("sql/next_repair.sql"))
                .bind(PostgresStore::now(self))
                .fetch_one(connection)
                .await
                .map_err(broken)?;
            let mut columns = rows::Columns::of(&row);
            Ok(NextRepair { now: columns.take()?, expiry_at: columns.take()?, fire_at: columns.take()? })
        })
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<Pruned, StoreError> {
        let now = Cluster::now(self).await?;
        let definitions = self.topics().await?;
        let tasks = self.prune_tasks(keep, &definitions, now, limit).await?;
        lend!(self, |connection| {
            let before = instant::before(now, keep);
            // Long full again, as one that is not there is.
            delete_old(connection, "punctual_pull_rates", "refilled_at < $1", before, limit).await?;
            delete_old(connection, "punctual_leader_changes", "changed_at < $1", before, limit).await?;
            Ok(Pruned {
                tasks,
                fires: prune_fires(connection, before, limit).await?
                    + delete_old(connection, "punctual_missed_fires", "noted_at < $1", before, limit).await?,
                messages: delete_old(
                    connection,
                    "punctual_outbox",
                    "status = 'sent' AND completed_at < $1",
                    before,
                    limit,
                )
                .await?,
                answers: delete_old(
                    connection,
                    "punctual_answers",
                    "created_at <= $1",
                    instant::before(now, KEEP_ANSWERS),
                    limit,
                )
                .await?,
                audit: delete_old(connection, "punctual_audit", "at < $1", before, limit).await?,
                nodes: delete_old(
                    connection,
                    "punctual_nodes",
                    "seen_at < $1",
                    instant::before(now, KEEP_NODES),
                    limit,
                )
                .await?,
            })
        })
    }

    async fn events(&self, after: &EventCursor, limit: u32) -> Result<Vec<Event>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/events.sql"))
                .bind(instant::bounded(after.at))
                .bind(i64::from(limit))
                .bind(after.task_id.0)
                .bind(after.is_end)
                .bind(i32::try_from(after.attempt).unwrap_or(i32::MAX))
                .fetch_all(&mut *connection)
                .await
                .map_err(broken)?;
            let mut happened = found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok((columns.take::<bool>()?, columns.take()?, columns.take_small()?, TaskId(columns.take()?)))
                })
                .collect::<Result<Vec<_>, StoreError>>()?;
            // An attempt that is noted is the present one still, while its task rests in a queue.
            happened.dedup();
            let tasks = find_all(connection, happened.iter().map(|(_, _, _, id)| id.0).collect()).await?;
            Ok(happened
                .into_iter()
                .filter_map(|(ended, at, attempt, id)| {
                    let task = tasks.get(&id)?.clone();
                    let kind = if ended { EventKind::of_end(task.status)? } else { EventKind::Arrived };
                    Some(Event { kind, at, attempt, task })
                })
                .collect())
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.hearing.close();
        self.gather.close().await;
        for kept in [&self.claiming, &self.settling, &self.settling_beside, &self.pulling, &self.ticking] {
            kept.close().await;
        }
        self.connections.pool.close().await;
        if let Either::Postgres(pool) = self.database.either() {
            // A plugin that keeps a connection is not waited for long.
            let _ = tokio::time::timeout(PLUGINS_TIME, pool.close()).await;
        }
        Ok(())
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        lend!(self, |connection| {
            let now = PostgresStore::now(self);
            let due = sqlx::query(
                "SELECT topic, schedule_id IS NOT NULL, count(*) FROM punctual_tasks
                 WHERE status = 'pending' AND run_at <= coalesce($1, statement_timestamp())
                 GROUP BY 1, 2 ORDER BY 1, 2",
            )
            .bind(now)
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
            let due = due
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok(Depth { topic: columns.take()?, of_schedules: columns.take()?, tasks: columns.take_count()? })
                })
                .collect::<Result<Vec<_>, StoreError>>()?;
            let row = sqlx::query(
                "SELECT (SELECT count(*) FROM punctual_tasks WHERE status = 'running'),
                        (SELECT count(*) FROM punctual_outbox WHERE status = 'pending'),
                        (SELECT count(*) FROM punctual_schedules WHERE enabled),
                        (SELECT greatest(0, extract(epoch FROM
                            coalesce($1, statement_timestamp()) - min(next_fire_at)))::double precision
                         FROM punctual_schedules WHERE next_fire_at IS NOT NULL AND enabled)",
            )
            .bind(now)
            .fetch_one(&mut *connection)
            .await
            .map_err(broken)?;
            let mut columns = rows::Columns::of(&row);
            Ok(Counts {
                due,
                running: columns.take_count()?,
                outbox: columns.take_count()?,
                schedules: columns.take_count()?,
                schedule_lag: Duration::from_secs_f64(columns.take::<Option<f64>>()?.unwrap_or(0.0)),
            })
        })
    }
}

impl PostgresStore {
    /// Removes old tasks: those of topics with a retention of their own by that, the others by `keep`.
    async fn prune_tasks(
        &self,
        keep: Duration,
        definitions: &[TopicDefinition],
        now: DateTime<Utc>,
        limit: u32,
    ) -> Result<u64, StoreError> {
        lend!(self, |connection| {
            let topics: Vec<String> = if definitions.iter().any(|definition| definition.retention_days.is_some()) {
                sqlx::query_scalar(include_str!("sql/ended_topics.sql"))
                    .fetch_all(&mut *connection)
                    .await
                    .map_err(broken)?
            } else {
                Vec::new()
            };
            let retention = Retention::new(keep, definitions, topics.into_iter().map(Topic::from_stored));
            let mut pruned = 0;
            let listed: Vec<_> = retention.special.iter().flat_map(|(_, topics)| topics.clone()).collect();
            for (keep, topics) in &retention.special {
                pruned += prune_tasks(connection, instant::before(now, *keep), topics, true, limit).await?;
            }
            pruned += prune_tasks(connection, instant::before(now, keep), &listed, false, limit).await?;
            Ok(pruned)
        })
    }
}

async fn prune_tasks(
    connection: &mut PgConnection,
    before: DateTime<Utc>,
    topics: &[String],
    listed: bool,
    limit: u32,
) -> Result<u64, StoreError> {
    let pruned = sqlx::query(include_str!("sql/prune_tasks.sql"))
        .bind(before)
        .bind(topics)
        .bind(listed)
        .bind(i64::from(limit))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(pruned.rows_affected())
}

async fn prune_fires(connection: &mut PgConnection, before: DateTime<Utc>, limit: u32) -> Result<u64, StoreError> {
    let pruned: i64 = sqlx::query_scalar(include_str!("sql/prune_fires.sql"))
        .bind(before)
        .bind(i64::from(limit))
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    Ok(pruned as u64)
}

/// Removes rows of a table that match, at most `limit`.
async fn delete_old(
    connection: &mut PgConnection,
    table: &'static str,
    condition: &'static str,
    before: DateTime<Utc>,
    limit: u32,
) -> Result<u64, StoreError> {
    // The condition stands twice: a row that somebody changes in between is looked at again, in its new form.
    let statement = format!(
        "DELETE FROM {table}
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {condition} LIMIT $2)) AND {condition}"
    );
    let deleted = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(before)
        .bind(i64::from(limit))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(deleted.rows_affected())
}

/// Tasks by their ids, wherever they are.
async fn find_all(connection: &mut PgConnection, ids: Vec<Uuid>) -> Result<HashMap<TaskId, Task>, StoreError> {
    const ALL: &str = concat!(
        include_str!("sql/live_tasks.sql"),
        "WHERE id = ANY ($1)\nUNION ALL\n",
        include_str!("sql/ended_tasks.sql"),
        "WHERE id = ANY ($1)"
    );
    let found = sqlx::query(ALL).bind(ids).fetch_all(connection).await.map_err(broken)?;
    found.iter().map(|row| rows::task(row).map(|task| (task.id, task))).collect()
}
