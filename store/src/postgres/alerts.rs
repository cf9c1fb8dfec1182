//! What somebody has to know, and who was told when.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::alert::{COUNTED, Cause, Ends, FEWEST_FAILED, LOOKED_AT, STUCK_AFTER, Signs, Stuck, WINDOW};
use punctual_domain::id::NodeId;
use punctual_domain::outbox::NewMessage;
use punctual_domain::store::{Alerts, MissedCursor, StoreError, Ticks};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::{PostgresStore, broken, micros, outbox, rows};
use crate::instant;

#[async_trait]
impl Alerts for PostgresStore {
    async fn signs(&self) -> Result<Signs, StoreError> {
        let (now, signs) = lend!(self, |connection| { lately(connection, self.now()).await })?;
        let since = MissedCursor::since(instant::before(now, WINDOW) + TimeDelta::microseconds(1));
        Ok(Signs { missed: self.missed_fires(&since, COUNTED).await?, ..signs })
    }

    async fn raise(&self, cause: Cause, quiet: Duration, messages: Vec<NewMessage>) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let noted = sqlx::query(include_str!("sql/raise.sql"))
                .bind(self.now())
                .bind(cause.as_str())
                .bind(micros(quiet))
                .execute(&mut *transaction)
                .await
                .map_err(broken)?;
            if noted.rows_affected() == 0 {
                return Ok(false);
            }
            outbox::post(&mut transaction, &messages, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(true)
        })
    }

    async fn note_leader(&self, node: NodeId) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query(
                "INSERT INTO punctual_leader_changes (node_id, changed_at)
                 VALUES ($1, coalesce($2, statement_timestamp()))",
            )
            .bind(node.0)
            .bind(self.now())
            .execute(connection)
            .await
            .map(drop)
            .map_err(broken)
        })
    }
}

/// The store's instant, and everything but missed fires.
async fn lately(
    connection: &mut PgConnection,
    now: Option<DateTime<Utc>>,
) -> Result<(DateTime<Utc>, Signs), StoreError> {
    let mut signs = Signs::default();
    let row = sqlx::query(include_str!("sql/lately.sql"))
        .bind(now)
        .bind(micros(WINDOW))
        .bind(i64::from(FEWEST_FAILED))
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let mut columns = rows::Columns::of(&row);
    let (present, failed) = (columns.take()?, columns.take_count()?);
    signs.leader_changes = columns.take_count()?;
    if failed >= u64::from(FEWEST_FAILED) {
        let row = sqlx::query(include_str!("sql/ends.sql"))
            .bind(now)
            .bind(micros(WINDOW))
            .bind(i64::from(LOOKED_AT))
            .fetch_one(&mut *connection)
            .await
            .map_err(broken)?;
        let mut columns = rows::Columns::of(&row);
        signs.of_schedules = Ends { completed: columns.take_count()?, failed: columns.take_count()? };
        signs.of_callers = Ends { completed: columns.take_count()?, failed: columns.take_count()? };
    }
    let row = sqlx::query(include_str!("sql/stuck_messages.sql"))
        .bind(now)
        .bind(micros(STUCK_AFTER))
        .bind(i64::from(COUNTED))
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    let mut columns = rows::Columns::of(&row);
    let messages = columns.take_count()?;
    signs.stuck = columns.take::<Option<DateTime<Utc>>>()?.map(|since| Stuck { messages, since });
    Ok((present, signs))
}
