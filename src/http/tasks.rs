//! `/api/v1/tasks`: make one, look at one, list them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Created, Creation, Remember, TaskWithAttempts};
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::body::JsonBody;
use super::fields::Fields;
use super::new_task::Reading;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::task_page::TaskPage;
use super::task_view::TaskView;
use super::{Api, cannot_be_shown, cursor, fingerprint, json};

pub(crate) const PATH: &str = "/api/v1/tasks";

/// What an `Idempotency-Key` was used for.
const CREATE: &str = "POST /api/v1/tasks";

/// `POST /api/v1/tasks`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let fields = Fields::of_body(&body.text, &mut refusals)?;
    let topics = api.topics.definitions().await?;
    let reading = Reading { zones: &api.zones, topics: &topics, now: api.time.now() };
    let task = match (reading.new_task(fields, refusals), &key) {
        (Ok(task), _) => task,
        // A call that comes again after its instant has passed still gets its first answer.
        (Err(problem), Some(key)) if problem.code == Code::RunAtInPast => {
            let fingerprint = fingerprint::of(CREATE, &body.text);
            let first = api.store.remembered(&caller.owner(), key, &fingerprint).await?;
            return first.map(respond).ok_or(problem);
        }
        (Err(problem), _) => return Err(problem),
    };
    caller.check_topic(&task.topic)?;

    let warnings = api.topics.warnings(&topics, &task.topic);
    let remember = key.map(|key| {
        let warnings = warnings.clone();
        Remember {
            owner: caller.owner(),
            key,
            fingerprint: fingerprint::of(CREATE, &body.text),
            answer: Box::new(move |created| answer(created, &warnings)),
        }
    });
    let answer = match api.store.create_tasks(vec![task], remember).await? {
        Creation::Made(created) => {
            if let Some(hints) = &api.hints {
                hints.tasks_written();
            }
            answer(&created, &warnings)
        }
        Creation::Replayed(first) => first,
    };
    Ok(respond(answer))
}

/// `GET /api/v1/tasks/{id}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let no_such = || Problem::not_found(&format!("task {:?}", id.chars().take(60).collect::<String>()));
    let id: TaskId = Some(&id).filter(|id| id.len() == 36).and_then(|id| id.parse().ok()).ok_or_else(no_such)?;
    let TaskWithAttempts { task, attempts } = api.store.task(id).await?.ok_or_else(no_such)?;
    json(StatusCode::OK, &TaskView::new(&task).with_attempts(&attempts))
}

/// `GET /api/v1/tasks`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (filter, page) = (parameters.task_filter(), parameters.page());
    parameters.finish()?;
    let page = TaskPage::read(&*api.store, &api.page_memory, &filter, page).await?;

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        items: Vec<TaskView<'a>>,
        next_cursor: Option<String>,
    }
    let items = page.tasks.iter().map(TaskView::new).collect();
    let mut text = Vec::with_capacity(page.bytes);
    serde_json::to_writer(&mut text, &List { items, next_cursor: page.next.map(|id| cursor::after(id.0)) })
        .map_err(cannot_be_shown)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], page.memory.with(text)).into_response())
}

fn idempotency_key(headers: &HeaderMap, refusals: &mut Refusals) -> Option<String> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(NAME).iter();
    let value = values.next()?;
    let key = value.to_str().ok().filter(|key| (1..=200).contains(&key.len()));
    if key.is_none() || values.next().is_some() {
        refusals.add(NAME, "must stand once, and have 1 to 200 characters of visible ASCII");
    }
    key.map(str::to_owned)
}

/// The answer to one creation: 201 with the new task, or 200 with the one that stands for it.
fn answer(created: &[Created], warnings: &[String]) -> Answer {
    let (status, view) = match created {
        [Created::Fresh(task)] => (StatusCode::CREATED, TaskView::new(task).with_warnings(warnings)),
        [Created::Deduplicated(task)] => (StatusCode::OK, TaskView::new(task).with_warnings(warnings).deduplicated()),
        _ => return broken_answer("the store answered another number of tasks than it was given"),
    };
    match serde_json::to_string(&view) {
        Ok(body) => Answer { status: status.as_u16(), body },
        Err(error) => broken_answer(&error.to_string()),
    }
}

fn broken_answer(reason: &str) -> Answer {
    tracing::error!(reason, "task written, answer not");
    Answer { status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(), body: String::new() }
}

fn respond(answer: Answer) -> Response {
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
        .and_then(|named| HeaderValue::try_from(format!("{PATH}/{}", named.id)).ok());
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    if let Some(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
