//! Changes to one schedule: what was due before is due as it was, nobody's edit is lost, and no instant is.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{DueSchedule, Tick, decide};
use punctual_domain::id::ScheduleId;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Answer, Reply, StoreError};
use punctual_domain::topic::{Topic, TopicDefinition};
use serde::Deserialize;

use super::auth::Caller;
use super::call::{Call, written};
use super::etag::{self, IfMatch};
use super::fields::shortened;
use super::problem::{Code, Problem};
use super::schedule_view::ScheduleView;
use super::{Api, schedules};

/// How often an edit is begun anew because the schedule fired or was edited in between, or is behind by so much.
const ROUNDS: usize = 200;

/// One change to one schedule.
pub(crate) struct Edit<'a> {
    pub(crate) api: &'a Api,
    pub(crate) caller: &'a Caller,
    pub(crate) id: ScheduleId,
    pub(crate) if_match: IfMatch,
    /// The call that asks for it, where its answer may be remembered.
    pub(crate) call: Option<Call>,
}

impl Edit<'_> {
    /// Makes the change, and answers the schedule as it is then. One that changes nothing writes nothing.
    pub(crate) async fn run(
        self,
        calendars: &[Calendar],
        change: impl Fn(Schedule, DateTime<Utc>) -> Result<Schedule, Problem>,
    ) -> Result<Response, Problem> {
        let Self { api, caller, id, .. } = self;
        for _ in 0..ROUNDS {
            let schedule = find(api, id).await?;
            check_schedule_topic(caller, &schedule)?;
            self.if_match.check(schedule.version)?;
            if schedule.is_due(api.time.now()) {
                settle_up(api, id).await?;
                continue;
            }
            let edited = change(schedule.clone(), api.time.now())?;
            check_schedule_topic(caller, &edited)?;
            let answer = answers(api, &edited, calendars, StatusCode::OK).await?;
            if edited == schedule {
                let answer = answer(&schedule);
                return match self.call {
                    Some(call) => Ok(respond(call.keep(&*api.store, answer).await?)),
                    None => Ok(respond(answer)),
                };
            }
            let remember = self.call.clone().and_then(|call| call.remember(answer.clone()));
            match api.store.update_schedule(&edited, remember).await {
                Ok(Reply::Made(schedule)) => {
                    api.wake.schedules_changed();
                    return Ok(respond(answer(&schedule)));
                }
                Ok(Reply::Replayed(first)) => return Ok(respond(first)),
                Err(StoreError::Moved) => settle_up(api, id).await?,
                // Somebody else was faster: whoever asked for a version hears of it, all others go on from there.
                Err(StoreError::VersionMismatch(_)) => {}
                Err(StoreError::NotFound) => return Err(no_such_schedule(id)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Moved.into())
    }
}

/// Has what is due of a schedule decided now, by the rules as they stand. One that cannot be understood any more is
/// paused, and so open to mending.
pub(crate) async fn settle_up(api: &Api, id: ScheduleId) -> Result<(), Problem> {
    let rules = &api.fire_rules;
    let decide = |due: &DueSchedule, now: DateTime<Utc>| {
        Some(decide(due, now, rules).unwrap_or_else(|error| Tick::stop(&due.schedule, &error, rules)))
    };
    Ok(api.wake.settle_up(id, &decide).await?)
}

/// Has all that is due of a schedule decided, and answers it as it is then. One that is too far behind for that stays so.
pub(crate) async fn settled_up(api: &Api, mut schedule: Schedule) -> Result<Schedule, Problem> {
    for _ in 0..ROUNDS {
        if !schedule.is_due(api.time.now()) {
            break;
        }
        settle_up(api, schedule.id).await?;
        schedule = find(api, schedule.id).await?;
    }
    Ok(schedule)
}

/// Writes the answer to a call that wrote a schedule like this one.
pub(crate) async fn answers(
    api: &Api,
    schedule: &Schedule,
    calendars: &[Calendar],
    status: StatusCode,
) -> Result<impl Fn(&Schedule) -> Answer + Clone + Send + Sync + 'static, Problem> {
    let topics = api.topics.definitions().await?;
    let warnings: Arc<[String]> = warnings(api, &topics, schedule, calendars).into();
    Ok(move |schedule: &Schedule| written(status, &ScheduleView::new(schedule, &topics).with_warnings(&warnings)))
}

/// What whoever wrote the schedule should know.
pub(crate) fn warnings(
    api: &Api,
    topics: &[TopicDefinition],
    schedule: &Schedule,
    calendars: &[Calendar],
) -> Vec<String> {
    let topic = Topic::from_stored(schedule.definition.topic.as_str());
    let mut warnings = api.topics.warnings(topics, &topic);
    if let Ok(outlook) = Outlook::new(schedule, calendars, &api.zones) {
        warnings.extend(outlook.remarks(api.time.now()));
    }
    warnings
}

/// An answer that is a schedule, with its `ETag`; with its `Location` where it is new.
pub(crate) fn respond(answer: Answer) -> Response {
    #[derive(Deserialize)]
    struct Named {
        id: ScheduleId,
        version: u64,
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let named = serde_json::from_str::<Named>(&answer.body).ok();
    let (false, Some(named)) = (status.is_server_error(), named) else {
        return Problem::new(Code::Internal, "the schedule was written, but cannot be shown").into_response();
    };
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    response.headers_mut().insert(header::ETAG, etag::of(named.version));
    if status == StatusCode::CREATED
        && let Ok(location) = HeaderValue::try_from(format!("{}/{}", schedules::PATH, named.id))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// The schedule of that id.
pub(crate) async fn find(api: &Api, id: ScheduleId) -> Result<Schedule, Problem> {
    api.store.schedule(id).await?.ok_or_else(|| no_such_schedule(id))
}

/// Refuses a schedule whose topic the caller's key is not for.
pub(crate) fn check_schedule_topic(caller: &Caller, schedule: &Schedule) -> Result<(), Problem> {
    caller.check_topic(&Topic::from_stored(schedule.definition.topic.as_str()))
}

/// The id in a path; a malformed one names no schedule.
pub(crate) fn schedule_id(text: &str) -> Result<ScheduleId, Problem> {
    let id = Some(text).filter(|text| text.len() == 36).and_then(|text| text.parse().ok());
    id.ok_or_else(|| no_such_schedule(shortened(text)))
}

pub(crate) fn no_such_schedule(id: impl fmt::Display) -> Problem {
    Problem::not_found(&format!("schedule {id}"))
}
