//! Settling: outcomes become one fenced statement.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::store::{Settled, Settling, StoreError};
use punctual_domain::task::{AttemptOutcome, TaskStatus};
use sqlx::postgres::PgConnection;

use super::{broken, micros, rows};

pub(super) async fn settle(
    connection: &mut PgConnection,
    settlings: &[Settling],
    now: Option<DateTime<Utc>>,
) -> Result<Vec<Settled>, StoreError> {
    // The first of several for one attempt counts; the others are answered as if they came later.
    let mut seen = HashSet::new();
    let first: Vec<_> = settlings.iter().filter(|settling| seen.insert((settling.task_id, settling.epoch))).collect();
    let mut settled = write(connection, &first, now).await?;

    let mut answers = Vec::with_capacity(settlings.len());
    let mut late = Vec::new();
    for settling in settlings {
        if settled.remove(&(settling.task_id, settling.epoch)) {
            answers.push(Settled::Now);
        } else {
            late.push(answers.len());
            answers.push(Settled::LeaseLost);
        }
    }
    if !late.is_empty() {
        let before = settled_before(connection, late.iter().map(|i| settlings[*i].task_id)).await?;
        for i in late {
            let Settling { task_id, epoch, settlement } = &settlings[i];
            if before.get(&(*task_id, *epoch)) == Some(&(settlement.status(), settlement.outcome())) {
                answers[i] = Settled::Before;
            }
        }
    }
    Ok(answers)
}

async fn write(
    connection: &mut PgConnection,
    settlings: &[&Settling],
    now: Option<DateTime<Utc>>,
) -> Result<HashSet<(TaskId, Epoch)>, StoreError> {
    fn column<T>(settlings: &[&Settling], read: impl Fn(&Settling) -> T) -> Vec<T> {
        settlings.iter().map(|settling| read(settling)).collect()
    }
    let settled = sqlx::query(include_str!("sql/settle.sql"))
        .bind(now)
        .bind(column(settlings, |s| s.task_id.0))
        .bind(column(settlings, |s| s.epoch.0))
        .bind(column(settlings, |s| s.settlement.status().as_str()))
        .bind(column(settlings, |s| s.settlement.outcome().as_str()))
        .bind(column(settlings, |s| s.settlement.delay().map(micros)))
        .bind(column(settlings, |s| s.settlement.result().map(|result| result.as_str().to_owned())))
        .bind(column(settlings, |s| s.settlement.error().map(str::to_owned)))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    settled
        .iter()
        .map(|row| {
            let mut columns = rows::Columns::of(row);
            Ok((TaskId(columns.take()?), Epoch(columns.take()?)))
        })
        .collect()
}

type Before = HashMap<(TaskId, Epoch), (TaskStatus, AttemptOutcome)>;

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
