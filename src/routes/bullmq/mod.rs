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
//! While Redis is away an attempt waits for it, and gives the task back after a while without using up an attempt.

mod attention;
mod job;
mod keeper;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_actors::{Carried, Carrier};
use punctual_domain::hand_over::{NewHandOver, Queue, time_limit};
use punctual_domain::store::{Extension, Store};
use punctual_domain::task::Task;
use punctual_domain::topic::Route;
use punctual_sdk::{Attempt, Outcome};
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

pub(crate) use self::redis::{Accepted, Queues};
pub(crate) use attention::Attention;
pub(crate) use job::Job;
pub(crate) use keeper::{Keeper, Parts};

/// How long an attempt waits for Redis before it gives the task back, and for how long then.
const PATIENCE: Duration = Duration::from_secs(20);
const SNOOZE: Duration = Duration::from_secs(1);
/// The first and the longest wait before Redis is asked again.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// How often, and after which pause, it is tried to note a hand-over.
const NOTES: u32 = 5;
const BETWEEN_NOTES: Duration = Duration::from_millis(200);

/// Hands tasks to queues.
pub(crate) struct Bullmq {
    pub(crate) queues: Queues,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
}

#[async_trait]
impl Carrier for Bullmq {
    fn serves(&self, route: &Route) -> bool {
        matches!(route, Route::Bullmq { .. })
    }

    async fn carry(&self, route: &Route, task: &Task, _: Attempt) -> Carried {
        let Route::Bullmq { queue, prefix } = route else {
            return Carried::Ended(Outcome::failed("the topic is not served by a queue"));
        };
        let queue = Queue { prefix: prefix.clone(), name: queue.clone() };
        // The attempt's own limit must not be what ends the wait: that would use it up.
        let patience = PATIENCE.min(Duration::from_secs(u64::from(task.timeout_seconds)) / 2);
        let (began_at, mut wait) = (Instant::now(), FIRST_WAIT);
        let job_id = loop {
            match self.accepted(&queue, task).await {
                Ok(job_id) => break job_id,
                Err(error) => debug!(task_id = %task.id, %queue, error, "not handed over yet"),
            }
            if began_at.elapsed() + wait > patience {
                return Carried::Ended(Outcome::Snoozed { delay: SNOOZE });
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        };
        self.note(&queue, job_id, task).await;
        Carried::Elsewhere
    }
}

impl Bullmq {
    /// Has the queue accept the task; answers the id of its job.
    async fn accepted(&self, queue: &Queue, task: &Task) -> Result<String, String> {
        let execution = self.store.execution_of(task).await.map_err(|error| error.to_string())?;
        let job = Job::of_task(task, execution);
        let accepted = self.queues.hand_over(queue, &job).await.map_err(|error| error.to_string())?;
        count(accepted);
        if accepted == Accepted::Made || task.fire.is_none() || !job.id.starts_with("f_") {
            return Ok(job.id);
        }
        // Two fires of one schedule within a millisecond, such as two triggers, are two tasks.
        #[derive(Deserialize)]
        struct Data {
            #[serde(rename = "_executionId")]
            execution: Option<String>,
        }
        let data = self.queues.data(queue, &job.id).await.map_err(|error| error.to_string())?;
        let theirs = data.and_then(|data| serde_json::from_str::<Data>(&data).ok()).and_then(|data| data.execution);
        if theirs == execution.map(|id| id.to_string()) {
            return Ok(job.id);
        }
        let job = Job::of_its_own(task, execution);
        count(self.queues.hand_over(queue, &job).await.map_err(|error| error.to_string())?);
        Ok(job.id)
    }

    /// Notes that the queue has the task. Without that it is handed over again when our lease ends, which changes nothing.
    async fn note(&self, queue: &Queue, job_id: String, task: &Task) {
        let held = Extension { task_id: task.id, epoch: task.epoch };
        let hand_over = NewHandOver { queue: queue.clone(), job_id, limit: time_limit(task) };
        for _ in 0..NOTES {
            match self.store.hand_over(held, &hand_over).await {
                Ok(is_held) => {
                    if is_held {
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
}

/// Counts a hand-over.
fn count(accepted: Accepted) {
    let result = match accepted {
        Accepted::Made => "queued",
        Accepted::WasThere => "was_there",
    };
    metrics::counter!("punctual_hand_overs_total", "result" => result).increment(1);
}
