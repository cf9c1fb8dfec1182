//! The store: what the rest of Punctual needs of a database, in domain words.
//!
//! One trait per noun; [`Store`] is all of them together. Each implementation promises the same, and one conformance
//! suite holds both to it:
//!
//! - A method that returns `Ok` has committed. One that returns [`StoreError::Unavailable`] may or may not have.
//! - Every state change is one guarded statement or one transaction. That somebody else was first is an answer, not
//!   an error.
//! - The store's own clock decides what is due, claimed or expired. Instants that callers pass are never "now".

mod alerts;
mod audit;
mod claims;
mod cluster;
mod glance;
mod hand_overs;
mod inspection;
mod outbox;
mod plugins;
mod pulls;
mod schedules;
mod tasks;
mod ticks;
mod topics;
mod upkeep;

pub use alerts::Alerts;
pub use audit::{Audit, AuditFilter};
pub use claims::{ClaimRequest, Claims, Expired, Extension, Settled, Settling, Suspects, Want};
pub use cluster::Cluster;
pub use glance::{ComingTask, EndedMinute, Failure, Fired, FiredSchedule, Glance};
pub use hand_overs::{HandOvers, WhichHandOvers};
pub use inspection::{Inspection, Standing};
pub use outbox::{Outbox, Posted, Taken};
pub use plugins::{MigrationError, Plugins};
pub use pulls::{PendingTopic, PullRequest, PullTopic, Pulled, Pulls};
pub use schedules::{Backfill, Backfilled, FireFilter, ScheduleFilter, Schedules};
pub use tasks::{
    Answer, Bulk, Changed, Created, Creation, Part, Remember, Reply, Retry, TaskFilter, TaskWithAttempts, Tasks,
    WriteAnswer,
};
pub use ticks::{Decide, FireAudit, Lateness, MissedCursor, NextTick, Replanned, Ticked, Ticks};
pub use topics::{Load, Topics};
pub use upkeep::{Counts, Depth, EventCursor, NextRepair, Pruned, Upkeep};

use chrono::{DateTime, Utc};

/// Everything a database does for Punctual.
pub trait Store:
    Tasks
    + Claims
    + Schedules
    + Ticks
    + Topics
    + Outbox
    + Alerts
    + Cluster
    + Plugins
    + Pulls
    + HandOvers
    + Audit
    + Upkeep
    + Inspection
    + Glance
{
}

impl<T> Store for T where
    T: Tasks
        + Claims
        + Schedules
        + Ticks
        + Topics
        + Outbox
        + Alerts
        + Cluster
        + Plugins
        + Pulls
        + HandOvers
        + Audit
        + Upkeep
        + Inspection
        + Glance
{
}

/// Why a store could not do what it was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// The database is away, too slow, or full. Try again later; a write may or may not have happened.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// There is no such row.
    #[error("not found")]
    NotFound,
    /// The `clientRequestId` made a task or schedule before.
    #[error("the clientRequestId {0:?} was used before")]
    ClientRequestIdInUse(String),
    /// The `Idempotency-Key` came before, with another body.
    #[error("the Idempotency-Key was used before with another body")]
    IdempotencyKeyReused,
    /// Another live task of the topic has the `dedupeKey`.
    #[error("another live task of the topic has the dedupeKey {0:?}")]
    DedupeKeyInUse(String),
    /// Another one has the name.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// The row was edited in between; it has this version now.
    #[error("it was edited in between and has version {0} now")]
    VersionMismatch(u64),
    /// The schedule is due, or has fired since it was read: read it again.
    #[error("the schedule is due or has fired in between; try again")]
    Moved,
    /// There is no calendar of that name.
    #[error("there is no calendar {0:?}")]
    UnknownCalendar(String),
    /// A backfill would make so many fires, which is more than it may.
    #[error("{0} fires would be made, which is more than maxFires allows")]
    TooManyFires(u64),
    /// A schedule names the calendar.
    #[error("the schedule {0:?} names the calendar")]
    CalendarInUse(String),
    /// A node has, or had, a handler for the topic.
    #[error("the topic {0} has a handler: its route stays `handler`")]
    HandlerRegistered(String),
    /// The task has ended, and ended states never change.
    #[error("the task has ended")]
    AlreadyEnded,
    /// Only failed tasks can be retried.
    #[error("the task has not failed")]
    NotFailed,
    /// What is stored cannot be understood, or a statement is wrong: somebody must act.
    #[error("the store is broken: {0}")]
    Broken(String),
}

/// Where a page of a list begins, and how long it is. Lists are newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<Id> {
    /// The last item of the page before.
    pub after: Option<Id>,
    /// How many items at the most.
    pub limit: u32,
}

impl<Id> Page<Id> {
    /// The first page.
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }
}

/// A half-open stretch of time: `from` inclusive, `to` exclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// The first instant in it.
    pub from: Option<DateTime<Utc>>,
    /// The first instant after it.
    pub to: Option<DateTime<Utc>>,
}
