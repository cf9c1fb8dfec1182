use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Extension, Remember, Reply, StoreError};
use crate::id::NodeId;
use crate::task::Task;
use crate::topic::{Topic, TopicPattern};

/// What workers in any language do: claim by the API, within what their topics allow on all nodes together.
#[async_trait]
pub trait Pulls: Send + Sync {
    /// Claims due tasks for a worker, in the order of priority (largest first), `run_at`, id over all topics given.
    ///
    /// However many claim at once, on however many nodes: of a topic no more run than its `concurrency`, and no more
    /// begin than its rate allows. With `remember`, the answer is kept in the same transaction, if anything was claimed.
    ///
    /// # Errors
    /// `IdempotencyKeyReused`.
    async fn pull(
        &self,
        request: &PullRequest,
        remember: Option<Remember<[Task]>>,
    ) -> Result<Reply<Pulled>, StoreError>;

    /// Keeps an answer that goes with no change of its own. Answers the first one where the call came before.
    ///
    /// # Errors
    /// `IdempotencyKeyReused`.
    async fn keep_answer(&self, remember: Remember<()>) -> Result<Reply<()>, StoreError>;

    /// Extends a worker's lease that still holds by as long as its claim said; `None` for a lost one.
    async fn extend_pulled(&self, held: Extension) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// Makes a node's lease that still holds a worker's, from now on for as many seconds: the worker extends and settles it.
    /// Answers when it ends; `None` for a lost one.
    async fn hand_to_worker(&self, held: Extension, lease_seconds: u32) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// Topics that match a pattern and have pending tasks, at most `limit`: how much is due, and when more is.
    async fn pending_topics(&self, patterns: &[TopicPattern], limit: u32) -> Result<Vec<PendingTopic>, StoreError>;
}

/// Who claims, for how long, and what.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequest {
    /// The node that the worker asked.
    pub node: NodeId,
    /// How long the leases last, in seconds.
    pub lease_seconds: u32,
    /// From which topics, each once.
    pub topics: Vec<PullTopic>,
    /// How many tasks at the most.
    pub max: u32,
    /// How long their payloads may be together; a single one may be longer.
    pub max_bytes: u64,
}

/// A topic that workers claim from, and what it allows.
#[derive(Debug, Clone, PartialEq)]
pub struct PullTopic {
    /// The topic.
    pub topic: Topic,
    /// How many of its tasks run at a time, on all nodes together.
    pub concurrency: u32,
    /// How many attempts begin per second, likewise; `None` is no bound.
    pub rate_per_second: Option<f64>,
}

/// What a worker's claim got.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pulled {
    /// The tasks, in the order of claims.
    pub tasks: Vec<Task>,
    /// When a rate lets the next attempt begin that it held back.
    pub allowed_at: Option<DateTime<Utc>>,
}

/// A topic that has pending tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingTopic {
    /// The topic.
    pub topic: Topic,
    /// How many of them are due, counted up to [`PendingTopic::MOST`] of each priority.
    pub due: u32,
    /// When the next of those is due that are not.
    pub next_due_at: Option<DateTime<Utc>>,
}

impl PendingTopic {
    /// How far due tasks are counted.
    pub const MOST: u32 = 100;
}

impl PullRequest {
    /// How long its leases last.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(u64::from(self.lease_seconds))
    }
}
