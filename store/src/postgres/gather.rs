//! Writes that come at the same time become one: callers that each bring a few tasks wait for the same commit.
//!
//! Nobody waits for a batch to fill. What comes first is written at once; what comes meanwhile goes out together when
//! that is done. Only plain tasks gather: with no key among them none can be refused, so no caller's write can fail
//! because of another's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::StoreError;
use punctual_domain::task::{Due, NewTask, Task};
use sqlx::postgres::PgConnection;
use tokio::sync::oneshot;

use super::kept::{Connections, Held, Kept};
use super::{broken, micros};
use crate::claimed::Holder;
use crate::instant::{bounded, micros_after};

/// Calls with more tasks than this go by themselves: they are a batch already.
const FEW: usize = 100;
/// The most tasks in one write.
const BATCH: usize = 1_000;
/// How many writes may be under way at a time, and how many waiting tasks make a second one worth it.
const WRITES: usize = 2;
const WORTH_ANOTHER: usize = 50;

/// Where writes gather.
pub(super) struct Gather {
    connections: Connections,
    kept: Kept,
    clock: Option<Arc<dyn Clock>>,
    deadline: Duration,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    waiting: Vec<Call>,
    tasks: usize,
    writers: usize,
}

/// A caller that waits for its commit.
struct Call {
    tasks: Vec<NewTask>,
    /// Who has claimed them by being written; nobody for tasks that wait.
    holder: Option<Holder>,
    answer: oneshot::Sender<Result<Vec<Task>, StoreError>>,
}

impl Gather {
    pub(super) fn new(connections: Connections, clock: Option<Arc<dyn Clock>>, deadline: Duration) -> Arc<Self> {
        Arc::new(Self { connections, kept: Kept::default(), clock, deadline, line: Mutex::default() })
    }

    /// Lets go of the connections in good order.
    pub(super) async fn close(&self) {
        self.kept.close().await;
    }

    /// Writes plain tasks, together with whoever else comes now; answers once they are committed. Those of a holder are
    /// due now, and claimed by it.
    pub(super) async fn write(
        self: &Arc<Self>,
        tasks: Vec<NewTask>,
        holder: Option<Holder>,
    ) -> Result<Vec<Task>, StoreError> {
        if tasks.len() > FEW {
            return self.commit(tasks, holder).await;
        }
        let (answer, answered) = oneshot::channel();
        if self.stand_in_line(Call { tasks, holder, answer }) {
            // In a task of its own: a caller that goes away leaves the others their writer.
            tokio::spawn(Arc::clone(self).write_waiting());
        }
        match tokio::time::timeout(self.deadline, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(StoreError::Unavailable("the writer is gone".into()))),
            Err(_) => Err(StoreError::Unavailable(format!("no answer within {:?}", self.deadline))),
        }
    }

    /// Whether the caller has to bring a writer along.
    fn stand_in_line(&self, call: Call) -> bool {
        let mut line = self.line.lock().expect("nobody panics with the line");
        line.tasks += call.tasks.len();
        line.waiting.push(call);
        let is_needed = line.writers == 0 || line.writers < WRITES && line.tasks >= WORTH_ANOTHER;
        line.writers += usize::from(is_needed);
        is_needed
    }

    /// The next batch, all of one holder or of none; with none in it, the writer has left.
    fn next_batch(&self) -> Vec<Call> {
        let mut line = self.line.lock().expect("nobody panics with the line");
        // Who has gone does not want it any more.
        line.waiting.retain(|call| !call.answer.is_closed());
        line.tasks = line.waiting.iter().map(|call| call.tasks.len()).sum();
        let holder = line.waiting.first().and_then(|call| call.holder);
        let mut tasks = 0;
        let batch: Vec<_> = line
            .waiting
            .extract_if(.., |call| {
                let is_next = call.holder == holder && tasks + call.tasks.len() <= BATCH;
                tasks += if is_next { call.tasks.len() } else { 0 };
                is_next
            })
            .collect();
        line.tasks -= batch.iter().map(|call| call.tasks.len()).sum::<usize>();
        line.writers -= usize::from(batch.is_empty());
        batch
    }

    async fn write_waiting(self: Arc<Self>) {
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            let holder = batch.first().and_then(|call| call.holder);
            let mut tasks = Vec::new();
            let mut callers = Vec::with_capacity(batch.len());
            for call in batch {
                callers.push((call.answer, call.tasks.len()));
                tasks.extend(call.tasks);
            }
            let mut written = self.commit(tasks, holder).await.map(Vec::into_iter);
            for (caller, size) in callers {
                let answer = match &mut written {
                    Ok(created) => Ok(created.by_ref().take(size).collect()),
                    Err(error) => Err(error.clone()),
                };
                // A caller that went away does not want to know.
                let _ = caller.send(answer);
            }
        }
    }

    /// Writes tasks in one statement, which is its own transaction.
    async fn commit(&self, tasks: Vec<NewTask>, holder: Option<Holder>) -> Result<Vec<Task>, StoreError> {
        let now = self.clock.as_ref().map(|clock| clock.now());
        let writing = async {
            let mut held = Held::kept(&self.kept, &self.connections).await?;
            let written = match holder {
                Some(holder) => insert_claimed(&mut held, &tasks, holder, now).await,
                None => insert(&mut held, &tasks, now).await,
            };
            held.give_back(written).await
        };
        let written = tokio::time::timeout(self.deadline, writing).await;
        let now = written
            .unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {:?}", self.deadline))))?;
        let written = tasks.into_iter().map(|task| {
            let run_at = match task.due {
                Due::At(at) => bounded(at),
                Due::Now => now,
                Due::After(delay) => DateTime::from_timestamp_micros(micros_after(now, delay)).unwrap_or(now),
            };
            let task = task.into_task(run_at, now);
            match holder {
                Some(holder) => holder.claim(task, now),
                None => Ok(task),
            }
        });
        written.collect()
    }
}

async fn insert(
    connection: &mut PgConnection,
    tasks: &[NewTask],
    now: Option<DateTime<Utc>>,
) -> Result<DateTime<Utc>, StoreError> {
    if let [first, others @ ..] = tasks
        && others.iter().all(|task| is_alike(first, task))
    {
        return insert_alike(connection, tasks, first, now).await;
    }
    sqlx::query_scalar(include_str!("sql/insert_plain_tasks.sql"))
        .bind(now)
        .bind(column(tasks, |t| t.id.0))
        .bind(column(tasks, |t| t.topic.as_str()))
        .bind(column(tasks, |t| t.priority))
        .bind(column(tasks, |t| due_at(t.due)))
        .bind(column(tasks, |t| due_after(t.due)))
        .bind(column(tasks, |t| t.timezone.as_str()))
        .bind(column(tasks, |t| t.payload.as_str()))
        .bind(column(tasks, |t| t.timeout_seconds as i32))
        .fetch_one(connection)
        .await
        .map_err(broken)
}

/// Whether two tasks differ in their ids and payloads at the most.
fn is_alike(one: &NewTask, other: &NewTask) -> bool {
    one.topic == other.topic
        && one.priority == other.priority
        && one.due == other.due
        && one.timezone == other.timezone
        && one.timeout_seconds == other.timeout_seconds
}

async fn insert_alike(
    connection: &mut PgConnection,
    tasks: &[NewTask],
    first: &NewTask,
    now: Option<DateTime<Utc>>,
) -> Result<DateTime<Utc>, StoreError> {
    sqlx::query_scalar(include_str!("sql/insert_alike_tasks.sql"))
        .bind(now)
        .bind(column(tasks, |t| t.id.0))
        .bind(first.topic.as_str())
        .bind(first.priority)
        .bind(due_at(first.due))
        .bind(due_after(first.due))
        .bind(first.timezone.as_str())
        .bind(column(tasks, |t| t.payload.as_str()))
        .bind(first.timeout_seconds as i32)
        .fetch_one(connection)
        .await
        .map_err(broken)
}

/// The instant that a task is due at, if it says one.
fn due_at(due: Due) -> Option<DateTime<Utc>> {
    match due {
        Due::At(at) => Some(bounded(at)),
        Due::After(_) | Due::Now => None,
    }
}

/// How many microseconds after it is written a task is due, if it says so.
fn due_after(due: Due) -> i64 {
    match due {
        Due::After(delay) => micros(delay),
        Due::At(_) | Due::Now => 0,
    }
}

/// Writes tasks that are due now, each claimed by the holder.
async fn insert_claimed(
    connection: &mut PgConnection,
    tasks: &[NewTask],
    holder: Holder,
    now: Option<DateTime<Utc>>,
) -> Result<DateTime<Utc>, StoreError> {
    sqlx::query_scalar(include_str!("sql/insert_claimed_tasks.sql"))
        .bind(now)
        .bind(holder.node.0)
        .bind(micros(holder.lease))
        .bind(column(tasks, |t| t.id.0))
        .bind(column(tasks, |t| t.topic.as_str()))
        .bind(column(tasks, |t| t.priority))
        .bind(column(tasks, |t| t.timezone.as_str()))
        .bind(column(tasks, |t| t.payload.as_str()))
        .bind(column(tasks, |t| t.timeout_seconds as i32))
        .fetch_one(connection)
        .await
        .map_err(broken)
}

fn column<'t, T>(tasks: &'t [NewTask], read: impl Fn(&'t NewTask) -> T) -> Vec<T> {
    tasks.iter().map(read).collect()
}
