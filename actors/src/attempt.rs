//! One attempt from start to outcome: timeout, panic, stop.

use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::task::{AttemptOutcome, Settlement, Task};
use punctual_sdk::engine::{Overstay, watched};
use punctual_sdk::{Attempt, Context, Outcome};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::serving::{Carried, Performer};

/// Why an attempt was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its task was cancelled: whatever comes of it no longer counts.
    Cancelled,
    /// Its lease is about to end, or was lost: somebody else may begin any moment.
    LeaseEnding,
    /// This node stops: the task goes back as if the attempt had not been.
    HandBack,
}

impl Stop {
    /// How long the attempt may take to stop by itself before it is dropped.
    fn grace(self) -> Duration {
        match self {
            Self::Cancelled | Self::HandBack => GRACE,
            // Inside the margin that `Lease::safe_for` leaves.
            Self::LeaseEnding => Duration::from_millis(100),
        }
    }
}

/// How long an attempt that nobody waits to take over may take to stop by itself.
const GRACE: Duration = Duration::from_secs(1);

/// Tells an attempt to stop; the first reason counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    why: Arc<OnceLock<Stop>>,
    told: CancellationToken,
}

impl Stops {
    /// Tells the attempt to stop; `false` if it was told before.
    pub(crate) fn stop(&self, why: Stop) -> bool {
        let is_first = self.why.set(why).is_ok();
        self.told.cancel();
        is_first
    }

    /// Why it was told to stop, if it was.
    pub(crate) fn why(&self) -> Option<Stop> {
        self.why.get().copied()
    }
}

/// Performs one attempt and says what becomes of its task; `None` if that is no longer ours to say.
pub(crate) async fn perform(
    performer: &Performer,
    task: &Task,
    stops: &Stops,
    now: DateTime<Utc>,
) -> Option<Settlement> {
    let limit = Duration::from_secs(u64::from(task.timeout_seconds));
    // The handler's own copy: what it does with it is heard by nobody else.
    let told = stops.told.child_token();
    let (context, overstay) = watched(&performer.context);
    let Some(attempt) = attempt_of(task, now, limit, told.clone(), context) else {
        let error = "the stored payload is not JSON".to_owned();
        return Some(Settlement::Failed { outcome: AttemptOutcome::Failed, error });
    };
    if let Some(audience) = &performer.audience {
        audience.tell(&task.topic, &attempt);
    }
    // A handler may panic before it has made its future: that too is the attempt's panic.
    let work = AssertUnwindSafe(async { performer.perform(task, attempt).await }).catch_unwind();
    tokio::pin!(work);
    let ended = tokio::select! {
        // Work that never waits costs no timer and no listener.
        biased;
        ended = timeout(limit, &mut work) => ended.ok(),
        () = stops.told.cancelled() => None,
        // To drop the work is to roll back.
        () = overstay.happened() => {
            return Some(task.after_failure(AttemptOutcome::Failed, Overstay::message(), None, chance()));
        }
    };
    let stop = stops.why();
    let late = match (ended, stop) {
        (Some(Ok(Carried::Elsewhere)), _) => return None,
        (Some(Ok(Carried::PutOff { delay, error })), None) => return Some(Settlement::put_off(delay, error)),
        (Some(Ok(Carried::Ended(outcome))), None) => return Some(task.decide(outcome, chance())),
        (Some(Err(panic)), None) => return Some(after_panic(task, &*panic)),
        (Some(ended), Some(_)) => ended.ok(),
        (None, _) => {
            told.cancel();
            let grace = stop.map_or(GRACE, Stop::grace);
            timeout(grace, work).await.ok().and_then(Result::ok)
        }
    };
    match (stop, late) {
        (Some(Stop::Cancelled | Stop::LeaseEnding), _) => None,
        // It was done before we were: that counts.
        (Some(Stop::HandBack), Some(Carried::Ended(outcome @ Outcome::Completed { .. }))) => {
            Some(task.decide(outcome, chance()))
        }
        (_, Some(Carried::Elsewhere)) => None,
        (Some(Stop::HandBack), _) => Some(Settlement::HandedBack),
        (None, _) => {
            let error = format!("timed out after {} s", task.timeout_seconds);
            Some(task.after_failure(AttemptOutcome::TimedOut, error, None, chance()))
        }
    }
}

/// What becomes of a task whose handler panicked.
pub(crate) fn after_panic(task: &Task, panic: &(dyn std::any::Any + Send)) -> Settlement {
    let error = format!("panicked: {}", panic_message(panic));
    task.after_failure(AttemptOutcome::Panicked, error, None, chance())
}

fn attempt_of(
    task: &Task,
    now: DateTime<Utc>,
    limit: Duration,
    cancelled: CancellationToken,
    context: Context,
) -> Option<Attempt> {
    Some(Attempt {
        task_id: task.id.0,
        topic: task.topic.to_string(),
        payload: task.payload.to_raw().ok()?,
        metadata: task.metadata.clone(),
        timezone: task.timezone.clone(),
        number: task.attempt,
        epoch: task.epoch.0,
        run_at: task.run_at,
        schedule_id: task.fire.map(|fire| fire.schedule_id.0),
        scheduled_at: task.fire.map(|fire| fire.scheduled_at),
        started_at: now,
        deadline: now + limit,
        cancelled,
        context,
    })
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// A number from 0 up to 1, for jitter.
pub(crate) fn chance() -> f64 {
    // The keys of a new hasher differ each time, and cost no call of the system.
    let random = RandomState::new().hash_one(()) >> 11;
    random as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::id::NodeId;
    use punctual_domain::task::NewTask;

    fn now() -> DateTime<Utc> {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn running(timeout_seconds: u32) -> Task {
        let mut new = NewTask::new("mail".parse().unwrap());
        new.timeout_seconds = timeout_seconds;
        new.into_task(now(), now()).claim(NodeId::generate(), Duration::from_secs(30), now()).unwrap()
    }

    fn does(
        work: impl Fn(Attempt) -> futures::future::BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Performer {
        Performer::of("", Arc::new(work))
    }

    #[tokio::test]
    async fn a_panic_is_an_outcome_with_its_message() {
        let handler = does(|_| Box::pin(async { panic!("boom {}", 1) }));
        let settlement = perform(&handler, &running(60), &Stops::default(), now()).await.unwrap();
        assert_eq!(
            settlement,
            Settlement::Failed { outcome: AttemptOutcome::Panicked, error: "panicked: boom 1".into() }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_is_a_timeout() {
        let handler = does(|_| Box::pin(futures::future::pending()));
        let settlement = perform(&handler, &running(5), &Stops::default(), now()).await.unwrap();
        assert_eq!(
            settlement,
            Settlement::Failed { outcome: AttemptOutcome::TimedOut, error: "timed out after 5 s".into() }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_handed_back_attempt_is_told_and_then_dropped() {
        let handler = does(|_| Box::pin(futures::future::pending()));
        let stops = Stops::default();
        stops.stop(Stop::HandBack);
        assert_eq!(perform(&handler, &running(60), &stops, now()).await, Some(Settlement::HandedBack));
    }

    #[tokio::test]
    async fn an_attempt_that_ends_well_on_the_signal_counts_when_handed_back_and_not_when_cancelled() {
        let handler = does(|attempt| {
            Box::pin(async move {
                attempt.cancelled.cancelled().await;
                Outcome::completed()
            })
        });
        for (why, expected) in [(Stop::HandBack, Some(Settlement::Completed { result: None })), (Stop::Cancelled, None)]
        {
            let stops = Stops::default();
            stops.stop(why);
            assert_eq!(perform(&handler, &running(60), &stops, now()).await, expected);
        }
    }

    #[tokio::test]
    async fn the_handler_sees_the_task() {
        let handler = does(|attempt| {
            Box::pin(async move { Outcome::completed_with((attempt.number, attempt.epoch, attempt.topic)) })
        });
        let settlement = perform(&handler, &running(60), &Stops::default(), now()).await.unwrap();
        assert_eq!(settlement.result().unwrap().as_str(), r#"[1,1,"mail"]"#);
    }
}
