//! `/api/v1/tasks`: make one, look at one, list them.

use std::fmt;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Created, Creation, TaskWithAttempts};

use super::auth::Caller;
use super::body::JsonBody;
use super::call::{self, Call, idempotency_key};
use super::fields::{Fields, shortened};
use super::list_page::ListPage;
use super::new_task::Reading;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::task_view::TaskView;
use super::{Api, json};

pub(crate) const PATH: &str = "/api/v1/tasks";

/// `POST /api/v1/tasks`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let fields = Fields::of_body(&body.text, &mut refusals)?;
    let topics = api.topics.definitions().await?;
    let reading = Reading { zones: &api.zones, topics: &topics, now: api.time.now() };
    let task = reading.new_task(fields, &mut refusals);
    let call = || Call::new(&caller, key, PATH, &body.text);
    let task = match refusals.or(task) {
        Ok(task) => task,
        // A call that comes again after its instant has passed still gets its first answer.
        Err(problem) if problem.code == Code::RunAtInPast => {
            return call().first_answer(&*api.store).await?.ok_or(problem);
        }
        Err(problem) => return Err(problem),
    };
    caller.check_topic(&task.topic)?;

    let warnings = api.topics.warnings(&topics, &task.topic);
    let to_keep = warnings.clone();
    let remember = call().remember(move |made: &[Created]| answer(made, &to_keep));
    match api.wake.create_tasks(vec![task], remember).await? {
        Creation::Made(made) => {
            api.topics.count_undefined(&topics, &made);
            Ok(call::respond(answer(&made, &warnings)))
        }
        Creation::Replayed(first) => Ok(call::respond(first)),
    }
}

/// `GET /api/v1/tasks/{id}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let id = task_id(&id)?;
    let TaskWithAttempts { task, attempts } = api.store.task(id).await?.ok_or_else(|| no_such_task(id))?;
    let warnings = api.topics.warnings_of(&api.topics.definitions().await?, &task);
    json(StatusCode::OK, &TaskView::new(&task).with_attempts(&attempts).with_warnings(&warnings))
}

/// `GET /api/v1/tasks`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (filter, page) = (parameters.task_filter(), parameters.page());
    parameters.finish()?;
    let page = ListPage::read(&api.page_memory, page, |page| api.store.tasks(&filter, page)).await?;
    let definitions = api.topics.definitions().await?;
    let text = page.show(|task| TaskView::new(task).with_warnings(api.topics.warnings_of(&definitions, task)))?;
    Ok(page.respond(&uri, text))
}

/// The id in a path; a malformed one names no task.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Problem> {
    let id = Some(text).filter(|text| text.len() == 36).and_then(|text| text.parse().ok());
    id.ok_or_else(|| no_such_task(shortened(text)))
}

pub(crate) fn no_such_task(id: impl fmt::Display) -> Problem {
    Problem::not_found(&format!("task {id}"))
}

/// The answer to one creation.
fn answer(made: &[Created], warnings: &[String]) -> Answer {
    match made {
        [made] => call::created(made, warnings),
        _ => call::broken("the store answered another number of tasks than it was given"),
    }
}
