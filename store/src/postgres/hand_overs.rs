//! Tasks that queues outside have accepted.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::hand_over::{HandOver, HandedOver, MessageJob, Mirrored, NewHandOver, Queue, Step, Withdrawn};
use punctual_domain::id::{Epoch, FireId, MessageId, TaskId};
use punctual_domain::store::{Extension, HandOvers, StoreError, WhichHandOvers};
use punctual_domain::task::FireOfTask;
use punctual_domain::topic::Topic;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PostgresStore, broken, micros, rows, topics};

#[async_trait]
impl HandOvers for PostgresStore {
    async fn hand_over(&self, held: Extension, hand_over: &NewHandOver) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let handed = sqlx::query(include_str!("sql/hand_over.sql"))
                .bind(self.now())
                .bind(held.task_id.0)
                .bind(held.epoch.0)
                .bind(&hand_over.queue.prefix)
                .bind(&hand_over.queue.name)
                .bind(&hand_over.job_id)
                .bind(micros(hand_over.limit))
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            Ok(handed.is_some())
        })
    }

    async fn hand_overs(&self, which: &WhichHandOvers, limit: u32) -> Result<Vec<HandOver>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(include_str!("sql/hand_overs.sql"));
        match which.clone() {
            WhichHandOvers::OfTask(id) => query.push("WHERE o.task_id = ").push_bind(id.0),
            WhichHandOvers::OfJobs(queue, jobs) => {
                query.push("WHERE t.id IS NOT NULL AND o.prefix = ").push_bind(queue.prefix);
                query.push(" AND o.queue = ").push_bind(queue.name);
                query.push(" AND o.job_id = ANY (").push_bind(jobs).push(")")
            }
            WhichHandOvers::OfQueue(queue, after) => {
                query.push("WHERE t.id IS NOT NULL AND o.prefix = ").push_bind(queue.prefix);
                query.push(" AND o.queue = ").push_bind(queue.name);
                query.push(" AND o.task_id > ").push_bind(after.map_or(Uuid::nil(), |id| id.0))
            }
            WhichHandOvers::Overdue => {
                query.push("WHERE t.id IS NOT NULL AND o.ends_at <= coalesce(").push_bind(self.now());
                query.push("::timestamptz, statement_timestamp())")
            }
            WhichHandOvers::Stray(after) => {
                query.push("WHERE t.id IS NULL AND o.task_id > ").push_bind(after.map_or(Uuid::nil(), |id| id.0))
            }
            WhichHandOvers::OverdueStray(after) => {
                query.push("WHERE t.id IS NULL AND o.ends_at <= coalesce(").push_bind(self.now());
                query.push("::timestamptz, statement_timestamp()) AND o.task_id > ");
                query.push_bind(after.map_or(Uuid::nil(), |id| id.0))
            }
            WhichHandOvers::StrayOfJobs(queue, jobs) => {
                query.push("WHERE t.id IS NULL AND o.prefix = ").push_bind(queue.prefix);
                query.push(" AND o.queue = ").push_bind(queue.name);
                query.push(" AND o.job_id = ANY (").push_bind(jobs).push(")")
            }
        };
        query.push(" ORDER BY o.task_id LIMIT ").push_bind(i64::from(limit));
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(hand_over).collect()
        })
    }

    async fn handed_over_again(&self, held: &[Extension]) -> Result<(), StoreError> {
        let (ids, epochs): (Vec<_>, Vec<_>) = held.iter().map(|held| (held.task_id.0, held.epoch.0)).unzip();
        lend!(self, |connection| {
            let noted = sqlx::query(include_str!("sql/handed_over_again.sql")).bind(ids).bind(epochs);
            noted.execute(connection).await.map(drop).map_err(broken)
        })
    }

    async fn mirror(&self, mirrored: &[Mirrored]) -> Result<(), StoreError> {
        let error = |mirrored: &Mirrored| match &mirrored.step {
            Step::Failed { error } => Some(error.clone()),
            Step::Began => None,
        };
        lend!(self, |connection| {
            sqlx::query(include_str!("sql/mirror.sql"))
                .bind(self.now())
                .bind(mirrored.iter().map(|mirrored| mirrored.task_id.0).collect::<Vec<_>>())
                .bind(mirrored.iter().map(|mirrored| mirrored.epoch.0).collect::<Vec<_>>())
                .bind(mirrored.iter().map(error).collect::<Vec<_>>())
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
        })
    }

    async fn note_progress(&self, queue: &Queue, progress: &[(String, String)]) -> Result<(), StoreError> {
        let (jobs, said): (Vec<_>, Vec<_>) = progress.iter().map(|(job, said)| (job.as_str(), said.as_str())).unzip();
        lend!(self, |connection| {
            let noted = sqlx::query(include_str!("sql/note_progress.sql")).bind(&queue.prefix).bind(&queue.name);
            noted.bind(jobs).bind(said).execute(connection).await.map(drop).map_err(broken)
        })
    }

    async fn forget_hand_overs(&self, tasks: &[TaskId]) -> Result<(), StoreError> {
        let ids: Vec<_> = tasks.iter().map(|id| id.0).collect();
        lend!(self, |connection| {
            let forgotten = sqlx::query(include_str!("sql/forget_hand_overs.sql")).bind(ids);
            forgotten.execute(connection).await.map(drop).map_err(broken)
        })
    }

    async fn queues(&self) -> Result<Vec<(Queue, String)>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query("SELECT prefix, queue, position FROM punctual_queues ORDER BY prefix, queue")
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok((Queue { prefix: columns.take()?, name: columns.take()? }, columns.take()?))
                })
                .collect()
        })
    }

    async fn note_position(&self, queue: &Queue, position: &str) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query("UPDATE punctual_queues SET position = $3 WHERE prefix = $1 AND queue = $2")
                .bind(&queue.prefix)
                .bind(&queue.name)
                .bind(position)
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
        })
    }

    async fn note_message_job(&self, queue: &Queue, job: &MessageJob) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query("INSERT INTO punctual_queues (prefix, queue) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(&queue.prefix)
                .bind(&queue.name)
                .execute(&mut *connection)
                .await
                .map_err(broken)?;
            sqlx::query(include_str!("sql/note_message_job.sql"))
                .bind(job.message_id.0)
                .bind(&queue.prefix)
                .bind(&queue.name)
                .bind(&job.job_id)
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
        })
    }

    async fn message_jobs(
        &self,
        queue: &Queue,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<MessageJob>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/message_jobs.sql"))
                .bind(&queue.prefix)
                .bind(&queue.name)
                .bind(after.map_or(Uuid::nil(), |id| id.0))
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(message_job).collect()
        })
    }

    async fn forget_message_jobs(&self, queue: &Queue, jobs: &[String]) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query(include_str!("sql/forget_message_jobs.sql"))
                .bind(&queue.prefix)
                .bind(&queue.name)
                .bind(jobs)
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
        })
    }

    async fn execution_of(&self, task: TaskId, fire: Option<FireOfTask>) -> Result<Option<FireId>, StoreError> {
        let Some(fire) = fire else { return Ok(None) };
        lend!(self, |connection| {
            let found: Option<Uuid> = sqlx::query_scalar(include_str!("sql/execution_of.sql"))
                .bind(fire.schedule_id.0)
                .bind(fire.scheduled_at)
                .bind(task.0)
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            Ok(found.map(FireId))
        })
    }
}

/// Notes of cancelled tasks that their time in queues is up. As they had begun, they may be in one, whether or not anybody noted
/// that.
pub(super) async fn withdraw(
    connection: &mut PgConnection,
    tasks: &[Withdrawn],
    now: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let definitions = topics::definitions_for(connection, tasks.iter().map(|task| task.topic.as_str())).await?;
    let (mut ids, mut prefixes, mut queues, mut jobs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        if let Some((queue, job_id)) = task.place(&definitions) {
            ids.push(task.task_id.0);
            prefixes.push(queue.prefix);
            queues.push(queue.name);
            jobs.push(job_id);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/withdraw_hand_overs.sql"))
        .bind(now)
        .bind(ids)
        .bind(prefixes)
        .bind(queues)
        .bind(jobs)
        .execute(connection)
        .await
        .map(drop)
        .map_err(broken)
}

/// A row of `message_jobs.sql`.
fn message_job(row: &PgRow) -> Result<MessageJob, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(MessageJob { message_id: MessageId(columns.take()?), job_id: columns.take()? })
}

/// A row of `hand_overs.sql`.
fn hand_over(row: &PgRow) -> Result<HandOver, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(HandOver {
        task_id: TaskId(columns.take()?),
        epoch: Epoch(columns.take()?),
        queue: Queue { prefix: columns.take()?, name: columns.take()? },
        job_id: columns.take()?,
        first_attempt: columns.take_small()?,
        handed_over_at: columns.take()?,
        ends_at: columns.take()?,
        progress: columns.take()?,
        task: match columns.take::<Option<&str>>()? {
            None => None,
            Some(topic) => Some(HandedOver {
                topic: Topic::from_stored(topic),
                attempt: columns.take_small()?,
                started_at: columns.take()?,
                timeout_seconds: columns.take_small()?,
                rests: columns.take()?,
                is_of_schedule: columns.take()?,
                has_serial_key: columns.take()?,
            }),
        },
    })
}
