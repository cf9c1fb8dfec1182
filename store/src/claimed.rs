//! A claimed task as both databases answer it: the columns that every task needs, and the rest in one piece.
//!
//! A column costs time for every row, also where it is null, and a claim answers many rows. What few tasks have comes as
//! one JSON array, or not at all where all of it is as usual.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::lease::Lease;
use punctual_domain::store::{ClaimRequest, PullRequest, StoreError};
use punctual_domain::task::{DEFAULT_TIMEOUT_SECONDS, FireOfTask, Task, TaskStatus};
use punctual_domain::topic::Topic;
use serde::Deserialize;
use uuid::Uuid;

use crate::instant::micros_after;
use crate::text::{from_text, metadata_from_text, retry_from_text};

/// The columns that every task needs.
pub(crate) struct Claimed {
    pub(crate) id: TaskId,
    pub(crate) topic: Topic,
    pub(crate) run_at: DateTime<Utc>,
    pub(crate) payload: Json,
    pub(crate) created_at: DateTime<Utc>,
    /// The instant of the claim.
    pub(crate) started_at: DateTime<Utc>,
}

impl Claimed {
    /// The whole task, as the claim left it.
    pub(crate) fn into_task(self, holder: Holder, rare: Option<&str>) -> Result<Task, StoreError> {
        let rare: Rare = rare.map_or_else(|| Ok(Rare::default()), |text| from_text("a claimed task", text))?;
        let expires_at = DateTime::from_timestamp_micros(micros_after(self.started_at, holder.lease));
        Ok(Task {
            id: self.id,
            topic: self.topic,
            status: TaskStatus::Running,
            run_at: self.run_at,
            timezone: rare.timezone,
            payload: self.payload,
            metadata: metadata_from_text(rare.metadata.as_deref())?,
            client_request_id: rare.client_request_id,
            dedupe_key: rare.dedupe_key,
            serial_key: rare.serial_key,
            priority: rare.priority,
            timeout_seconds: rare.timeout_seconds,
            retry: retry_from_text(rare.retry.as_deref())?,
            attempt: rare.attempt,
            lost: rare.lost,
            snoozes: rare.snoozes,
            epoch: Epoch(rare.epoch),
            lease: Some(Lease { owner: holder.node, epoch: Epoch(rare.epoch), expires_at }),
            result: None,
            error: rare.error,
            fire: rare.schedule_id.zip(rare.scheduled_at_us).map(|(id, micros)| FireOfTask {
                schedule_id: ScheduleId(id),
                scheduled_at: DateTime::from_timestamp_micros(micros).unwrap_or_default(),
            }),
            retry_of: rare.retry_of.map(TaskId),
            rescheduled_from: rare.rescheduled_from.map(TaskId),
            created_at: self.created_at,
            started_at: Some(self.started_at),
            completed_at: None,
        })
    }
}

/// Who holds what was claimed, and for how long.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Holder {
    pub(crate) node: NodeId,
    pub(crate) lease: Duration,
}

impl Holder {
    /// A task that was written for it, claimed at the same instant.
    pub(crate) fn claim(self, task: Task, now: DateTime<Utc>) -> Result<Task, StoreError> {
        task.claim(self.node, self.lease, now).map_err(|refused| StoreError::Broken(refused.to_string()))
    }
}

impl From<&ClaimRequest> for Holder {
    fn from(request: &ClaimRequest) -> Self {
        Self { node: request.node, lease: request.lease }
    }
}

impl From<&PullRequest> for Holder {
    fn from(request: &PullRequest) -> Self {
        Self { node: request.node, lease: request.lease() }
    }
}

/// The last column of a claim's answer, in its order.
#[derive(Deserialize)]
struct Rare {
    priority: i32,
    attempt: u32,
    lost: u32,
    epoch: i64,
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

/// What is usual.
impl Default for Rare {
    fn default() -> Self {
        Self {
            priority: 0,
            attempt: 1,
            lost: 1,
            epoch: 1,
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
