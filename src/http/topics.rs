//! `/api/v1/topics`: what serves which topics, how fast, and whether at all.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::retry::RetryPolicy;
use punctual_domain::task::MAX_TIMEOUT_SECONDS;
use punctual_domain::topic::{Route, TopicDefinition, TopicPattern};
use serde::Serialize;

use super::auth::Caller;
use super::body::{JsonBody, OptionalBody};
use super::call::{self, Call, idempotency_key};
use super::fields::{Fields, shortened};
use super::new_task::retry;
use super::problem::{Problem, Refusals};
use super::query::{NamedPage, Parameters};
use super::{Api, cursor, json};
use crate::config::{DeclaredTopic, Network};
use crate::routes::address;
use crate::routes::signature::{self, MAX_SECRETS};

pub(crate) const PATH: &str = "/api/v1/topics";

pub(crate) const MAX_CONCURRENCY: i64 = 10_000;
pub(crate) const MAX_RATE: f64 = 1_000_000.0;
pub(crate) const MAX_RETENTION_DAYS: i64 = 36_500;

/// What is shown in place of a secret.
const HIDDEN: &str = "***";

/// `GET /api/v1/topics`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let NamedPage { after, limit } = parameters.named_page();
    let limit = limit as usize;
    parameters.finish()?;
    let mut definitions = api.store.topics().await?;
    definitions.retain(|definition| after.as_deref().is_none_or(|after| definition.name.as_str() > after));
    let has_more = definitions.len() > limit;
    definitions.truncate(limit);
    let last = definitions.last().filter(|_| has_more);
    let next_cursor = last.map(|last| cursor::after_name(last.name.as_str()));
    let items: Vec<_> = definitions
        .iter()
        .map(|definition| TopicView::of(definition, api.topics.unserved(&definition.route)))
        .collect();
    cursor::page(&uri, &items, next_cursor)
}

/// `GET /api/v1/topics/{name}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(name): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let definition = find(&api, &name).await?.ok_or_else(|| no_such_topic(&name))?;
    json(StatusCode::OK, &TopicView::of(&definition, api.topics.unserved(&definition.route)))
}

/// `PUT /api/v1/topics/{name}`.
pub(crate) async fn put(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
    body: JsonBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let mut refusals = Refusals::default();
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let pattern = name.parse::<TopicPattern>().map_err(|error| refusals.add("name", error.to_string())).ok();
    if let Some(said) = fields.text("name", &mut refusals)
        && said != name
    {
        refusals.add("name", "must be as in the path, or left out");
    }
    let known = find(&api, &name).await?;
    // A topic that has a handler keeps it; any other that nobody says more about is only announced.
    let route = known.filter(|known| known.route == Route::Handler).map_or(Route::Event, |known| known.route);
    let pattern = pattern.unwrap_or_else(|| TopicPattern::from_stored(""));
    let definition = read(&mut fields, TopicDefinition::new(pattern, route), &api.webhook_allow, &mut refusals);
    fields.finish(&["warnings"], &mut refusals);
    let definition = refusals.or(definition)?;
    caller.check_pattern(&definition.name)?;

    let is_new = api.store.put_topic(&definition).await?;
    changed(&api);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = json(status, &TopicView::of(&definition, api.topics.unserved(&definition.route)))?;
    if is_new && let Ok(location) = HeaderValue::try_from(format!("{PATH}/{}", definition.name.as_str())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `DELETE /api/v1/topics/{name}`.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let pattern: TopicPattern = name.parse().map_err(|_| no_such_topic(&name))?;
    caller.check_pattern(&pattern)?;
    if !api.store.delete_topic(&pattern).await? {
        return Err(no_such_topic(&name));
    }
    changed(&api);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /api/v1/topics/{name}/pause`.
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    set_paused(&api, &caller, &name, &uri, &headers, &body, true).await
}

/// `POST /api/v1/topics/{name}/resume`.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    set_paused(&api, &caller, &name, &uri, &headers, &body, false).await
}

async fn set_paused(
    api: &Api,
    caller: &Caller,
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: &JsonBody,
    paused: bool,
) -> Result<Response, Problem> {
    Parameters::of(uri)?.finish()?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(headers, &mut refusals);
    Fields::of_body(&body.text, &mut refusals)?.finish(&[], &mut refusals);
    let key = refusals.or(key)?;
    let pattern: TopicPattern = name.parse().map_err(|_| no_such_topic(name))?;
    caller.check_pattern(&pattern)?;
    let call = Call::new(caller, key, uri.path(), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let Some(definition) = api.store.pause_topic(&pattern, paused).await? else { return Err(no_such_topic(name)) };
    changed(api);
    call.respond_and_keep(
        &*api.store,
        call::written(StatusCode::OK, &TopicView::of(&definition, api.topics.unserved(&definition.route))),
    )
    .await
}

/// Lets everybody know.
fn changed(api: &Api) {
    api.topics.forget();
    api.wake.topics_changed();
    api.desk.ring();
}

async fn find(api: &Api, name: &str) -> Result<Option<TopicDefinition>, Problem> {
    Ok(api.store.topics().await?.into_iter().find(|definition| definition.name.as_str() == name))
}

fn no_such_topic(name: &str) -> Problem {
    Problem::not_found(&format!("definition of the topic {:?}", shortened(name)))
}

/// Reads a definition over its defaults; worthless if anything was refused.
pub(crate) fn read(
    fields: &mut Fields<'_>,
    mut definition: TopicDefinition,
    webhook_allow: &[Network],
    refusals: &mut Refusals,
) -> TopicDefinition {
    if let Some(route) = route(fields, webhook_allow, refusals) {
        definition.route = route;
    }
    let mut whole = |name: &str, most: i64| fields.whole(name, 1..=most, refusals).map(|number| number as u32);
    definition.concurrency = whole("concurrency", MAX_CONCURRENCY).unwrap_or(definition.concurrency);
    definition.timeout_seconds = whole("timeoutSeconds", i64::from(MAX_TIMEOUT_SECONDS));
    definition.retention_days = whole("retentionDays", MAX_RETENTION_DAYS);
    definition.rate_per_second = fields.number("ratePerSecond", 0.0..=MAX_RATE, refusals);
    if definition.rate_per_second == Some(0.0) {
        refusals.add("ratePerSecond", "must be more than 0; to stop the topic altogether, pause it");
    }
    let says_retry = fields.has("retry");
    let retry = retry(fields, RetryPolicy::default(), refusals);
    definition.retry = says_retry.then_some(retry);
    definition.paused = fields.flag("paused", refusals).unwrap_or(definition.paused);
    definition
}

/// Reads a topic as the configuration declares it.
///
/// # Errors
/// Every bad field, and what to change.
pub(crate) fn declared(
    name: &str,
    json: &str,
    webhook_allow: &[Network],
) -> Result<DeclaredTopic, Vec<(String, String)>> {
    let each = |problem: Problem| match problem.errors.is_empty() {
        true => vec![(String::new(), problem.detail)],
        false => problem.errors.into_iter().map(|error| (error.field, error.message)).collect(),
    };
    let mut refusals = Refusals::default();
    let pattern = name.parse::<TopicPattern>().map_err(|error| refusals.add("name", error.to_string())).ok();
    let mut fields = Fields::of_body(json, &mut refusals).map_err(each)?;
    let (says_route, says_paused) = (fields.has("route"), fields.has("paused"));
    let bare = TopicDefinition::new(pattern.unwrap_or_else(|| TopicPattern::from_stored("")), Route::Event);
    let definition = read(&mut fields, bare, webhook_allow, &mut refusals);
    fields.finish(&[], &mut refusals);
    refusals.or(DeclaredTopic { definition, says_route, says_paused }).map_err(each)
}

fn route(fields: &mut Fields<'_>, webhook_allow: &[Network], refusals: &mut Refusals) -> Option<Route> {
    const TYPES: &str = "must be handler, webhook, pull, bullmq or event";
    let mut fields = fields.object("route", refusals)?;
    if !fields.has("type") {
        refusals.add("route.type", format!("is required and {TYPES}"));
    }
    let route = match fields.text("type", refusals)?.as_str() {
        "handler" => Some(Route::Handler),
        "pull" => Some(Route::Pull),
        "event" => Some(Route::Event),
        "webhook" => webhook(&mut fields, webhook_allow, refusals),
        "bullmq" => bullmq(&mut fields, refusals),
        other => {
            refusals.add("route.type", format!("{TYPES}, not {:?}", shortened(other)));
            return None;
        }
    };
    fields.finish(&[], refusals);
    route
}

fn webhook(fields: &mut Fields<'_>, webhook_allow: &[Network], refusals: &mut Refusals) -> Option<Route> {
    for (name, what) in [("url", "where to send"), ("secrets", "what signs it, two during a rotation")] {
        if !fields.has(name) {
            refusals.add(format!("route.{name}"), format!("is required: {what}"));
        }
    }
    let url = fields.text("url", refusals);
    let secrets = fields.texts("secrets", refusals);
    let url = url?;
    if let Err(message) = address::check_url(&url, webhook_allow) {
        refusals.add("route.url", message);
    }
    let secrets = secrets?;
    if !(1..=MAX_SECRETS).contains(&secrets.len()) {
        refusals.add("route.secrets", format!("must be 1 secret, or {MAX_SECRETS} during a rotation"));
    }
    let is_secret = |secret: &String| (8..=512).contains(&secret.chars().count()) && !secret.contains(char::is_control);
    if !secrets.iter().all(is_secret) {
        refusals.add("route.secrets", "each must have 8 to 512 characters, none of them a control character");
    }
    if let Some(message) = secrets.iter().find_map(|secret| signature::check_secret(secret).err()) {
        refusals.add("route.secrets", message);
    }
    Some(Route::Webhook { url, secrets })
}

fn bullmq(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Route> {
    if !fields.has("queue") {
        refusals.add("route.queue", "is required: the name of the queue");
    }
    let queue = fields.text("queue", refusals);
    let prefix = fields.text("prefix", refusals).unwrap_or_else(|| "bull".to_owned());
    let queue = queue?;
    for (name, text) in [("queue", &queue), ("prefix", &prefix)] {
        let is_name = (1..=200).contains(&text.chars().count()) && !text.contains(|c: char| c.is_control() || c == ':');
        if !is_name {
            refusals.add(format!("route.{name}"), "must have 1 to 200 characters, no colon and no control characters");
        }
    }
    Some(Route::Bullmq { queue, prefix })
}

/// A definition as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TopicView<'a> {
    name: &'a str,
    route: RouteView<'a>,
    concurrency: u32,
    rate_per_second: Option<f64>,
    retry: Option<RetryPolicy>,
    timeout_seconds: Option<u32>,
    paused: bool,
    retention_days: Option<u32>,
    warnings: Vec<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RouteView<'a> {
    Handler,
    Webhook { url: &'a str, secrets: Vec<&'static str> },
    Pull,
    Bullmq { queue: &'a str, prefix: &'a str },
    Event,
}

impl<'a> TopicView<'a> {
    /// With the reason why nothing happens to its tasks, if nothing does.
    pub(crate) fn of(definition: &'a TopicDefinition, unserved: Option<&'static str>) -> Self {
        let route = match &definition.route {
            Route::Handler => RouteView::Handler,
            Route::Webhook { url, secrets } => {
                RouteView::Webhook { url, secrets: secrets.iter().map(|_| HIDDEN).collect() }
            }
            Route::Pull => RouteView::Pull,
            Route::Bullmq { queue, prefix } => RouteView::Bullmq { queue, prefix },
            Route::Event => RouteView::Event,
        };
        Self {
            name: definition.name.as_str(),
            route,
            concurrency: definition.concurrency,
            rate_per_second: definition.rate_per_second,
            retry: definition.retry,
            timeout_seconds: definition.timeout_seconds,
            paused: definition.paused,
            retention_days: definition.retention_days,
            warnings: unserved.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_body(body: &str) -> Result<TopicDefinition, Problem> {
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(body, &mut refusals)?;
        let bare = TopicDefinition::new("mail".parse().unwrap(), Route::Event);
        let definition = read(&mut fields, bare, &[], &mut refusals);
        fields.finish(&[], &mut refusals);
        refusals.or(definition)
    }

    #[test]
    fn nothing_said_is_every_default() {
        let definition = read_body("{}").unwrap();
        assert_eq!(read_body(r#"{"retry":null,"route":null,"paused":null}"#).unwrap(), definition);
        assert_eq!(definition, TopicDefinition::new("mail".parse().unwrap(), Route::Event));
        let shown = serde_json::to_value(TopicView::of(&definition, None)).unwrap();
        assert_eq!(shown["concurrency"], 50);
        assert_eq!(shown["route"], serde_json::json!({"type": "event"}));
    }

    #[test]
    fn every_route_is_read_and_shown_without_its_secrets() {
        for (route, shown) in [
            (r#"{"type":"handler"}"#, r#"{"type":"handler"}"#),
            (r#"{"type":"pull"}"#, r#"{"type":"pull"}"#),
            (r#"{"type":"bullmq","queue":"q"}"#, r#"{"type":"bullmq","queue":"q","prefix":"bull"}"#),
            (
                r#"{"type":"webhook","url":"https://example.com/x","secrets":["swordfish","swordfish2"]}"#,
                r#"{"type":"webhook","url":"https://example.com/x","secrets":["***","***"]}"#,
            ),
        ] {
            let definition = read_body(&format!(r#"{{"route":{route}}}"#)).unwrap();
            let view = serde_json::to_value(TopicView::of(&definition, None)).unwrap();
            assert_eq!(view["route"], serde_json::from_str::<serde_json::Value>(shown).unwrap());
            assert!(!view.to_string().contains("swordfish"));
        }
    }

    #[test]
    fn everything_wrong_is_refused_by_name() {
        for (body, field) in [
            (r#"{"route":"pull"}"#, "route"),
            (r#"{"route":{}}"#, "route.type"),
            (r#"{"route":{"type":"smoke"}}"#, "route.type"),
            (r#"{"route":{"type":"pull","url":"x"}}"#, "route.url"),
            (r#"{"route":{"type":"webhook","url":"https://example.com"}}"#, "route.secrets"),
            (r#"{"route":{"type":"webhook","secrets":["swordfish"]}}"#, "route.url"),
            (r#"{"route":{"type":"webhook","url":"http://127.0.0.1","secrets":["swordfish"]}}"#, "route.url"),
            (r#"{"route":{"type":"webhook","url":"https://example.com","secrets":["***"]}}"#, "route.secrets"),
            (r#"{"route":{"type":"webhook","url":"https://example.com","secrets":[]}}"#, "route.secrets"),
            (r#"{"route":{"type":"webhook","url":"https://example.com","secrets":["whsec_s f"]}}"#, "route.secrets"),
            (
                r#"{"route":{"type":"webhook","url":"https://example.com","secrets":["swordfish","swordfish2","swordfish3"]}}"#,
                "route.secrets",
            ),
            (r#"{"route":{"type":"bullmq"}}"#, "route.queue"),
            (r#"{"route":{"type":"bullmq","queue":"a:b"}}"#, "route.queue"),
            (r#"{"concurrency":0}"#, "concurrency"),
            (r#"{"concurrency":10001}"#, "concurrency"),
            (r#"{"ratePerSecond":0}"#, "ratePerSecond"),
            (r#"{"ratePerSecond":-1}"#, "ratePerSecond"),
            (r#"{"timeoutSeconds":0}"#, "timeoutSeconds"),
            (r#"{"retentionDays":0}"#, "retentionDays"),
            (r#"{"retry":{"attempts":0}}"#, "retry.attempts"),
            (r#"{"paused":"yes"}"#, "paused"),
            (r#"{"colour":"red"}"#, "colour"),
        ] {
            let problem = read_body(body).unwrap_err();
            assert_eq!(problem.errors[0].field, field, "{body}");
            assert!(!format!("{problem:?}").contains("swordfish"));
        }
    }
}
