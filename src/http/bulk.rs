//! `POST /api/v1/tasks/cancel` and `/retry`: every task that a filter finds.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use punctual_actors::Origin;
use punctual_domain::store::{Bulk, Depth, Reply, Span, TaskFilter};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::Topic;

use super::audit::Target;
use super::auth::Caller;
use super::body::JsonBody;
use super::call::{self, Call, idempotency_key};
use super::fields::Fields;
use super::problem::{Problem, Refusals};
use super::query::{Parameters, statuses};
use super::{Api, instant};

pub(crate) const CANCEL_PATH: &str = "/api/v1/tasks/cancel";
pub(crate) const RETRY_PATH: &str = "/api/v1/tasks/retry";

/// `POST /api/v1/tasks/cancel`.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Extension(target): Extension<Target>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    target.set_filter(&body.text);
    let Request { filter, bulk, call } = read(&caller, CANCEL_PATH, &uri, &headers, &body)?;
    let remember = call.remember(|count: &u64| call::counted(*count));
    match api.store.cancel_matching(&filter, bulk, remember).await? {
        Reply::Made(changed) => {
            changed.stopped.iter().for_each(|id| api.wake.task_cancelled(*id));
            if bulk == Bulk::Apply {
                api.wake.tasks_changed();
            }
            for Depth { topic, of_schedules, tasks } in &changed.by_topic {
                let origin = if *of_schedules { Origin::Schedule } else { Origin::Task };
                let meters = api.topics.meters(&Topic::from_stored(topic.as_str())).await;
                meters.ended(TaskStatus::Cancelled, origin, *tasks);
            }
            Ok(call::respond(call::counted(changed.count)))
        }
        Reply::Replayed(first) => Ok(call::respond(first)),
    }
}

/// `POST /api/v1/tasks/retry`.
pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Extension(target): Extension<Target>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    target.set_filter(&body.text);
    let Request { filter, bulk, call } = read(&caller, RETRY_PATH, &uri, &headers, &body)?;
    let remember = call.remember(|count: &u64| call::counted(*count));
    match api.store.retry_matching(&filter, bulk, remember).await? {
        Reply::Made(changed) => {
            if bulk == Bulk::Apply {
                api.wake.tasks_changed();
            }
            Ok(call::respond(call::counted(changed.count)))
        }
        Reply::Replayed(first) => Ok(call::respond(first)),
    }
}

/// What a bulk call asks for.
struct Request {
    filter: TaskFilter,
    bulk: Bulk,
    call: Call,
}

fn read(caller: &Caller, path: &str, uri: &Uri, headers: &HeaderMap, body: &JsonBody) -> Result<Request, Problem> {
    Parameters::of(uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(headers, &mut refusals);
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let filter = filter(&mut fields, &mut refusals);
    let bulk = match fields.flag("dryRun", &mut refusals) {
        Some(true) => Bulk::DryRun,
        Some(false) | None => Bulk::Apply,
    };
    fields.finish(&["count"], &mut refusals);
    let filter = refusals.or(filter)?;
    caller.check_filter(&filter)?;
    Ok(Request { filter, bulk, call: Call::new(caller, key, path, &body.text) })
}

/// Reads `filter`. One that asks for nothing would mean everything, which nobody says by accident here.
fn filter(fields: &mut Fields<'_>, refusals: &mut Refusals) -> TaskFilter {
    let was_given = fields.has("filter");
    let Some(mut given) = fields.object("filter", refusals) else {
        if !was_given {
            refusals.add("filter", EMPTY);
        }
        return TaskFilter::default();
    };
    let before = refusals.total();
    let filter = TaskFilter {
        status: status(&mut given, refusals),
        topic: text(&mut given, "topic", refusals)
            .and_then(|topic| topic.parse().map_err(|error| refuse("topic", &error, refusals)).ok()),
        owner_id: text(&mut given, "ownerId", refusals),
        tenant_id: text(&mut given, "tenantId", refusals),
        correlation_id: text(&mut given, "correlationId", refusals),
        client_request_id: text(&mut given, "clientRequestId", refusals),
        schedule_id: text(&mut given, "scheduleId", refusals).and_then(|id| {
            id.parse().map_err(|_| refuse("scheduleId", &"must be the id of a schedule", refusals)).ok()
        }),
        run_at: Span { from: time(&mut given, "from", refusals), to: time(&mut given, "to", refusals) },
    };
    given.finish(&[], refusals);
    if filter == TaskFilter::default() && refusals.total() == before {
        refusals.add("filter", EMPTY);
    }
    filter
}

const EMPTY: &str = "must say which tasks: one or more of status, topic, ownerId, tenantId, correlationId, \
                     clientRequestId, scheduleId, from, to";

fn status(given: &mut Fields<'_>, refusals: &mut Refusals) -> Vec<TaskStatus> {
    let Some(texts) = given.texts("status", refusals) else { return Vec::new() };
    if texts.is_empty() {
        refuse("status", &"must name one status or more", refusals);
    }
    let read = texts.iter().map(|text| statuses(text)).collect::<Result<Vec<_>, _>>();
    read.map(|read| read.concat()).unwrap_or_else(|message| {
        refuse("status", &message, refusals);
        Vec::new()
    })
}

fn time(given: &mut Fields<'_>, name: &str, refusals: &mut Refusals) -> Option<DateTime<Utc>> {
    let text = text(given, name, refusals)?;
    instant::read(&text).map_err(|message| refuse(name, &message, refusals)).ok()
}

/// A text that says something: here an empty one would silently widen the filter.
fn text(given: &mut Fields<'_>, name: &str, refusals: &mut Refusals) -> Option<String> {
    let text = given.text(name, refusals)?;
    if text.is_empty() || text.contains('\0') {
        refuse(name, &"must not be empty, nor contain the character U+0000", refusals);
        return None;
    }
    Some(text)
}

fn refuse(name: &str, message: &dyn std::fmt::Display, refusals: &mut Refusals) {
    refusals.add(format!("filter.{name}"), message.to_string());
}
