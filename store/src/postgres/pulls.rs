//! Claims of workers in any language, within what a topic allows on all nodes together.
//!
//! A claim takes its topics' locks for as long as its transaction lasts: what it counts then is true until it commits.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::rate::Tokens;
use punctual_domain::store::{Extension, PendingTopic, PullRequest, Pulled, Pulls, Remember, Reply, StoreError};
use punctual_domain::task::Task;
use punctual_domain::topic::{Topic, TopicPattern};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::claims::in_order;
use super::{PostgresStore, answers, broken, rows, violates};
use crate::pulls::{self, Allowed};
use crate::ranges::Range;

#[async_trait]
impl Pulls for PostgresStore {
    async fn pull(
        &self,
        request: &PullRequest,
        remember: Option<Remember<[Task]>>,
    ) -> Result<Reply<Pulled>, StoreError> {
        lend!(self.pulling, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let now = self.now();
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), now).await? {
                return Ok(Reply::Replayed(answer));
            }
            sqlx::query(include_str!("sql/lock_pulls.sql"))
                .bind(request.topics.iter().map(|want| want.topic.as_str()).collect::<Vec<_>>())
                .execute(&mut *transaction)
                .await
                .map_err(broken)?;
            let pulled = pull(&mut transaction, request, now).await?;
            if pulled.tasks.is_empty() {
                // Nothing is kept, the place of the answer neither.
                transaction.rollback().await.map_err(broken)?;
                return Ok(Reply::Made(pulled));
            }
            answers::keep(&mut transaction, remember, pulled.tasks.as_slice()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(pulled))
        })
    }

    async fn keep_answer(&self, remember: Remember<()>) -> Result<Reply<()>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            if let Some(answer) = answers::before(&mut transaction, Some(&remember), self.now()).await? {
                return Ok(Reply::Replayed(answer));
            }
            answers::keep(&mut transaction, Some(remember), &()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(()))
        })
    }

    async fn extend_pulled(&self, held: Extension) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(include_str!("sql/extend_pulled.sql"))
                .bind(self.now())
                .bind(held.task_id.0)
                .bind(held.epoch.0)
                .fetch_optional(connection)
                .await
                .map_err(broken)
        })
    }

    async fn hand_to_worker(&self, held: Extension, lease_seconds: u32) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(include_str!("sql/hand_to_worker.sql"))
                .bind(self.now())
                .bind(held.task_id.0)
                .bind(held.epoch.0)
                .bind(i32::try_from(lease_seconds).unwrap_or(i32::MAX))
                .fetch_optional(connection)
                .await
                .map_err(broken)
        })
    }

    async fn pending_topics(&self, patterns: &[TopicPattern], limit: u32) -> Result<Vec<PendingTopic>, StoreError> {
        let (low, high): (Vec<_>, Vec<_>) = patterns.iter().map(Range::of).map(|range| (range.low, range.high)).unzip();
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/pending_topics.sql"))
                .bind(self.now())
                .bind(low)
                .bind(high)
                .bind(i64::from(limit))
                .bind(i64::from(PendingTopic::MOST))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok(PendingTopic {
                        topic: Topic::from_stored(columns.take::<&str>()?),
                        due: u32::try_from(columns.take_count()?).unwrap_or(u32::MAX),
                        next_due_at: columns.take()?,
                    })
                })
                .collect()
        })
    }
}

async fn pull(
    connection: &mut PgConnection,
    request: &PullRequest,
    now: Option<DateTime<Utc>>,
) -> Result<Pulled, StoreError> {
    let allowed = match request.topics.iter().any(|want| want.rate_per_second.is_some()) {
        true => allowed(connection, request, now).await?,
        false => Allowed::without_rates(request),
    };
    let topics: Vec<_> = request.topics.iter().map(|want| want.topic.as_str()).collect();
    let claimed = sqlx::query(include_str!("sql/pull.sql"))
        .bind(now)
        .bind(&topics)
        .bind(allowed.slots.iter().map(|slots| i64::from(*slots)).collect::<Vec<_>>())
        .bind(request.topics.iter().map(|want| i64::from(want.concurrency)).collect::<Vec<_>>())
        .bind(request.node.0)
        .bind(i32::try_from(request.lease_seconds).unwrap_or(i32::MAX))
        .bind(i64::from(request.max))
        .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
        .fetch_all(&mut *connection)
        .await;
    let claimed = match claimed {
        // A node that has not heard of the topic's new route began one of the same serial key: another time.
        Err(error) if violates(&error, "punctual_tasks_serial_running") => return Ok(Pulled::default()),
        claimed => claimed.map_err(broken)?,
    };
    let tasks = in_order(&claimed, request.into(), None)?;
    let (spent, allowed_at) = allowed.after(request, &tasks);
    if !spent.is_empty() && !tasks.is_empty() {
        sqlx::query(include_str!("sql/spend_tokens.sql"))
            .bind(spent.iter().map(|(topic, _)| topic.as_str()).collect::<Vec<_>>())
            .bind(spent.iter().map(|(_, tokens)| tokens.left).collect::<Vec<_>>())
            .bind(spent.iter().map(|(_, tokens)| tokens.at).collect::<Vec<_>>())
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(Pulled { tasks, allowed_at })
}

/// What the rates of the topics allow at the moment.
async fn allowed(
    connection: &mut PgConnection,
    request: &PullRequest,
    now: Option<DateTime<Utc>>,
) -> Result<Allowed, StoreError> {
    let found = sqlx::query(
        "SELECT coalesce($1, statement_timestamp()), r.topic, r.tokens, r.refilled_at
         FROM (VALUES (true)) AS once LEFT JOIN punctual_pull_rates AS r ON r.topic = ANY ($2)",
    )
    .bind(now)
    .bind(request.topics.iter().map(|want| want.topic.as_str()).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .map_err(broken)?;
    let mut known = HashMap::new();
    let mut at = None;
    for row in &found {
        let mut columns = rows::Columns::of(row);
        at = Some(columns.take()?);
        if let Some(topic) = columns.take::<Option<&str>>()? {
            known.insert(topic.to_owned(), Tokens { left: columns.take()?, at: columns.take()? });
        }
    }
    let at = at.ok_or_else(|| StoreError::Broken("a row without rows".into()))?;
    Ok(pulls::allowed(request, &known, at))
}
