//! `POST /api/v1/claims`: workers take due tasks, and wait for them.
//!
//! A key may be revoked while its worker waits. It is looked at again before anything is claimed after a wait, and once more
//! when something was: what a revoked key has claimed goes back, as if it had not been.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::store::{Answer, Remember, Reply};
use punctual_domain::task::Task;
use punctual_domain::topic::TopicPattern;
use serde::Serialize;
use tokio::time::Instant;

use super::auth::Caller;
use super::body::JsonBody;
use super::call::{self, Call, idempotency_key};
use super::fields::{Fields, shortened};
use super::memory::Held;
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use super::task_view::TaskView;
use super::{Api, cannot_be_shown};
use crate::routes::pull::{Ask, Delivery, Visit};

pub(crate) const PATH: &str = "/api/v1/claims";

/// How long a claim takes that comes while the node drains, at the most.
const WHILE_DRAINING: Duration = Duration::from_secs(1);
/// How many topics one claim may name.
pub(crate) const MOST_TOPICS: usize = 100;
/// How long a claim waits for the memory that its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most memory an answer takes: payloads of 8 MiB, or one task of the largest size, and the same once more as JSON.
const ANSWER_BYTES: usize = 20 * 1024 * 1024;

/// `POST /api/v1/claims`.
pub(crate) async fn claim(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let asked = read(&mut fields, &mut refusals);
    fields.finish(&["tasks"], &mut refusals);
    let Asked { ask, wait } = refusals.or(asked)?;
    for pattern in &ask.patterns {
        caller.check_pattern(pattern)?;
    }
    let call = Call::new(&caller, key, PATH, &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    drop(body);
    if api.state.is_draining() {
        // There is nothing here any more; who asks again at once is slowed down.
        tokio::time::sleep(wait.min(WHILE_DRAINING)).await;
        return call.respond_and_keep(&*api.store, nothing()).await;
    }
    let Some(visit) = api.desk.enter(ask) else {
        return Err(Problem::unavailable("too many workers wait at once; try again"));
    };
    let deadline = Instant::now() + wait;
    loop {
        if !api.state.is_paused() && !api.state.is_draining() {
            match take(&api, &caller, &visit, &call).await? {
                Taken::Nothing => {}
                Taken::Tasks(answer) => return Ok(answer),
            }
        }
        tokio::select! {
            () = visit.rest() => {}
            () = tokio::time::sleep_until(deadline) => break,
            () = api.state.drained() => break,
        }
        api.check_known(&caller).await?;
    }
    api.check_known(&caller).await?;
    drop(visit);
    // Another call of the same key may have got something meanwhile.
    call.respond_and_keep(&*api.store, nothing()).await
}

fn nothing() -> Answer {
    Answer { status: StatusCode::OK.as_u16(), body: r#"{"tasks":[]}"#.to_owned() }
}

/// What a claim asks for.
struct Asked {
    ask: Ask,
    wait: Duration,
}

fn read(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Asked {
    if !fields.has("topics") {
        refusals.add("topics", "is required: the topics to claim from, such as [\"mail\", \"reports.*\"]");
    }
    let texts = fields.texts("topics", refusals);
    if let Some(count) = texts.as_ref().map(Vec::len).filter(|count| !(1..=MOST_TOPICS).contains(count)) {
        refusals.add("topics", format!("must name 1 to {MOST_TOPICS} topics, not {count}"));
    }
    let mut patterns: Vec<TopicPattern> = Vec::new();
    for text in texts.into_iter().flatten().take(MOST_TOPICS) {
        match text.parse() {
            Ok(pattern) if patterns.contains(&pattern) => {}
            Ok(pattern) => patterns.push(pattern),
            Err(_) => refusals.add(
                "topics",
                format!("{:?} is neither a topic such as mail.send nor a prefix such as mail.*", shortened(&text)),
            ),
        }
    }
    let mut whole = |name: &str, bounds, default: u32| {
        fields.whole(name, bounds, refusals).and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    let max = whole("max", 1..=1000, 1);
    let wait = Duration::from_millis(u64::from(whole("waitMs", 0..=30_000, 0)));
    let lease_seconds = whole("leaseSeconds", 1..=3600, 30);
    Asked { ask: Ask { patterns, max, lease_seconds }, wait }
}

/// What one try brought.
enum Taken {
    Nothing,
    Tasks(Response),
}

async fn take(api: &Api, caller: &Caller, visit: &Visit, call: &Call) -> Result<Taken, Problem> {
    let Some(memory) = api.page_memory.wait_for(ANSWER_BYTES, PATIENCE).await else {
        return Err(Problem::unavailable("too many large answers at once; try again"));
    };
    let remember = || -> Option<Remember<[Task]>> {
        call.clone().remember(|tasks: &[Task]| match written(tasks) {
            Ok(body) => Answer { status: StatusCode::OK.as_u16(), body },
            Err(error) => call::broken(&error.to_string()),
        })
    };
    match visit.claim(remember).await? {
        Reply::Made(delivery) if delivery.tasks.is_empty() => Ok(Taken::Nothing),
        Reply::Made(delivery) => {
            if let Err(problem) = api.check_known(caller).await {
                delivery.refused();
                return Err(problem);
            }
            Ok(Taken::Tasks(deliver(api, delivery, memory).await?))
        }
        Reply::Replayed(first) => Ok(Taken::Tasks(call::respond(first))),
    }
}

/// An answer whose tasks are handed back unless somebody is there to send it to.
async fn deliver(api: &Api, delivery: Delivery, memory: Held) -> Result<Response, Problem> {
    let text = written(&delivery.tasks).map_err(cannot_be_shown)?;
    let mut meters = Vec::with_capacity(delivery.tasks.len());
    for task in &delivery.tasks {
        meters.push(api.topics.meters(&task.topic).await);
    }
    let (length, bytes): (usize, Bytes) = (text.len(), memory.with(text.into_bytes()));
    let sending = async move {
        // Asked for only when there is a connection to write it to.
        delivery.tasks.iter().zip(meters).for_each(|(task, meters)| meters.began(task));
        delivery.arrived();
        Ok::<_, std::convert::Infallible>(bytes)
    };
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((StatusCode::OK, headers, Body::from_stream(futures::stream::once(sending))).into_response())
}

fn written(tasks: &[Task]) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Claimed<'a> {
        tasks: Vec<TaskView<'a>>,
    }
    serde_json::to_string(&Claimed { tasks: tasks.iter().map(|task| TaskView::new(task).with_lease(task)).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str) -> Result<Asked, Problem> {
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(body, &mut refusals)?;
        let asked = read(&mut fields, &mut refusals);
        fields.finish(&[], &mut refusals);
        refusals.or(asked)
    }

    #[test]
    fn topics_are_enough() {
        let Asked { ask, wait } = asked(r#"{"topics":["a","b.*","a"]}"#).unwrap();
        assert_eq!(ask.patterns.iter().map(TopicPattern::as_str).collect::<Vec<_>>(), ["a", "b.*"]);
        assert_eq!((ask.max, ask.lease_seconds, wait), (1, 30, Duration::ZERO));
        let full = asked(r#"{"topics":["a"],"max":1000,"waitMs":30000,"leaseSeconds":3600}"#).unwrap();
        assert_eq!((full.ask.max, full.ask.lease_seconds, full.wait), (1000, 3600, Duration::from_secs(30)));
        assert_eq!(asked(r#"{"topics":"a"}"#).unwrap().ask.patterns.len(), 1, "one stands for a list of one");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        for (body, field) in [
            (r#"{}"#, "topics"),
            (r#"{"topics":null}"#, "topics"),
            (r#"{"topics":[]}"#, "topics"),
            (r#"{"topics":["*"]}"#, "topics"),
            (r#"{"topics":["a b"]}"#, "topics"),
            (r#"{"topics":[1]}"#, "topics"),
            (r#"{"topics":["a"],"max":0}"#, "max"),
            (r#"{"topics":["a"],"max":1001}"#, "max"),
            (r#"{"topics":["a"],"waitMs":-1}"#, "waitMs"),
            (r#"{"topics":["a"],"waitMs":30001}"#, "waitMs"),
            (r#"{"topics":["a"],"leaseSeconds":0}"#, "leaseSeconds"),
            (r#"{"topics":["a"],"leaseSeconds":3601}"#, "leaseSeconds"),
            (r#"{"topics":["a"],"lease":1}"#, "lease"),
        ] {
            let problem = asked(body).err().unwrap();
            assert_eq!(problem.errors[0].field, field, "{body}");
        }
        let many: Vec<_> = (0..101).map(|n| format!("\"t{n}\"")).collect();
        assert!(asked(&format!("{{\"topics\":[{}]}}", many.join(","))).is_err());
    }
}
