//! The route `webhook`: an attempt is a signed call to the topic's URL, and the answer is its outcome.
//!
//! | answer | the attempt |
//! |---|---|
//! | 202 | goes on elsewhere: the receiver settles it by the API, with the fence as its epoch, within the task's time limit |
//! | any other 2xx | has completed, with the answer as its result |
//! | 410 | has failed for good |
//! | 429 or 503 with `Retry-After` | is tried again then, if attempts are left |
//! | anything else, or none | has failed; the retry policy decides |
//!
//! One that finds no place at a host with many calls under way is put off, and uses up no attempt: nobody was called.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::SecondsFormat;
use punctual_actors::{Carried, Carrier};
use punctual_domain::clock::Clock;
use punctual_domain::retry::MAX_DELAY_MS;
use punctual_domain::store::{Extension, Store};
use punctual_domain::task::Task;
use punctual_domain::topic::Route;
use punctual_sdk::{Arrival, Attempt, Context, Outcome};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::json;
use tracing::warn;

use super::courier::{Answered, Courier, Parcel, Unanswered};

/// The longest lease that a receiver gets; it may extend it.
const LONGEST_LEASE_SECONDS: u32 = 3600;
/// How often, and after which pause, it is tried to give a receiver its lease.
const HAND_OVERS: u32 = 3;
const BETWEEN_HAND_OVERS: Duration = Duration::from_millis(200);
/// The longest wait for a place at a host, and how long whoever found none is put off.
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);
const PUT_OFF: Duration = Duration::from_secs(1);
/// How much an error says of the answer, in bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;

/// Serves topics by webhooks.
pub(crate) struct Webhooks {
    pub(crate) courier: Courier,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What a receiver reads.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: String,
    data: &'a Arrival,
}

#[async_trait]
impl Carrier for Webhooks {
    fn serves(&self, route: &Route) -> bool {
        matches!(route, Route::Webhook { .. })
    }

    async fn carry(&self, route: &Route, task: &Task, attempt: Attempt) -> Carried {
        let Route::Webhook { url, secrets } = route else {
            return Carried::Ended(Outcome::failed("the topic is not served by a webhook"));
        };
        let arrival = Arrival::of(&attempt, Context::default());
        let timestamp = self.clock.now().to_rfc3339_opts(SecondsFormat::Millis, true);
        let body = match serde_json::to_string(&Body { kind: Arrival::NAME, timestamp, data: &arrival }) {
            Ok(body) => body,
            Err(error) => return Carried::Ended(Outcome::failed(error)),
        };
        let mut headers = HeaderMap::new();
        headers.insert("punctual-fence", task.epoch.0.into());
        headers.insert("punctual-attempt", attempt.number.into());
        let parcel = Parcel { url, secrets, id: task.id.to_string(), body, headers };
        match self.courier.take(parcel, patience(task.timeout_seconds)).await {
            Ok(answered) if answered.status == StatusCode::ACCEPTED => {
                self.hand_over(task).await;
                Carried::Elsewhere
            }
            Ok(answered) => Carried::Ended(outcome(answered)),
            Err(Unanswered::Busy) => Carried::Ended(Outcome::Snoozed { delay: PUT_OFF }),
            Err(Unanswered::Failed(error)) => Carried::Ended(Outcome::failed(error)),
        }
    }
}

/// How long an attempt with that time limit waits for a place: most of its time is for the call.
fn patience(timeout_seconds: u32) -> Duration {
    (Duration::from_secs(timeout_seconds.into()) / 4).min(LONGEST_PATIENCE)
}

impl Webhooks {
    /// Gives the receiver the lease, for as long as an attempt may take. Without one the task is attempted again when ours
    /// ends, unless it was settled by then.
    async fn hand_over(&self, task: &Task) {
        let held = Extension { task_id: task.id, epoch: task.epoch };
        for _ in 0..HAND_OVERS {
            let seconds = task.timeout_seconds.clamp(1, LONGEST_LEASE_SECONDS);
            match self.store.hand_to_worker(held, seconds).await {
                Ok(_) => return,
                Err(error) => warn!(task_id = %task.id, %error, "the lease was not handed over"),
            }
            tokio::time::sleep(BETWEEN_HAND_OVERS).await;
        }
    }
}

/// What an answer means for the attempt.
fn outcome(answered: Answered) -> Outcome {
    let Answered { status, retry_after, body, is_cut } = answered;
    if status.is_success() {
        return match is_cut {
            true => Outcome::completed_with(json!({"status": status.as_u16(), "body": body, "truncated": true})),
            false => Outcome::completed_with(json!({"status": status.as_u16(), "body": body})),
        };
    }
    let mut error = format!("answered {status}");
    if status.is_redirection() {
        error += ", and redirects are not followed";
    }
    if !body.trim().is_empty() {
        error = format!("{error}: {}", body.trim());
        error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
    }
    match (status, retry_after) {
        (StatusCode::GONE, _) => Outcome::FailedForGood { error },
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(delay)) => {
            Outcome::RetryAfter { delay: delay.min(Duration::from_millis(MAX_DELAY_MS)), error }
        }
        _ => Outcome::Failed { error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, retry_after: Option<u64>, body: &str) -> Answered {
        let status = StatusCode::from_u16(status).unwrap();
        Answered { status, retry_after: retry_after.map(Duration::from_secs), body: body.into(), is_cut: false }
    }

    #[test]
    fn every_answer_means_something_for_the_attempt() {
        for (status, retry_after, meaning) in [
            (200, None, r#"Completed"#),
            (201, None, r#"Completed"#),
            (204, Some(5), r#"Completed"#),
            (410, Some(5), r#"FailedForGood { error: "answered 410 Gone: no" }"#),
            (429, Some(5), r#"RetryAfter { delay: 5s, error: "answered 429 Too Many Requests: no" }"#),
            (503, Some(0), r#"RetryAfter { delay: 0ns, error: "answered 503 Service Unavailable: no" }"#),
            (503, Some(u64::MAX), r#"RetryAfter { delay: 31536000s, error: "answered 503 Service Unavailable: no" }"#),
            (429, None, r#"Failed { error: "answered 429 Too Many Requests: no" }"#),
            (500, Some(5), r#"Failed { error: "answered 500 Internal Server Error: no" }"#),
            (404, None, r#"Failed { error: "answered 404 Not Found: no" }"#),
            (302, None, r#"Failed { error: "answered 302 Found, and redirects are not followed: no" }"#),
        ] {
            let outcome = format!("{:?}", outcome(answered(status, retry_after, " no\n")));
            assert!(outcome.starts_with(meaning), "{status} {retry_after:?}: {outcome}");
        }
    }

    #[test]
    fn most_of_the_time_limit_is_for_the_call() {
        for (limit, milliseconds) in [(1, 250), (60, 15_000), (120, 30_000), (3600, 30_000)] {
            assert_eq!(patience(limit), Duration::from_millis(milliseconds), "{limit}");
        }
    }

    #[test]
    fn what_was_answered_is_kept() {
        let Outcome::Completed { result: Some(result) } = outcome(answered(201, None, "fine\n")) else { panic!() };
        assert_eq!(result.get(), r#"{"body":"fine\n","status":201}"#);
        let cut = Answered { is_cut: true, ..answered(200, None, "fine") };
        let Outcome::Completed { result: Some(result) } = outcome(cut) else { panic!() };
        assert_eq!(result.get(), r#"{"body":"fine","status":200,"truncated":true}"#);
        let Outcome::Failed { error } = outcome(answered(500, None, &"é".repeat(20_000))) else { panic!() };
        assert!(error.len() <= MAX_ERROR_BYTES);
    }
}
