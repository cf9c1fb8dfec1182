//! Writing, reading, cancelling and replacing tasks.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::id::TaskId;
use punctual_domain::store::{
    Answer, Bulk, Changed, Created, Creation, Page, Remember, Reply, Retry, StoreError, TaskFilter, TaskWithAttempts,
    Tasks,
};
use punctual_domain::task::{Due, FireOfTask, NewTask, Task, TaskStatus};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::bulk::{self, Change};
use super::rows::{self, Hex, instant, micros, micros_after, whole_micros};
use super::{SqliteStore, answers, broken, list, settle};
use crate::text::{CORRELATION_ID, OWNER_ID, TENANT_ID, metadata_to_text, retry_to_text, to_text};

#[async_trait]
impl Tasks for SqliteStore {
    async fn create_tasks(&self, tasks: Vec<NewTask>, remember: Option<Remember>) -> Result<Creation, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Creation::Replayed(answer));
                }
                let created = insert(connection, tasks, now).await?;
                answers::keep(connection, remember, created.as_slice(), now).await?;
                Ok(Creation::Made(created))
            }
            .boxed()
        })
        .await
    }

    async fn remembered(&self, owner: &str, key: &str, fingerprint: &str) -> Result<Option<Answer>, StoreError> {
        let (owner, key, fingerprint) = (owner.to_owned(), key.to_owned(), fingerprint.to_owned());
        self.read(move |connection, now| {
            async move { answers::find(connection, &owner, &key, &fingerprint, now).await }.boxed()
        })
        .await
    }

    async fn task(&self, id: TaskId) -> Result<Option<TaskWithAttempts>, StoreError> {
        // One snapshot for both reads: the task may end in between.
        self.snapshot(move |connection, _| {
            async move {
                let Some(task) = find(connection, id).await? else { return Ok(None) };
                let attempts = sqlx::query(include_str!("sql/attempts.sql"))
                    .bind(id.0)
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                let attempts = attempts.iter().map(rows::attempt).collect::<Result<_, _>>()?;
                Ok(Some(TaskWithAttempts { task, attempts }))
            }
            .boxed()
        })
        .await
    }

    async fn retries_of(&self, id: TaskId, limit: u32) -> Result<Vec<Retry>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/retries_of.sql"))
                    .bind(id.0)
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(rows::retry).collect()
            }
            .boxed()
        })
        .await
    }

    async fn tasks(&self, filter: &TaskFilter, page: Page<TaskId>) -> Result<Vec<Task>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| {
            async move {
                let found = list::tasks(&filter, page).build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(rows::task).collect()
            }
            .boxed()
        })
        .await
    }

    async fn cancel(&self, id: TaskId, remember: Option<Remember<Task>>) -> Result<Reply<Task>, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                settle::cancel(connection, &[id], now).await?;
                let task = find(connection, id).await?.ok_or(StoreError::NotFound)?;
                answers::keep(connection, remember, &task, now).await?;
                Ok(Reply::Made(task))
            }
            .boxed()
        })
        .await
    }

    async fn reschedule(
        &self,
        id: TaskId,
        replacement: NewTask,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                if settle::cancel(connection, &[id], now).await? == 0 {
                    return match find(connection, id).await? {
                        Some(_) => Err(StoreError::AlreadyEnded),
                        None => Err(StoreError::NotFound),
                    };
                }
                let replacement = NewTask { rescheduled_from: Some(id), ..replacement };
                let key = replacement.dedupe_key.clone();
                let task = match insert(connection, vec![replacement], now).await?.pop() {
                    Some(Created::Fresh(task)) => task,
                    _ => return Err(StoreError::DedupeKeyInUse(key.unwrap_or_default())),
                };
                answers::keep(connection, remember, &task, now).await?;
                Ok(Reply::Made(task))
            }
            .boxed()
        })
        .await
    }

    async fn retry(&self, id: TaskId, remember: Option<Remember<Created>>) -> Result<Reply<Created>, StoreError> {
        self.write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                let failed = find(connection, id).await?.ok_or(StoreError::NotFound)?;
                if failed.status != TaskStatus::Failed {
                    return Err(StoreError::NotFailed);
                }
                let again = NewTask { retry_of: Some(id), ..NewTask::like(&failed) };
                let created = insert(connection, vec![again], now).await?.pop();
                let created =
                    created.ok_or_else(|| StoreError::Broken("a task was neither written nor found".into()))?;
                answers::keep(connection, remember, &created, now).await?;
                Ok(Reply::Made(created))
            }
            .boxed()
        })
        .await
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

/// A task, wherever it is.
async fn find(connection: &mut SqliteConnection, id: TaskId) -> Result<Option<Task>, StoreError> {
    const ONE: &str = concat!(
        include_str!("sql/live_tasks.sql"),
        "WHERE id = ?1\nUNION ALL\n",
        include_str!("sql/ended_tasks.sql"),
        "WHERE id = ?1"
    );
    let row = sqlx::query(ONE).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
    row.as_ref().map(rows::task).transpose()
}

/// Writes tasks inside the caller's own transaction: a commit makes them visible, a rollback makes them never have
/// been. `now` decides when tasks without an instant of their own are due.
///
/// # Errors
/// `ClientRequestIdInUse`; nothing was written then.
pub async fn insert_tasks(
    connection: &mut SqliteConnection,
    tasks: Vec<NewTask>,
    now: DateTime<Utc>,
) -> Result<Vec<Created>, StoreError> {
    // Writing before reading: a transaction that begins by reading cannot wait for its turn to write.
    sqlx::query("DELETE FROM punctual_client_requests WHERE false").execute(&mut *connection).await.map_err(broken)?;
    insert(connection, tasks, now).await
}

/// Writes tasks in a transaction that writes already.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    tasks: Vec<NewTask>,
    now: DateTime<Utc>,
) -> Result<Vec<Created>, StoreError> {
    check_client_requests(connection, tasks.iter().filter_map(|task| task.client_request_id.as_deref())).await?;
    let now = whole_micros(now);
    let mut living = living_by_key(connection, &tasks).await?;
    let mut created = Vec::with_capacity(tasks.len());
    for task in tasks {
        let key = task.dedupe_key.clone().map(|key| (task.topic.to_string(), key));
        if let Some(living) = key.as_ref().and_then(|key| living.get(key)) {
            created.push(Created::Deduplicated(living.clone()));
            continue;
        }
        let task = written(task, now)?;
        if let Some(key) = key {
            living.insert(key, task.clone());
        }
        created.push(Created::Fresh(task));
    }
    let fresh: Vec<&Task> = created
        .iter()
        .filter_map(|created| match created {
            Created::Fresh(task) => Some(task),
            Created::Deduplicated(_) => None,
        })
        .collect();
    if !fresh.is_empty() {
        let rows = fresh.iter().map(|task| NewRow::of(task)).collect::<Result<Vec<_>, _>>()?;
        sqlx::query(include_str!("sql/insert_tasks.sql"))
            .bind(to_text(&rows)?)
            .bind(micros(now))
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
    }
    let requests = fresh.iter().filter_map(|task| Some((task.client_request_id.as_deref()?, task.id.0)));
    use_client_requests(connection, "task", requests).await?;
    Ok(created)
}

/// The task as its row will be.
fn written(task: NewTask, now: DateTime<Utc>) -> Result<Task, StoreError> {
    let run_at = match task.due {
        Due::At(at) => instant(micros(at))?,
        Due::After(wait) => instant(micros_after(now, wait))?,
        Due::Now => now,
    };
    let fire = task.fire.map(|fire| FireOfTask { scheduled_at: whole_micros(fire.scheduled_at), ..fire });
    Ok(NewTask { fire, ..task }.into_task(run_at, now))
}

/// A task as `insert_tasks.sql` reads it.
struct NewRow<'a> {
    task: &'a Task,
    metadata: Option<String>,
    retry: Option<String>,
}

impl<'a> NewRow<'a> {
    fn of(task: &'a Task) -> Result<Self, StoreError> {
        Ok(Self { task, metadata: metadata_to_text(&task.metadata)?, retry: retry_to_text(&task.retry)? })
    }
}

impl Serialize for NewRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.task;
        let mut row = serializer.serialize_seq(Some(19))?;
        row.serialize_element(&Hex(task.id.0))?;
        row.serialize_element(task.topic.as_str())?;
        row.serialize_element(&task.priority)?;
        row.serialize_element(&micros(task.run_at))?;
        row.serialize_element(&task.timezone)?;
        row.serialize_element(task.payload.as_str())?;
        row.serialize_element(&self.metadata)?;
        for key in [OWNER_ID, TENANT_ID, CORRELATION_ID] {
            row.serialize_element(&task.metadata.get(key))?;
        }
        row.serialize_element(&task.client_request_id)?;
        row.serialize_element(&task.dedupe_key)?;
        row.serialize_element(&task.serial_key)?;
        row.serialize_element(&task.timeout_seconds)?;
        row.serialize_element(&self.retry)?;
        row.serialize_element(&task.fire.map(|fire| Hex(fire.schedule_id.0)))?;
        row.serialize_element(&task.fire.map(|fire| micros(fire.scheduled_at)))?;
        row.serialize_element(&task.retry_of.map(|id| Hex(id.0)))?;
        row.serialize_element(&task.rescheduled_from.map(|id| Hex(id.0)))?;
        row.end()
    }
}

/// Refuses clientRequestIds that were used before, or that stand here twice.
pub(super) async fn check_client_requests<'a>(
    connection: &mut SqliteConnection,
    requests: impl Iterator<Item = &'a str>,
) -> Result<(), StoreError> {
    let requests: Vec<&str> = requests.collect();
    if requests.is_empty() {
        return Ok(());
    }
    let used: Vec<String> = sqlx::query_scalar(include_str!("sql/used_client_requests.sql"))
        .bind(to_text(&requests)?)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let mut seen: HashSet<&str> = used.iter().map(String::as_str).collect();
    match requests.into_iter().find(|request| !seen.insert(request)) {
        Some(request) => Err(StoreError::ClientRequestIdInUse(request.to_owned())),
        None => Ok(()),
    }
}

/// Takes clientRequestIds for what they made, a `task` or a `schedule`.
pub(super) async fn use_client_requests(
    connection: &mut SqliteConnection,
    made: &'static str,
    requests: impl Iterator<Item = (&str, Uuid)>,
) -> Result<(), StoreError> {
    let requests: Vec<_> = requests.map(|(request, id)| (request, Hex(id))).collect();
    if requests.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/use_client_requests.sql"))
        .bind(to_text(&requests)?)
        .bind(made)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}

/// The live tasks that hold the dedupe keys of `tasks`.
async fn living_by_key(
    connection: &mut SqliteConnection,
    tasks: &[NewTask],
) -> Result<HashMap<(String, String), Task>, StoreError> {
    let keys: HashSet<_> =
        tasks.iter().filter_map(|task| Some((task.topic.as_str(), task.dedupe_key.as_deref()?))).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let living = sqlx::query(include_str!("sql/living_by_key.sql"))
        .bind(to_text(&keys)?)
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
