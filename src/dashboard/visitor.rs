//! Whoever looks at a page: what they may do, and what they do.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use maud::Markup;
use punctual_domain::json::read_deep;
use punctual_domain::key::Role;
use punctual_domain::schedule::Schedule;
use punctual_domain::topic::Topic;
use serde_json::Value;
use tower::Service;

use super::form::encoded;
use super::layout::{self, Place};
use super::notice::Notice;
use crate::cli::when;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::guard;
use crate::http::problem::{Code, Problem};
use crate::http::schedule_edit::check_schedule_topic;
use crate::http::trace::RequestId;

/// The largest answer of the API that is read here.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// The API's own routes, for those whose key and origin were looked at.
#[derive(Clone)]
pub(crate) struct Inside(pub(crate) Router);

/// Whoever sends a request to a page.
pub(crate) struct Visitor {
    pub(crate) api: Arc<Api>,
    pub(crate) caller: Caller,
    /// What was asked for.
    pub(crate) uri: Uri,
    /// When that was, by the database's clock.
    pub(crate) now: DateTime<Utc>,
    headers: HeaderMap,
    request_id: RequestId,
    inside: Inside,
}

impl FromRequestParts<Arc<Api>> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let (Some(caller), Some(inside)) = (parts.extensions.get::<Caller>(), parts.extensions.get::<Inside>()) else {
            return Err(Problem::new(Code::Unauthenticated, "nobody has looked for an API key"));
        };
        Ok(Self {
            api: Arc::clone(api),
            caller: caller.clone(),
            uri: parts.uri.clone(),
            now: api.time.now(),
            headers: parts.headers.clone(),
            request_id: parts.extensions.get().cloned().unwrap_or_default(),
            inside: inside.clone(),
        })
    }
}

impl Visitor {
    /// Whether they may do what needs this role. What they may not is not offered.
    pub(crate) fn may(&self, role: Role) -> bool {
        self.caller.may(role)
    }

    /// Whether they may change what belongs to a topic.
    pub(crate) fn may_change(&self, topic: &Topic) -> bool {
        self.may(Role::Operate) && self.caller.check_topic(topic).is_ok()
    }

    /// Whether they may change a schedule.
    pub(crate) fn may_change_schedule(&self, schedule: &Schedule) -> bool {
        self.may(Role::Operate) && check_schedule_topic(&self.caller, schedule).is_ok()
    }

    /// Whether they may do what needs this role and concerns all topics.
    pub(crate) fn may_for_all_topics(&self, role: Role) -> bool {
        self.may(role) && !self.caller.is_limited()
    }

    /// Whether they are on this machine, by the name that they call it: then its loopback addresses lead somewhere for them.
    pub(crate) fn is_near(&self) -> bool {
        guard::host(&self.uri, &self.headers).as_ref().is_some_and(guard::is_loopback)
    }

    /// A whole page.
    pub(crate) fn page(&self, place: Place, title: &str, body: &Markup) -> Response {
        self.page_with(StatusCode::OK, place, title, body)
    }

    /// A whole page with another status, such as a form that was refused.
    pub(crate) fn page_with(&self, status: StatusCode, place: Place, title: &str, body: &Markup) -> Response {
        // The script reads the page too, and throws away what is not live: the notice is for people.
        let notice = if self.headers.contains_key("x-punctual-live") { None } else { Notice::of(&self.headers) };
        let page = layout::page(self, place, title, notice.as_ref(), body);
        let mut response = (status, page).into_response();
        if notice.is_some() {
            set_cookie(&mut response, &Notice::clear(&self.headers));
        }
        response
    }

    /// Calls a route of the API, as the visitor: `["schedules", id, "pause"]` below `/api/v1`.
    ///
    /// # Errors
    /// What the API answers.
    pub(crate) async fn act(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value, Problem> {
        self.call(method, path, body.map(Value::to_string), None).await
    }

    /// The same for something that must still have this version; the body is JSON, and goes as it is.
    ///
    /// # Errors
    /// What the API answers.
    pub(crate) async fn act_on(
        &self,
        version: Option<&str>,
        method: Method,
        path: &[&str],
        body: Option<String>,
    ) -> Result<Value, Problem> {
        let version = version.map(|version| (header::IF_MATCH, format!("\"{version}\"")));
        self.call(method, path, body, version).await
    }

    /// The same for something that happens once for each `key`, however often it is sent.
    ///
    /// # Errors
    /// What the API answers.
    pub(crate) async fn act_once(&self, key: String, method: Method, path: &[&str]) -> Result<Value, Problem> {
        self.call(method, path, None, Some((HeaderName::from_static("idempotency-key"), key))).await
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<String>,
        condition: Option<(HeaderName, String)>,
    ) -> Result<Value, Problem> {
        let path: String = path.iter().map(|part| format!("/{}", encoded(part))).collect();
        let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;
        *request.uri_mut() = format!("/api/v1{path}").parse().map_err(|_| Problem::not_found("thing of that name"))?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = condition {
            // Without its condition the call would do what nobody asked for.
            let value = HeaderValue::try_from(value).map_err(|_| {
                Problem::new(Code::Invalid, format!("{name} cannot be sent as it is; load the page again"))
            })?;
            request.headers_mut().insert(name, value);
        }
        request.extensions_mut().insert(self.caller.clone());
        request.extensions_mut().insert(self.request_id.clone());
        let Ok(mut response) = self.inside.0.clone().call(request).await;
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            return Err(problem);
        }
        let unreadable = || Problem::new(Code::Internal, "the answer of the API cannot be shown");
        let body = to_bytes(response.into_body(), MAX_ANSWER_BYTES).await.map_err(|_| unreadable())?;
        match body.is_empty() {
            true => Ok(Value::Null),
            false => str::from_utf8(&body).ok().and_then(|text| read_deep(text).ok()).ok_or_else(unreadable),
        }
    }

    /// An instant that was entered, as the API takes it: RFC 3339, or a local time of `zone`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn instant(&self, field: &str, text: &str, zone: &str) -> Result<String, Problem> {
        let read = when::instant(text, zone, &self.api.zones, self.now);
        let wrong = |error: anyhow::Error| Problem::invalid(field, error.to_string().replace("--tz", zone));
        read.map(when::written).map_err(wrong)
    }

    /// Leads to a page that says that something was done.
    pub(crate) fn done(&self, to: &str, what: impl Into<String>) -> Response {
        self.led(to, &Notice::Done(what.into()))
    }

    /// Leads to a page that says what was wrong; what the visitor may not do, or what is not there, has a page of its own.
    ///
    /// # Errors
    /// That.
    pub(crate) fn refused(&self, to: &str, problem: Problem) -> Result<Response, Problem> {
        match problem.code {
            Code::Forbidden | Code::Unauthenticated | Code::NotFound | Code::Unavailable | Code::Internal => {
                Err(problem)
            }
            _ => Ok(self.led(to, &Notice::Refused(said(&problem)))),
        }
    }

    /// Leads to a page that says that something was not found.
    pub(crate) fn not_found(&self, to: &str, what: &str) -> Response {
        self.led(to, &Notice::Refused(what.to_owned()))
    }

    fn led(&self, to: &str, notice: &Notice) -> Response {
        let mut response = led(to);
        set_cookie(&mut response, &notice.set(&self.headers));
        response
    }
}

/// Leads to another page.
pub(crate) fn led(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// What is wrong, all of it, as a sentence.
pub(crate) fn said(problem: &Problem) -> String {
    match problem.errors.as_slice() {
        [] | [_] => problem.detail.clone(),
        errors => {
            let all = errors.iter().map(|error| format!("{}: {}", error.field, error.message));
            all.collect::<Vec<_>>().join("; ")
        }
    }
}

/// Has the browser keep or forget something.
pub(crate) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
