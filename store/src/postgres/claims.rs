//! Claiming due tasks, and keeping or losing their leases.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, NodeId, TaskId};
use punctual_domain::store::{ClaimRequest, Claims, Expired, Extension, Settled, Settling, StoreError, Suspects, Want};
use punctual_domain::task::{LOST_TOO_OFTEN, NewTask, Task};
use punctual_domain::topic::Topic;
use sqlx::postgres::{PgConnection, PgRow};
use tokio::sync::watch;

use super::kept::Held;
use super::pooler::{back_to_mark, mark};
use super::{PostgresStore, broken, micros, rows, settle, violates};
use crate::claimed::Holder;
use crate::instant::bounded;
use crate::progress::ByTopic;

/// How often a claim is tried that loses the race for a serial key.
const SERIAL_RACES: usize = 5;

#[async_trait]
impl Claims for PostgresStore {
    async fn warm_up(&self) {
        if self.connections.pooler.is_some() {
            return;
        }
        let nothing = ClaimRequest {
            node: NodeId::generate(),
            lease: Duration::ZERO,
            wants: vec![Want { topic: Topic::from_stored(""), slots: 0 }],
            suspects: Suspects::Any,
        };
        let claim = async {
            lend!(self.claiming, |connection| {
                claim_topic(connection, &nothing, &nothing.wants[0], self.now()).await.map(drop)
            })
        };
        let settle = async { lend!(self.settling, |connection| { settle::warm_up(connection, self.now()).await }) };
        // Whoever claims or settles next meets the same error.
        let _: (Result<(), StoreError>, Result<(), StoreError>) = tokio::join!(claim, settle);
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        let topics: Vec<_> = request.wants.iter().map(|want| want.topic.to_string()).collect();
        let slots: Vec<_> = request.wants.iter().map(|want| i32::try_from(want.slots).unwrap_or(i32::MAX)).collect();
        let suspects = match request.suspects {
            Suspects::Any => -1,
            Suspects::AtMost(most) => i32::try_from(most).unwrap_or(i32::MAX),
        };
        let _under_way = UnderWay::of(&self.claims);
        // The rows are read after the connection was given back: the next claim waits for it.
        let (claimed, topic) = lend!(self.claiming, |connection| {
            if let [want] = &request.wants[..] {
                let claimed = claim_topic(connection, request, want, self.now()).await?;
                if !claimed.is_empty() {
                    return Ok((claimed, Some(&want.topic)));
                }
            }
            for _ in 0..SERIAL_RACES {
                for without_serial in [false, true] {
                    mark(connection).await?;
                    let claimed = sqlx::query(include_str!("sql/claim.sql"))
                        .bind(self.now())
                        .bind(&topics)
                        .bind(&slots)
                        .bind(request.node.0)
                        .bind(micros(request.lease))
                        .bind(suspects)
                        .bind(without_serial)
                        .fetch_all(&mut *connection)
                        .await;
                    match claimed {
                        // All others are taken, or there are none: once more for the serial keys.
                        Ok(claimed) if claimed.is_empty() && without_serial => {}
                        Ok(claimed) => return Ok((claimed, None)),
                        // Another claimer began a task of the same serial key between our look and our write, and
                        // nothing was claimed. Whoever has no serial key must not wait for that race.
                        Err(error) if violates(&error, "punctual_tasks_serial_running") => {
                            back_to_mark(connection).await?;
                        }
                        Err(error) => return Err(broken(error)),
                    }
                }
            }
            Ok((Vec::new(), None))
        })?;
        in_order(&claimed, request.into(), topic)
    }

    async fn claim_new(&self, task: NewTask, node: NodeId, lease: Duration) -> Result<Task, StoreError> {
        let written = self.gather.write(vec![task], Some(Holder { node, lease })).await?.pop();
        written.ok_or_else(|| StoreError::Broken("a task was not written".into()))
    }

    async fn due_topics(&self, after: Option<&Topic>, limit: u32) -> Result<Vec<Topic>, StoreError> {
        lend!(self, |connection| {
            let names: Vec<String> = sqlx::query_scalar(include_str!("sql/due_topics.sql"))
                .bind(self.now())
                .bind(after.map_or("", Topic::as_str))
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            Ok(names.into_iter().map(Topic::from_stored).collect())
        })
    }

    async fn next_due_at(&self, after: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(include_str!("sql/next_due_at.sql"))
                .bind(bounded(after))
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn settle(&self, settlings: Vec<Settling>) -> Result<Vec<Settled>, StoreError> {
        lend!(@ self, self.for_settling(), |connection| {
            settle::settle(connection, &settlings, self.now()).await
        })
    }

    async fn extend(&self, held: &[Extension], lease: Duration) -> Result<Vec<Option<DateTime<Utc>>>, StoreError> {
        lend!(self, |connection| {
            let extended = sqlx::query(include_str!("sql/extend.sql"))
                .bind(self.now())
                .bind(held.iter().map(|lease| lease.task_id.0).collect::<Vec<_>>())
                .bind(held.iter().map(|lease| lease.epoch.0).collect::<Vec<_>>())
                .bind(micros(lease))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            let expiries = extended
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok(((TaskId(columns.take()?), Epoch(columns.take()?)), columns.take()?))
                })
                .collect::<Result<HashMap<_, _>, StoreError>>()?;
            Ok(held.iter().map(|lease| expiries.get(&(lease.task_id, lease.epoch)).copied()).collect())
        })
    }

    async fn expire(&self, max_lost: u32, limit: u32) -> Result<Expired, StoreError> {
        lend!(self, |connection| {
            let row = sqlx::query(include_str!("sql/expire.sql"))
                .bind(self.now())
                .bind(i32::try_from(max_lost).unwrap_or(i32::MAX))
                .bind(i64::from(limit))
                .bind(LOST_TOO_OFTEN)
                .fetch_one(connection)
                .await
                .map_err(broken)?;
            let mut columns = rows::Columns::of(&row);
            let (freed, failed) = (columns.take_count()?, columns.take_count()?);
            let by_topic = columns.take::<Option<&str>>()?.map(ByTopic::from_text).transpose()?.unwrap_or_default();
            Ok(Expired { freed, failed, by_topic: by_topic.into() })
        })
    }
}

impl PostgresStore {
    /// The connection for a write of outcomes, once it is free; while nothing is claimed, perhaps a second one. Beside a claim
    /// two writes are slower than one after the other; without one, a processor would have nothing to do.
    async fn for_settling(&self) -> Result<Held<'_>, StoreError> {
        let beside = async {
            UnderWay::none(&self.claims).await;
            self.settling_beside.place().await
        };
        let place = tokio::select! {
            biased;
            place = self.settling.place() => place,
            place = beside => place,
        };
        Held::at(place, &self.connections).await
    }
}

/// A claim under way, for as long as this lives.
struct UnderWay<'s>(&'s watch::Sender<usize>);

impl<'s> UnderWay<'s> {
    fn of(claims: &'s watch::Sender<usize>) -> Self {
        claims.send_modify(|claims| *claims += 1);
        Self(claims)
    }

    /// Returns when none is.
    async fn none(claims: &watch::Sender<usize>) {
        // It is we who keep the sender.
        let _ = claims.subscribe().wait_for(|claims| *claims == 0).await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|claims| *claims -= 1);
    }
}

/// A claim for one topic, as most are. Nothing is claimed if a task is due that lost an attempt, or another claimer began
/// one of the same serial key between our look and our write: then the whole statement decides.
async fn claim_topic(
    connection: &mut PgConnection,
    request: &ClaimRequest,
    want: &Want,
    now: Option<DateTime<Utc>>,
) -> Result<Vec<PgRow>, StoreError> {
    mark(connection).await?;
    let claimed = sqlx::query(include_str!("sql/claim_topic.sql"))
        .bind(now)
        .bind(want.topic.as_str())
        .bind(i64::from(want.slots))
        .bind(request.node.0)
        .bind(micros(request.lease))
        .fetch_all(&mut *connection)
        .await;
    match claimed {
        Err(error) if violates(&error, "punctual_tasks_serial_running") => {
            back_to_mark(connection).await?;
            Ok(Vec::new())
        }
        claimed => claimed.map_err(broken),
    }
}

/// The claimed tasks in the order of claims.
pub(super) fn in_order(claimed: &[PgRow], holder: Holder, topic: Option<&Topic>) -> Result<Vec<Task>, StoreError> {
    let mut tasks = Vec::with_capacity(claimed.len());
    for row in claimed {
        tasks.push(rows::claimed(row, holder, topic)?);
    }
    tasks.sort_unstable_by_key(|task| (-task.priority, task.run_at, task.id));
    Ok(tasks)
}
