//! A task as the API shows it: every field, `null` where there is nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::retry::RetryPolicy;
use punctual_domain::task::{AttemptOutcome, AttemptRecord, Task, TaskStatus};
use serde::Serialize;

use super::instant::Instant;

/// One task.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView<'a> {
    id: TaskId,
    topic: &'a str,
    status: TaskStatus,
    run_at: Instant,
    timezone: &'a str,
    payload: &'a Json,
    metadata: &'a BTreeMap<String, String>,
    client_request_id: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    serial_key: Option<&'a str>,
    priority: i32,
    timeout_seconds: u32,
    retry: RetryPolicy,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<AttemptView<'a>>>,
    result: Option<&'a Json>,
    error: Option<&'a str>,
    schedule_id: Option<ScheduleId>,
    scheduled_at: Option<Instant>,
    retry_of: Option<TaskId>,
    rescheduled_from: Option<TaskId>,
    created_at: Instant,
    started_at: Option<Instant>,
    completed_at: Option<Instant>,
    warnings: Cow<'a, [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplicated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<Instant>,
}

/// One attempt of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptView<'a> {
    number: u32,
    node_id: NodeId,
    epoch: Epoch,
    started_at: Instant,
    ended_at: Option<Instant>,
    outcome: Option<AttemptOutcome>,
    error: Option<&'a str>,
}

impl<'a> TaskView<'a> {
    /// The view in lists.
    pub(crate) fn new(task: &'a Task) -> Self {
        Self {
            id: task.id,
            topic: task.topic.as_str(),
            status: task.status,
            run_at: Instant(task.run_at),
            timezone: &task.timezone,
            payload: &task.payload,
            metadata: &task.metadata,
            client_request_id: task.client_request_id.as_deref(),
            dedupe_key: task.dedupe_key.as_deref(),
            serial_key: task.serial_key.as_deref(),
            priority: task.priority,
            timeout_seconds: task.timeout_seconds,
            retry: task.retry,
            attempt: task.attempt,
            attempts: None,
            result: task.result.as_ref(),
            error: task.error.as_deref(),
            schedule_id: task.fire.map(|fire| fire.schedule_id),
            scheduled_at: task.fire.map(|fire| Instant(fire.scheduled_at)),
            retry_of: task.retry_of,
            rescheduled_from: task.rescheduled_from,
            created_at: Instant(task.created_at),
            started_at: task.started_at.map(Instant),
            completed_at: task.completed_at.map(Instant),
            warnings: Cow::Borrowed(&[]),
            deduplicated: None,
            epoch: None,
            lease_expires_at: None,
        }
    }

    /// The single view, with its attempts.
    pub(crate) fn with_attempts(mut self, attempts: &'a [AttemptRecord]) -> Self {
        self.attempts = Some(attempts.iter().map(AttemptView::new).collect());
        self
    }

    /// With what the caller should know.
    pub(crate) fn with_warnings(mut self, warnings: impl Into<Cow<'a, [String]>>) -> Self {
        self.warnings = warnings.into();
        self
    }

    /// As whoever claimed it sees it.
    pub(crate) fn with_lease(mut self, task: &Task) -> Self {
        self.epoch = Some(task.epoch);
        self.lease_expires_at = task.lease.and_then(|lease| lease.expires_at).map(Instant);
        self
    }

    /// As the one that stands for another with the same `dedupeKey`.
    pub(crate) fn deduplicated(mut self) -> Self {
        self.deduplicated = Some(true);
        self
    }
}

impl<'a> AttemptView<'a> {
    fn new(attempt: &'a AttemptRecord) -> Self {
        Self {
            number: attempt.number,
            node_id: attempt.node_id,
            epoch: attempt.epoch,
            started_at: Instant(attempt.started_at),
            ended_at: attempt.ended_at.map(Instant),
            outcome: attempt.outcome,
            error: attempt.error.as_deref(),
        }
    }
}
