//! Settling: outcomes become fenced statements: one for tasks that completed at their first claim, one for those that
//! ended otherwise or have a result, one for those that go on.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::json::Json;
use punctual_domain::store::{Settled, Settling, StoreError};
use punctual_domain::task::{AttemptOutcome, Settlement, TaskStatus};
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

use super::{broken, micros, rows};

/// An attempt, by its task and epoch.
type AttemptKey = (TaskId, Epoch);

/// The epoch of a task's first claim.
const FIRST: Epoch = Epoch(1);

pub(super) async fn settle(
    connection: &mut PgConnection,
    settlings: &[Settling],
    now: Option<DateTime<Utc>>,
) -> Result<Vec<Settled>, StoreError> {
    let mut first: Vec<_> = settlings.iter().collect();
    first.sort_by_key(|settling| key(settling));
    // The first of several for one attempt counts; the others are answered as if they came later.
    first.dedup_by_key(|settling| key(settling));
    let is_each_once = first.len() == settlings.len();
    let (ended, kept): (Vec<_>, Vec<_>) = first.into_iter().partition(|s| s.settlement.status().has_ended());
    let (completed, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(|settling| is_plain(settling));

    let written = [
        write_completed(connection, &completed, now).await?,
        write_ended(connection, &ended, now).await?,
        write_kept(connection, &kept, now).await?,
    ];
    if is_each_once && written.iter().all(|written| matches!(written, Written::All)) {
        return Ok(vec![Settled::Now; settlings.len()]);
    }
    let mut settled = HashSet::new();
    for (written, asked) in written.into_iter().zip([completed, ended, kept]) {
        match written {
            Written::All => settled.extend(asked.into_iter().map(key)),
            Written::Only(which) => settled.extend(which),
        }
    }
    answer_each(connection, settlings, settled).await
}

/// Has the connection plan what it will do most.
pub(super) async fn warm_up(connection: &mut PgConnection, now: Option<DateTime<Utc>>) -> Result<(), StoreError> {
    end_completed(connection, Vec::new(), now).await.map(drop)
}

/// Whether a task completed at its first claim with nothing to show, as most do.
fn is_plain(settling: &Settling) -> bool {
    settling.epoch == FIRST && settling.settlement == Settlement::Completed { result: None }
}

fn key(settling: &Settling) -> AttemptKey {
    (settling.task_id, settling.epoch)
}

/// What was settled of what was asked for.
enum Written {
    All,
    Only(Vec<AttemptKey>),
}

async fn write_completed(
    connection: &mut PgConnection,
    completed: &[&Settling],
    now: Option<DateTime<Utc>>,
) -> Result<Written, StoreError> {
    if completed.is_empty() {
        return Ok(Written::All);
    }
    let row = end_completed(connection, column(completed, |s| s.task_id.0), now).await?;
    let mut columns = rows::Columns::of(&row);
    if columns.take_count()? == completed.len() as u64 {
        return Ok(Written::All);
    }
    let ids: Option<Vec<Uuid>> = columns.take()?;
    Ok(Written::Only(ids.into_iter().flatten().map(|id| (TaskId(id), FIRST)).collect()))
}

async fn end_completed(
    connection: &mut PgConnection,
    ids: Vec<Uuid>,
    now: Option<DateTime<Utc>>,
) -> Result<PgRow, StoreError> {
    sqlx::query(include_str!("sql/settle_completed.sql"))
        .bind(now)
        .bind(ids)
        .fetch_one(connection)
        .await
        .map_err(broken)
}

async fn write_ended(
    connection: &mut PgConnection,
    ended: &[&Settling],
    now: Option<DateTime<Utc>>,
) -> Result<Written, StoreError> {
    if ended.is_empty() {
        return Ok(Written::All);
    }
    let row = sqlx::query(include_str!("sql/settle_ended.sql"))
        .bind(now)
        .bind(column(ended, |s| s.task_id.0))
        .bind(column(ended, |s| s.epoch.0))
        .bind(column(ended, |s| s.settlement.status().as_str()))
        .bind(column(ended, |s| s.settlement.outcome().as_str()))
        .bind(column(ended, |s| s.settlement.result().map(Json::as_str)))
        .bind(column(ended, |s| s.settlement.error()))
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    let mut columns = rows::Columns::of(&row);
    if columns.take_count()? == ended.len() as u64 {
        return Ok(Written::All);
    }
    let (ids, epochs): (Option<Vec<Uuid>>, Option<Vec<i64>>) = (columns.take()?, columns.take()?);
    let which = ids.into_iter().flatten().map(TaskId).zip(epochs.into_iter().flatten().map(Epoch)).collect();
    Ok(Written::Only(which))
}

async fn write_kept(
    connection: &mut PgConnection,
    kept: &[&Settling],
    now: Option<DateTime<Utc>>,
) -> Result<Written, StoreError> {
    if kept.is_empty() {
        return Ok(Written::All);
    }
    let found = sqlx::query(include_str!("sql/settle_kept.sql"))
        .bind(now)
        .bind(column(kept, |s| s.task_id.0))
        .bind(column(kept, |s| s.epoch.0))
        .bind(column(kept, |s| s.settlement.outcome().as_str()))
        .bind(column(kept, |s| s.settlement.delay().map(micros)))
        .bind(column(kept, |s| s.settlement.error()))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let which = found
        .iter()
        .map(|row| {
            let mut columns = rows::Columns::of(row);
            Ok((TaskId(columns.take()?), Epoch(columns.take()?)))
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(if which.len() == kept.len() { Written::All } else { Written::Only(which) })
}

/// Tells those that were settled from those that were settled before, and those that lost their lease.
async fn answer_each(
    connection: &mut PgConnection,
    settlings: &[Settling],
    mut settled: HashSet<AttemptKey>,
) -> Result<Vec<Settled>, StoreError> {
    let mut answers = Vec::with_capacity(settlings.len());
    let mut late = Vec::new();
    for settling in settlings {
        if settled.remove(&key(settling)) {
            answers.push(Settled::Now);
        } else {
            late.push(answers.len());
            answers.push(Settled::LeaseLost);
        }
    }
    let before = settled_before(connection, late.iter().map(|i| settlings[*i].task_id)).await?;
    for i in late {
        let Settling { settlement, .. } = &settlings[i];
        if before.get(&key(&settlings[i])) == Some(&(settlement.status(), settlement.outcome())) {
            answers[i] = Settled::Before;
        }
    }
    Ok(answers)
}

fn column<'s, T>(settlings: &[&'s Settling], read: impl Fn(&'s Settling) -> T) -> Vec<T> {
    settlings.iter().map(|settling| read(settling)).collect()
}

type Before = HashMap<AttemptKey, (TaskStatus, AttemptOutcome)>;

async fn settled_before(
    connection: &mut PgConnection,
    tasks: impl Iterator<Item = TaskId>,
) -> Result<Before, StoreError> {
    let found = sqlx::query(include_str!("sql/settled_before.sql"))
        .bind(tasks.map(|id| id.0).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found
        .iter()
        .map(|row| {
            let mut columns = rows::Columns::of(row);
            let attempt = (TaskId(columns.take()?), Epoch(columns.take()?));
            let status = rows::word(columns.take()?, TaskStatus::from_name)?;
            Ok((attempt, (status, rows::word(columns.take()?, AttemptOutcome::from_name)?)))
        })
        .collect()
}
