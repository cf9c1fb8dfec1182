use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::StoreError;
use crate::event::Event;

/// What keeps the store small, and what can be counted in it.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Removes what ended longer than `keep` ago, at most `limit` rows of each table: ended tasks with their attempts
    /// (where a topic's definition says otherwise, by its own days), fires, sent messages, answers to
    /// `Idempotency-Key`s older than 24 hours. Call it until it removes nothing.
    async fn prune(&self, keep: Duration, limit: u32) -> Result<Pruned, StoreError>;

    /// What happened since `since`, oldest first, at most `limit`: attempts that began and tasks that ended.
    ///
    /// Resuming from a little before the last event seen may repeat events, and never skips one.
    async fn events(&self, since: DateTime<Utc>, limit: u32) -> Result<Vec<Event>, StoreError>;

    /// What the gauges show.
    async fn counts(&self) -> Result<Counts, StoreError>;
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

/// Due and unclaimed tasks of one topic and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    /// The topic.
    pub topic: String,
    /// Whether fires made them, or callers.
    pub of_schedules: bool,
    /// How many.
    pub tasks: u64,
}
