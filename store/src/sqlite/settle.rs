//! Settling: outcomes become a few fenced statements, however many there are.
//!
//! SQLite cannot change two tables in one statement. So an end is a copy to the history, guarded by id, epoch and
//! status, followed by the removal of what was copied, inside the writer's transaction. Cancelling and expiring end
//! tasks by the same statements.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::store::{Expired, Settled, Settling, StoreError};
use punctual_domain::task::{AttemptOutcome, LOST_TOO_OFTEN, TaskStatus};
use sqlx::sqlite::SqliteConnection;

use super::rows::{Columns, Hex, micros, micros_after};
use super::{broken, hand_overs};
use crate::progress::ByTopic;
use crate::text::to_text;

/// An attempt of a task.
type OfTask = (TaskId, Epoch);

/// Settles running tasks, each by its epoch; answers in the order given.
pub(super) async fn settle(
    connection: &mut SqliteConnection,
    settlings: &[Settling],
    now: DateTime<Utc>,
) -> Result<Vec<Settled>, StoreError> {
    // The first of several for one attempt counts; the others are answered as if they came later.
    let mut seen = HashSet::with_capacity(settlings.len());
    let first = settlings.iter().filter(|settling| seen.insert((settling.task_id, settling.epoch)));
    let (ending, waiting) = sort(first, now);
    let mut settled = end(connection, &ending, now).await?;
    settled.extend(wait_again(connection, &waiting, now).await?);

    let mut answers = Vec::with_capacity(settlings.len());
    let mut late = Vec::new();
    for (i, settling) in settlings.iter().enumerate() {
        if settled.remove(&(settling.task_id, settling.epoch)) {
            answers.push(Settled::Now);
        } else {
            late.push(i);
            answers.push(Settled::LeaseLost);
        }
    }
    if !late.is_empty() {
        let before = settled_before(connection, late.iter().map(|i| &settlings[*i])).await?;
        for i in late {
            let Settling { task_id, epoch, settlement } = &settlings[i];
            if before.contains(&(*task_id, *epoch, settlement.status(), settlement.outcome())) {
                answers[i] = Settled::Before;
            }
        }
    }
    Ok(answers)
}

/// Cancels live tasks, running or not; answers how many there were. Their jobs are to be looked after by whoever follows queues.
pub(crate) async fn cancel(
    connection: &mut SqliteConnection,
    ids: &[TaskId],
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    hand_overs::withdraw(connection, ids, now).await?;
    let ending: Vec<_> = ids
        .iter()
        .map(|id| Ending {
            task_id: *id,
            epoch: None,
            status: TaskStatus::Cancelled,
            outcome: AttemptOutcome::Cancelled,
            result: None,
            error: None,
        })
        .collect();
    Ok(end(connection, &ending, now).await?.len() as u64)
}

/// Frees running tasks whose lease has expired, or fails them on the loss number `max_lost`.
pub(super) async fn expire(
    connection: &mut SqliteConnection,
    max_lost: u32,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Expired, StoreError> {
    let expired = sqlx::query(include_str!("sql/expired.sql"))
        .bind(micros(now))
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let outcome = AttemptOutcome::Lost;
    let (mut ending, mut waiting) = (Vec::new(), Vec::new());
    for row in &expired {
        let mut columns = Columns::of(row);
        let (task_id, epoch) = (TaskId(columns.take()?), Epoch(columns.take()?));
        if columns.take_count::<u32>()? >= max_lost {
            let (status, error) = (TaskStatus::Failed, Some(LOST_TOO_OFTEN));
            ending.push(Ending { task_id, epoch: Some(epoch), status, outcome, result: None, error });
        } else {
            waiting.push(Waiting { task_id, epoch, outcome, error: None, run_at: None });
        }
    }
    let failed: Vec<_> = end(connection, &ending, now).await?.into_iter().map(|(id, _)| id).collect();
    let freed = wait_again(connection, &waiting, now).await?.len() as u64;
    let by_topic = by_topic(connection, &failed).await?.into();
    Ok(Expired { freed, failed: failed.len() as u64, by_topic })
}

/// How many of these ended tasks there are of each topic and origin.
pub(super) async fn by_topic(connection: &mut SqliteConnection, ids: &[TaskId]) -> Result<ByTopic, StoreError> {
    let mut by_topic = ByTopic::default();
    if ids.is_empty() {
        return Ok(by_topic);
    }
    let found = sqlx::query(include_str!("sql/topics_of_ended.sql"))
        .bind(to_text(&ids.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    for row in &found {
        let mut columns = Columns::of(row);
        by_topic.add(columns.take()?, columns.take()?, columns.take_count()?);
    }
    Ok(by_topic)
}

/// A live task that ends.
struct Ending<'a> {
    task_id: TaskId,
    /// The epoch it must run by; `None` ends it whether or not it runs.
    epoch: Option<Epoch>,
    status: TaskStatus,
    outcome: AttemptOutcome,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

/// A running task that becomes pending again.
struct Waiting<'a> {
    task_id: TaskId,
    epoch: Epoch,
    outcome: AttemptOutcome,
    error: Option<&'a str>,
    /// When it is due, unless at the instant it had.
    run_at: Option<i64>,
}

fn sort<'a>(settlings: impl Iterator<Item = &'a Settling>, now: DateTime<Utc>) -> (Vec<Ending<'a>>, Vec<Waiting<'a>>) {
    let (mut ending, mut waiting) = (Vec::new(), Vec::new());
    for Settling { task_id, epoch, settlement } in settlings {
        let (task_id, epoch, outcome, error) = (*task_id, *epoch, settlement.outcome(), settlement.error());
        let status = settlement.status();
        if status.has_ended() {
            let result = settlement.result().map(|result| result.as_str());
            ending.push(Ending { task_id, epoch: Some(epoch), status, outcome, result, error });
        } else {
            let run_at = settlement.delay().map(|delay| micros_after(now, delay));
            waiting.push(Waiting { task_id, epoch, outcome, error, run_at });
        }
    }
    (ending, waiting)
}

/// Ends what is still live, or still runs by its epoch; answers what was ended.
async fn end(
    connection: &mut SqliteConnection,
    ending: &[Ending<'_>],
    now: DateTime<Utc>,
) -> Result<HashSet<OfTask>, StoreError> {
    if ending.is_empty() {
        return Ok(HashSet::new());
    }
    let rows: Vec<_> = ending
        .iter()
        .map(|end| {
            let epoch = end.epoch.map(|epoch| epoch.0);
            (Hex(end.task_id.0), epoch, end.status.as_str(), end.outcome.as_str(), end.result, end.error)
        })
        .collect();
    let copied = sqlx::query(include_str!("sql/end_tasks.sql"))
        .bind(to_text(&rows)?)
        .bind(micros(now))
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let mut ended = HashMap::with_capacity(copied.len());
    for row in &copied {
        let mut columns = Columns::of(row);
        ended.insert(TaskId(columns.take()?), (Epoch(columns.take()?), columns.take_count::<u32>()?));
    }
    let notes: Vec<_> = ending
        .iter()
        .filter(|end| ended.get(&end.task_id).is_some_and(|(_, attempt)| end.needs_a_note(*attempt)))
        .map(|end| (Hex(end.task_id.0), end.epoch.map(|epoch| epoch.0), end.outcome.as_str(), end.error))
        .collect();
    note_attempts(connection, &notes, now).await?;
    if !ended.is_empty() {
        sqlx::query(include_str!("sql/delete_tasks.sql"))
            .bind(to_text(&ended.keys().map(|id| Hex(id.0)).collect::<Vec<_>>())?)
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(ended.into_iter().map(|(id, (epoch, _))| (id, epoch)).collect())
}

impl Ending<'_> {
    /// A success at the first try stands in the history row alone; a task never attempted has nothing to note.
    fn needs_a_note(&self, attempt: u32) -> bool {
        attempt > 1 || (attempt == 1 && self.outcome != AttemptOutcome::Completed)
    }
}

/// Makes tasks pending again that still run by their epoch; answers which.
async fn wait_again(
    connection: &mut SqliteConnection,
    waiting: &[Waiting<'_>],
    now: DateTime<Utc>,
) -> Result<HashSet<OfTask>, StoreError> {
    let notes: Vec<_> = waiting
        .iter()
        .map(|wait| (Hex(wait.task_id.0), Some(wait.epoch.0), wait.outcome.as_str(), wait.error))
        .collect();
    let noted = note_attempts(connection, &notes, now).await?;
    let rows: Vec<_> = waiting
        .iter()
        .filter(|wait| noted.contains(&(wait.task_id, wait.epoch)))
        .map(|wait| (Hex(wait.task_id.0), wait.epoch.0, wait.outcome.as_str(), wait.error, wait.run_at))
        .collect();
    if !rows.is_empty() {
        sqlx::query(include_str!("sql/requeue.sql")).bind(to_text(&rows)?).execute(connection).await.map_err(broken)?;
    }
    Ok(noted)
}

async fn note_attempts(
    connection: &mut SqliteConnection,
    notes: &[(Hex, Option<i64>, &str, Option<&str>)],
    now: DateTime<Utc>,
) -> Result<HashSet<OfTask>, StoreError> {
    if notes.is_empty() {
        return Ok(HashSet::new());
    }
    let noted = sqlx::query(include_str!("sql/note_attempts.sql"))
        .bind(to_text(&notes)?)
        .bind(micros(now))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    noted
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((TaskId(columns.take()?), Epoch(columns.take()?)))
        })
        .collect()
}

async fn settled_before(
    connection: &mut SqliteConnection,
    settlings: impl Iterator<Item = &Settling>,
) -> Result<HashSet<(TaskId, Epoch, TaskStatus, AttemptOutcome)>, StoreError> {
    let rows: Vec<_> = settlings.map(|settling| (Hex(settling.task_id.0), settling.epoch.0)).collect();
    let found = sqlx::query(include_str!("sql/settled_before.sql"))
        .bind(to_text(&rows)?)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((
                TaskId(columns.take()?),
                Epoch(columns.take()?),
                columns.take_word(TaskStatus::from_name)?,
                columns.take_word(AttemptOutcome::from_name)?,
            ))
        })
        .collect()
}
