//! Hand-overs: tasks that a queue outside has accepted, and that run there without a lease until the queue says how they ended.
//!
//! A hand-over *counts* while its task runs by its epoch and without an end of the lease. The row outlives that for as long as
//! it takes to look after the queue's job. Each retry of the job is an attempt of the task. Between the end of one and the beginning
//! of the next the task *rests*: it runs by the next epoch already, and its attempt is still the one that failed.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::id::{Epoch, MessageId, TaskId};
use crate::task::{FireOfTask, Task};
use crate::topic::{Route, Topic, TopicDefinition};

/// A queue in Redis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue {
    /// What its keys begin with.
    pub prefix: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.prefix, self.name)
    }
}

/// A task to be noted as handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHandOver {
    /// To which queue.
    pub queue: Queue,
    /// What the queue calls it.
    pub job_id: String,
    /// How long it may take there, from now on.
    pub limit: Duration,
}

/// A task that was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The task.
    pub task_id: TaskId,
    /// The epoch it runs by; 0 if nobody noted whether it was handed over.
    pub epoch: Epoch,
    /// To which queue.
    pub queue: Queue,
    /// What the queue calls it.
    pub job_id: String,
    /// The number of the attempt that was the first of the job.
    pub first_attempt: u32,
    /// When it was handed over.
    pub handed_over_at: DateTime<Utc>,
    /// When its time is up.
    pub ends_at: DateTime<Utc>,
    /// How far it has come, as its worker last said, in JSON.
    pub progress: Option<String>,
    /// What its task is; `None` if the hand-over does not count any more.
    pub task: Option<HandedOver>,
}

impl HandOver {
    /// Whether the queue has accepted it. Else it may have: a node can crash before it notes that.
    pub fn is_certain(&self) -> bool {
        self.epoch > Epoch(0)
    }
}

/// The task of a hand-over that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOver {
    /// Its topic.
    pub topic: Topic,
    /// The number of its present attempt.
    pub attempt: u32,
    /// When that began.
    pub started_at: DateTime<Utc>,
    /// The time limit of one attempt.
    pub timeout_seconds: u32,
    /// Whether that has failed, and the next has not begun.
    pub rests: bool,
    /// Whether a fire made it.
    pub is_of_schedule: bool,
    /// Whether others may wait for it.
    pub has_serial_key: bool,
}

/// A task that is cancelled after it had begun: a queue may have it, whether or not anybody noted that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawn {
    /// The task.
    pub task_id: TaskId,
    /// Its topic.
    pub topic: Topic,
    /// The fire that its job is called after, if it is called after one.
    pub fire: Option<FireOfTask>,
}

impl Withdrawn {
    /// Which queue may have it, and as which job; none if no queue serves its topic.
    pub fn place(&self, definitions: &[TopicDefinition]) -> Option<(Queue, String)> {
        match &TopicDefinition::for_topic(definitions, &self.topic)?.route {
            Route::Bullmq { queue, prefix } => {
                let queue = Queue { prefix: prefix.clone(), name: queue.clone() };
                Some((queue, job_id(self.task_id, self.fire)))
            }
            _ => None,
        }
    }
}

/// What a queue did with the attempts of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The task.
    pub task_id: TaskId,
    /// The epoch it runs by.
    pub epoch: Epoch,
    /// What it did.
    pub step: Step,
}

/// A step in the life of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The present attempt failed, and is not the last: the epoch grows.
    Failed {
        /// Why.
        error: String,
    },
    /// The next attempt began.
    Began,
}

/// A message that a queue was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageJob {
    /// The message.
    pub message_id: MessageId,
    /// What the queue calls it.
    pub job_id: String,
}

/// What queues call the job of a task, which may be called after a fire.
pub fn job_id(task_id: TaskId, fire: Option<FireOfTask>) -> String {
    match fire {
        Some(fire) => format!("f_{}_{}", fire.schedule_id, fire.scheduled_at.timestamp_millis()),
        None => format!("t_{task_id}"),
    }
}

/// How many attempts a queue may make of a task that is claimed or runs there.
pub fn attempts_left(task: &Task) -> u32 {
    task.retry.attempts.saturating_sub(task.attempts_used()).max(1)
}

/// The longest that a queue may take for a task: a hundred years. Waits that double reach farther than any clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How long a queue may take for a task: the time limit of every attempt that is left, and the waits between them. The queue
/// makes these, which counts them from its own first attempt on and knows no longest one.
pub fn time_limit(task: &Task) -> Duration {
    let attempts = attempts_left(task);
    let waits =
        (1..attempts).map(|n| task.retry.backoff.wait_in_queue(n)).fold(Duration::ZERO, Duration::saturating_add);
    let runs = Duration::from_secs(u64::from(task.timeout_seconds)).saturating_mul(attempts);
    runs.saturating_add(waits).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::{Backoff, Growth, RetryPolicy};
    use crate::task::NewTask;
    use crate::topic::TopicPattern;

    #[test]
    fn what_is_withdrawn_is_where_the_closest_definition_leads() {
        let bullmq = |queue: &str| Route::Bullmq { queue: queue.into(), prefix: "bull".into() };
        let routes = [("mail.*", bullmq("mail")), ("mail.bulk", bullmq("bulk")), ("mail.own", Route::Pull)];
        let definitions = routes.map(|(name, route)| TopicDefinition::new(TopicPattern::from_stored(name), route));
        for (topic, queue) in
            [("mail.one", Some("mail")), ("mail.bulk", Some("bulk")), ("mail.own", None), ("other", None)]
        {
            let withdrawn = Withdrawn { task_id: TaskId::generate(), topic: Topic::from_stored(topic), fire: None };
            let found = withdrawn.place(&definitions);
            let expected = queue.map(|name| {
                let queue = Queue { prefix: "bull".into(), name: name.into() };
                (queue, format!("t_{}", withdrawn.task_id))
            });
            assert_eq!(found, expected, "{topic}");
        }
    }

    #[test]
    fn the_time_is_that_of_all_attempts_and_the_waits_between_them() {
        let backoff = |growth, delay| Backoff { growth, delay, max_delay: 10_000, jitter: 0.0 };
        for (attempts, growth, delay, used, left, seconds) in [
            (1, Growth::Fixed, 1_000, 0, 1, 60),
            (3, Growth::Fixed, 1_000, 0, 3, 182),
            (3, Growth::Fixed, 1_000, 2, 1, 60),
            (4, Growth::Exponential, 1_000, 0, 4, 247),
            // 8, 16 and 32 s: a queue knows no longest wait.
            (4, Growth::Exponential, 8_000, 0, 4, 296),
            (10, Growth::Exponential, 1_000, 0, 10, 600 + 511),
            // It counts from its own first attempt on.
            (10, Growth::Exponential, 1_000, 7, 3, 180 + 3),
            (1_000, Growth::Exponential, 1, 0, 1_000, 100 * 365 * 24 * 60 * 60),
            (1_000, Growth::Exponential, 0, 0, 1_000, 60_000),
        ] {
            let now = "2026-11-16T12:00:00Z".parse().unwrap();
            let mut new = NewTask::new("queue".parse().unwrap());
            new.timeout_seconds = 60;
            new.retry = RetryPolicy { attempts, backoff: backoff(growth, delay) };
            let mut task = new.into_task(now, now);
            // The present one counts as possibly lost until it is settled.
            (task.attempt, task.lost) = (used + 1, 1);
            let found = (attempts_left(&task), time_limit(&task));
            assert_eq!(found, (left, Duration::from_secs(seconds)), "{attempts} {growth:?} {delay} {used}");
        }
    }
}
