//! Claiming due tasks, and keeping or losing their leases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::id::{Epoch, NodeId, TaskId};
use punctual_domain::store::{ClaimRequest, Claims, Expired, Extension, Settled, Settling, StoreError, Suspects, Want};
use punctual_domain::task::{NewTask, Task};
use punctual_domain::topic::Topic;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::completion::Completion;
use super::piece::Piece;
use super::rows::{Columns, Hex, instant, micros, micros_after, whole_micros};
use super::tasks::insert;
use super::{SqliteStore, broken, settle};
use crate::claimed::Holder;
use crate::text::to_text;

#[async_trait]
impl Claims for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        let asked = request.clone();
        let (piece, now) = self
            .write_unguarded(move |connection, now| async move { claim(connection, &asked, now).await }.boxed())
            .await?;
        // Here and not in the writer's turn: the next one goes on meanwhile.
        let tasks = piece.into_tasks(request.into(), now)?;
        self.lines.remember(tasks.iter().map(|(line, task)| (task.id, *line)));
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    async fn claim_new(&self, task: NewTask, node: NodeId, lease: Duration) -> Result<Task, StoreError> {
        let (line, task) = self
            .write(move |connection, now| {
                async move {
                    let written = insert(connection, vec![task], now).await?.pop();
                    let written = written.ok_or_else(|| StoreError::Broken("a task was not written".into()))?;
                    let line: i64 = sqlx::query_scalar("SELECT last_insert_rowid()")
                        .fetch_one(&mut *connection)
                        .await
                        .map_err(broken)?;
                    let holder = Holder { node, lease };
                    take(connection, &format!("[{line}]"), holder, now).await?;
                    Ok((line, holder.claim(written.into_task(), whole_micros(now))?))
                }
                .boxed()
            })
            .await?;
        self.lines.remember([(task.id, line)]);
        Ok(task)
    }

    async fn due_topics(&self, after: Option<&Topic>, limit: u32) -> Result<Vec<Topic>, StoreError> {
        let after = after.map_or(String::new(), Topic::to_string);
        self.read(move |connection, now| {
            async move {
                let names: Vec<String> = sqlx::query_scalar(include_str!("sql/due_topics.sql"))
                    .bind(micros(now))
                    .bind(after)
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                Ok(names.into_iter().map(Topic::from_stored).collect())
            }
            .boxed()
        })
        .await
    }

    async fn next_due_at(&self, after: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let at: Option<i64> = sqlx::query_scalar(include_str!("sql/next_due_at.sql"))
                    .bind(micros(after))
                    .fetch_one(connection)
                    .await
                    .map_err(broken)?;
                at.map(instant).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn settle(&self, settlings: Vec<Settling>) -> Result<Vec<Settled>, StoreError> {
        let completion = Completion::of(&settlings, &self.lines)?;
        self.write_unguarded(move |connection, now| {
            async move {
                if let Some(completion) = &completion
                    && completion.write(connection, now).await?
                {
                    return Ok(vec![Settled::Now; settlings.len()]);
                }
                settle::settle(connection, &settlings, now).await
            }
            .boxed()
        })
        .await
    }

    async fn extend(&self, held: &[Extension], lease: Duration) -> Result<Vec<Option<DateTime<Utc>>>, StoreError> {
        let held = held.to_vec();
        self.write(move |connection, now| async move { extend(connection, &held, lease, now).await }.boxed()).await
    }

    async fn expire(&self, max_lost: u32, limit: u32) -> Result<Expired, StoreError> {
        self.write(move |connection, now| settle::expire(connection, max_lost, limit, now).boxed()).await
    }
}

/// A due task that a claim may take.
struct Claimable {
    line: i64,
    topic: String,
    priority: i32,
    run_at: i64,
    id: Uuid,
    is_suspect: bool,
}

/// Claims what may be taken; answers it as it was found, and when.
async fn claim(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    now: DateTime<Utc>,
) -> Result<(Piece, DateTime<Utc>), StoreError> {
    let piece = match &request.wants[..] {
        [want] => match find_in_topic(connection, want, now).await? {
            Some(piece) => piece,
            None => find(connection, request, now).await?,
        },
        _ => find(connection, request, now).await?,
    };
    if let Some(lines) = piece.lines() {
        take(connection, lines, request.into(), now).await?;
    }
    Ok((piece, now))
}

/// Makes pending rows the holder's; `lines` is a JSON array of their rowids.
async fn take(
    connection: &mut SqliteConnection,
    lines: &str,
    holder: Holder,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(include_str!("sql/claim.sql"))
        .bind(micros(now))
        .bind(lines)
        .bind(holder.node.0)
        .bind(micros_after(now, holder.lease))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}

/// What a claim may take, over all topics and with tasks that have lost an attempt.
async fn find(
    connection: &mut SqliteConnection,
    request: &ClaimRequest,
    now: DateTime<Utc>,
) -> Result<Piece, StoreError> {
    let mut slots: HashMap<&str, u32> =
        request.wants.iter().map(|want| (want.topic.as_str(), want.slots)).filter(|(_, slots)| *slots > 0).collect();
    let mut suspects = match request.suspects {
        Suspects::Any => u32::MAX,
        Suspects::AtMost(suspects) => suspects,
    };
    // A limit is the same for all topics of a statement: those that want as many as each other share one.
    let mut by_slots: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (topic, slots) in &slots {
        by_slots.entry(*slots).or_default().push(topic);
    }
    let mut claimable = Vec::new();
    for (slots, topics) in &by_slots {
        let statement = include_str!("sql/claimable.sql");
        claimable.extend(find_claimable(connection, statement, topics, *slots, now).await?);
    }
    if let Some((most, _)) = by_slots.last_key_value().filter(|_| suspects > 0) {
        let statement = include_str!("sql/claimable_suspects.sql");
        let topics: Vec<_> = slots.keys().copied().collect();
        claimable.extend(find_claimable(connection, statement, &topics, suspects.min(*most), now).await?);
    }
    claimable.sort_unstable_by_key(|task| (Reverse(task.priority), task.run_at, task.id));
    let mut lines = Vec::new();
    for task in &claimable {
        let Some(free) = slots.get_mut(task.topic.as_str()).filter(|free| **free > 0) else { continue };
        if task.is_suspect {
            let Some(fewer) = suspects.checked_sub(1) else { continue };
            suspects = fewer;
        }
        *free -= 1;
        lines.push(task.line);
    }
    Piece::of_lines(connection, &lines).await
}

/// What a claim for one topic may take while nothing has lost an attempt, as most are; none if something has.
async fn find_in_topic(
    connection: &mut SqliteConnection,
    want: &Want,
    now: DateTime<Utc>,
) -> Result<Option<Piece>, StoreError> {
    let (text, lines, large, is_suspect_due) = sqlx::query_as(include_str!("sql/claimable_of_topic.sql"))
        .bind(micros(now))
        .bind(want.topic.as_str())
        .bind(i64::from(want.slots))
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    if is_suspect_due {
        return Ok(None);
    }
    Piece::of(connection, text, lines, large).await.map(Some)
}

async fn find_claimable(
    connection: &mut SqliteConnection,
    statement: &'static str,
    topics: &[&str],
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<Claimable>, StoreError> {
    let found = sqlx::query(statement)
        .bind(micros(now))
        .bind(to_text(&topics)?)
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Claimable {
                line: columns.take()?,
                topic: columns.take()?,
                priority: columns.take()?,
                run_at: columns.take()?,
                id: columns.take()?,
                is_suspect: columns.take_count::<u32>()? > 0,
            })
        })
        .collect()
}

async fn extend(
    connection: &mut SqliteConnection,
    held: &[Extension],
    lease: Duration,
    now: DateTime<Utc>,
) -> Result<Vec<Option<DateTime<Utc>>>, StoreError> {
    let rows: Vec<_> = held.iter().map(|lease| (Hex(lease.task_id.0), lease.epoch.0)).collect();
    let expires_at = micros_after(now, lease);
    let extended = sqlx::query(include_str!("sql/extend.sql"))
        .bind(micros(now))
        .bind(to_text(&rows)?)
        .bind(expires_at)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let extended = extended
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((TaskId(columns.take()?), Epoch(columns.take()?)))
        })
        .collect::<Result<HashSet<_>, StoreError>>()?;
    let expires_at = instant(expires_at)?;
    Ok(held.iter().map(|lease| extended.contains(&(lease.task_id, lease.epoch)).then_some(expires_at)).collect())
}
