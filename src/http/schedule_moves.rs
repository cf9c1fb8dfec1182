//! `/api/v1/schedules/{id}/…`: pause, resume, trigger or backfill one schedule.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::SecondsFormat;
use punctual_domain::id::ScheduleId;
use punctual_domain::outlook::{Outlook, Stretch};
use punctual_domain::store::{Answer, Backfill, Backfilled, Bulk, Reply, StoreError};
use punctual_domain::task::Task;
use punctual_domain::topic::Topic;
use serde::Serialize;

use super::Api;
use super::auth::Caller;
use super::body::{JsonBody, OptionalBody};
use super::call::{self, Call, idempotency_key};
use super::etag::IfMatch;
use super::fields::Fields;
use super::instant::Instant;
use super::new_schedule::refused;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::schedule_edit::{self, Edit, check_schedule_topic, find, no_such_schedule, schedule_id};
use super::schedules::PATH;

/// The longest note on a pause, in characters.
pub(crate) const MAX_NOTE: usize = 1_000;
/// How many fires a backfill may make where nobody says it, and at the most.
pub(crate) const DEFAULT_FIRES: i64 = 1_000;
pub(crate) const MAX_FIRES: i64 = 10_000;
/// How many instants a backfill looks at, and how much its tasks may carry together.
const MAX_INSTANTS: usize = 100_000;
const MAX_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;

/// `POST /api/v1/schedules/{id}/pause`.
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/pause"), &body.text);
    if refusals.is_empty()
        && let Some(first) = call.first(&*api.store).await?
    {
        return Ok(schedule_edit::respond(first));
    }
    let is_silent = !fields.stands("note");
    let note = fields.text("note", &mut refusals);
    if note.as_ref().is_some_and(|note| note.chars().count() > MAX_NOTE || note.contains('\0')) {
        refusals.add("note", format!("must have at most {MAX_NOTE} characters, and no U+0000"));
    }
    let until = fields.instant("until", &mut refusals);
    let now = api.time.now();
    if until.is_some_and(|until| until <= now) {
        let now = now.to_rfc3339_opts(SecondsFormat::Millis, true);
        refusals.add("until", format!("must be in the future; it is {now} now"));
    }
    fields.finish(&[], &mut refusals);
    refusals.or(())?;
    let edit = Edit { api: &api, caller: &caller, id, if_match: IfMatch::of(&headers), call: Some(call) };
    edit.run(&[], |schedule, _| {
        // Why it is paused stays known until somebody says otherwise; a resume has cleared what was said before.
        let note = if is_silent { schedule.pause_note.clone() } else { note.clone() };
        Ok(schedule.paused(note, until))
    })
    .await
}

/// `POST /api/v1/schedules/{id}/resume`.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    let key = without_fields(&uri, &headers, &body)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/resume"), &body.text);
    if let Some(first) = call.first(&*api.store).await? {
        return Ok(schedule_edit::respond(first));
    }
    let calendars = api.store.calendars().await?;
    let edit = Edit { api: &api, caller: &caller, id, if_match: IfMatch::of(&headers), call: Some(call) };
    edit.run(&calendars, |schedule, now| match schedule.enabled {
        true => Ok(schedule),
        false => schedule.resumed(now, &api.zones).map_err(|error| refused(&error)),
    })
    .await
}

/// `POST /api/v1/schedules/{id}/trigger`.
pub(crate) async fn trigger(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    let key = without_fields(&uri, &headers, &body)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/trigger"), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let schedule = find(&api, id).await?;
    check_schedule_topic(&caller, &schedule)?;
    IfMatch::of(&headers).check(schedule.version)?;
    let topic = Topic::from_stored(schedule.definition.topic.as_str());
    let warnings = api.topics.warnings(&api.topics.definitions().await?, &topic);
    let to_keep = warnings.clone();
    let remember = call.remember(move |task: &Task| call::replaced(task, &to_keep));
    match api.store.trigger(id, api.zones.version(), remember).await.map_err(about(id))? {
        Reply::Made(task) => {
            api.wake.tasks_written([&task]);
            Ok(call::respond(call::replaced(&task, &warnings)))
        }
        Reply::Replayed(first) => Ok(call::respond(first)),
    }
}

/// `POST /api/v1/schedules/{id}/backfill`.
pub(crate) async fn backfill(
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
    let key = idempotency_key(&headers, &mut refusals);
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let call = Call::new(&caller, key, &format!("{PATH}/{id}/backfill"), &body.text);
    if refusals.is_empty()
        && let Some(first) = call.first(&*api.store).await?
    {
        return Ok(respond(first));
    }
    for name in ["from", "to"] {
        if !fields.has(name) {
            refusals.add(name, "is required: RFC 3339 with an offset");
        }
    }
    let (from, to) = (fields.instant("from", &mut refusals), fields.instant("to", &mut refusals));
    let now = api.time.now();
    if to.is_some_and(|to| to > now) {
        let now = now.to_rfc3339_opts(SecondsFormat::Millis, true);
        refusals.add("to", format!("must not be in the future; it is {now} now"));
    }
    if from.is_some() && to.is_some() && from >= to {
        refusals.add("from", "must be before to");
    }
    let bulk = match fields.flag("dryRun", &mut refusals) {
        Some(true) => Bulk::DryRun,
        Some(false) | None => Bulk::Apply,
    };
    let listing = match fields.flag("instants", &mut refusals) {
        Some(true) => Listing::Instants,
        Some(false) | None => Listing::Counts,
    };
    let most = fields.whole("maxFires", 1..=MAX_FIRES, &mut refusals).unwrap_or(DEFAULT_FIRES);
    fields.finish(&["made", "alreadyFired", "skipped"], &mut refusals);
    let (Some(from), Some(to)) = refusals.or((from, to))? else {
        return Err(Problem::new(Code::Invalid, "from and to are required"));
    };

    let mut schedule = find(&api, id).await?;
    check_schedule_topic(&caller, &schedule)?;
    if bulk == Bulk::Apply {
        // What is due is the schedule's own to fire or to skip; what it skipped can be filled in then.
        schedule = schedule_edit::settled_up(&api, schedule).await?;
    }
    let calendars = api.store.calendars().await?;
    let payload_bytes = schedule.definition.payload.as_str().len();
    let zones = api.zones.clone();
    // A hundred thousand instants take their time: other requests should not wait for it.
    let looking = tokio::task::spawn_blocking(move || {
        let outlook = Outlook::new(&schedule, &calendars, &zones).map_err(|error| refused(&error))?;
        let found = outlook.between(from, to, MAX_INSTANTS);
        found.map_err(|error| Problem::invalid("to", format!("{error} since from; take a shorter stretch")))
    });
    let Stretch { instants, excluded } =
        looking.await.map_err(|_| Problem::new(Code::Internal, "the request hit a bug; the log says more"))??;
    if instants.len().min(most as usize) * payload_bytes > MAX_PAYLOAD_BYTES {
        let detail = "the tasks of so many instants carry more than 64 MiB of payload together; take a shorter stretch";
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let backfill = Backfill { instants, most: most.unsigned_abs(), bulk, tz_version: api.zones.version().to_owned() };
    let remember = call.remember(move |done: &Backfilled| told(done, excluded, listing));
    match api.store.backfill(id, backfill, remember).await.map_err(about(id))? {
        Reply::Made(done) => {
            if bulk == Bulk::Apply && !done.made.is_empty() {
                api.wake.tasks_changed();
            }
            Ok(respond(told(&done, excluded, listing)))
        }
        Reply::Replayed(first) => Ok(respond(first)),
    }
}

/// How much is told of what a backfill made.
#[derive(Clone, Copy)]
enum Listing {
    Counts,
    Instants,
}

/// 200 with what was made. Skipped are the `excluded` instants, and those that the schedule has still to decide.
fn told(done: &Backfilled, excluded: u64, listing: Listing) -> Answer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        made: usize,
        already_fired: u64,
        skipped: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        instants: Option<Vec<Instant>>,
    }
    let instants = match listing {
        Listing::Counts => None,
        Listing::Instants => Some(done.made.iter().copied().map(Instant).collect()),
    };
    let skipped = excluded + done.left;
    let told = Told { made: done.made.len(), already_fired: done.already_fired, skipped, instants };
    call::written(StatusCode::OK, &told)
}

fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response()
}

/// Refuses whatever stands in the body or the query of a call that takes nothing; answers its `Idempotency-Key`.
fn without_fields(uri: &Uri, headers: &HeaderMap, body: &JsonBody) -> Result<Option<String>, Problem> {
    Parameters::of(uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(headers, &mut refusals);
    Fields::of_body(&body.text, &mut refusals)?.finish(&[], &mut refusals);
    refusals.or(key)
}

/// Names the schedule where the store says that there is none.
fn about(id: ScheduleId) -> impl Fn(StoreError) -> Problem {
    move |error| match error {
        StoreError::NotFound => no_such_schedule(id),
        error => error.into(),
    }
}
