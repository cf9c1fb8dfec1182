//! A call that writes: under which `Idempotency-Key` it comes, and what it is answered.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Created, Remember, Reply, Store};
use punctual_domain::task::Task;
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::problem::{Code, Problem, Refusals};
use super::task_view::TaskView;
use super::{fingerprint, tasks};

/// One call; without an `Idempotency-Key` nothing of it is remembered.
#[derive(Clone)]
pub(crate) struct Call(Option<Keyed>);

#[derive(Clone)]
struct Keyed {
    owner: String,
    key: String,
    fingerprint: String,
}

impl Call {
    /// A call of `path` with this body, which is JSON.
    pub(crate) fn new(caller: &Caller, key: Option<String>, path: &str, body: &str) -> Self {
        Self(key.map(|key| {
            let fingerprint = fingerprint::of(&format!("POST {path}"), body);
            Keyed { owner: caller.owner(), key, fingerprint }
        }))
    }

    /// The same, as a plugin's own transaction takes it.
    pub(crate) fn for_plugin(&self) -> Option<punctual_sdk::engine::Call> {
        let Keyed { owner, key, fingerprint } = self.0.clone()?;
        Some(punctual_sdk::engine::Call { owner, key, fingerprint })
    }

    /// What the same call was answered before, where that is a task or a count of them.
    pub(crate) async fn first_answer(&self, store: &dyn Store) -> Result<Option<Response>, Problem> {
        Ok(self.first(store).await?.map(respond))
    }

    /// What the same call was answered before.
    pub(crate) async fn first(&self, store: &dyn Store) -> Result<Option<Answer>, Problem> {
        let Some(Keyed { owner, key, fingerprint }) = &self.0 else { return Ok(None) };
        Ok(store.remembered(owner, key, fingerprint).await?)
    }

    /// Keeps an answer that goes with no change; gives the first one where the call came before.
    pub(crate) async fn keep(self, store: &dyn Store, answer: Answer) -> Result<Answer, Problem> {
        let kept = answer.clone();
        let Some(remember) = self.remember(move |(): &()| kept) else { return Ok(answer) };
        match store.keep_answer(remember).await? {
            Reply::Made(()) => Ok(answer),
            Reply::Replayed(first) => Ok(first),
        }
    }

    /// Answers, and has the store keep the answer; the first one where the call came before.
    pub(crate) async fn respond_and_keep(self, store: &dyn Store, answer: Answer) -> Result<Response, Problem> {
        Ok(respond(self.keep(store, answer).await?))
    }

    /// Has the store keep the answer that `answer` writes.
    pub(crate) fn remember<Made: ?Sized>(
        self,
        answer: impl FnOnce(&Made) -> Answer + Send + Sync + 'static,
    ) -> Option<Remember<Made>> {
        let Keyed { owner, key, fingerprint } = self.0?;
        Some(Remember { owner, key, fingerprint, answer: Box::new(answer) })
    }
}

/// The `Idempotency-Key` of a request.
pub(crate) fn idempotency_key(headers: &HeaderMap, refusals: &mut Refusals) -> Option<String> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(NAME).iter();
    let value = values.next()?;
    let is_visible = |key: &&str| key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let key = value.to_str().ok().filter(|key| (1..=200).contains(&key.len())).filter(is_visible);
    if key.is_none() || values.next().is_some() {
        refusals.add(NAME, "must stand once, and have 1 to 200 characters of visible ASCII");
    }
    key.map(str::to_owned)
}

/// 201 with the new task, or 200 with the one that stands for it.
pub(crate) fn created(created: &Created, warnings: &[String]) -> Answer {
    let view = TaskView::new(created.task()).with_warnings(warnings);
    match created {
        Created::Fresh(_) => written(StatusCode::CREATED, &view),
        Created::Deduplicated(_) => written(StatusCode::OK, &view.deduplicated()),
    }
}

/// 201 with the new task.
pub(crate) fn replaced(task: &Task, warnings: &[String]) -> Answer {
    written(StatusCode::CREATED, &TaskView::new(task).with_warnings(warnings))
}

/// 200 with a task as it stands.
pub(crate) fn shown(task: &Task) -> Answer {
    written(StatusCode::OK, &TaskView::new(task))
}

/// 201 with the ids of the tasks that were made or stand for them, in order.
pub(crate) fn ids(made: &[Created]) -> Answer {
    #[derive(Serialize)]
    struct Ids {
        ids: Vec<TaskId>,
    }
    written(StatusCode::CREATED, &Ids { ids: made.iter().map(|made| made.task().id).collect() })
}

/// 200 with how many tasks were changed.
pub(crate) fn counted(count: u64) -> Answer {
    #[derive(Serialize)]
    struct Count {
        count: u64,
    }
    written(StatusCode::OK, &Count { count })
}

/// What is kept where no answer can be written; it should never be seen.
pub(crate) fn broken(reason: &str) -> Answer {
    tracing::error!(reason, "task written, answer not");
    Answer { status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(), body: String::new() }
}

/// An answer with this body.
pub(crate) fn written(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_string(body) {
        Ok(body) => Answer { status: status.as_u16(), body },
        Err(error) => broken(&error.to_string()),
    }
}

/// An answer as a response; with a `Location` where one new task is answered.
pub(crate) fn respond(answer: Answer) -> Response {
    #[derive(Deserialize)]
    struct Named {
        id: TaskId,
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        return Problem::new(Code::Internal, "the task was written, but cannot be shown").into_response();
    }
    let location = (status == StatusCode::CREATED)
        .then(|| serde_json::from_str::<Named>(&answer.body).ok())
        .flatten()
        .and_then(|named| HeaderValue::try_from(format!("{}/{}", tasks::PATH, named.id)).ok());
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    if let Some(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
