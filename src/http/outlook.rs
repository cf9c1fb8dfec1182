//! `GET /api/v1/schedules/{id}/next` and `POST /api/v1/schedules/preview`: what lies ahead.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, FixedOffset, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::Answer;
use punctual_domain::time::{NextFire, Note};
use serde::Serialize;

use super::Api;
use super::auth::Caller;
use super::body::JsonBody;
use super::call::{Call, idempotency_key, written};
use super::fields::Fields;
use super::instant::Instant;
use super::new_schedule::{Purpose, Reading, refused};
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::schedule_edit::{find, schedule_id, warnings};

pub(crate) const PREVIEW_PATH: &str = "/api/v1/schedules/preview";

/// How many instants are shown where nobody says it, and at the most.
pub(crate) const DEFAULT_COUNT: usize = 10;
pub(crate) const MAX_COUNT: usize = 1000;

/// `GET /api/v1/schedules/{id}/next`.
pub(crate) async fn next(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    let mut parameters = Parameters::of(&uri)?;
    let count = parameters.count(DEFAULT_COUNT, MAX_COUNT);
    parameters.finish()?;
    let schedule = find(&api, id).await?;
    let calendars = api.store.calendars().await?;
    let topics = api.topics.definitions().await?;
    let mut remarks = warnings(&api, &topics, &schedule, &calendars);
    let now = api.time.now();
    let mut after = schedule.fired_through.map_or(now, |through| through.max(now));
    match (schedule.enabled, schedule.paused_until) {
        (true, _) => {}
        (false, Some(until)) => {
            after = after.max(until - chrono::TimeDelta::microseconds(1));
            remarks.push("the schedule is paused: it fires again from pausedUntil on".into());
        }
        (false, None) => remarks.push("the schedule is paused: nothing of this fires until it is resumed".into()),
    }
    let answer = look(&api, schedule, calendars, after, count, remarks).await?;
    Ok(respond(answer))
}

/// `POST /api/v1/schedules/preview`.
pub(crate) async fn preview(
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
    let call = Call::new(&caller, key, PREVIEW_PATH, &body.text);
    if refusals.is_empty()
        && let Some(first) = call.first(&*api.store).await?
    {
        return Ok(respond(first));
    }
    let count = fields.whole("count", 1..=MAX_COUNT as i64, &mut refusals);
    let has_topic = fields.has("topic") || fields.has("jobType");
    let calendars = if fields.has("excludeCalendars") { api.store.calendars().await? } else { Vec::new() };
    let reading = Reading { zones: &api.zones, calendars: &calendars, purpose: Purpose::Preview };
    let draft = reading.draft(fields, &mut refusals);
    let draft = refusals.or(draft)?;
    let now = api.time.now();
    let schedule = Schedule::new(draft.definition, now, &api.zones).map_err(|error| refused(&error))?;
    let remarks = match has_topic {
        true => warnings(&api, &api.topics.definitions().await?, &schedule, &calendars),
        false => Outlook::new(&schedule, &calendars, &api.zones).map_err(|error| refused(&error))?.remarks(now),
    };
    let count = count.map_or(DEFAULT_COUNT, |count| count as usize);
    let answer = look(&api, schedule, calendars, now, count, remarks).await?;
    Ok(respond(call.keep(&*api.store, answer).await?))
}

/// Looks ahead, off the threads that answer requests: calendars may make it look far.
async fn look(
    api: &Api,
    schedule: Schedule,
    calendars: Vec<Calendar>,
    after: DateTime<Utc>,
    count: usize,
    warnings: Vec<String>,
) -> Result<Answer, Problem> {
    let zones = api.zones.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let outlook = Outlook::new(&schedule, &calendars, &zones).map_err(|error| refused(&error))?;
        Ok(outlook.next(after, count))
    });
    let next: Result<Vec<NextFire>, Problem> =
        looking.await.map_err(|_| Problem::new(Code::Internal, "the request hit a bug; the log says more"))?;
    #[derive(Serialize)]
    struct View {
        next: Vec<NextView>,
        warnings: Vec<String>,
    }
    Ok(written(StatusCode::OK, &View { next: next?.iter().map(NextView::of).collect(), warnings }))
}

/// One instant ahead.
#[derive(Serialize)]
struct NextView {
    at: Instant,
    local: String,
    offset: String,
    note: Option<&'static str>,
}

impl NextView {
    fn of(fire: &NextFire) -> Self {
        let offset = FixedOffset::east_opt(fire.offset_seconds).map(|offset| offset.to_string());
        Self {
            at: Instant(fire.at),
            local: fire.local.format("%Y-%m-%dT%H:%M:%S").to_string(),
            offset: offset.unwrap_or_default(),
            note: fire.note.map(|note| match note {
                Note::Gap => "gap",
                Note::Fold => "fold",
            }),
        }
    }
}

fn respond(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response()
}
