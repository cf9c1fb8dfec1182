//! Writing, reading, cancelling and replacing tasks.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::hand_over::Withdrawn;
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::store::{
    Answer, Bulk, Changed, Created, Creation, Page, Remember, Reply, Retry, StoreError, TaskFilter, TaskWithAttempts,
    Tasks,
};
use punctual_domain::task::{Due, FireOfTask, NewTask, Task, TaskStatus};
use punctual_domain::topic::Topic;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use uuid::Uuid;

use super::bulk::{self, Change};
use super::pooler::begin_snapshot;
use super::{PostgresStore, answers, broken, hand_overs, list, micros, rows, stretch};
use crate::instant::bounded;
use crate::progress::ByTopic;
use crate::text::{CORRELATION_ID, OWNER_ID, TENANT_ID, metadata_to_text, retry_to_text};

#[async_trait]
impl Tasks for PostgresStore {
    async fn create_tasks(&self, tasks: Vec<NewTask>, remember: Option<Remember>) -> Result<Creation, StoreError> {
        if remember.is_none() && tasks.iter().all(NewTask::is_plain) {
            let written = self.gather.write(tasks, None).await?;
            return Ok(Creation::Made(written.into_iter().map(Created::Fresh).collect()));
        }
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let now = self.now();
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), now).await? {
                return Ok(Creation::Replayed(answer));
            }
            let created = insert_tasks(&mut transaction, tasks, now).await?;
            answers::keep(&mut transaction, remember, created.as_slice()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Creation::Made(created))
        })
    }

    async fn remembered(&self, owner: &str, key: &str, fingerprint: &str) -> Result<Option<Answer>, StoreError> {
        lend!(self, |connection| {
            let found = answers::find(connection, owner, key, fingerprint, self.now()).await?;
            Ok(found)
        })
    }

    async fn task(&self, id: TaskId) -> Result<Option<TaskWithAttempts>, StoreError> {
        lend!(self, |connection| {
            // One snapshot for both reads: the task may end in between.
            let mut transaction = begin_snapshot(connection).await?;
            let Some(task) = find(&mut transaction, id).await? else {
                transaction.rollback().await.map_err(broken)?;
                return Ok(None);
            };
            let attempts = sqlx::query(include_str!("sql/attempts.sql"))
                .bind(id.0)
                .fetch_all(&mut *transaction)
                .await
                .map_err(broken)?;
            transaction.rollback().await.map_err(broken)?;
            let attempts = attempts.iter().map(rows::attempt).collect::<Result<_, _>>()?;
            Ok(Some(TaskWithAttempts { task, attempts }))
        })
    }

    async fn retries_of(&self, id: TaskId, limit: u32) -> Result<Vec<Retry>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/retries_of.sql"))
                .bind(id.0)
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(rows::retry).collect()
        })
    }

    async fn tasks(&self, filter: &TaskFilter, page: Page<TaskId>) -> Result<Vec<Task>, StoreError> {
        lend!(self, |connection| {
            let found = if filter.is_of_time_alone() {
                let mut transaction = begin_snapshot(connection).await?;
                let newest = stretch::newest(&mut transaction, filter, page, stretch::FEW).await?;
                let mut query = list::tasks(filter, page, &newest);
                let found = query.build().persistent(false).fetch_all(&mut *transaction).await.map_err(broken)?;
                transaction.rollback().await.map_err(broken)?;
                found
            } else {
                list::tasks(filter, page, &[]).build().fetch_all(connection).await.map_err(broken)?
            };
            found.iter().map(rows::task).collect()
        })
    }

    async fn cancel(&self, id: TaskId, remember: Option<Remember<Task>>) -> Result<Reply<Task>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let now = self.now();
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), now).await? {
                return Ok(Reply::Replayed(answer));
            }
            cancel_tasks(&mut transaction, &[id.0], Running::Too, now).await?;
            let task = find(&mut transaction, id).await?.ok_or(StoreError::NotFound)?;
            answers::keep(&mut transaction, remember, &task).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(task))
        })
    }

    async fn reschedule(
        &self,
        id: TaskId,
        replacement: NewTask,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let now = self.now();
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), now).await? {
                return Ok(Reply::Replayed(answer));
            }
            if cancel_tasks(&mut transaction, &[id.0], Running::Too, now).await? == 0 {
                return match find(&mut transaction, id).await? {
                    Some(_) => Err(StoreError::AlreadyEnded),
                    None => Err(StoreError::NotFound),
                };
            }
            let replacement = NewTask { rescheduled_from: Some(id), ..replacement };
            let key = replacement.dedupe_key.clone();
            let task = match insert_tasks(&mut transaction, vec![replacement], now).await?.pop() {
                Some(Created::Fresh(task)) => task,
                _ => return Err(StoreError::DedupeKeyInUse(key.unwrap_or_default())),
            };
            answers::keep(&mut transaction, remember, &task).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(task))
        })
    }

    async fn retry(&self, id: TaskId, remember: Option<Remember<Created>>) -> Result<Reply<Created>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let now = self.now();
            if let Some(answer) = answers::before(&mut transaction, remember.as_ref(), now).await? {
                return Ok(Reply::Replayed(answer));
            }
            let failed = find(&mut transaction, id).await?.ok_or(StoreError::NotFound)?;
            if failed.status != TaskStatus::Failed {
                return Err(StoreError::NotFailed);
            }
            let again = NewTask { retry_of: Some(id), ..NewTask::like(&failed) };
            let created = insert_tasks(&mut transaction, vec![again], now).await?.pop();
            let created = created.ok_or_else(|| StoreError::Broken("a task was neither written nor found".into()))?;
            answers::keep(&mut transaction, remember, &created).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Reply::Made(created))
        })
    }

    async fn cancel_matching(
        &self,
        filter: &TaskFilter,
        bulk: Bulk,
        remember: Option<Remember<u64>>,
    ) -> Result<Reply<Changed>, StoreError> {
        bulk::run(self, Change::Cancel, filter, bulk, remember).await
    }

    async fn retry_matching(
        &self,
        filter: &TaskFilter,
        bulk: Bulk,
        remember: Option<Remember<u64>>,
    ) -> Result<Reply<Changed>, StoreError> {
        bulk::run(self, Change::Retry, filter, bulk, remember).await
    }
}

/// Whether a cancel ends running tasks too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Too,
    Not,
}

/// A task that was cancelled.
pub(super) struct EndedAsCancelled {
    pub(super) id: TaskId,
    pub(super) was_running: bool,
    pub(super) topic: String,
    /// A fire made it.
    pub(super) of_schedule: bool,
}

/// How many of them there are of each topic and origin.
pub(super) fn by_topic(ended: &[EndedAsCancelled]) -> ByTopic {
    let mut by_topic = ByTopic::default();
    ended.iter().for_each(|ended| by_topic.add(ended.topic.clone(), ended.of_schedule, 1));
    by_topic
}

/// Cancels live tasks; answers how many there were.
pub(super) async fn cancel_tasks(
    connection: &mut PgConnection,
    ids: &[Uuid],
    running: Running,
    now: Option<DateTime<Utc>>,
) -> Result<u64, StoreError> {
    Ok(end_as_cancelled(connection, ids, running, now).await?.len() as u64)
}

/// Cancels live tasks, running or not, inside a caller's own transaction.
pub(crate) async fn cancel_any(
    connection: &mut PgConnection,
    ids: &[Uuid],
    now: Option<DateTime<Utc>>,
) -> Result<u64, StoreError> {
    cancel_tasks(connection, ids, Running::Too, now).await
}

/// Cancels live tasks; answers which there were. Their jobs are to be looked after by whoever follows queues.
pub(super) async fn end_as_cancelled(
    connection: &mut PgConnection,
    ids: &[Uuid],
    running: Running,
    now: Option<DateTime<Utc>>,
) -> Result<Vec<EndedAsCancelled>, StoreError> {
    let cancelled = sqlx::query(include_str!("sql/cancel.sql"))
        .bind(now)
        .bind(ids)
        .bind(running == Running::Not)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let (mut ended, mut withdrawn) = (Vec::with_capacity(cancelled.len()), Vec::new());
    for row in &cancelled {
        let mut columns = rows::Columns::of(row);
        let (task_id, was_running) = (TaskId(columns.take()?), columns.take()?);
        let (topic, of_schedule): (&str, bool) = (columns.take()?, columns.take()?);
        if columns.take()? {
            let fire = columns.take::<Option<Uuid>>()?.zip(columns.take()?);
            let fire = fire.map(|(id, scheduled_at)| FireOfTask { schedule_id: ScheduleId(id), scheduled_at });
            withdrawn.push(Withdrawn { task_id, topic: Topic::from_stored(topic), fire });
        }
        ended.push(EndedAsCancelled { id: task_id, was_running, topic: topic.to_owned(), of_schedule });
    }
    hand_overs::withdraw(connection, &withdrawn, now).await?;
    Ok(ended)
}

/// A task, wherever it is.
async fn find(connection: &mut PgConnection, id: TaskId) -> Result<Option<Task>, StoreError> {
    const ONE: &str = concat!(
        include_str!("sql/live_tasks.sql"),
        "WHERE id = $1\nUNION ALL\n",
        include_str!("sql/ended_tasks.sql"),
        "WHERE id = $1"
    );
    let row = sqlx::query(ONE).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(rows::task).transpose()
}

/// Writes tasks inside the caller's own transaction: a commit makes them visible, a rollback makes them never have
/// been. `now` is for tests that move time; `None` takes the database's clock.
///
/// # Errors
/// `ClientRequestIdInUse`; the caller's transaction should then be rolled back.
pub async fn insert_tasks(
    connection: &mut PgConnection,
    tasks: Vec<NewTask>,
    now: Option<DateTime<Utc>>,
) -> Result<Vec<Created>, StoreError> {
    use_client_requests(connection, &tasks).await?;
    let mut created: HashMap<TaskId, Created> = HashMap::with_capacity(tasks.len());
    let order: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let mut waiting = tasks;
    // A living task can end between the refused insert and the look at it: then the key is free after all.
    while !waiting.is_empty() {
        let written = insert(connection, &waiting, now).await?;
        let mut refused = Vec::new();
        for task in waiting {
            match written.get(&task.id) {
                Some((run_at, created_at)) => {
                    created.insert(task.id, Created::Fresh(task.into_task(*run_at, *created_at)));
                }
                None => refused.push(task),
            }
        }
        waiting = Vec::new();
        if refused.is_empty() {
            break;
        }
        let living = living_by_key(connection, &refused).await?;
        for task in refused {
            let key = (task.topic.as_str().to_owned(), task.dedupe_key.clone().unwrap_or_default());
            match living.get(&key) {
                Some(living) => {
                    free_client_request(connection, &task).await?;
                    created.insert(task.id, Created::Deduplicated(living.clone()));
                }
                None => waiting.push(task),
            }
        }
    }
    Ok(order.iter().filter_map(|id| created.remove(id)).collect())
}

/// Tells all nodes that tasks were written, once the caller's own transaction commits; a rollback tells nobody.
///
/// # Errors
/// When the database does not answer.
pub async fn announce_tasks(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query(include_str!("sql/announce_tasks.sql")).execute(connection).await.map_err(broken)?;
    Ok(())
}

type Written = HashMap<TaskId, (DateTime<Utc>, DateTime<Utc>)>;

async fn insert(
    connection: &mut PgConnection,
    tasks: &[NewTask],
    now: Option<DateTime<Utc>>,
) -> Result<Written, StoreError> {
    fn column<T>(tasks: &[NewTask], read: impl Fn(&NewTask) -> T) -> Vec<T> {
        tasks.iter().map(read).collect()
    }
    let metadata = |key: &'static str| column(tasks, |t| t.metadata.get(key).cloned());
    let rows = sqlx::query(include_str!("sql/insert_tasks.sql"))
        .bind(now)
        .bind(column(tasks, |t| t.id.0))
        .bind(column(tasks, |t| t.topic.to_string()))
        .bind(column(tasks, |t| t.priority))
        .bind(column(tasks, |t| match t.due {
            Due::At(at) => Some(bounded(at)),
            Due::After(_) | Due::Now => None,
        }))
        .bind(column(tasks, |t| match t.due {
            Due::After(delay) => micros(delay),
            Due::At(_) | Due::Now => 0,
        }))
        .bind(column(tasks, |t| t.timezone.clone()))
        .bind(column(tasks, |t| t.payload.as_str().to_owned()))
        .bind(tasks.iter().map(|t| metadata_to_text(&t.metadata)).collect::<Result<Vec<_>, _>>()?)
        .bind(metadata(OWNER_ID))
        .bind(metadata(TENANT_ID))
        .bind(metadata(CORRELATION_ID))
        .bind(column(tasks, |t| t.client_request_id.clone()))
        .bind(column(tasks, |t| t.dedupe_key.clone()))
        .bind(column(tasks, |t| t.serial_key.clone()))
        .bind(column(tasks, |t| t.timeout_seconds as i32))
        .bind(tasks.iter().map(|t| retry_to_text(&t.retry)).collect::<Result<Vec<_>, _>>()?)
        .bind(column(tasks, |t| t.fire.map(|fire| fire.schedule_id.0)))
        .bind(column(tasks, |t| t.fire.map(|fire| bounded(fire.scheduled_at))))
        .bind(column(tasks, |t| t.retry_of.map(|id| id.0)))
        .bind(column(tasks, |t| t.rescheduled_from.map(|id| id.0)))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    rows.iter()
        .map(|row| {
            let mut columns = rows::Columns::of(row);
            Ok((TaskId(columns.take()?), (columns.take()?, columns.take()?)))
        })
        .collect()
}

/// Takes the clientRequestIds of tasks that bring one.
async fn use_client_requests(connection: &mut PgConnection, tasks: &[NewTask]) -> Result<(), StoreError> {
    let requests: Vec<_> =
        tasks.iter().filter_map(|task| Some((task.client_request_id.clone()?, "task".to_owned(), task.id.0))).collect();
    take_client_requests(connection, requests).await
}

/// Takes clientRequestIds for what they are about to make.
pub(super) async fn take_client_requests(
    connection: &mut PgConnection,
    requests: Vec<(String, String, Uuid)>,
) -> Result<(), StoreError> {
    if requests.is_empty() {
        return Ok(());
    }
    let taken = sqlx::query(include_str!("sql/use_client_requests.sql"))
        .bind(requests.iter().map(|(id, _, _)| id.clone()).collect::<Vec<_>>())
        .bind(requests.iter().map(|(_, made, _)| made.clone()).collect::<Vec<_>>())
        .bind(requests.iter().map(|(_, _, id)| *id).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let mut free: HashMap<&str, ()> = taken.iter().map(|row| (row.get::<&str, _>(0), ())).collect();
    // One that was used before is not among the free ones; one that stands here twice is there only once.
    match requests.iter().find(|(id, _, _)| free.remove(id.as_str()).is_none()) {
        Some((id, _, _)) => Err(StoreError::ClientRequestIdInUse(id.clone())),
        None => Ok(()),
    }
}

/// Gives a clientRequestId back whose task was not written because a living one stands for it.
async fn free_client_request(connection: &mut PgConnection, task: &NewTask) -> Result<(), StoreError> {
    if let Some(client_request_id) = &task.client_request_id {
        sqlx::query("DELETE FROM punctual_client_requests WHERE client_request_id = $1 AND id = $2")
            .bind(client_request_id)
            .bind(task.id.0)
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(())
}

/// The live tasks that hold the dedupe keys of `refused`.
async fn living_by_key(
    connection: &mut PgConnection,
    refused: &[NewTask],
) -> Result<HashMap<(String, String), Task>, StoreError> {
    let by_key = concat!(
        include_str!("sql/live_tasks.sql"),
        "WHERE (topic, dedupe_key) IN (SELECT * FROM unnest($1::text[], $2::text[]))"
    );
    let living = sqlx::query(AssertSqlSafe(by_key))
        .bind(refused.iter().map(|task| task.topic.to_string()).collect::<Vec<_>>())
        .bind(refused.iter().map(|task| task.dedupe_key.clone().unwrap_or_default()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    living
        .iter()
        .map(|row| {
            let task = rows::task(row)?;
            Ok(((task.topic.to_string(), task.dedupe_key.clone().unwrap_or_default()), task))
        })
        .collect()
}
