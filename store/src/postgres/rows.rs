//! Rows become domain types here, and nowhere else.

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::lease::Lease;
use punctual_domain::store::{Retry, StoreError};
use punctual_domain::task::{AttemptOutcome, AttemptRecord, FireOfTask, Task, TaskStatus};
use punctual_domain::topic::Topic;
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};
use uuid::Uuid;

use super::broken;
use crate::claimed::{Claimed, Holder};
use crate::text::{metadata_from_text, retry_from_text};

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'r> {
    row: &'r PgRow,
    next: usize,
}

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r PgRow) -> Self {
        Self { row, next: 0 }
    }

    /// The next column.
    pub(super) fn take<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Result<T, StoreError> {
        let column = self.next;
        self.next += 1;
        self.row.try_get(column).map_err(broken)
    }

    /// The next column, which counts something.
    pub(super) fn take_count(&mut self) -> Result<u64, StoreError> {
        let count: i64 = self.take()?;
        u64::try_from(count).map_err(|_| StoreError::Broken(format!("{count} is not a count")))
    }

    /// The next column, which counts something small.
    pub(super) fn take_small(&mut self) -> Result<u32, StoreError> {
        let count: i32 = self.take()?;
        u32::try_from(count).map_err(|_| StoreError::Broken(format!("{count} is not a count")))
    }
}

/// One of our own words that a column holds.
pub(super) fn word<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    read(text).ok_or_else(|| StoreError::Broken(format!("{text:?} is not a word we know")))
}

/// A row of `live_tasks.sql` or `ended_tasks.sql`.
pub(super) fn task(row: &PgRow) -> Result<Task, StoreError> {
    let mut columns = Columns::of(row);
    let id = TaskId(columns.take()?);
    let topic = Topic::from_stored(columns.take::<&str>()?);
    let status = word(columns.take()?, TaskStatus::from_name)?;
    let run_at = columns.take()?;
    let timezone = columns.take()?;
    let payload = Json::from_stored(columns.take::<&str>()?);
    let metadata = metadata_from_text(columns.take()?)?;
    let client_request_id = columns.take()?;
    let dedupe_key = columns.take()?;
    let serial_key = columns.take()?;
    let priority = columns.take()?;
    let timeout_seconds = columns.take_small()?;
    let retry = retry_from_text(columns.take()?)?;
    let attempt = columns.take_small()?;
    let lost = columns.take_small()?;
    let snoozes = columns.take_small()?;
    let epoch = Epoch(columns.take()?);
    let owner: Option<Uuid> = columns.take()?;
    let expires_at = columns.take()?;
    let result = columns.take::<Option<&str>>()?.map(Json::from_stored);
    let error = columns.take()?;
    let schedule_id: Option<Uuid> = columns.take()?;
    let scheduled_at: Option<DateTime<Utc>> = columns.take()?;
    let fire = schedule_id
        .zip(scheduled_at)
        .map(|(id, scheduled_at)| FireOfTask { schedule_id: ScheduleId(id), scheduled_at });
    Ok(Task {
        id,
        topic,
        status,
        run_at,
        timezone,
        payload,
        metadata,
        client_request_id,
        dedupe_key,
        serial_key,
        priority,
        timeout_seconds,
        retry,
        attempt,
        lost,
        snoozes,
        epoch,
        lease: owner.map(|owner| Lease { owner: NodeId(owner), epoch, expires_at }),
        result,
        error,
        fire,
        retry_of: columns.take::<Option<Uuid>>()?.map(TaskId),
        rescheduled_from: columns.take::<Option<Uuid>>()?.map(TaskId),
        created_at: columns.take()?,
        started_at: columns.take()?,
        completed_at: columns.take()?,
    })
}

/// A row of `claim.sql`, or, with its topic, of `claim_topic.sql`.
pub(super) fn claimed(row: &PgRow, holder: Holder, topic: Option<&Topic>) -> Result<Task, StoreError> {
    let mut columns = Columns::of(row);
    let id = TaskId(columns.take()?);
    let topic = match topic {
        Some(topic) => topic.clone(),
        None => Topic::from_stored(columns.take::<&str>()?),
    };
    let claimed = Claimed {
        id,
        topic,
        run_at: columns.take()?,
        payload: Json::from_stored(columns.take::<&str>()?),
        created_at: columns.take()?,
        started_at: columns.take()?,
    };
    claimed.into_task(holder, columns.take()?)
}

/// A row of `retries_of.sql`.
pub(super) fn retry(row: &PgRow) -> Result<Retry, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Retry {
        id: TaskId(columns.take()?),
        status: word(columns.take()?, TaskStatus::from_name)?,
        created_at: columns.take()?,
    })
}

/// A row of `attempts.sql`.
pub(super) fn attempt(row: &PgRow) -> Result<AttemptRecord, StoreError> {
    let mut columns = Columns::of(row);
    Ok(AttemptRecord {
        number: columns.take_small()?,
        node_id: NodeId(columns.take()?),
        epoch: Epoch(columns.take()?),
        started_at: columns.take()?,
        ended_at: columns.take()?,
        outcome: columns.take::<Option<&str>>()?.map(|outcome| word(outcome, AttemptOutcome::from_name)).transpose()?,
        error: columns.take()?,
    })
}
