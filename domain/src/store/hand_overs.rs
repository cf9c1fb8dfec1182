use async_trait::async_trait;

use super::{Extension, StoreError};
use crate::hand_over::{HandOver, MessageJob, Mirrored, NewHandOver, Queue};
use crate::id::{FireId, MessageId, TaskId};
use crate::task::FireOfTask;

/// What is known of tasks and messages that queues outside have accepted.
///
/// Whoever cancels a task that has begun notes by the same transaction that its time in the queue that serves its topic is up.
/// Where nobody knows of a hand-over there is one from then on, which does not count and is not certain: a node may have
/// crashed before it noted it.
#[async_trait]
pub trait HandOvers: Send + Sync {
    /// Notes that a queue has accepted a task that runs by this epoch: from now on it runs without a lease. Answers whether it
    /// still did; a repeat is answered like the first time.
    async fn hand_over(&self, held: Extension, hand_over: &NewHandOver) -> Result<bool, StoreError>;

    /// Hand-overs, at most `limit`, in the order of their tasks' ids.
    async fn hand_overs(&self, which: &WhichHandOvers, limit: u32) -> Result<Vec<HandOver>, StoreError>;

    /// Notes that jobs were made anew: the tasks' present attempts are the first of them.
    async fn handed_over_again(&self, held: &[Extension]) -> Result<(), StoreError>;

    /// Notes what queues did with attempts, each task once and by its epoch: an attempt that failed is noted as such, one that
    /// began is the present one. What does not count any more, and a step that does not follow the last, changes nothing.
    async fn mirror(&self, mirrored: &[Mirrored]) -> Result<(), StoreError>;

    /// Notes how far jobs of a queue have come, each with what its worker said in JSON.
    async fn note_progress(&self, queue: &Queue, progress: &[(String, String)]) -> Result<(), StoreError>;

    /// Forgets the hand-overs of these tasks that do not count any more.
    async fn forget_hand_overs(&self, tasks: &[TaskId]) -> Result<(), StoreError>;

    /// Every queue that anything was ever handed to, and up to where its events were read; empty for not at all.
    async fn queues(&self) -> Result<Vec<(Queue, String)>, StoreError>;

    /// Notes up to where the events of a queue were read.
    async fn note_position(&self, queue: &Queue, position: &str) -> Result<(), StoreError>;

    /// Notes that a queue is given a message as that job, once or again.
    async fn note_message_job(&self, queue: &Queue, job: &MessageJob) -> Result<(), StoreError>;

    /// Messages that a queue was given and nobody forgot, after this one and at most `limit`, in the order of their ids.
    async fn message_jobs(
        &self,
        queue: &Queue,
        after: Option<MessageId>,
        limit: u32,
    ) -> Result<Vec<MessageJob>, StoreError>;

    /// Forgets the messages of these jobs.
    async fn forget_message_jobs(&self, queue: &Queue, jobs: &[String]) -> Result<(), StoreError>;

    /// The fire that made a task, or the task whose place it takes; `None` if it is of no schedule, or the fire was pruned.
    async fn execution_of(&self, task: TaskId, fire: Option<FireOfTask>) -> Result<Option<FireId>, StoreError>;
}

/// Which hand-overs are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichHandOvers {
    /// That of one task, whether or not it counts.
    OfTask(TaskId),
    /// Those of these jobs that count.
    OfJobs(Queue, Vec<String>),
    /// All of a queue that count, after this task.
    OfQueue(Queue, Option<TaskId>),
    /// Those that count and whose time is up.
    Overdue,
    /// Those that do not count any more, after this task.
    Stray(Option<TaskId>),
    /// Those among them whose time is up, after this task.
    OverdueStray(Option<TaskId>),
    /// Those of these jobs that do not count any more.
    StrayOfJobs(Queue, Vec<String>),
}
