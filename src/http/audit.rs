//! The audit log: every change of what is there is noted, with who made it and how that went.
//!
//! A change is a call that needs the role `operate` or `admin` and is no look: on schedules, topics, calendars, keys, the
//! outbox, the node itself, and on tasks that are there. Making tasks, claiming and settling them is the work itself: the
//! tasks and their attempts tell of it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use punctual_domain::audit::{AuditEntry, LOCAL};
use punctual_domain::id::{AuditId, KeyId};
use punctual_domain::json::read_deep;
use punctual_domain::key::Role;
use punctual_domain::store::{AuditFilter, Page, Span};
use serde::Serialize;
use serde_json::Value;

use super::auth::Caller;
use super::endpoint::{Access, Called};
use super::instant::Instant;
use super::problem::Problem;
use super::query::Parameters;
use super::trace::RequestId;
use super::{Api, cursor, table};

pub(crate) const PATH: &str = "/api/v1/audit";

/// The longest name of what was changed that is kept.
const MAX_TARGET_BYTES: usize = 300;

/// `GET /api/v1/audit`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let filter = AuditFilter {
        key_id: parameters.read("keyId", |text| text.parse::<KeyId>().map_err(|_| "must be the id of a key".into())),
        actor: parameters.take("actor"),
        action: parameters.take("action"),
        target: parameters.take("target"),
        at: Span { from: parameters.instant("from"), to: parameters.instant("to") },
    };
    let page: Page<AuditId> = parameters.page();
    parameters.finish()?;
    // One more than is wanted tells whether more follow.
    let mut entries = api.store.audit(&filter, Page { limit: page.limit + 1, ..page }).await?;
    let has_more = entries.len() > page.limit as usize;
    entries.truncate(page.limit as usize);
    let next_cursor = entries.last().filter(|_| has_more).map(|last| cursor::after(last.id.0));
    let items: Vec<_> = entries.iter().map(EntryView::of).collect();
    cursor::page(&uri, &items, next_cursor)
}

/// Notes a change once it was made or refused.
pub(crate) async fn note(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let target = Target::default();
    request.extensions_mut().insert(target.clone());
    let Some(route) = route.filter(|route| is_change(&api, request.method(), route)) else {
        return next.run(request).await;
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let action = format!("{} {route}", request.method());
    let in_path = target_of(&route, request.uri().path());
    let response = next.run(request).await;
    let target = target.get().or_else(|| made(&in_path, &response)).unwrap_or(in_path);
    write(&api, caller.as_ref(), action, target, response.status(), request_id).await;
    response
}

/// Notes a form that was refused before it called the route of the API that it is for; what that route answers it notes
/// itself.
pub(crate) async fn note_refused(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let target = target_of(route.as_ref().map_or("", MatchedPath::as_str), request.uri().path());
    let response = next.run(request).await;
    if let Some(Called { method, route }) = response.extensions().get::<Called>()
        && changes(method, || table::access(method, route))
    {
        let action = format!("{method} {route}");
        write(&api, caller.as_ref(), action, target, response.status(), request_id).await;
    }
    response
}

async fn write(
    api: &Api,
    caller: Option<&Caller>,
    action: String,
    target: String,
    status: StatusCode,
    request_id: RequestId,
) {
    let (key_id, actor) = match caller {
        Some(Caller::Key(key)) => (Some(key.id), key.name.clone()),
        _ => (None, LOCAL.to_owned()),
    };
    let entry = AuditEntry {
        id: AuditId::generate(),
        at: api.time.now(),
        key_id,
        actor,
        action,
        target,
        status: status.as_u16(),
        request_id: request_id.0,
    };
    if let Err(error) = api.store.record(vec![entry.clone()]).await {
        tracing::error!(%error, actor = entry.actor, action = entry.action, target = entry.target, "change not noted");
    }
}

/// What was changed, where the path does not say it.
#[derive(Clone, Default)]
pub(crate) struct Target(Arc<Mutex<Option<String>>>);

impl Target {
    pub(crate) fn set(&self, target: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    /// The `filter` of a bulk call, as compact JSON; one that is too long is cut and ends in `…`.
    pub(crate) fn set_filter(&self, body: &str) {
        let filter = read_deep::<Value>(body).ok().map(|body| body["filter"].to_string());
        if let Some(filter) = filter.filter(|filter| filter.starts_with('{')) {
            self.set(match filter.len() <= MAX_TARGET_BYTES {
                true => filter,
                false => filter[..filter.floor_char_boundary(MAX_TARGET_BYTES - "…".len())].to_owned() + "…",
            });
        }
    }

    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn is_change(api: &Api, method: &Method, route: &str) -> bool {
    let access = || table::access(method, route).or_else(|| api.plugins.access(method, route));
    changes(method, access)
}

fn changes(method: &Method, access: impl FnOnce() -> Option<Access>) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
        && matches!(access(), Some(Access::Role(Role::Operate | Role::Admin)))
}

/// What stands in the path where the route has a name in braces.
fn target_of(route: &str, path: &str) -> String {
    let pairs = route.split('/').zip(path.split('/'));
    bounded(pairs.filter(|(part, _)| part.starts_with('{')).map(|(_, said)| said).collect::<Vec<_>>().join("/"))
}

/// What was made, where the path names nothing: what stands last in where the answer says it is.
fn made(in_path: &str, response: &Response) -> Option<String> {
    let is_made = in_path.is_empty() && response.status() == StatusCode::CREATED;
    let location = response.headers().get(header::LOCATION).filter(|_| is_made)?.to_str().ok()?;
    location.rsplit('/').next().map(|name| bounded(name.to_owned()))
}

fn bounded(mut target: String) -> String {
    target.truncate(target.floor_char_boundary(MAX_TARGET_BYTES));
    target
}

/// An entry as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView<'a> {
    id: AuditId,
    at: Instant,
    key_id: Option<KeyId>,
    actor: &'a str,
    action: &'a str,
    target: &'a str,
    status: u16,
    request_id: &'a str,
}

impl<'a> EntryView<'a> {
    fn of(entry: &'a AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: Instant(entry.at),
            key_id: entry.key_id,
            actor: &entry.actor,
            action: &entry.action,
            target: &entry.target,
            status: entry.status,
            request_id: &entry.request_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_from_work_and_looks() {
        for (method, route, expected) in [
            (Method::PUT, "/api/v1/topics/{name}", true),
            (Method::POST, "/api/v1/tasks/{id}/cancel", true),
            (Method::POST, "/api/v1/tasks/cancel", true),
            (Method::POST, "/api/v1/keys", true),
            (Method::DELETE, "/api/v1/keys/{id}", true),
            (Method::GET, "/api/v1/keys", false),
            (Method::POST, "/api/v1/tasks", false),
            (Method::POST, "/api/v1/tasks/batch", false),
            (Method::POST, "/api/v1/claims", false),
            (Method::POST, "/api/v1/tasks/{id}/complete", false),
            (Method::POST, "/nowhere", false),
        ] {
            assert_eq!(changes(&method, || table::access(&method, route)), expected, "{method} {route}");
        }
    }

    #[test]
    fn the_target_stands_in_the_path() {
        assert_eq!(target_of("/api/v1/topics/{name}/pause", "/api/v1/topics/mail.*/pause"), "mail.*");
        assert_eq!(target_of("/api/v1/tasks/cancel", "/api/v1/tasks/cancel"), "");
    }

    #[test]
    fn the_target_of_a_bulk_call_is_its_filter() {
        let of = |body: &str| {
            let target = Target::default();
            target.set_filter(body);
            target.get()
        };
        let said = of("{ \"filter\": { \"status\": [\"failed\"],\n \"topic\": \"é\" }, \"dryRun\": true }");
        assert_eq!(said.as_deref(), Some(r#"{"status":["failed"],"topic":"é"}"#));
        for nothing in ["", "{}", "[]", r#"{"filter":1}"#, r#"{"filter":{}"#] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
        let long = of(&format!(r#"{{"filter":{{"ownerId":"{}"}}}}"#, "é".repeat(400))).unwrap();
        assert!(
            long.len() <= MAX_TARGET_BYTES && long.starts_with(r#"{"ownerId":"é"#) && long.ends_with('…'),
            "{long}"
        );
    }
}
