use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Depth, Page, Span, StoreError};
use crate::id::{ScheduleId, TaskId};
use crate::task::{AttemptRecord, NewTask, Task, TaskStatus};
use crate::topic::Topic;

/// Writing, reading, cancelling and replacing tasks.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Writes tasks, all or none, in order.
    ///
    /// A task whose `dedupe_key` belongs to a live task of its topic is not written: the living one is answered. With
    /// `remember`, the answer is kept in the same transaction, and a second call with the same key gets it again; one
    /// that comes while the first is under way waits for it.
    ///
    /// # Errors
    /// `ClientRequestIdInUse` (also for one used twice in `tasks`), `IdempotencyKeyReused`.
    async fn create_tasks(&self, tasks: Vec<NewTask>, remember: Option<Remember>) -> Result<Creation, StoreError>;

    /// The answer that a call with this `Idempotency-Key` was given before, if it is still kept.
    ///
    /// # Errors
    /// `IdempotencyKeyReused`, if that call had another fingerprint.
    async fn remembered(&self, owner: &str, key: &str, fingerprint: &str) -> Result<Option<Answer>, StoreError>;

    /// One task, with its attempts in order; one that runs or ended at the first attempt shows that one too.
    async fn task(&self, id: TaskId) -> Result<Option<TaskWithAttempts>, StoreError>;

    /// The tasks that were made to retry this one, newest first, at most `limit`.
    async fn retries_of(&self, id: TaskId, limit: u32) -> Result<Vec<Retry>, StoreError>;

    /// Tasks that match, newest first.
    async fn tasks(&self, filter: &TaskFilter, page: Page<TaskId>) -> Result<Vec<Task>, StoreError>;

    /// Ends a live task as cancelled; an ended one stays as it is. Answers the task as it stands.
    ///
    /// # Errors
    /// `NotFound`, `IdempotencyKeyReused`.
    async fn cancel(&self, id: TaskId, remember: Option<Remember<Task>>) -> Result<Reply<Task>, StoreError>;

    /// Cancels a live task and writes `replacement` in its place, with `rescheduled_from` set.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyEnded`, `ClientRequestIdInUse`, `DedupeKeyInUse` (by a third task), `IdempotencyKeyReused`.
    async fn reschedule(
        &self,
        id: TaskId,
        replacement: NewTask,
        remember: Option<Remember<Task>>,
    ) -> Result<Reply<Task>, StoreError>;

    /// Writes a new task like the failed one, due now, with `retry_of` set and no `client_request_id`. If its
    /// `dedupe_key` belongs to a live task by now, answers that one.
    ///
    /// # Errors
    /// `NotFound`, `NotFailed`, `IdempotencyKeyReused`.
    async fn retry(&self, id: TaskId, remember: Option<Remember<Created>>) -> Result<Reply<Created>, StoreError>;

    /// Cancels the live tasks that match, or counts them.
    ///
    /// Like every bulk change it goes in many small transactions, newest tasks first. With `remember`, each notes how
    /// far it came: a call that comes again after a crash goes on from there, and one that comes meanwhile helps.
    ///
    /// # Errors
    /// `IdempotencyKeyReused`.
    async fn cancel_matching(
        &self,
        filter: &TaskFilter,
        bulk: Bulk,
        remember: Option<Remember<u64>>,
    ) -> Result<Reply<Changed>, StoreError>;

    /// Retries the failed tasks that match, or counts them. Those whose `dedupe_key` lives again are left out.
    ///
    /// # Errors
    /// `IdempotencyKeyReused`.
    async fn retry_matching(
        &self,
        filter: &TaskFilter,
        bulk: Bulk,
        remember: Option<Remember<u64>>,
    ) -> Result<Reply<Changed>, StoreError>;
}

/// Which tasks are meant: all that match everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// One of these; none is any.
    pub status: Vec<TaskStatus>,
    /// This topic.
    pub topic: Option<Topic>,
    /// `metadata.ownerId`.
    pub owner_id: Option<String>,
    /// `metadata.tenantId`.
    pub tenant_id: Option<String>,
    /// `metadata.correlationId`.
    pub correlation_id: Option<String>,
    /// The task that used this id.
    pub client_request_id: Option<String>,
    /// Made by this schedule's fires.
    pub schedule_id: Option<ScheduleId>,
    /// Due in this stretch.
    pub run_at: Span,
}

/// Tasks that a list can be put together from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Those of one status.
    Of(TaskStatus),
    /// All that live.
    Live,
    /// All that have ended.
    Ended,
}

impl Part {
    /// Whether they are live.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Live) || matches!(self, Self::Of(status) if !status.has_ended())
    }

    /// The status that they share, if it is one.
    pub fn status(self) -> Option<&'static str> {
        match self {
            Self::Of(status) => Some(status.as_str()),
            Self::Live | Self::Ended => None,
        }
    }
}

impl TaskFilter {
    /// The same filter, for live tasks only; `None` if it asks for none of them.
    pub fn live_only(&self) -> Option<Self> {
        self.only(&[TaskStatus::Pending, TaskStatus::Running])
    }

    /// The same filter, for failed tasks only; `None` if it asks for none of them.
    pub fn failed_only(&self) -> Option<Self> {
        self.only(&[TaskStatus::Failed])
    }

    /// Whether it asks for nothing but statuses.
    pub fn is_of_status_alone(&self) -> bool {
        Self { status: Vec::new(), ..self.clone() } == Self::default()
    }

    /// Whether it asks for when they are due, and for nothing else but statuses.
    pub fn is_of_time_alone(&self) -> bool {
        self.run_at != Span::default() && Self { run_at: Span::default(), ..self.clone() }.is_of_status_alone()
    }

    /// The parts that a list is put together from: one per status, but the ended ones are one where all of them are meant.
    /// So are the live ones where nothing else is asked for: then they need not be told apart to be found.
    pub fn parts(&self) -> Vec<Part> {
        use TaskStatus::{Cancelled, Completed, Failed, Pending, Running};
        let asked = |status: TaskStatus| self.status.is_empty() || self.status.contains(&status);
        let live: Vec<_> = match asked(Pending) && asked(Running) && self.is_of_status_alone() {
            true => vec![Part::Live],
            false => [Pending, Running].into_iter().filter(|status| asked(*status)).map(Part::Of).collect(),
        };
        let live = live.into_iter();
        let ended: Vec<_> = [Completed, Failed, Cancelled].into_iter().filter(|status| asked(*status)).collect();
        match ended.len() {
            3 => live.chain([Part::Ended]).collect(),
            _ => live.chain(ended.into_iter().map(Part::Of)).collect(),
        }
    }

    fn only(&self, allowed: &[TaskStatus]) -> Option<Self> {
        let asked = |status: &TaskStatus| self.status.is_empty() || self.status.contains(status);
        let status: Vec<_> = allowed.iter().copied().filter(asked).collect();
        (!status.is_empty()).then(|| Self { status, ..self.clone() })
    }
}

/// Whether a bulk change is made or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bulk {
    /// Make it.
    Apply,
    /// Count what it would change.
    DryRun,
}

/// A task that was made to retry another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The new task.
    pub id: TaskId,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// A task and all that is known of its attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskWithAttempts {
    /// The task.
    pub task: Task,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptRecord>,
}

/// What became of one task that was to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// It was written.
    Fresh(Task),
    /// A live task with its `dedupe_key` stands for it.
    Deduplicated(Task),
}

impl Created {
    /// The task that was written or stands for it.
    pub fn task(&self) -> &Task {
        match self {
            Self::Fresh(task) | Self::Deduplicated(task) => task,
        }
    }

    /// The same, without what became of it.
    pub fn into_task(self) -> Task {
        match self {
            Self::Fresh(task) | Self::Deduplicated(task) => task,
        }
    }
}

/// What became of a call that writes.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<T> {
    /// It was made now.
    Made(T),
    /// The call came before: its first answer.
    Replayed(Answer),
}

/// What became of a call that writes tasks: the tasks, in the order they were given.
pub type Creation = Reply<Vec<Created>>;

impl<T> Reply<T> {
    /// What was made now; what a call without an `Idempotency-Key` always gets.
    ///
    /// # Errors
    /// `Broken`, if it is the answer of an earlier call.
    pub fn into_made(self) -> Result<T, StoreError> {
        match self {
            Self::Made(made) => Ok(made),
            Self::Replayed(_) => Err(StoreError::Broken("an earlier answer where nobody gave a key".into())),
        }
    }
}

/// What a bulk change did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// How many tasks it changed, or would change.
    pub count: u64,
    /// Those among them that ran, and whose attempts should stop.
    pub stopped: Vec<TaskId>,
    /// Those that this call cancelled, by topic and origin.
    pub by_topic: Vec<Depth>,
}

/// An answer to a caller, kept word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its HTTP status.
    pub status: u16,
    /// Its body.
    pub body: String,
}

/// Writes the answer to a call from what it made.
pub type WriteAnswer<Made> = dyn FnOnce(&Made) -> Answer + Send + Sync;

/// Keeps the answer of a call under the caller's `Idempotency-Key`, for 24 hours.
pub struct Remember<Made: ?Sized = [Created]> {
    /// Whose key it is: the API key's id, or empty without keys.
    pub owner: String,
    /// The `Idempotency-Key`.
    pub key: String,
    /// The same for bodies that are the same JSON.
    pub fingerprint: String,
    /// Writes the answer once it is known what was made, before that is committed.
    pub answer: Box<WriteAnswer<Made>>,
}
