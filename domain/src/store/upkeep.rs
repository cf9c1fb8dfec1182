use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::StoreError;
use crate::event::{Event, EventKind};
use crate::id::TaskId;

/// What keeps the store in order and small, and what can be counted in it.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// When there is something to put right.
    async fn next_repair(&self) -> Result<NextRepair, StoreError>;

    /// Removes what ended longer than `keep` ago, at most `limit` rows of each table: ended tasks with their attempts
    /// (where a topic's definition says otherwise, by its own days), fires, sent messages, entries of the audit log, answers
    /// to `Idempotency-Key`s older than 24 hours, and nodes that were not heard of for an hour. Call it until it removes
    /// nothing.
    async fn prune(&self, keep: Duration, limit: u32) -> Result<Pruned, StoreError>;

    /// What happened after `after`, in the order of cursors, at most `limit`: attempts that began and tasks that ended.
    ///
    /// Pages that each begin after the last event of the one before tell everything that was written by then, once. An
    /// event's instant is a little older than the moment others can see it: a reader that follows what happens goes on
    /// from a little before the last event seen, which may repeat events, and never skips one.
    async fn events(&self, after: &EventCursor, limit: u32) -> Result<Vec<Event>, StoreError>;

    /// Lets go of the database in good order. Called last: nothing else works afterwards.
    async fn close(&self) -> Result<(), StoreError>;

    /// What the gauges show.
    async fn counts(&self) -> Result<Counts, StoreError>;
}

/// When there is something to put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRepair {
    /// The store's present instant.
    pub now: DateTime<Utc>,
    /// When the next lease expires or expired.
    pub expiry_at: Option<DateTime<Utc>>,
    /// The earliest instant at which an enabled schedule is, was or becomes due.
    pub fire_at: Option<DateTime<Utc>>,
}

/// A place in the order of events: by instant, then task, an attempt's beginning before the task's end, then attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor {
    /// When it happened.
    pub at: DateTime<Utc>,
    /// To which task.
    pub task_id: TaskId,
    /// Whether it is the task's end.
    pub is_end: bool,
    /// In which attempt.
    pub attempt: u32,
}

impl EventCursor {
    /// The place before everything that happened at `at` or later.
    pub fn since(at: DateTime<Utc>) -> Self {
        Self { at, task_id: TaskId(Uuid::nil()), is_end: false, attempt: 0 }
    }

    /// The place of an event.
    pub fn of(event: &Event) -> Self {
        let is_end = event.kind != EventKind::Arrived;
        Self { at: event.at, task_id: event.task.id, is_end, attempt: event.attempt }
    }
}

/// How many rows were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Ended tasks.
    pub tasks: u64,
    /// Fires.
    pub fires: u64,
    /// Sent messages.
    pub messages: u64,
    /// Kept answers.
    pub answers: u64,
    /// Entries of the audit log.
    pub audit: u64,
    /// Nodes that are gone.
    pub nodes: u64,
}

/// What can be counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Due and unclaimed tasks, by topic and origin.
    pub due: Vec<Depth>,
    /// Running tasks.
    pub running: u64,
    /// Messages that wait to be sent.
    pub outbox: u64,
    /// Enabled schedules.
    pub schedules: u64,
    /// How far behind the most overdue schedule is.
    pub schedule_lag: Duration,
}

/// Tasks of one topic and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    /// The topic.
    pub topic: String,
    /// Whether fires made them, or callers.
    pub of_schedules: bool,
    /// How many.
    pub tasks: u64,
}
