//! `/api/v1/calendars`: named sets of dates and weekdays on which schedules do not fire.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{NaiveDate, Weekday};
use punctual_domain::calendar::Calendar;
use punctual_domain::invalid::check_name;
use punctual_domain::store::{Answer, Reply};

use super::auth::Caller;
use super::body::JsonBody;
use super::call::{Call, idempotency_key, written};
use super::fields::{Fields, shortened};
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use super::{Api, cursor, json};

pub(crate) const PATH: &str = "/api/v1/calendars";

/// The most dates of one calendar.
pub(crate) const MAX_DATES: usize = 10_000;

/// `POST /api/v1/calendars`.
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
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    if !fields.has("name") {
        refusals.add("name", "is required");
    }
    let name = fields.text("name", &mut refusals).unwrap_or_else(|| "?".into());
    let calendar = calendar(name, fields, &mut refusals);
    let calendar = refusals.or(calendar)?;
    caller.check_unlimited("calendars are")?;
    let remember = Call::new(&caller, key, PATH, &body.text).remember(created);
    match api.store.create_calendar(&calendar, remember).await? {
        Reply::Made(calendar) => {
            api.wake.schedules_changed();
            Ok(respond(created(&calendar), &calendar.name))
        }
        Reply::Replayed(first) => Ok(respond(first, &calendar.name)),
    }
}

/// `GET /api/v1/calendars`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let page = parameters.named_page();
    parameters.finish()?;
    let calendars = api.store.calendars().await?;
    let behind = calendars.iter().filter(|calendar| page.after.as_ref().is_none_or(|after| calendar.name > *after));
    let mut items: Vec<_> = behind.take(page.limit as usize + 1).collect();
    let has_more = items.len() > page.limit as usize;
    items.truncate(page.limit as usize);
    let next_cursor = items.last().filter(|_| has_more).map(|last| cursor::after_name(&last.name));
    cursor::page(&uri, &items, next_cursor)
}

/// `GET /api/v1/calendars/{name}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(name): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let calendars = api.store.calendars().await?;
    let found = calendars.iter().find(|calendar| calendar.name == name);
    json(StatusCode::OK, found.ok_or_else(|| no_such_calendar(&name))?)
}

/// `PUT /api/v1/calendars/{name}`.
pub(crate) async fn replace(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
    body: JsonBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    if fields.text("name", &mut refusals).is_some_and(|given| given != name) {
        refusals.add("name", "must be the name in the address, or left out");
    }
    let calendar = calendar(name, fields, &mut refusals);
    let calendar = refusals.or(calendar)?;
    caller.check_unlimited("calendars are")?;
    let is_new = api.store.put_calendar(&calendar).await?;
    api.wake.schedules_changed();
    if is_new { Ok(respond(created(&calendar), &calendar.name)) } else { json(StatusCode::OK, &calendar) }
}

/// `DELETE /api/v1/calendars/{name}`.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    caller.check_unlimited("calendars are")?;
    if !name.contains('\0') && api.store.delete_calendar(&name).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(no_such_calendar(&name))
}

/// Reads all but the name; worthless if anything was refused.
fn calendar(name: String, mut fields: Fields<'_>, refusals: &mut Refusals) -> Calendar {
    if let Err(message) = check_name(&name) {
        refusals.add("name", message);
    }
    let mut dates = BTreeSet::new();
    if let Some((items, total)) = fields.items("dates", MAX_DATES, refusals) {
        if total > MAX_DATES {
            refusals.add("dates", format!("must have at most {MAX_DATES} dates, not {total}"));
        }
        for (position, item) in items.into_iter().enumerate() {
            match serde_json::from_str::<String>(item.get()).ok().and_then(|text| date(&text)) {
                Some(date) => drop(dates.insert(date)),
                None => refusals.add(format!("dates[{position}]"), "must be a date such as \"2026-12-25\""),
            }
        }
    }
    let mut weekdays: Vec<Weekday> = Vec::new();
    if let Some((items, total)) = fields.items("weekdays", 7, refusals) {
        if total > 7 {
            refusals.add("weekdays", format!("must have at most 7 weekdays, not {total}"));
        }
        for (position, item) in items.into_iter().enumerate() {
            match serde_json::from_str::<String>(item.get()).ok().and_then(|text| text.parse().ok()) {
                Some(weekday) if weekdays.contains(&weekday) => {}
                Some(weekday) => weekdays.push(weekday),
                None => {
                    refusals.add(format!("weekdays[{position}]"), "must be one of mon, tue, wed, thu, fri, sat, sun")
                }
            }
        }
    }
    fields.finish(&[], refusals);
    Calendar { name, dates, weekdays }
}

/// A date in the one way that everybody writes it.
fn date(text: &str) -> Option<NaiveDate> {
    Some(text).filter(|text| text.len() == 10).and_then(|text| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok())
}

fn created(calendar: &Calendar) -> Answer {
    written(StatusCode::CREATED, calendar)
}

/// An answer that is a new calendar, with its `Location`.
fn respond(answer: Answer, name: &str) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("{PATH}/{}", escaped(name))) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A name as it stands in an address.
fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut escaped, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            // Writing to a text cannot fail.
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
        escaped
    })
}

fn no_such_calendar(name: &str) -> Problem {
    Problem::not_found(&format!("calendar {:?}", shortened(name)))
}
