//! A task: one unit of work, and every legal move of its life.
//!
//! ```text
//!            claim                    settle: completed
//! pending ──────────► running ───────────────────────────► completed
//!    ▲                   │  └── settle: failed, or lost too often ──► failed
//!    └───────────────────┘
//!      settle: retried, snoozed, handed back; lease expired
//!
//! cancel leads from pending and running to cancelled.
//! ```
//!
//! Ended states never change. What a claim counts is the *possible* loss of the attempt: settling takes it back, so
//! what remains after a crash is a lost attempt, whoever crashed. The methods here are the rule; the stores carry it
//! out with guarded statements, and the conformance suite holds them to it.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_sdk::Outcome;
use serde::{Deserialize, Serialize};

use crate::id::{Epoch, NodeId, ScheduleId, TaskId};
use crate::invalid::{Invalid, check_key};
use crate::json::Json;
use crate::lease::Lease;
use crate::retry::{MAX_DELAY_MS, RetryPolicy};
use crate::topic::Topic;

/// The largest payload, in bytes of JSON.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
/// The largest result, in bytes of JSON.
pub const MAX_RESULT_BYTES: usize = 64 * 1024;
/// The longest error that is kept, in bytes; the rest is cut.
pub const MAX_ERROR_BYTES: usize = 16 * 1024;
/// How many attempts may be lost before the task is given up.
pub const MAX_LOST: u32 = 3;
/// The time limit of an attempt where nobody said otherwise.
pub const DEFAULT_TIMEOUT_SECONDS: u32 = 3600;
/// The error of a task whose attempts were lost too often.
pub const LOST_TOO_OFTEN: &str = "node died during attempt";

/// The longest a handler can put its task off: a year.
const MAX_WAIT: Duration = Duration::from_millis(MAX_DELAY_MS);

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waits for its instant, for a slot, or for a retry.
    Pending,
    /// Is being attempted.
    Running,
    /// Ended well.
    Completed,
    /// Ended badly, for good.
    Failed,
    /// Ended because somebody said so.
    Cancelled,
}

impl TaskStatus {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether it never changes again.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// How one attempt ended, as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It did its work.
    Completed,
    /// It answered with an error.
    Failed,
    /// It took longer than its limit.
    TimedOut,
    /// Its handler panicked.
    Panicked,
    /// It was told to stop, or wanted to.
    Cancelled,
    /// Nobody knows: its node died or its lease ran out.
    Lost,
    /// It asked to be called later.
    Snoozed,
    /// Its node stopped and gave it back.
    HandedBack,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Panicked,
        Self::Cancelled,
        Self::Lost,
        Self::Snoozed,
        Self::HandedBack,
    ];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Snoozed => "snoozed",
            Self::HandedBack => "handed_back",
        }
    }

    /// The outcome of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }
}

/// When a new task is due. The database's clock turns the last two into an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At an instant.
    At(DateTime<Utc>),
    /// So long after it is written.
    After(Duration),
    /// As soon as it is written.
    Now,
}

/// A task to be written: checked, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its id, made by the caller so that a lost answer can be looked up.
    pub id: TaskId,
    /// Leads it to its route.
    pub topic: Topic,
    /// When it is due.
    pub due: Due,
    /// The IANA zone it was scheduled in, echoed in every event.
    pub timezone: String,
    /// What it is about.
    pub payload: Json,
    /// For filtering, audit and tracing.
    pub metadata: BTreeMap<String, String>,
    /// Never makes two tasks or schedules.
    pub client_request_id: Option<String>,
    /// One live task per topic and key.
    pub dedupe_key: Option<String>,
    /// At most one running per topic and key, in order.
    pub serial_key: Option<String>,
    /// Larger goes first.
    pub priority: i32,
    /// The time limit of one attempt.
    pub timeout_seconds: u32,
    /// How often it is attempted.
    pub retry: RetryPolicy,
    /// The schedule whose fire made it, and the fire's instant.
    pub fire: Option<FireOfTask>,
    /// The failed task it takes the place of.
    pub retry_of: Option<TaskId>,
    /// The cancelled task it takes the place of.
    pub rescheduled_from: Option<TaskId>,
}

/// Which fire made a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FireOfTask {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// The instant of the fire.
    pub scheduled_at: DateTime<Utc>,
}

impl NewTask {
    /// A task with nothing but a topic: due now, every default in place.
    pub fn new(topic: Topic) -> Self {
        Self {
            id: TaskId::generate(),
            topic,
            due: Due::Now,
            timezone: "UTC".into(),
            payload: Json::empty_object(),
            metadata: BTreeMap::new(),
            client_request_id: None,
            dedupe_key: None,
            serial_key: None,
            priority: 0,
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            retry: RetryPolicy::default(),
            fire: None,
            retry_of: None,
            rescheduled_from: None,
        }
    }

    /// A new task like an old one, due now: what made the old one unique is left out.
    pub fn like(task: &Task) -> Self {
        Self {
            timezone: task.timezone.clone(),
            payload: task.payload.clone(),
            metadata: task.metadata.clone(),
            dedupe_key: task.dedupe_key.clone(),
            serial_key: task.serial_key.clone(),
            priority: task.priority,
            timeout_seconds: task.timeout_seconds,
            retry: task.retry,
            fire: task.fire,
            ..Self::new(task.topic.clone())
        }
    }

    /// Whether it has nothing but what most tasks have: no key by which it could be refused or would have to wait.
    pub fn is_plain(&self) -> bool {
        let Self {
            metadata, client_request_id, dedupe_key, serial_key, retry, fire, retry_of, rescheduled_from, ..
        } = self;
        metadata.is_empty()
            && client_request_id.is_none()
            && dedupe_key.is_none()
            && serial_key.is_none()
            && fire.is_none()
            && retry_of.is_none()
            && rescheduled_from.is_none()
            && *retry == RetryPolicy::default()
    }

    /// The task as it is once written.
    pub fn into_task(self, run_at: DateTime<Utc>, created_at: DateTime<Utc>) -> Task {
        Task {
            id: self.id,
            topic: self.topic,
            status: TaskStatus::Pending,
            run_at,
            timezone: self.timezone,
            payload: self.payload,
            metadata: self.metadata,
            client_request_id: self.client_request_id,
            dedupe_key: self.dedupe_key,
            serial_key: self.serial_key,
            priority: self.priority,
            timeout_seconds: self.timeout_seconds,
            retry: self.retry,
            attempt: 0,
            lost: 0,
            snoozes: 0,
            epoch: Epoch(0),
            lease: None,
            result: None,
            error: None,
            fire: self.fire,
            retry_of: self.retry_of,
            rescheduled_from: self.rescheduled_from,
            created_at,
            started_at: None,
            completed_at: None,
        }
    }

    /// Checks what its types do not already rule out.
    ///
    /// # Errors
    /// Every bad field, by its name in the API.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut invalid = Invalid::default();
        for (field, key) in [
            ("clientRequestId", &self.client_request_id),
            ("dedupeKey", &self.dedupe_key),
            ("serialKey", &self.serial_key),
        ] {
            if let Some(key) = key {
                invalid.check(field, check_key(key));
            }
        }
        if !(-100..=100).contains(&self.priority) {
            invalid.add("priority", "must be -100 to 100");
        }
        if !(1..=MAX_TIMEOUT_SECONDS).contains(&self.timeout_seconds) {
            invalid.add("timeoutSeconds", format!("must be 1 to {MAX_TIMEOUT_SECONDS} (30 days)"));
        }
        check_metadata(&self.metadata, &mut invalid);
        self.retry.check("retry", &mut invalid);
        invalid.or(())
    }
}

/// Notes what is out of bounds in metadata.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>, invalid: &mut Invalid) {
    if metadata.len() > 50 {
        invalid.add("metadata", "must have at most 50 entries");
    }
    for (key, value) in metadata {
        if key.len() + value.len() > 1024 {
            invalid.add(format!("metadata.{}", key.chars().take(40).collect::<String>()), "must have at most 1 KiB");
        } else if key.is_empty() || key.contains('\0') || value.contains('\0') {
            invalid.add("metadata", "keys must not be empty, and neither keys nor values may contain U+0000");
        }
    }
}

/// The longest time limit of one attempt: 30 days.
pub const MAX_TIMEOUT_SECONDS: u32 = 30 * 24 * 60 * 60;

/// A task as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Leads it to its route.
    pub topic: Topic,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it is, or last was, due.
    pub run_at: DateTime<Utc>,
    /// The IANA zone it was scheduled in.
    pub timezone: String,
    /// What it is about.
    pub payload: Json,
    /// For filtering, audit and tracing.
    pub metadata: BTreeMap<String, String>,
    /// Never makes two tasks or schedules.
    pub client_request_id: Option<String>,
    /// One live task per topic and key.
    pub dedupe_key: Option<String>,
    /// At most one running per topic and key, in order.
    pub serial_key: Option<String>,
    /// Larger goes first.
    pub priority: i32,
    /// The time limit of one attempt.
    pub timeout_seconds: u32,
    /// How often it is attempted.
    pub retry: RetryPolicy,
    /// The number of the current or last attempt; 0 before the first.
    pub attempt: u32,
    /// How many attempts were lost; while running, the present one is counted too.
    pub lost: u32,
    /// How many attempts asked to be called later.
    pub snoozes: u32,
    /// The newest fencing token; 0 before the first claim.
    pub epoch: Epoch,
    /// Who holds it, while it runs.
    pub lease: Option<Lease>,
    /// What it produced.
    pub result: Option<Json>,
    /// What went wrong last.
    pub error: Option<String>,
    /// The schedule whose fire made it, and the fire's instant.
    pub fire: Option<FireOfTask>,
    /// The failed task it takes the place of.
    pub retry_of: Option<TaskId>,
    /// The cancelled task it takes the place of.
    pub rescheduled_from: Option<TaskId>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When its current or last attempt began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub completed_at: Option<DateTime<Utc>>,
}

/// One attempt as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Counts the task's calls, from 1; one that was handed back does not count, so its number comes again.
    pub number: u32,
    /// Where it ran.
    pub node_id: NodeId,
    /// Its fencing token.
    pub epoch: Epoch,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended; `None` while it runs.
    pub outcome: Option<AttemptOutcome>,
    /// What went wrong.
    pub error: Option<String>,
}

/// What becomes of a running task: an outcome, decided against the retry policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// It ends well.
    Completed {
        /// What it produced.
        result: Option<Json>,
    },
    /// It ends badly.
    Failed {
        /// How its last attempt ended: failed, timed out or panicked.
        outcome: AttemptOutcome,
        /// What went wrong.
        error: String,
    },
    /// It waits for another attempt.
    Retried {
        /// How this attempt ended: failed, timed out or panicked.
        outcome: AttemptOutcome,
        /// What went wrong.
        error: String,
        /// How long it waits.
        after: Duration,
    },
    /// It waits, and this attempt does not count.
    Snoozed {
        /// How long it waits.
        after: Duration,
        /// Why, if there is something wrong.
        error: Option<String>,
    },
    /// Its node stops: it is due again at once, as if this attempt had not been.
    HandedBack,
    /// Its handler says that it should not be done any more.
    Cancelled,
}

impl Settlement {
    /// It ends badly, whatever its policy says; the error is cut to what is kept.
    pub fn failed(error: String) -> Self {
        Self::Failed { outcome: AttemptOutcome::Failed, error: cut(error) }
    }

    /// It waits for something that is wrong and not its own doing; the error is cut to what is kept.
    pub fn put_off(after: Duration, error: String) -> Self {
        Self::Snoozed { after: after.min(MAX_WAIT), error: Some(cut(error)) }
    }

    /// How the attempt is recorded.
    pub fn outcome(&self) -> AttemptOutcome {
        match self {
            Self::Completed { .. } => AttemptOutcome::Completed,
            Self::Failed { outcome, .. } | Self::Retried { outcome, .. } => *outcome,
            Self::Snoozed { .. } => AttemptOutcome::Snoozed,
            Self::HandedBack => AttemptOutcome::HandedBack,
            Self::Cancelled => AttemptOutcome::Cancelled,
        }
    }

    /// Where the task stands afterwards.
    pub fn status(&self) -> TaskStatus {
        match self {
            Self::Completed { .. } => TaskStatus::Completed,
            Self::Failed { .. } => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
            Self::Retried { .. } | Self::Snoozed { .. } | Self::HandedBack => TaskStatus::Pending,
        }
    }

    /// What went wrong, if anything did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error, .. } | Self::Retried { error, .. } => Some(error),
            Self::Snoozed { error, .. } => error.as_deref(),
            _ => None,
        }
    }

    /// How long the task waits before it is due again.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Retried { after, .. } | Self::Snoozed { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// What it produced.
    pub fn result(&self) -> Option<&Json> {
        match self {
            Self::Completed { result } => result.as_ref(),
            _ => None,
        }
    }
}

/// A move that the task's state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefused {
    /// Not pending, or not due yet.
    #[error("the task is not due")]
    NotDue,
    /// Not running, or running by another epoch.
    #[error("the lease was lost")]
    LeaseLost,
    /// The lease still holds.
    #[error("the lease has not expired")]
    LeaseHolds,
    /// It has ended, and ended states never change.
    #[error("the task has ended")]
    AlreadyEnded,
}

impl Task {
    /// Whether a claim may take it.
    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.status == TaskStatus::Pending && self.run_at <= now
    }

    /// How many attempts ended by themselves: neither lost, nor snoozed, nor still running.
    pub fn attempts_used(&self) -> u32 {
        self.attempt.saturating_sub(self.lost + self.snoozes)
    }

    /// pending → running.
    ///
    /// # Errors
    /// When it is not due.
    pub fn claim(mut self, owner: NodeId, lease: Duration, now: DateTime<Utc>) -> Result<Self, MoveRefused> {
        if !self.is_due(now) {
            return Err(MoveRefused::NotDue);
        }
        self.status = TaskStatus::Running;
        self.attempt += 1;
        self.lost += 1;
        self.epoch = Epoch(self.epoch.0 + 1);
        self.lease = Some(Lease { owner, epoch: self.epoch, expires_at: Some(now + lease) });
        self.started_at = Some(now);
        Ok(self)
    }

    /// running → wherever the settlement leads.
    ///
    /// # Errors
    /// When it does not run by this epoch.
    pub fn settle(mut self, epoch: Epoch, settlement: &Settlement, now: DateTime<Utc>) -> Result<Self, MoveRefused> {
        if self.status != TaskStatus::Running || self.epoch != epoch {
            return Err(MoveRefused::LeaseLost);
        }
        self.lost -= 1;
        self.status = settlement.status();
        self.lease = None;
        match settlement {
            Settlement::Snoozed { .. } => self.snoozes += 1,
            Settlement::HandedBack => self.attempt -= 1,
            _ => {}
        }
        if let Some(error) = settlement.error() {
            self.error = Some(error.to_owned());
        } else if self.status == TaskStatus::Completed {
            self.error = None;
        }
        self.result = settlement.result().cloned();
        if let Some(delay) = settlement.delay() {
            self.run_at = now + delay;
        }
        self.completed_at = self.status.has_ended().then_some(now);
        Ok(self)
    }

    /// running → pending, or failed if attempts were lost too often: its lease ran out.
    ///
    /// # Errors
    /// When it does not run, or its lease still holds.
    pub fn lose(mut self, max_lost: u32, now: DateTime<Utc>) -> Result<Self, MoveRefused> {
        let Some(lease) = self.lease else { return Err(MoveRefused::LeaseLost) };
        if !lease.has_expired(now) {
            return Err(MoveRefused::LeaseHolds);
        }
        self.lease = None;
        if self.lost >= max_lost {
            self.status = TaskStatus::Failed;
            self.error = Some(LOST_TOO_OFTEN.into());
            self.completed_at = Some(now);
        } else {
            self.status = TaskStatus::Pending;
        }
        Ok(self)
    }

    /// pending or running → cancelled.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cancel(mut self, now: DateTime<Utc>) -> Result<Self, MoveRefused> {
        if self.status.has_ended() {
            return Err(MoveRefused::AlreadyEnded);
        }
        if self.status == TaskStatus::Running {
            self.lost -= 1;
        }
        self.status = TaskStatus::Cancelled;
        self.lease = None;
        self.completed_at = Some(now);
        Ok(self)
    }

    /// Decides what a handler's answer means for this running task; `chance` is the jitter's, 0 up to 1.
    pub fn decide(&self, outcome: Outcome, chance: f64) -> Settlement {
        match outcome {
            Outcome::Completed { result } => {
                let result = result.map(|result| Json::from_stored(result.get()));
                match result {
                    Some(result) if result.as_str().len() > MAX_RESULT_BYTES => self.after_failure(
                        AttemptOutcome::Failed,
                        format!("the result has {} bytes, at most {MAX_RESULT_BYTES} are kept", result.as_str().len()),
                        None,
                        chance,
                    ),
                    result => Settlement::Completed { result },
                }
            }
            Outcome::Failed { error } => self.after_failure(AttemptOutcome::Failed, error, None, chance),
            Outcome::RetryAfter { delay, error } => {
                self.after_failure(AttemptOutcome::Failed, error, Some(delay), chance)
            }
            Outcome::Snoozed { delay } => Settlement::Snoozed { after: delay.min(MAX_WAIT), error: None },
            Outcome::FailedForGood { error } => Settlement::failed(error),
            Outcome::Cancelled => Settlement::Cancelled,
        }
    }

    /// Decides what follows an attempt that ended badly: another one, after `delay` or the policy's wait, or none.
    pub fn after_failure(
        &self,
        outcome: AttemptOutcome,
        error: String,
        delay: Option<Duration>,
        chance: f64,
    ) -> Settlement {
        // The running attempt is still counted as possibly lost; it ended by itself after all.
        let used = self.attempts_used() + 1;
        let error = cut(error);
        match self.retry.delay_after(used, chance) {
            Some(wait) => Settlement::Retried { outcome, error, after: delay.unwrap_or(wait).min(MAX_WAIT) },
            None => Settlement::Failed { outcome, error },
        }
    }
}

/// Shortens an error to what is kept, at a character's boundary, and replaces what PostgreSQL cannot hold.
fn cut(mut error: String) -> String {
    if error.contains('\0') {
        error = error.replace('\0', "\u{fffd}");
    }
    error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn now() -> DateTime<Utc> {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn pending(attempts: u32) -> Task {
        let mut new = NewTask::new("mail".parse().unwrap());
        new.retry.attempts = attempts;
        new.into_task(now(), now())
    }

    fn running(attempts: u32) -> Task {
        pending(attempts).claim(NodeId::generate(), LEASE, now()).unwrap()
    }

    /// A task in each of its states.
    fn in_state(status: TaskStatus) -> Task {
        let failed = Settlement::Failed { outcome: AttemptOutcome::Failed, error: "no".into() };
        match status {
            TaskStatus::Pending => pending(1),
            TaskStatus::Running => running(1),
            TaskStatus::Completed => {
                running(1).settle(Epoch(1), &Settlement::Completed { result: None }, now()).unwrap()
            }
            TaskStatus::Failed => running(1).settle(Epoch(1), &failed, now()).unwrap(),
            TaskStatus::Cancelled => pending(1).cancel(now()).unwrap(),
        }
    }

    #[test]
    fn every_state_allows_the_moves_of_the_picture_and_no_others() {
        use TaskStatus::{Cancelled, Completed, Failed, Pending, Running};
        let later = now() + LEASE;
        for (from, claim, settle, lose, cancel) in [
            (Pending, Some(Running), None, None, Some(Cancelled)),
            (Running, None, Some(Completed), Some(Pending), Some(Cancelled)),
            (Completed, None, None, None, None),
            (Failed, None, None, None, None),
            (Cancelled, None, None, None, None),
        ] {
            let task = in_state(from);
            let to = |moved: Result<Task, MoveRefused>| moved.ok().map(|task| task.status);
            assert_eq!(to(task.clone().claim(NodeId::generate(), LEASE, later)), claim, "claim from {from:?}");
            let done = Settlement::Completed { result: None };
            assert_eq!(to(task.clone().settle(task.epoch, &done, later)), settle, "settle from {from:?}");
            assert_eq!(to(task.clone().lose(MAX_LOST, later)), lose, "lose from {from:?}");
            assert_eq!(to(task.clone().cancel(later)), cancel, "cancel from {from:?}");
        }
    }

    #[test]
    fn a_task_is_not_claimed_before_its_instant() {
        let early = now() - Duration::from_millis(1);
        assert_eq!(pending(1).claim(NodeId::generate(), LEASE, early), Err(MoveRefused::NotDue));
    }

    #[test]
    fn an_old_epoch_settles_nothing() {
        let done = Settlement::Completed { result: None };
        assert_eq!(running(1).settle(Epoch(0), &done, now()), Err(MoveRefused::LeaseLost));
        assert_eq!(running(1).settle(Epoch(2), &done, now()), Err(MoveRefused::LeaseLost));
    }

    #[test]
    fn attempts_that_ended_by_themselves_are_bounded_and_others_do_not_count() {
        let mut task = pending(2);
        let snooze = Settlement::Snoozed { after: Duration::ZERO, error: None };
        for settlement in [&snooze, &Settlement::HandedBack, &snooze] {
            task = task.claim(NodeId::generate(), LEASE, now()).unwrap();
            task = task.clone().settle(task.epoch, settlement, now()).unwrap();
        }
        assert_eq!((task.attempt, task.attempts_used(), task.epoch), (2, 0, Epoch(3)));

        let later = now() + LEASE;
        task = task.claim(NodeId::generate(), LEASE, now()).unwrap().lose(MAX_LOST, later).unwrap();
        assert_eq!((task.attempt, task.lost, task.attempts_used()), (3, 1, 0));

        task = task.claim(NodeId::generate(), LEASE, later).unwrap();
        let first = task.decide(Outcome::failed("first"), 0.5);
        assert!(matches!(first, Settlement::Retried { after, .. } if after == Duration::from_secs(5)), "{first:?}");
        task = task.clone().settle(task.epoch, &first, later).unwrap();
        assert_eq!((task.attempts_used(), task.run_at), (1, later + Duration::from_secs(5)));

        task = task.clone().claim(NodeId::generate(), LEASE, task.run_at).unwrap();
        let second = task.decide(Outcome::failed("second"), 0.5);
        assert_eq!(second, Settlement::Failed { outcome: AttemptOutcome::Failed, error: "second".into() });
    }

    #[test]
    fn the_third_loss_fails_the_task() {
        let mut task = pending(1);
        let mut at = now();
        for loss in 1..=MAX_LOST {
            task = task.claim(NodeId::generate(), LEASE, at).unwrap();
            at += LEASE;
            task = task.lose(MAX_LOST, at).unwrap();
            let expected = if loss == MAX_LOST { TaskStatus::Failed } else { TaskStatus::Pending };
            assert_eq!((task.status, task.lost), (expected, loss));
        }
        assert_eq!(task.error.as_deref(), Some(LOST_TOO_OFTEN));
    }

    #[test]
    fn an_answer_becomes_a_settlement_by_the_policy() {
        let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
        let once = running(1);
        let twice = running(2);
        let wait = Duration::from_secs(7);
        assert_eq!(
            once.decide(Outcome::Completed { result: Some(raw("[1]")) }, 0.5),
            Settlement::Completed { result: Some(Json::from_stored("[1]")) }
        );
        assert_eq!(
            twice.decide(Outcome::RetryAfter { delay: wait, error: "busy".into() }, 0.5),
            Settlement::Retried { outcome: AttemptOutcome::Failed, error: "busy".into(), after: wait }
        );
        assert_eq!(
            once.decide(Outcome::RetryAfter { delay: wait, error: "busy".into() }, 0.5),
            Settlement::Failed { outcome: AttemptOutcome::Failed, error: "busy".into() }
        );
        assert_eq!(
            twice.decide(Outcome::FailedForGood { error: "gone".into() }, 0.5),
            Settlement::Failed { outcome: AttemptOutcome::Failed, error: "gone".into() }
        );
        assert_eq!(
            once.decide(Outcome::Snoozed { delay: wait }, 0.5),
            Settlement::Snoozed { after: wait, error: None }
        );
        let forever = once.decide(Outcome::Snoozed { delay: Duration::MAX }, 0.5);
        assert_eq!(forever, Settlement::Snoozed { after: MAX_WAIT, error: None });
        assert_eq!(once.decide(Outcome::Cancelled, 0.5), Settlement::Cancelled);
        let large = raw(&format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES)));
        let too_large = once.decide(Outcome::Completed { result: Some(large) }, 0.5);
        assert!(too_large.error().unwrap().contains("at most 65536"), "{too_large:?}");
    }

    #[test]
    fn a_long_error_is_cut_at_a_character_and_nul_is_replaced() {
        let settlement = running(1).decide(Outcome::failed("ü\0".repeat(MAX_ERROR_BYTES)), 0.5);
        let error = settlement.error().unwrap();
        assert!(error.len() <= MAX_ERROR_BYTES && error.starts_with("ü\u{fffd}"));
    }

    #[test]
    fn every_bad_field_is_named() {
        let mut task = NewTask::new("mail".parse().unwrap());
        assert_eq!(task.validate(), Ok(()));
        task.priority = 101;
        task.timeout_seconds = 0;
        task.dedupe_key = Some(String::new());
        task.serial_key = Some("ü".repeat(201));
        task.retry.attempts = 0;
        task.metadata.insert("k".into(), "v".repeat(1024));
        let errors = task.validate().unwrap_err().0;
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["dedupeKey", "serialKey", "priority", "timeoutSeconds", "metadata.k", "retry.attempts"]);
    }
}
