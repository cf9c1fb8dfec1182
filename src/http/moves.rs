//! `/api/v1/tasks/{id}/…`: cancel, reschedule or retry one task.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use punctual_actors::Origin;
use punctual_domain::id::TaskId;
use punctual_domain::store::{Created, Reply, Retry, StoreError};
use punctual_domain::task::{Task, TaskStatus};

use super::Api;
use super::auth::Caller;
use super::body::{JsonBody, OptionalBody};
use super::call::{self, Call, idempotency_key};
use super::fields::Fields;
use super::new_task::{READ_ONLY, Reading};
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use super::tasks::{PATH, no_such_task, task_id};

/// `POST /api/v1/tasks/{id}/cancel`.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    let id = task_id(&id)?;
    let key = without_fields(&uri, &headers, &body)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/cancel"), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let was_live = !find(&api, &caller, id).await?.status.has_ended();
    let remember = call.remember(call::shown);
    let task = match api.store.cancel(id, remember).await.map_err(about(id))? {
        Reply::Made(task) => task,
        Reply::Replayed(first) => return Ok(call::respond(first)),
    };
    if task.status == TaskStatus::Cancelled {
        api.wake.task_cancelled(id);
        api.wake.tasks_changed();
        if was_live {
            count_cancelled(&api, &task).await;
        }
    }
    Ok(call::respond(call::shown(&task)))
}

/// `POST /api/v1/tasks/{id}/reschedule`.
pub(crate) async fn reschedule(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let id = task_id(&id)?;
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let fields = Fields::of_body(&body.text, &mut refusals)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/reschedule"), &body.text);
    if refusals.is_empty()
        && let Some(first) = call.first_answer(&*api.store).await?
    {
        return Ok(first);
    }
    let replaced = find(&api, &caller, id).await?;
    let topics = api.topics.definitions().await?;
    let reading = Reading { zones: &api.zones, topics: &topics, now: api.time.now() };
    let replacement = reading.replacement(fields, &replaced, &mut refusals);
    let replacement = refusals.or(replacement)?;
    caller.check_topic(&replacement.topic)?;

    let warnings = api.topics.warnings(&topics, &replacement.topic);
    let to_keep = warnings.clone();
    let remember = call.remember(move |task: &Task| call::replaced(task, &to_keep));
    match api.store.reschedule(id, replacement, remember).await.map_err(about(id))? {
        Reply::Made(task) => {
            api.wake.task_cancelled(id);
            api.wake.tasks_changed();
            count_cancelled(&api, &replaced).await;
            Ok(call::respond(call::replaced(&task, &warnings)))
        }
        Reply::Replayed(first) => Ok(call::respond(first)),
    }
}

/// `POST /api/v1/tasks/{id}/retry`.
pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    let id = task_id(&id)?;
    let key = without_fields(&uri, &headers, &body)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/retry"), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let failed = find(&api, &caller, id).await?;
    let warnings = api.topics.warnings(&api.topics.definitions().await?, &failed.topic);
    let earlier = api.store.retries_of(id, 1).await?.pop();
    let tell = move |created: &Created| {
        // A living task that stands for the new one says so itself.
        let is_another = earlier.filter(|_| matches!(created, Created::Fresh(_)));
        let remark = is_another.map(|earlier| {
            let Retry { id: before, status, .. } = earlier;
            format!("task {id} was retried before, by {before} ({}); this is another one", status.as_str())
        });
        let warnings: Vec<_> = warnings.iter().cloned().chain(remark).collect();
        call::created(created, &warnings)
    };
    let remember = call.remember(tell.clone());
    match api.store.retry(id, remember).await.map_err(about(id))? {
        Reply::Made(created) => {
            api.wake.tasks_changed();
            Ok(call::respond(tell(&created)))
        }
        Reply::Replayed(first) => Ok(call::respond(first)),
    }
}

/// Counts a task that was cancelled here.
async fn count_cancelled(api: &Api, task: &Task) {
    api.topics.meters(&task.topic).await.ended(TaskStatus::Cancelled, Origin::of(task), 1);
}

/// Refuses whatever stands in the body or the query of a call that takes nothing; answers its `Idempotency-Key`.
fn without_fields(uri: &Uri, headers: &HeaderMap, body: &JsonBody) -> Result<Option<String>, Problem> {
    Parameters::of(uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(headers, &mut refusals);
    Fields::of_body(&body.text, &mut refusals)?.finish(READ_ONLY, &mut refusals);
    refusals.or(key)
}

/// The task, if the caller's key is for its topic. A task never changes its topic.
async fn find(api: &Api, caller: &Caller, id: TaskId) -> Result<Task, Problem> {
    let task = api.store.task(id).await?.ok_or_else(|| no_such_task(id))?.task;
    caller.check_topic(&task.topic)?;
    Ok(task)
}

/// Names the task where the store says that there is none.
fn about(id: TaskId) -> impl Fn(StoreError) -> Problem {
    move |error| match error {
        StoreError::NotFound => no_such_task(id),
        error => error.into(),
    }
}
