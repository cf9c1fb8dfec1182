//! What somebody has to know, and who was told when.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use punctual_domain::alert::{COUNTED, Cause, Ends, FEWEST_FAILED, LOOKED_AT, STUCK_AFTER, Signs, Stuck, WINDOW};
use punctual_domain::id::NodeId;
use punctual_domain::outbox::NewMessage;
use punctual_domain::store::{Alerts, MissedCursor, StoreError, Ticks};
use sqlx::sqlite::SqliteConnection;

use super::rows::{Columns, micros, micros_before};
use super::{SqliteStore, broken, outbox};
use crate::instant;

#[async_trait]
impl Alerts for SqliteStore {
    async fn signs(&self) -> Result<Signs, StoreError> {
        let since = MissedCursor::since(instant::before(self.now.now(), WINDOW) + TimeDelta::microseconds(1));
        let missed = self.missed_fires(&since, COUNTED).await?;
        self.read(move |connection, now| {
            async move { lately(connection, now, Signs { missed, ..Signs::default() }).await }.boxed()
        })
        .await
    }

    async fn raise(&self, cause: Cause, quiet: Duration, messages: Vec<NewMessage>) -> Result<bool, StoreError> {
        self.write(move |connection, now| {
            async move {
                let noted = sqlx::query(include_str!("sql/raise.sql"))
                    .bind(cause.as_str())
                    .bind(micros(now))
                    .bind(i64::try_from(quiet.as_micros()).unwrap_or(i64::MAX))
                    .execute(&mut *connection)
                    .await
                    .map_err(broken)?;
                if noted.rows_affected() == 0 {
                    return Ok(false);
                }
                outbox::post(connection, &messages, now).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    async fn note_leader(&self, node: NodeId) -> Result<(), StoreError> {
        self.write(move |connection, now| {
            async move {
                sqlx::query("INSERT INTO punctual_leader_changes (node_id, changed_at) VALUES (?1, ?2)")
                    .bind(node.0)
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }
}

/// Everything but missed fires.
async fn lately(connection: &mut SqliteConnection, now: DateTime<Utc>, mut signs: Signs) -> Result<Signs, StoreError> {
    let since = micros_before(now, WINDOW);
    let row = sqlx::query(include_str!("sql/lately.sql"))
        .bind(since)
        .bind(i64::from(FEWEST_FAILED))
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let mut columns = Columns::of(&row);
    let failed: u32 = columns.take_count()?;
    signs.leader_changes = columns.take_count()?;
    if failed >= FEWEST_FAILED {
        let row = sqlx::query(include_str!("sql/ends.sql"))
            .bind(since)
            .bind(i64::from(LOOKED_AT))
            .fetch_one(&mut *connection)
            .await
            .map_err(broken)?;
        let mut columns = Columns::of(&row);
        signs.of_schedules = Ends { completed: columns.take_count()?, failed: columns.take_count()? };
        signs.of_callers = Ends { completed: columns.take_count()?, failed: columns.take_count()? };
    }
    let row = sqlx::query(include_str!("sql/stuck_messages.sql"))
        .bind(micros_before(now, STUCK_AFTER))
        .bind(i64::from(COUNTED))
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    let mut columns = Columns::of(&row);
    let messages = columns.take_count()?;
    signs.stuck = columns.take_instant_if_any()?.map(|since| Stuck { messages, since });
    Ok(signs)
}
