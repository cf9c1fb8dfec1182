//! `/api/v1/tasks/{id}/heartbeat`, `/complete` and `/fail`: what a worker says about a task it holds.
//!
//! The epoch of its claim is the right to say it. A settle that comes again, because its answer got lost, is answered as
//! before; one by any other epoch, or with another outcome, finds that the lease was lost.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use punctual_actors::Origin;
use punctual_domain::Outcome;
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::json::Json;
use punctual_domain::retry::MAX_DELAY_MS;
use punctual_domain::store::{Extension as LeaseExtension, Settled, Settling, TaskWithAttempts};
use punctual_domain::task::{AttemptOutcome, MAX_ERROR_BYTES, MAX_RESULT_BYTES, Task, TaskStatus};
use serde::Serialize;

use super::Api;
use super::auth::Caller;
use super::body::JsonBody;
use super::call::{self, Call, idempotency_key};
use super::fields::Fields;
use super::instant::Instant;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::tasks::{PATH, no_such_task, task_id};

/// `POST /api/v1/tasks/{id}/heartbeat`.
pub(crate) async fn heartbeat(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let said = Said::read(&id, "heartbeat", &caller, &uri, &headers, &body, |_, _| ())?;
    if let Some(first) = said.call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    find(&api, &caller, said.id).await?;
    let held = LeaseExtension { task_id: said.id, epoch: said.epoch };
    let Some(expires_at) = api.store.extend_pulled(held).await? else { return Err(lease_lost(said.epoch)) };
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Extended {
        lease_expires_at: Instant,
    }
    let answer = call::written(StatusCode::OK, &Extended { lease_expires_at: Instant(expires_at) });
    said.call.respond_and_keep(&*api.store, answer).await
}

/// `POST /api/v1/tasks/{id}/complete`.
pub(crate) async fn complete(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let said = Said::read(&id, "complete", &caller, &uri, &headers, &body, result)?;
    settle(&api, &caller, said).await
}

/// `POST /api/v1/tasks/{id}/fail`.
pub(crate) async fn fail(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let said = Said::read(&id, "fail", &caller, &uri, &headers, &body, failure)?;
    settle(&api, &caller, said).await
}

/// What a worker said.
struct Said<T> {
    id: TaskId,
    epoch: Epoch,
    what: T,
    call: Call,
}

impl<T> Said<T> {
    fn read(
        id: &str,
        action: &str,
        caller: &Caller,
        uri: &Uri,
        headers: &HeaderMap,
        body: &JsonBody,
        what: impl FnOnce(&mut Fields<'_>, &mut Refusals) -> T,
    ) -> Result<Self, Problem> {
        let id = task_id(id)?;
        Parameters::of(uri)?.finish()?;
        let mut refusals = Refusals::default();
        let key = idempotency_key(headers, &mut refusals);
        let mut fields = Fields::of_body(&body.text, &mut refusals)?;
        if !fields.has("epoch") {
            refusals.add("epoch", "is required: the epoch that the claim answered");
        }
        let epoch = fields.whole("epoch", 1..=i64::MAX, &mut refusals).unwrap_or_default();
        let what = what(&mut fields, &mut refusals);
        fields.finish(&[], &mut refusals);
        let call = Call::new(caller, key, &format!("{PATH}/{id}/{action}"), &body.text);
        refusals.or(Self { id, epoch: Epoch(epoch), what, call })
    }
}

/// What came of the work. Worthless if anything was refused.
fn result(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Outcome {
    let Some(text) = fields.raw("result").map(|raw| raw.get()).filter(|text| *text != "null") else {
        return Outcome::completed();
    };
    if text.len() > MAX_RESULT_BYTES {
        let message = format!("has {} bytes, at most {MAX_RESULT_BYTES} (64 KiB) are kept", text.len());
        refusals.add_as(Code::TooLarge, "result", message);
        return Outcome::completed();
    }
    match Json::parse(text).map_err(|error| error.to_string()).and_then(|json| json.to_raw().map_err(|e| e.to_string()))
    {
        Ok(result) => Outcome::Completed { result: Some(result) },
        Err(message) => {
            refusals.add("result", message);
            Outcome::completed()
        }
    }
}

/// Why it did not work, and what is to become of the task. Worthless if anything was refused.
fn failure(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Outcome {
    let longest = 0..=MAX_DELAY_MS as i64;
    let (has_error, has_snooze) = (fields.has("error"), fields.has("snoozeMs"));
    let error = fields.text("error", refusals);
    if !has_error && !has_snooze {
        refusals.add("error", "is required, unless snoozeMs is given: what went wrong");
    }
    if let Some(error) = error.as_ref().filter(|error| error.len() > MAX_ERROR_BYTES) {
        let message = format!("has {} bytes, at most {MAX_ERROR_BYTES} (16 KiB) are kept", error.len());
        refusals.add_as(Code::TooLarge, "error", message);
    }
    let retry_after = fields.whole("retryAfterMs", longest.clone(), refusals);
    let snooze = fields.whole("snoozeMs", longest, refusals);
    let is_final = fields.flag("final", refusals).unwrap_or(false);
    if [retry_after.is_some(), snooze.is_some(), is_final].into_iter().filter(|given| *given).count() > 1 {
        refusals.add("final", "at most one of retryAfterMs, snoozeMs and final can be given");
    }
    let error = error.unwrap_or_default();
    let delay = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    match (snooze, retry_after, is_final) {
        (Some(ms), ..) => Outcome::Snoozed { delay: delay(ms) },
        (None, Some(ms), _) => Outcome::RetryAfter { delay: delay(ms), error },
        (None, None, true) => Outcome::FailedForGood { error },
        (None, None, false) => Outcome::Failed { error },
    }
}

async fn settle(api: &Api, caller: &Caller, said: Said<Outcome>) -> Result<Response, Problem> {
    if let Some(first) = said.call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let Said { id, epoch, what, call } = said;
    let recorded = match &what {
        Outcome::Completed { .. } => AttemptOutcome::Completed,
        Outcome::Snoozed { .. } => AttemptOutcome::Snoozed,
        _ => AttemptOutcome::Failed,
    };
    let found = find(api, caller, id).await?;
    if found.task.status == TaskStatus::Running && found.task.epoch == epoch {
        let settlement = found.task.decide(what, chance());
        let status = settlement.status();
        let settled = api.store.settle(vec![Settling { task_id: id, epoch, settlement }]).await?;
        if settled.first() == Some(&Settled::Now) {
            // Its topic has room again.
            api.desk.ring();
            measure(api, &found.task, status).await;
            if !status.has_ended() || found.task.serial_key.is_some() {
                api.wake.tasks_changed();
            }
        }
    }
    // Whoever settled it, and when: what counts is how this very attempt ended.
    let TaskWithAttempts { task, attempts } = find(api, caller, id).await?;
    let attempt = attempts.iter().find(|attempt| attempt.epoch == epoch);
    if attempt.and_then(|attempt| attempt.outcome) != Some(recorded) {
        metrics::counter!("punctual_stale_settles_total").increment(1);
        return Err(lease_lost(epoch));
    }
    call.respond_and_keep(&*api.store, call::shown(&task)).await
}

/// Measures an attempt that a worker ended, after which the task has this status.
async fn measure(api: &Api, task: &Task, status: TaskStatus) {
    let meters = api.topics.meters(&task.topic).await;
    let elapsed = task.started_at.and_then(|started_at| (api.time.now() - started_at).to_std().ok());
    meters.took(elapsed.unwrap_or_default(), task.timeout_seconds);
    if status.has_ended() {
        meters.ended(status, Origin::of(task), 1);
    }
}

/// The task, if the caller's key is for its topic. A task never changes its topic.
async fn find(api: &Api, caller: &Caller, id: TaskId) -> Result<TaskWithAttempts, Problem> {
    let found = api.store.task(id).await?.ok_or_else(|| no_such_task(id))?;
    caller.check_topic(&found.task.topic)?;
    Ok(found)
}

fn lease_lost(epoch: Epoch) -> Problem {
    let detail = format!("the task is not held by the epoch {epoch} any more; leave it alone and claim again");
    Problem::new(Code::LeaseLost, detail)
}

/// A number from 0 up to 1, for jitter.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(()) >> 11;
    random as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, what: impl FnOnce(&mut Fields<'_>, &mut Refusals) -> Outcome) -> Result<Outcome, Problem> {
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(body, &mut refusals)?;
        let outcome = what(&mut fields, &mut refusals);
        fields.finish(&[], &mut refusals);
        refusals.or(outcome)
    }

    #[test]
    fn a_failure_says_what_is_to_become_of_the_task() {
        let of = |body: &str| format!("{:?}", read(body, failure).unwrap());
        assert!(of(r#"{"error":"x"}"#).starts_with("Failed {"));
        assert!(of(r#"{"error":"x","final":false}"#).starts_with("Failed {"));
        assert!(of(r#"{"error":"x","final":true}"#).starts_with("FailedForGood"));
        assert!(of(r#"{"error":"x","retryAfterMs":1500}"#).contains("1.5s"));
        assert!(of(r#"{"snoozeMs":60000}"#).starts_with("Snoozed"));
        for (body, field, code) in [
            (r#"{}"#, "error", Code::Invalid),
            (r#"{"error":5}"#, "error", Code::Invalid),
            (r#"{"error":"x","final":true,"snoozeMs":1}"#, "final", Code::Invalid),
            (r#"{"error":"x","retryAfterMs":1,"snoozeMs":1}"#, "final", Code::Invalid),
            (r#"{"error":"x","retryAfterMs":-1}"#, "retryAfterMs", Code::Invalid),
            (r#"{"error":"x","why":1}"#, "why", Code::Invalid),
        ] {
            let problem = read(body, failure).unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.code), (field, code), "{body}");
        }
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(MAX_ERROR_BYTES + 1));
        assert_eq!(read(&long, failure).unwrap_err().code, Code::TooLarge);
    }

    #[test]
    fn a_result_is_json_of_64_kib_at_the_most() {
        let of = |value: &str| read(&format!(r#"{{"result":{value}}}"#), result);
        assert!(matches!(of("null"), Ok(Outcome::Completed { result: None })));
        assert!(matches!(of("1.50"), Ok(Outcome::Completed { result: Some(raw) }) if raw.get() == "1.50"));
        assert!(of(&format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES - 2))).is_ok());
        assert_eq!(of(&format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES - 1))).unwrap_err().code, Code::TooLarge);
        assert_eq!(of(r#"{"a":1,"a":2}"#).unwrap_err().code, Code::Invalid);
        assert_eq!(of(r#""\u0000""#).unwrap_err().code, Code::Invalid);
    }
}
