//! Tasks that queues outside have accepted.

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::hand_over::{HandOver, HandedOver, MessageJob, Mirrored, NewHandOver, Queue, Step, Withdrawn};
use punctual_domain::id::{Epoch, FireId, MessageId, ScheduleId, TaskId};
use punctual_domain::store::{Extension, HandOvers, StoreError, WhichHandOvers};
use punctual_domain::task::FireOfTask;
use punctual_domain::topic::Topic;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Sqlite};
use uuid::Uuid;

use super::rows::{Columns, Hex, micros, micros_after};
use super::{SqliteStore, broken, topics};
use crate::text::to_text;

#[async_trait]
impl HandOvers for SqliteStore {
    async fn hand_over(&self, held: Extension, hand_over: &NewHandOver) -> Result<bool, StoreError> {
        let NewHandOver { queue, job_id, limit } = hand_over.clone();
        self.write(move |connection, now| {
            async move {
                let attempt: Option<i64> = sqlx::query_scalar(include_str!("sql/hand_over_task.sql"))
                    .bind(held.task_id.0)
                    .bind(held.epoch.0)
                    .fetch_optional(&mut *connection)
                    .await
                    .map_err(broken)?;
                let Some(attempt) = attempt else { return Ok(false) };
                know(connection, &queue).await?;
                sqlx::query(include_str!("sql/note_hand_over.sql"))
                    .bind(held.task_id.0)
                    .bind(held.epoch.0)
                    .bind(queue.prefix)
                    .bind(queue.name)
                    .bind(job_id)
                    .bind(attempt)
                    .bind(micros(now))
                    .bind(micros_after(now, limit))
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    async fn hand_overs(&self, which: &WhichHandOvers, limit: u32) -> Result<Vec<HandOver>, StoreError> {
        let which = which.clone();
        self.read(move |connection, now| {
            async move {
                let mut query = QueryBuilder::<Sqlite>::new(include_str!("sql/hand_overs.sql"));
                match which {
                    WhichHandOvers::OfTask(id) => query.push("WHERE o.task_id = ").push_bind(id.0),
                    WhichHandOvers::OfJobs(queue, jobs) => {
                        query.push("WHERE t.id IS NOT NULL AND o.prefix = ").push_bind(queue.prefix);
                        query.push(" AND o.queue = ").push_bind(queue.name);
                        query.push(" AND o.job_id IN (SELECT value FROM json_each(").push_bind(to_text(&jobs)?);
                        query.push("))")
                    }
                    WhichHandOvers::OfQueue(queue, after) => {
                        query.push("WHERE t.id IS NOT NULL AND o.prefix = ").push_bind(queue.prefix);
                        query.push(" AND o.queue = ").push_bind(queue.name);
                        query.push(" AND o.task_id > ").push_bind(after.map_or(Uuid::nil(), |id| id.0))
                    }
                    WhichHandOvers::Overdue => {
                        query.push("WHERE t.id IS NOT NULL AND o.ends_at <= ").push_bind(micros(now))
                    }
                    WhichHandOvers::Stray(after) => {
                        query.push("WHERE t.id IS NULL AND o.task_id > ");
                        query.push_bind(after.map_or(Uuid::nil(), |id| id.0))
                    }
                    WhichHandOvers::OverdueStray(after) => {
                        query.push("WHERE t.id IS NULL AND o.ends_at <= ").push_bind(micros(now));
                        // There are few: the plus keeps them from being looked for in the order of their ids.
                        query.push(" AND +o.task_id > ").push_bind(after.map_or(Uuid::nil(), |id| id.0))
                    }
                    WhichHandOvers::StrayOfJobs(queue, jobs) => {
                        query.push("WHERE t.id IS NULL AND o.prefix = ").push_bind(queue.prefix);
                        query.push(" AND o.queue = ").push_bind(queue.name);
                        query.push(" AND o.job_id IN (SELECT value FROM json_each(").push_bind(to_text(&jobs)?);
                        query.push("))")
                    }
                };
                query.push(" ORDER BY o.task_id LIMIT ").push_bind(i64::from(limit));
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(hand_over).collect()
            }
            .boxed()
        })
        .await
    }

    async fn handed_over_again(&self, held: &[Extension]) -> Result<(), StoreError> {
        let rows = to_text(&held.iter().map(|held| (Hex(held.task_id.0), held.epoch.0)).collect::<Vec<_>>())?;
        self.write(move |connection, _| {
            async move {
                let noted = sqlx::query(include_str!("sql/handed_over_again.sql")).bind(rows);
                noted.execute(connection).await.map(drop).map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn mirror(&self, mirrored: &[Mirrored]) -> Result<(), StoreError> {
        let mirrored = mirrored.to_vec();
        self.write(move |connection, now| {
            async move {
                for Mirrored { task_id, epoch, step } in mirrored {
                    let Step::Failed { error } = step else {
                        sqlx::query(include_str!("sql/begin_attempt.sql"))
                            .bind(task_id.0)
                            .bind(epoch.0)
                            .bind(micros(now))
                            .execute(&mut *connection)
                            .await
                            .map_err(broken)?;
                        continue;
                    };
                    let noted = sqlx::query(include_str!("sql/note_failed_attempt.sql"))
                        .bind(task_id.0)
                        .bind(epoch.0)
                        .bind(micros(now))
                        .bind(&error)
                        .execute(&mut *connection)
                        .await
                        .map_err(broken)?;
                    if noted.rows_affected() == 0 {
                        continue;
                    }
                    sqlx::query(include_str!("sql/rest.sql"))
                        .bind(task_id.0)
                        .bind(epoch.0)
                        .bind(error)
                        .execute(&mut *connection)
                        .await
                        .map_err(broken)?;
                    sqlx::query("UPDATE punctual_hand_overs SET epoch = epoch + 1 WHERE task_id = ?1 AND epoch = ?2")
                        .bind(task_id.0)
                        .bind(epoch.0)
                        .execute(&mut *connection)
                        .await
                        .map_err(broken)?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }

    async fn note_progress(&self, queue: &Queue, progress: &[(String, String)]) -> Result<(), StoreError> {
        let (queue, progress) = (queue.clone(), to_text(&progress)?);
        self.write(move |connection, _| {
            async move {
                let noted = sqlx::query(include_str!("sql/note_progress.sql")).bind(queue.prefix).bind(queue.name);
                noted.bind(progress).execute(connection).await.map(drop).map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn forget_hand_overs(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        let ids = to_text(&tasks.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?;
        self.write(move |connection, _| {
            async move {
                let forgotten = sqlx::query(include_str!("sql/forget_hand_overs.sql")).bind(ids);
                forgotten.execute(connection).await.map(drop).map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn queues(&self) -> Result<Vec<(Queue, String)>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query("SELECT prefix, queue, position FROM punctual_queues ORDER BY prefix, queue")
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found
                    .iter()
                    .map(|row| {
                        let mut columns = Columns::of(row);
                        Ok((Queue { prefix: columns.take()?, name: columns.take()? }, columns.take()?))
                    })
                    .collect()
            }
            .boxed()
        })
        .await
    }

    async fn note_position(&self, queue: &Queue, position: &str) -> Result<(), StoreError> {
        let (queue, position) = (queue.clone(), position.to_owned());
        self.write(move |connection, _| {
            async move {
                sqlx::query("UPDATE punctual_queues SET position = ?3 WHERE prefix = ?1 AND queue = ?2")
                    .bind(queue.prefix)
                    .bind(queue.name)
                    .bind(position)
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn note_message_job(&self, queue: &Queue, job: &MessageJob) -> Result<(), StoreError> {
        let (queue, job) = (queue.clone(), job.clone());
        self.write(move |connection, _| {
            async move {
                know(connection, &queue).await?;
                sqlx::query(include_str!("sql/note_message_job.sql"))
                    .bind(job.message_id.0)
                    .bind(queue.prefix)
                    .bind(queue.name)
                    .bind(job.job_id)
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn message_jobs(
        &self,
        queue: &Queue,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<MessageJob>, StoreError> {
        let queue = queue.clone();
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/message_jobs.sql"))
                    .bind(queue.prefix)
                    .bind(queue.name)
                    .bind(after.map_or(Uuid::nil(), |id| id.0))
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(message_job).collect()
            }
            .boxed()
        })
        .await
    }

    async fn forget_message_jobs(&self, queue: &Queue, jobs: &[String]) -> Result<(), StoreError> {
        let (queue, jobs) = (queue.clone(), to_text(&jobs)?);
        self.write(move |connection, _| {
            async move {
                sqlx::query(include_str!("sql/forget_message_jobs.sql"))
                    .bind(queue.prefix)
                    .bind(queue.name)
                    .bind(jobs)
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn execution_of(&self, task: TaskId, fire: Option<FireOfTask>) -> Result<Option<FireId>, StoreError> {
        let Some(fire) = fire else { return Ok(None) };
        self.read(move |connection, _| {
            async move {
                let found: Option<Uuid> = sqlx::query_scalar(include_str!("sql/execution_of.sql"))
                    .bind(fire.schedule_id.0)
                    .bind(micros(fire.scheduled_at))
                    .bind(task.0)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                Ok(found.map(FireId))
            }
            .boxed()
        })
        .await
    }
}

/// Notes of tasks that are about to be cancelled that their time in queues is up. Those that have begun may be in one, whether or
/// not anybody noted that.
pub(super) async fn withdraw(
    connection: &mut SqliteConnection,
    tasks: &[TaskId],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let ids = to_text(&tasks.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?;
    let begun = sqlx::query(include_str!("sql/withdrawn_tasks.sql")).bind(ids).fetch_all(&mut *connection).await;
    let begun = begun.map_err(broken)?.iter().map(withdrawn).collect::<Result<Vec<_>, _>>()?;
    if begun.is_empty() {
        return Ok(());
    }
    let definitions = topics::definitions_for(connection, begun.iter().map(|task| task.topic.as_str())).await?;
    let (mut queues, mut rows) = (BTreeSet::new(), Vec::new());
    for task in begun {
        if let Some((queue, job_id)) = task.place(&definitions) {
            rows.push((Hex(task.task_id.0), queue.prefix.clone(), queue.name.clone(), job_id));
            queues.insert(queue);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    for queue in &queues {
        know(connection, queue).await?;
    }
    let noted = sqlx::query(include_str!("sql/withdraw_hand_overs.sql")).bind(to_text(&rows)?).bind(micros(now));
    noted.execute(connection).await.map(drop).map_err(broken)
}

/// Notes that there is a queue.
async fn know(connection: &mut SqliteConnection, queue: &Queue) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO punctual_queues (prefix, queue) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(&queue.prefix)
        .bind(&queue.name)
        .execute(connection)
        .await
        .map(drop)
        .map_err(broken)
}

/// A row of `withdrawn_tasks.sql`.
fn withdrawn(row: &SqliteRow) -> Result<Withdrawn, StoreError> {
    let mut columns = Columns::of(row);
    let (task_id, topic) = (TaskId(columns.take()?), Topic::from_stored(columns.take::<&str>()?));
    let schedule_id: Option<Uuid> = columns.take()?;
    let scheduled_at = columns.take_instant_if_any()?;
    let fire = schedule_id.zip(scheduled_at);
    let fire = fire.map(|(id, scheduled_at)| FireOfTask { schedule_id: ScheduleId(id), scheduled_at });
    Ok(Withdrawn { task_id, topic, fire })
}

/// A row of `message_jobs.sql`.
fn message_job(row: &SqliteRow) -> Result<MessageJob, StoreError> {
    let mut columns = Columns::of(row);
    Ok(MessageJob { message_id: MessageId(columns.take()?), job_id: columns.take()? })
}

/// A row of `hand_overs.sql`.
fn hand_over(row: &SqliteRow) -> Result<HandOver, StoreError> {
    let mut columns = Columns::of(row);
    Ok(HandOver {
        task_id: TaskId(columns.take()?),
        epoch: Epoch(columns.take()?),
        queue: Queue { prefix: columns.take()?, name: columns.take()? },
        job_id: columns.take()?,
        first_attempt: columns.take_count()?,
        handed_over_at: columns.take_instant()?,
        ends_at: columns.take_instant()?,
        progress: columns.take()?,
        task: match columns.take::<Option<&str>>()? {
            None => None,
            Some(topic) => Some(HandedOver {
                topic: Topic::from_stored(topic),
                attempt: columns.take_count()?,
                started_at: columns.take_instant()?,
                timeout_seconds: columns.take_count()?,
                rests: columns.take()?,
                is_of_schedule: columns.take()?,
                has_serial_key: columns.take()?,
            }),
        },
    })
}
