//! `/api/v1/schedules`: make one, look at it, list them, edit or delete one.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use punctual_domain::calendar::Calendar;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::Reply;

use super::Api;
use super::auth::Caller;
use super::body::{JsonBody, PatchBody};
use super::call::{Call, idempotency_key};
use super::etag::IfMatch;
use super::fields::Fields;
use super::list_page::ListPage;
use super::new_schedule::{Draft, Purpose, Reading, refused};
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use super::schedule_edit::{self, Edit, check_schedule_topic, find, no_such_schedule, schedule_id};
use super::schedule_view::ScheduleView;

pub(crate) const PATH: &str = "/api/v1/schedules";

/// `POST /api/v1/schedules`.
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
    let call = Call::new(&caller, key, PATH, &body.text);
    // A call that comes again gets its first answer, also if time has passed over what it says.
    if refusals.is_empty()
        && let Some(first) = call.first(&*api.store).await?
    {
        return Ok(schedule_edit::respond(first));
    }
    let calendars = calendars_of(&api, &fields).await?;
    let reading = Reading { zones: &api.zones, calendars: &calendars, purpose: Purpose::Keep };
    let draft = reading.draft(fields, &mut refusals);
    let Draft { definition, enabled, client_request_id } = refusals.or(draft)?;
    let schedule = Schedule::new(definition, api.time.now(), &api.zones).map_err(|error| refused(&error))?;
    let schedule = Schedule { client_request_id, ..schedule };
    check_schedule_topic(&caller, &schedule)?;
    let schedule = if enabled { schedule } else { schedule.paused(None, None) };

    let answer = schedule_edit::answers(&api, &schedule, &calendars, StatusCode::CREATED).await?;
    let remember = call.remember(answer.clone());
    match api.store.create_schedule(&schedule, remember).await? {
        Reply::Made(schedule) => {
            api.wake.schedules_changed();
            Ok(schedule_edit::respond(answer(&schedule)))
        }
        Reply::Replayed(first) => Ok(schedule_edit::respond(first)),
    }
}

/// `GET /api/v1/schedules`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (filter, page) = (parameters.schedule_filter(), parameters.page());
    parameters.finish()?;
    let topics = api.topics.definitions().await?;
    let page = ListPage::read(&api.page_memory, page, |page| api.store.schedules(&filter, page)).await?;
    let text = page.show(|schedule| ScheduleView::new(schedule, &topics))?;
    Ok(page.respond(&uri, text))
}

/// `GET /api/v1/schedules/{id}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let schedule = find(&api, schedule_id(&id)?).await?;
    let topics = api.topics.definitions().await?;
    let answer = super::call::written(StatusCode::OK, &ScheduleView::new(&schedule, &topics));
    Ok(schedule_edit::respond(answer))
}

/// `PUT /api/v1/schedules/{id}`.
pub(crate) async fn replace(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let fields = Fields::of_body(&body.text, &mut refusals)?;
    find(&api, id).await?;
    let calendars = calendars_of(&api, &fields).await?;
    let reading = Reading { zones: &api.zones, calendars: &calendars, purpose: Purpose::Keep };
    let draft = reading.draft(fields, &mut refusals);
    let draft = refusals.or(draft)?;
    let edit = Edit { api: &api, caller: &caller, id, if_match: IfMatch::of(&headers), call: None };
    edit.run(&calendars, |schedule, now| redraw(&api, schedule, draft.clone(), now)).await
}

/// `PATCH /api/v1/schedules/{id}`.
pub(crate) async fn patch(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    PatchBody(body): PatchBody,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    Parameters::of(&uri)?.finish()?;
    let calendars = api.store.calendars().await?;
    let reading = Reading { zones: &api.zones, calendars: &calendars, purpose: Purpose::Keep };
    let edit = Edit { api: &api, caller: &caller, id, if_match: IfMatch::of(&headers), call: None };
    edit.run(&calendars, |schedule, now| {
        let draft = reading.patched(&schedule, &body.text)?;
        redraw(&api, schedule, draft, now)
    })
    .await
}

/// `DELETE /api/v1/schedules/{id}`.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    Parameters::of(&uri)?.finish()?;
    let if_match = IfMatch::of(&headers);
    let schedule = find(&api, id).await?;
    check_schedule_topic(&caller, &schedule)?;
    if_match.check(schedule.version)?;
    let version = if_match.version(schedule.version);
    match api.wake.delete_schedule(id, version, &api.fire_rules).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(no_such_schedule(id)),
    }
}

/// The schedule as a draft makes it: another definition, and paused or resumed where the draft says so.
fn redraw(
    api: &Api,
    schedule: Schedule,
    draft: Draft,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Schedule, Problem> {
    if draft.client_request_id.is_some() && draft.client_request_id != schedule.client_request_id {
        return Err(Problem::invalid("clientRequestId", "cannot be changed; leave it out"));
    }
    let was_enabled = schedule.enabled;
    let edited = schedule.edited(draft.definition, now, &api.zones).map_err(|error| refused(&error))?;
    match (was_enabled, draft.enabled) {
        (true, false) => Ok(edited.paused(None, None)),
        (false, true) => edited.resumed(now, &api.zones).map_err(|error| refused(&error)),
        (true, true) | (false, false) => Ok(edited),
    }
}

/// All calendars, if a body names any.
async fn calendars_of(api: &Api, fields: &Fields<'_>) -> Result<Vec<Calendar>, Problem> {
    if fields.has("excludeCalendars") { Ok(api.store.calendars().await?) } else { Ok(Vec::new()) }
}
