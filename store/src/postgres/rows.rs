//! Rows become domain types here, and nowhere else.

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::lease::Lease;
use punctual_domain::store::StoreError;
use punctual_domain::task::{AttemptOutcome, AttemptRecord, DEFAULT_TIMEOUT_SECONDS, FireOfTask, Task, TaskStatus};
use punctual_domain::topic::Topic;
use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};
use uuid::Uuid;

use super::broken;
use crate::text::{from_text, metadata_from_text, retry_from_text};

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

/// A row of `claim.sql`.
pub(super) fn claimed(row: &PgRow, owner: NodeId) -> Result<Task, StoreError> {
    let mut columns = Columns::of(row);
    let id = TaskId(columns.take()?);
    let topic = Topic::from_stored(columns.take::<&str>()?);
    let run_at = columns.take()?;
    let payload = Json::from_stored(columns.take::<&str>()?);
    let priority = columns.take()?;
    let attempt = columns.take_small()?;
    let lost = columns.take_small()?;
    let epoch = Epoch(columns.take()?);
    let created_at = columns.take()?;
    let started_at = columns.take()?;
    let expires_at = columns.take()?;
    let rare: Rare = match columns.take::<Option<&str>>()? {
        Some(text) => from_text("a claimed task", text)?,
        None => Rare::default(),
    };
    Ok(Task {
        id,
        topic,
        status: TaskStatus::Running,
        run_at,
        timezone: rare.timezone,
        payload,
        metadata: metadata_from_text(rare.metadata.as_deref())?,
        client_request_id: rare.client_request_id,
        dedupe_key: rare.dedupe_key,
        serial_key: rare.serial_key,
        priority,
        timeout_seconds: rare.timeout_seconds,
        retry: retry_from_text(rare.retry.as_deref())?,
        attempt,
        lost,
        snoozes: rare.snoozes,
        epoch,
        lease: Some(Lease { owner, epoch, expires_at }),
        result: None,
        error: rare.error,
        fire: rare.schedule_id.zip(rare.scheduled_at_us).map(|(id, micros)| FireOfTask {
            schedule_id: ScheduleId(id),
            scheduled_at: DateTime::from_timestamp_micros(micros).unwrap_or_default(),
        }),
        retry_of: rare.retry_of.map(TaskId),
        rescheduled_from: rare.rescheduled_from.map(TaskId),
        created_at,
        started_at,
        completed_at: None,
    })
}

/// The last column of `claim.sql`, in its order.
#[derive(Deserialize)]
struct Rare {
    timezone: String,
    timeout_seconds: u32,
    snoozes: u32,
    metadata: Option<String>,
    client_request_id: Option<String>,
    dedupe_key: Option<String>,
    serial_key: Option<String>,
    retry: Option<String>,
    error: Option<String>,
    schedule_id: Option<Uuid>,
    scheduled_at_us: Option<i64>,
    retry_of: Option<Uuid>,
    rescheduled_from: Option<Uuid>,
}

/// What most tasks have, and `claim.sql` therefore leaves out.
impl Default for Rare {
    fn default() -> Self {
        Self {
            timezone: "UTC".to_owned(),
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            snoozes: 0,
            metadata: None,
            client_request_id: None,
            dedupe_key: None,
            serial_key: None,
            retry: None,
            error: None,
            schedule_id: None,
            scheduled_at_us: None,
            retry_of: None,
            rescheduled_from: None,
        }
    }
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
