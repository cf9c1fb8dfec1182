use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Depth, StoreError};
use crate::id::{Epoch, NodeId, TaskId};
use crate::task::{NewTask, Settlement, Task};
use crate::topic::Topic;

/// Claiming due tasks, and everything that needs their lease.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Gets ready for claims and settles that are to come, so that the first ones need not wait for it. Nothing but speed
    /// depends on it, and what fails of it is met by them.
    async fn warm_up(&self) {}

    /// Claims due tasks for a node: per topic at most the slots wanted, in the order of priority (largest first),
    /// `run_at`, id.
    ///
    /// Of tasks with a `serial_key` only the first of its topic and key that has not ended can be claimed, and only
    /// while none of them runs; "first" is by the instant it was first due, so a retry keeps its place.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError>;

    /// Writes a plain task that is due now, already claimed by a node: as if it had been claimed the moment it was
    /// written. Answers it as the claim left it.
    async fn claim_new(&self, task: NewTask, node: NodeId, lease: Duration) -> Result<Task, StoreError>;

    /// Topics that have a due task, at most `limit`, in name order, beginning after `after`.
    async fn due_topics(&self, after: Option<&Topic>, limit: u32) -> Result<Vec<Topic>, StoreError>;

    /// The earliest instant after `after` at which a pending task is due.
    async fn next_due_at(&self, after: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// Settles running tasks, each by its epoch; answers in the order given.
    ///
    /// An epoch that is not the newest, or a task that does not run, changes nothing. A lease that ran out while
    /// nobody took over still settles.
    async fn settle(&self, settlings: Vec<Settling>) -> Result<Vec<Settled>, StoreError>;

    /// Extends leases that still hold, to `lease` from now; answers in the order given, `None` for a lost one.
    async fn extend(&self, held: &[Extension], lease: Duration) -> Result<Vec<Option<DateTime<Utc>>>, StoreError>;

    /// Frees running tasks whose lease has expired, at most `limit`: back to pending, or failed on the loss number
    /// `max_lost`.
    async fn expire(&self, max_lost: u32, limit: u32) -> Result<Expired, StoreError>;
}

/// Who claims, for how long, and how much.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRequest {
    /// The node that will hold the leases.
    pub node: NodeId,
    /// How long they last.
    pub lease: Duration,
    /// What is wanted, each topic once.
    pub wants: Vec<Want>,
    /// How many tasks that have lost an attempt may be among them, over all topics.
    pub suspects: Suspects,
}

/// The free slots of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The topic.
    pub topic: Topic,
    /// How many tasks at the most.
    pub slots: u32,
}

/// How many tasks that have lost an attempt a claim may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspects {
    /// As many as come.
    Any,
    /// So many, so that a poisonous one cannot take its neighbours along.
    AtMost(u32),
}

/// A running task and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settling {
    /// The task.
    pub task_id: TaskId,
    /// The epoch it is settled by.
    pub epoch: Epoch,
    /// What becomes of it.
    pub settlement: Settlement,
}

/// What became of a settling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was written.
    Now,
    /// The same epoch was settled with the same outcome before: a lost answer, repeated.
    Before,
    /// The task does not run by this epoch; nothing was written.
    LeaseLost,
}

/// A lease to be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// The task.
    pub task_id: TaskId,
    /// The epoch it is held by.
    pub epoch: Epoch,
}

/// How many expired leases were freed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expired {
    /// Tasks that are pending again.
    pub freed: u64,
    /// Tasks that failed for good.
    pub failed: u64,
    /// The failed ones by topic and origin.
    pub by_topic: Vec<Depth>,
}
