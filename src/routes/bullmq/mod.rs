//! The route `bullmq`: a due task becomes a job of a BullMQ queue, and unmodified workers of BullMQ run it.
//!
//! An attempt here is the hand-over. First the queue accepts the job, by one script that does nothing if the job is there
//! already; then the store notes it, and the task runs without a lease. Whatever is cut short in between is repeated by the
//! next claim, and the repeat finds the job. From then on the [`Keeper`] follows the queue's events and settles the task;
//! what a queue has lost, it hands over again.
//!
//! The script is our own. The crate `bullmq-official` (1.4.4) hands over as release 6 does: while a queue is paused it pushes to `wait`, where
//! a queue that release 5 paused loses the job when it goes on; and its `add` answers the same for a new job and for one that was there.
//!
//! While Redis is away an attempt waits for it, and gives the task back after a while without using up an attempt; at once, if Redis
//! refuses the job. A task that is cancelled meanwhile is not handed over any more: Redis makes no job that we have stopped
//! waiting for, and one that it may have made before is removed.

mod attention;
mod job;
mod keeper;
mod redis;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual_actors::{Carried, Carrier};
use punctual_domain::hand_over::{NewHandOver, Queue, time_limit};
use punctual_domain::id::FireId;
use punctual_domain::store::{Extension, Store};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::topic::Route;
use punctual_sdk::{Attempt, Outcome};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

pub(crate) use self::redis::{Accepted, Queues};
pub(crate) use attention::Attention;
pub(crate) use job::Job;
pub(crate) use keeper::{Keeper, Parts};

use self::redis::Removed;
use crate::redis::{NotNow, PATIENCE as ANSWER};

/// How long an attempt waits for Redis before it gives the task back, and for how long then.
const PATIENCE: Duration = Duration::from_secs(20);
const SNOOZE: Duration = Duration::from_secs(1);
/// A task that is refused again and again waits twice as long each time, up to 2^this times.
const MOST_DOUBLINGS: u32 = 5;
/// The first and the longest wait before Redis is asked again.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often, and after which pause, it is tried to note a hand-over.
const NOTES: u32 = 5;
const BETWEEN_NOTES: Duration = Duration::from_millis(200);
/// How often, and after which pause, it is tried to remove the job of a task that was cancelled while it was handed over.
const WITHDRAWALS: u32 = 600;
const BETWEEN_WITHDRAWALS: Duration = Duration::from_secs(1);

/// Hands tasks to queues.
#[derive(Clone)]
pub(crate) struct Bullmq {
    pub(crate) queues: Queues,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
    /// The queues that last refused a job.
    pub(crate) refusing: Arc<Mutex<HashSet<Queue>>>,
}

#[async_trait]
impl Carrier for Bullmq {
    fn serves(&self, route: &Route) -> bool {
        matches!(route, Route::Bullmq { .. })
    }

    async fn carry(&self, route: &Route, task: &Task, attempt: Attempt) -> Carried {
        let Route::Bullmq { queue, prefix } = route else {
            return Carried::Ended(Outcome::failed("the topic is not served by a queue"));
        };
        let queue = Queue { prefix: prefix.clone(), name: queue.clone() };
        // The attempt's own limit must not be what ends the wait: that would use it up.
        let patience = PATIENCE.min(Duration::from_secs(u64::from(task.timeout_seconds)) / 2);
        let (began_at, mut wait) = (Instant::now(), FIRST_WAIT);
        let mut unsure = Unsure { of: self, queue: &queue, task, execution: None, may_be_there: false };
        let error = loop {
            let error = match self.accepted(&mut unsure).await {
                Ok(Some(job_id)) => {
                    self.note(&mut unsure, job_id).await;
                    return Carried::Elsewhere;
                }
                // Nobody asks for it any more.
                Ok(None) => return Carried::Elsewhere,
                Err(error) if error.is_refusal() => {
                    self.was_refused(&queue, &error);
                    break error;
                }
                Err(error) => error,
            };
            debug!(task_id = %task.id, %queue, %error, "not handed over yet");
            if began_at.elapsed() + wait > patience {
                return Carried::PutOff { delay: SNOOZE, error: error.to_string() };
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = attempt.cancelled.cancelled() => return Carried::Ended(Outcome::Snoozed { delay: SNOOZE }),
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        };
        let error = format!("the queue {} does not take it: {error}", queue.name);
        Carried::PutOff { delay: SNOOZE * 2_u32.pow(task.snoozes.min(MOST_DOUBLINGS)), error }
    }
}

/// A hand-over under way. Where that is broken off, the queue may have the job, and nobody would know.
struct Unsure<'a> {
    of: &'a Bullmq,
    queue: &'a Queue,
    task: &'a Task,
    execution: Option<FireId>,
    may_be_there: bool,
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if !self.may_be_there {
            return;
        }
        let (of, queue) = (self.of.clone(), self.queue.clone());
        let (task, execution) = (self.task.clone(), self.execution);
        // Without a runtime nobody is left to do anything.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { of.withdraw(&queue, &task, execution).await });
        }
    }
}

impl Bullmq {
    /// Has the queue accept the task; answers the id of its job, or `None` if the task does not run by our claim any more.
    async fn accepted(&self, unsure: &mut Unsure<'_>) -> Result<Option<String>, NotNow> {
        let (queue, task) = (unsure.queue, unsure.task);
        // Right after the claim it does; later somebody may have cancelled it, on another node too.
        if unsure.may_be_there && !self.is_ours(task).await? {
            return Ok(None);
        }
        let execution = self.store.execution_of(task.id, task.fire).await?;
        let job = Job::of_task(task, execution);
        unsure.execution = execution;
        unsure.may_be_there = true;
        let accepted = self.queues.hand_over(queue, &job).await?;
        self.is_taking(queue);
        count(accepted);
        if accepted == Accepted::Made || !job.id.starts_with("f_") {
            return Ok(Some(job.id));
        }
        // Two fires of one schedule within a millisecond, such as two triggers, are two tasks.
        if is_of(&self.queues, queue, &job.id, execution).await? {
            return Ok(Some(job.id));
        }
        let job = Job::of_its_own(task, execution);
        count(self.queues.hand_over(queue, &job).await?);
        Ok(Some(job.id))
    }

    /// Whether a task runs by our claim.
    async fn is_ours(&self, task: &Task) -> Result<bool, NotNow> {
        let found = self.store.task(task.id).await?;
        Ok(found.is_some_and(|found| found.task.status == TaskStatus::Running && found.task.epoch == task.epoch))
    }

    /// Notes that the queue has the task. Without that it is handed over again when our lease ends, which changes nothing.
    async fn note(&self, unsure: &mut Unsure<'_>, job_id: String) {
        let (queue, task) = (unsure.queue, unsure.task);
        let held = Extension { task_id: task.id, epoch: task.epoch };
        let hand_over = NewHandOver { queue: queue.clone(), job_id, limit: time_limit(task) };
        for _ in 0..NOTES {
            match self.store.hand_over(held, &hand_over).await {
                Ok(is_held) => {
                    if is_held {
                        unsure.may_be_there = false;
                        self.attention.handed_to(queue);
                        self.look_after(&hand_over).await;
                    }
                    return;
                }
                Err(error) => warn!(task_id = %task.id, %queue, %error, "hand-over not noted"),
            }
            sleep(BETWEEN_NOTES).await;
        }
    }

    /// A job that has ended by now may have done so before anybody knew whose it is.
    async fn look_after(&self, hand_over: &NewHandOver) {
        let NewHandOver { queue, job_id, .. } = hand_over;
        let found = self.queues.look_up(queue, &[job_id]).await;
        if found.is_ok_and(|found| found.into_iter().flatten().any(|found| found.end.is_some())) {
            self.attention.ended(queue, job_id);
        }
    }

    /// Removes the job of a task that has ended while it was handed over; at once, and once more when Redis makes it no more.
    async fn withdraw(&self, queue: &Queue, task: &Task, execution: Option<FireId>) {
        let task_id = task.id;
        let settled_at = Instant::now() + ANSWER;
        for _ in 0..WITHDRAWALS {
            let is_last = Instant::now() >= settled_at;
            match self.withdraw_now(queue, task, execution).await {
                Ok(()) if is_last => return,
                Ok(()) => tokio::time::sleep_until(settled_at).await,
                Err(error) => {
                    debug!(%task_id, %queue, %error, "the job of a cancelled task is not removed yet");
                    sleep(BETWEEN_WITHDRAWALS).await;
                }
            }
        }
        warn!(%task_id, %queue, "the job of a cancelled task may still be in the queue");
    }

    async fn withdraw_now(&self, queue: &Queue, task: &Task, execution: Option<FireId>) -> Result<(), NotNow> {
        match self.store.task(task.id).await? {
            // Whoever claims it next finds the job.
            Some(found) if !found.task.status.has_ended() => Ok(()),
            _ => match remove_jobs_of(&self.queues, queue, task, execution).await? {
                Removed::IsRunning => {
                    info!(task_id = %task.id, %queue, "a worker had begun the job of a task that was cancelled");
                    Ok(())
                }
                Removed::Now | Removed::Over => Ok(()),
            },
        }
    }

    /// Says once that a queue takes nothing.
    fn was_refused(&self, queue: &Queue, error: &NotNow) {
        if self.refusing.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.clone()) {
            warn!(%queue, %error, "the queue does not take tasks; they are put off");
        }
    }

    fn is_taking(&self, queue: &Queue) {
        let mut refusing = self.refusing.lock().unwrap_or_else(PoisonError::into_inner);
        if !refusing.is_empty() && refusing.remove(queue) {
            info!(%queue, "the queue takes tasks again");
        }
    }
}

/// Removes whatever jobs of a task are in a queue and have not begun.
async fn remove_jobs_of(
    queues: &Queues,
    queue: &Queue,
    task: &Task,
    execution: Option<FireId>,
) -> Result<Removed, NotNow> {
    let mut ids = vec![Job::of_task(task, execution).id, Job::of_its_own(task, execution).id];
    ids.dedup();
    let mut removed = Removed::Over;
    for id in ids {
        if id.starts_with("f_") && !is_of(queues, queue, &id, execution).await? {
            continue;
        }
        removed = removed.max(queues.remove(queue, &id).await?);
    }
    Ok(removed)
}

/// Whether the job of a fire is that of this execution.
async fn is_of(queues: &Queues, queue: &Queue, job_id: &str, execution: Option<FireId>) -> Result<bool, NotNow> {
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "_executionId")]
        execution: Option<String>,
    }
    let data = queues.data(queue, job_id).await?;
    let theirs = data.and_then(|data| serde_json::from_str::<Data>(&data).ok()).and_then(|data| data.execution);
    Ok(theirs == execution.map(|id| id.to_string()))
}

/// Counts a hand-over.
fn count(accepted: Accepted) {
    let result = match accepted {
        Accepted::Made => "queued",
        Accepted::WasThere => "was_there",
    };
    metrics::counter!("punctual_hand_overs_total", "result" => result).increment(1);
}
