//! One attempt from start to outcome: timeout, panic, stop.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::task::{AttemptOutcome, Settlement, Task};
use punctual_sdk::{Attempt, Handler, Outcome};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long an attempt that was told to stop may take to do so.
const GRACE: Duration = Duration::from_secs(1);

/// Why an attempt was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its task was cancelled, or its lease is about to end: whatever comes of it no longer counts.
    Void,
    /// This node stops: the task goes back as if the attempt had not been.
    HandBack,
}

/// An attempt's two ways to be stopped; the handler sees the signal of both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops {
    void: CancellationToken,
    hand_back: CancellationToken,
}

impl Stops {
    /// Tells the attempt to stop.
    pub(crate) fn stop(&self, why: Stop) {
        match why {
            Stop::Void => self.void.cancel(),
            Stop::HandBack => self.hand_back.cancel(),
        }
    }

    async fn stopped(&self) -> Stop {
        tokio::select! {
            () = self.void.cancelled() => Stop::Void,
            () = self.hand_back.cancelled() => Stop::HandBack,
        }
    }
}

/// Performs one attempt and says what becomes of its task; `None` if that is no longer ours to say.
pub(crate) async fn perform(
    handler: &Arc<dyn Handler>,
    task: &Task,
    stops: &Stops,
    now: DateTime<Utc>,
) -> Option<Settlement> {
    let limit = Duration::from_secs(u64::from(task.timeout_seconds));
    let told = CancellationToken::new();
    let Some(attempt) = attempt_of(task, now + limit, told.clone()) else {
        let error = "the stored payload is not JSON".to_owned();
        return Some(Settlement::Failed { outcome: AttemptOutcome::Failed, error });
    };
    let work = AssertUnwindSafe(handler.handle(attempt)).catch_unwind();
    tokio::pin!(work);
    let stop = tokio::select! {
        ended = timeout(limit, &mut work) => match ended {
            Ok(Ok(outcome)) => return Some(task.decide(outcome, chance())),
            Ok(Err(panic)) => {
                let error = format!("panicked: {}", panic_message(&*panic));
                return Some(task.after_failure(AttemptOutcome::Panicked, error, None, chance()));
            }
            Err(_) => None,
        },
        stop = stops.stopped() => Some(stop),
    };
    told.cancel();
    // Ending well after having been told to stop is still an end; the store decides whether it counts.
    let late = timeout(GRACE, work).await.ok().and_then(Result::ok);
    match (stop, late) {
        (Some(Stop::Void), _) => None,
        (Some(Stop::HandBack), Some(outcome @ Outcome::Completed { .. })) => Some(task.decide(outcome, chance())),
        (Some(Stop::HandBack), _) => Some(Settlement::HandedBack),
        (None, _) => {
            let error = format!("timed out after {} s", task.timeout_seconds);
            Some(task.after_failure(AttemptOutcome::TimedOut, error, None, chance()))
        }
    }
}

fn attempt_of(task: &Task, deadline: DateTime<Utc>, cancelled: CancellationToken) -> Option<Attempt> {
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
        deadline,
        cancelled,
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// A number from 0 up to 1, for jitter.
fn chance() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128() as u64 >> 11;
    random as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
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

    struct Does<F>(F);

    #[async_trait]
    impl<F: Fn(Attempt) -> futures::future::BoxFuture<'static, Outcome> + Send + Sync> Handler for Does<F> {
        async fn handle(&self, attempt: Attempt) -> Outcome {
            (self.0)(attempt).await
        }
    }

    fn does(
        work: impl Fn(Attempt) -> futures::future::BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Arc<dyn Handler> {
        Arc::new(Does(work))
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
    async fn an_attempt_that_ends_well_on_the_signal_counts_when_handed_back_and_not_when_void() {
        let handler = does(|attempt| {
            Box::pin(async move {
                attempt.cancelled.cancelled().await;
                Outcome::completed()
            })
        });
        for (why, expected) in [(Stop::HandBack, Some(Settlement::Completed { result: None })), (Stop::Void, None)] {
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
