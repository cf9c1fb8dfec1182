//! Claims of workers in any language, within what a topic allows. The writer does one job after the other: what a claim
//! counts is true until it commits.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::rate::Tokens;
use punctual_domain::store::{Extension, PendingTopic, PullRequest, Pulled, Pulls, Remember, Reply, StoreError};
use punctual_domain::task::Task;
use punctual_domain::topic::{Topic, TopicPattern};
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::piece::Piece;
use super::rows::{Columns, instant, micros, micros_after};
use super::{SqliteStore, answers, broken};
use crate::pulls::{self, Allowed};
use crate::ranges::Range;
use crate::text::to_text;

#[async_trait]
impl Pulls for SqliteStore {
    async fn pull(
        &self,
        request: &PullRequest,
        remember: Option<Remember<[Task]>>,
    ) -> Result<Reply<Pulled>, StoreError> {
        let request = request.clone();
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let pulled = pull(connection, &request, now).await?;
                if !pulled.tasks.is_empty() {
                    answers::keep(connection, remember, pulled.tasks.as_slice(), now).await?;
                }
                Ok(Reply::Made(pulled))
            }
            .boxed()
        })
        .await
    }

    async fn keep_answer(&self, remember: Remember<()>) -> Result<Reply<()>, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, Some(&remember), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                answers::keep(connection, Some(remember), &(), now).await?;
                Ok(Reply::Made(()))
            }
            .boxed()
        })
        .await
    }

    async fn extend_pulled(&self, held: Extension) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.write(move |connection, now| {
            async move {
                let expires_at: Option<i64> = sqlx::query_scalar(include_str!("sql/extend_pulled.sql"))
                    .bind(micros(now))
                    .bind(held.task_id.0)
                    .bind(held.epoch.0)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                expires_at.map(instant).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn hand_to_worker(&self, held: Extension, lease_seconds: u32) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.write(move |connection, now| {
            async move {
                let expires_at: Option<i64> = sqlx::query_scalar(include_str!("sql/hand_to_worker.sql"))
                    .bind(micros(now))
                    .bind(held.task_id.0)
                    .bind(held.epoch.0)
                    .bind(lease_seconds)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                expires_at.map(instant).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn pending_topics(&self, patterns: &[TopicPattern], limit: u32) -> Result<Vec<PendingTopic>, StoreError> {
        let ranges: Vec<_> = patterns.iter().map(Range::of).map(|range| (range.low, range.high)).collect();
        self.read(move |connection, now| {
            async move {
                let found = sqlx::query(include_str!("sql/pending_topics.sql"))
                    .bind(micros(now))
                    .bind(to_text(&ranges)?)
                    // Each range ends with a row of its own.
                    .bind(i64::from(limit) + ranges.len() as i64)
                    .bind(PendingTopic::MOST)
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found
                    .iter()
                    .map(|row| {
                        let mut columns = Columns::of(row);
                        Ok(PendingTopic {
                            topic: Topic::from_stored(columns.take::<&str>()?),
                            due: columns.take_count()?,
                            next_due_at: columns.take_instant_if_any()?,
                        })
                    })
                    .take(limit as usize)
                    .collect()
            }
            .boxed()
        })
        .await
    }
}

async fn pull(
    connection: &mut SqliteConnection,
    request: &PullRequest,
    now: DateTime<Utc>,
) -> Result<Pulled, StoreError> {
    let names: Vec<_> = request.topics.iter().map(|want| want.topic.as_str()).collect();
    let names = to_text(&names)?;
    let allowed = match request.topics.iter().any(|want| want.rate_per_second.is_some()) {
        true => allowed(connection, request, &names, now).await?,
        false => Allowed::without_rates(request),
    };
    let held: Vec<i64> = sqlx::query_scalar(include_str!("sql/pulled_counts.sql"))
        .bind(&names)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let mut slots = HashMap::new();
    for ((want, allowed), held) in request.topics.iter().zip(&allowed.slots).zip(held) {
        let free = u32::try_from((i64::from(want.concurrency) - held).max(0)).unwrap_or(u32::MAX);
        slots.insert(want.topic.as_str(), free.min(*allowed));
    }
    let lines = choose(pullable(connection, request, &slots, now).await?, request, slots);
    let piece = Piece::of_lines(connection, &lines).await?;
    if let Some(lines) = piece.lines() {
        sqlx::query(include_str!("sql/pull.sql"))
            .bind(micros(now))
            .bind(lines)
            .bind(request.node.0)
            .bind(micros_after(now, request.lease()))
            .bind(request.lease_seconds)
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
    }
    let tasks: Vec<_> = piece.into_tasks(request.into(), now)?.into_iter().map(|(_, task)| task).collect();
    let (spent, allowed_at) = allowed.after(request, &tasks);
    for (topic, tokens) in spent {
        sqlx::query(include_str!("sql/spend_tokens.sql"))
            .bind(topic.as_str())
            .bind(tokens.left)
            .bind(micros(tokens.at))
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
    }
    Ok(Pulled { tasks, allowed_at })
}

/// A due task that a claim may take.
struct Pullable {
    line: i64,
    topic: String,
    priority: i32,
    run_at: i64,
    id: Uuid,
    bytes: u64,
}

async fn pullable(
    connection: &mut SqliteConnection,
    request: &PullRequest,
    slots: &HashMap<&str, u32>,
    now: DateTime<Utc>,
) -> Result<Vec<Pullable>, StoreError> {
    let free: Vec<_> = slots.iter().filter(|(_, slots)| **slots > 0).map(|(topic, _)| *topic).collect();
    let most = slots.values().copied().max().unwrap_or(0).min(request.max);
    if most == 0 {
        return Ok(Vec::new());
    }
    let found = sqlx::query(include_str!("sql/pullable.sql"))
        .bind(micros(now))
        .bind(to_text(&free)?)
        .bind(i64::from(most))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Pullable {
                line: columns.take()?,
                topic: columns.take()?,
                priority: columns.take()?,
                run_at: columns.take()?,
                id: columns.take()?,
                bytes: columns.take_count()?,
            })
        })
        .collect()
}

/// The lines that are claimed: in the order of claims, within all bounds.
fn choose(mut pullable: Vec<Pullable>, request: &PullRequest, mut slots: HashMap<&str, u32>) -> Vec<i64> {
    pullable.sort_unstable_by_key(|task| (Reverse(task.priority), task.run_at, task.id));
    let mut lines = Vec::new();
    let mut bytes = 0;
    for task in &pullable {
        let Some(free) = slots.get_mut(task.topic.as_str()).filter(|free| **free > 0) else { continue };
        bytes += task.bytes;
        if lines.len() == request.max as usize || !lines.is_empty() && bytes > request.max_bytes {
            break;
        }
        *free -= 1;
        lines.push(task.line);
    }
    lines
}

/// What the rates of the topics allow at the moment.
async fn allowed(
    connection: &mut SqliteConnection,
    request: &PullRequest,
    names: &str,
    now: DateTime<Utc>,
) -> Result<Allowed, StoreError> {
    let found = sqlx::query(
        "SELECT topic, tokens, refilled_at FROM punctual_pull_rates
         WHERE topic IN (SELECT value FROM json_each(?1))",
    )
    .bind(names)
    .fetch_all(connection)
    .await
    .map_err(broken)?;
    let mut known = HashMap::new();
    for row in &found {
        let mut columns = Columns::of(row);
        known.insert(columns.take()?, Tokens { left: columns.take()?, at: columns.take_instant()? });
    }
    Ok(pulls::allowed(request, &known, now))
}
