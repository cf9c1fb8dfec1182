//! `POST /api/v1/tasks/batch`: many tasks, all or none.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use punctual_domain::invalid::FieldError;
use punctual_domain::store::{Created, Creation, StoreError};
use punctual_domain::task::NewTask;
use punctual_domain::topic::TopicDefinition;

use super::Api;
use super::auth::Caller;
use super::body::{BatchBody, JsonBody};
use super::call::{self, Call, idempotency_key};
use super::fields::Fields;
use super::new_task::Reading;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;

pub(crate) const PATH: &str = "/api/v1/tasks/batch";

/// The most tasks of one batch.
pub(crate) const MAX_TASKS: usize = 10_000;

/// `POST /api/v1/tasks/batch`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    BatchBody(body): BatchBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let topics = api.topics.definitions().await?;
    let (call, tasks, _memory) = {
        let (api, caller, topics) = (Arc::clone(&api), caller.clone(), Arc::clone(&topics));
        // Some tens of megabytes take their time: other requests should not wait for it.
        let reading = tokio::task::spawn_blocking(move || read(&api, &caller, &topics, key, body, refusals));
        reading.await.map_err(|_| Problem::new(Code::Internal, "the request hit a bug; the log says more"))?
    }?;
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let tasks = tasks?;
    for task in &tasks {
        caller.check_topic(&task.topic)?;
    }
    let client_requests: Vec<_> = tasks.iter().map(|task| task.client_request_id.clone()).collect();
    let made = api.store.create_tasks(tasks, call.remember(call::ids)).await;
    match made.map_err(|error| refused(error, &client_requests))? {
        Creation::Made(made) => {
            api.wake.tasks_written(made.iter().map(Created::task));
            api.topics.count_undefined(&topics, &made);
            Ok(call::respond(call::ids(&made)))
        }
        Creation::Replayed(first) => Ok(call::respond(first)),
    }
}

/// A batch that was read: the call, its tasks or what is wrong with them, and the memory they take.
type Batch = (Call, Result<Vec<NewTask>, Problem>, JsonBody);

fn read(
    api: &Api,
    caller: &Caller,
    topics: &[TopicDefinition],
    key: Option<String>,
    mut body: JsonBody,
    mut refusals: Refusals,
) -> Result<Batch, Problem> {
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let reading = Reading { zones: &api.zones, topics, now: api.time.now() };
    let tasks = tasks(&reading, &mut fields, &mut refusals);
    fields.finish(&["ids"], &mut refusals);
    let tasks = refusals.or(tasks);
    // Only what was good once can have been answered before: an instant may have passed since.
    let was_good = tasks.as_ref().err().is_none_or(|problem| problem.code == Code::RunAtInPast);
    let call = Call::new(caller, key.filter(|_| was_good), PATH, &body.text);
    // The tasks have copies of what they need; the memory stays counted for them.
    body.text = String::new();
    Ok((call, tasks, body))
}

fn tasks(reading: &Reading<'_>, fields: &mut Fields<'_>, refusals: &mut Refusals) -> Vec<NewTask> {
    if !fields.has("tasks") {
        refusals.add("tasks", format!("is required: an array of 1 to {MAX_TASKS} tasks"));
    }
    let Some((items, total)) = fields.items("tasks", MAX_TASKS, refusals) else { return Vec::new() };
    if !(1..=MAX_TASKS).contains(&total) {
        refusals.add("tasks", format!("must have 1 to {MAX_TASKS} tasks, not {total}"));
        return Vec::new();
    }
    let mut tasks = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let mut wrong = Refusals::default();
        match Fields::of_item(item, &mut wrong) {
            Some(fields) => tasks.push(reading.new_task(fields, &mut wrong)),
            None => refusals.add(format!("tasks[{index}]"), "must be an object"),
        }
        if !wrong.is_empty() {
            refusals.add_within(&format!("tasks[{index}]."), wrong);
        }
    }
    tasks
}

/// What the store refused; a `clientRequestId` by the last task that brings it.
fn refused(error: StoreError, client_requests: &[Option<String>]) -> Problem {
    let used = match &error {
        StoreError::ClientRequestIdInUse(used) => client_requests.iter().rposition(|id| id.as_ref() == Some(used)),
        _ => None,
    };
    let mut problem = Problem::from(error);
    problem.errors.extend(used.map(|index| FieldError {
        field: format!("tasks[{index}].clientRequestId"),
        message: "was used before".into(),
    }));
    problem
}
