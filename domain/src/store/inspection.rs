use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Span, StoreError};
use crate::fire::{Fire, FireKind};
use crate::id::{FireId, ScheduleId, TaskId};
use crate::node::Leadership;
use crate::proof::LedgerRow;

/// What whoever asks "did it?" and "why not?" wants to know. Nothing here changes anything.
#[async_trait]
pub trait Inspection: Send + Sync {
    /// A schedule's ledger in the order of instants and kinds, after `after`, at most `limit` rows. It begins with the last
    /// row of the schedule's own before the span, if there is one: a run of skipped instants may reach into the span.
    async fn ledger(
        &self,
        id: ScheduleId,
        span: Span,
        after: Option<(DateTime<Utc>, FireKind)>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, StoreError>;

    /// The instants in the span, at most `limit`, for which there are several tasks of the schedule that neither retry nor
    /// replace another, and how many there are.
    async fn several_tasks(
        &self,
        id: ScheduleId,
        span: Span,
        limit: u32,
    ) -> Result<Vec<(DateTime<Utc>, u64)>, StoreError>;

    /// Every schedule that is or was, deleted ones too, in the order of ids, after `after`, at most `limit`.
    async fn schedules_ever(&self, after: Option<ScheduleId>, limit: u32) -> Result<Vec<ScheduleId>, StoreError>;

    /// Whether there is such a schedule, or was one: its history outlives it.
    async fn schedule_was_ever(&self, id: ScheduleId) -> Result<bool, StoreError>;

    /// The schedule that last had this name in its history, deleted or not.
    async fn schedule_once_named(&self, name: &str) -> Result<Option<ScheduleId>, StoreError>;

    /// Fires made before this instant may have been removed; `None` if none ever was.
    async fn fires_pruned_before(&self) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// One fire, with where its task stands.
    async fn fire(&self, id: FireId) -> Result<Option<Fire>, StoreError>;

    /// What stands before a live task; `None` if there is no such task, or it has ended.
    async fn standing(&self, id: TaskId) -> Result<Option<Standing>, StoreError>;

    /// The newest release of zone data that any node ever noted.
    async fn noted_tz_version(&self) -> Result<Option<String>, StoreError>;

    /// Who has or had the leadership called `name`; `None` if nobody ever did.
    async fn leadership(&self, name: &str) -> Result<Option<Leadership>, StoreError>;
}

/// What stands before a live task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// How many due tasks of its topic are claimed before it; no more than [`Standing::MOST`] are counted.
    pub ahead: u64,
    /// How many tasks of its topic run under a lease.
    pub running: u64,
    /// The task of its serial key that runs or comes first.
    pub serial: Option<TaskId>,
}

impl Standing {
    /// How many tasks ahead are counted at the most.
    pub const MOST: u64 = 10_000;
}
