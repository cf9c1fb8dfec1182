//! The HTTP API: the router, built apart from whoever serves it.
//!
//! A request passes, from the outside in: its span and the count, panics caught, compression of the answer, bounds on address and headers, and for the API the origin check,
//! room and deadline, the API key and its role; then its handler. Health checks need none of the latter. Which routes
//! there are stands in `table.rs`, and nowhere else.

pub(crate) mod audit;
pub(crate) mod auth;
mod batch;
pub(crate) mod body;
pub(crate) mod bulk;
mod calendars;
mod call;
mod claims;
pub(crate) mod cursor;
pub(crate) mod endpoint;
mod etag;
mod event_view;
pub(crate) mod events;
mod executions;
mod fields;
mod fingerprint;
pub(crate) mod guard;
pub(crate) mod health;
mod inspection;
pub(crate) mod instant;
pub(crate) mod keys;
mod limits;
pub(crate) mod list_page;
mod listener;
mod memory;
pub(crate) mod merge_patch;
mod metrics;
mod moves;
mod new_schedule;
mod new_task;
pub(crate) mod nodes;
mod openapi;
pub(crate) mod outbox;
pub(crate) mod outlook;
mod plugin_routes;
pub(crate) mod problem;
pub(crate) mod query;
mod requests;
pub(crate) mod schedule_edit;
mod schedule_moves;
pub(crate) mod schedule_view;
pub(crate) mod schedules;
mod settle;
mod state;
pub(crate) mod table;
pub(crate) mod task_view;
pub(crate) mod tasks;
pub(crate) mod templates;
pub(crate) mod topics;
pub(crate) mod trace;
mod work;

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use chrono::TimeDelta;
use punctual_domain::fire::FireRules;
use punctual_domain::id::NodeId;
use punctual_domain::store::Store;
use punctual_domain::time::ZoneDatabase;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

pub(crate) use auth::Reach;
use endpoint::{Access, Endpoint};
pub(crate) use event_view::event_data;
pub(crate) use listener::{BoundedListener, Headers};
pub(crate) use openapi::document as openapi_document;
pub(crate) use plugin_routes::PluginRoutes;
pub(crate) use state::State;
pub(crate) use topics::declared as declared_topic;

use crate::config::Network;
use crate::dashboard;
use crate::engine::Command;
use crate::feed::Feed;
use crate::inspect::Inspector;
use crate::redis::Redis;
use crate::routes::pull::PullDesk;
use crate::store_time::StoreTime;
use crate::templates::Templates;
use crate::topics::TopicDirectory;
use crate::wake::Wake;
use memory::Memory;
use problem::{Code, Problem};
use requests::Requests;

/// How many requests are worked on at once; further ones are told to come back.
const MAX_REQUESTS: usize = 1024;

/// From how many bytes on an answer is compressed, for those who can read that.
const COMPRESSED_FROM: u64 = 1024;

/// What the handlers work with.
pub(crate) struct Api {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) zones: ZoneDatabase,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) topics: Arc<TopicDirectory>,
    pub(crate) fire_rules: FireRules,
    pub(crate) inspector: Inspector,
    pub(crate) keys: auth::Keys,
    pub(crate) redis: Option<Redis>,
    pub(crate) state: Arc<State>,
    pub(crate) wake: Arc<Wake>,
    /// This process, as others know it.
    pub(crate) node: NodeId,
    pub(crate) desk: PullDesk,
    pub(crate) webhook_allow: Vec<Network>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) limits: limits::Limits,
    pub(crate) places: Semaphore,
    pub(crate) body_memory: Memory,
    pub(crate) batch_memory: Memory,
    pub(crate) page_memory: Memory,
    pub(crate) gauges: metrics::Gauges,
    pub(crate) feed: Feed,
    pub(crate) templates: Templates,
    pub(crate) plugins: PluginRoutes,
    pub(crate) glances: dashboard::Glances,
    pub(crate) document: OnceLock<serde_json::Value>,
}

/// What an [`Api`] is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) zones: ZoneDatabase,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) topics: Arc<TopicDirectory>,
    /// How late an instant of a schedule may be found and still just fire.
    pub(crate) misfire_threshold: Duration,
    pub(crate) inspector: Inspector,
    pub(crate) redis: Option<Redis>,
    pub(crate) state: Arc<State>,
    pub(crate) reach: Reach,
    /// Who wants to know of new tasks; nobody while paused.
    pub(crate) wake: Arc<Wake>,
    /// This process, as others know it.
    pub(crate) node: NodeId,
    /// Where workers claim.
    pub(crate) desk: PullDesk,
    /// Private networks that a webhook may reach.
    pub(crate) webhook_allow: Vec<Network>,
    /// Leads to the engine.
    pub(crate) commands: mpsc::Sender<Command>,
    /// Requests per second and API key.
    pub(crate) rate_limit: u32,
    /// What happens, for those who listen.
    pub(crate) feed: Feed,
    /// What the plugins send.
    pub(crate) templates: Templates,
    /// What plugins answer.
    pub(crate) plugins: PluginRoutes,
}

impl Api {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            keys: auth::Keys::new(Arc::clone(&parts.store), parts.reach),
            fire_rules: FireRules {
                zones: parts.zones.clone(),
                misfire_threshold: TimeDelta::from_std(parts.misfire_threshold).unwrap_or(TimeDelta::MAX),
            },
            store: parts.store,
            zones: parts.zones,
            time: parts.time,
            topics: parts.topics,
            inspector: parts.inspector,
            redis: parts.redis,
            wake: parts.wake,
            node: parts.node,
            desk: parts.desk,
            webhook_allow: parts.webhook_allow,
            commands: parts.commands,
            limits: limits::Limits::new(parts.rate_limit),
            state: parts.state,
            places: Semaphore::new(MAX_REQUESTS),
            body_memory: Memory::new(body::ALL_BODIES_BYTES),
            batch_memory: Memory::new(body::ALL_BATCHES_BYTES),
            page_memory: Memory::new(list_page::ALL_PAGES_BYTES),
            gauges: metrics::Gauges::default(),
            feed: parts.feed,
            templates: parts.templates,
            plugins: parts.plugins,
            glances: dashboard::Glances::default(),
            document: OnceLock::new(),
        }
    }

    /// All routes: those of the table, and those of the plugins.
    fn endpoints(&self) -> Vec<Endpoint> {
        table::endpoints().into_iter().chain(self.plugins.endpoints()).collect()
    }
}

/// Every route.
pub(crate) fn router(api: &Arc<Api>) -> Router {
    let (open, guarded) =
        api.endpoints().into_iter().partition::<Vec<_>, _>(|endpoint| endpoint.access == Access::Open);
    let guarded = guarded
        .into_iter()
        .fold(Router::new(), |router, endpoint| endpoint.add_to(router))
        .layer(from_fn_with_state(Arc::clone(api), audit::note));
    let inside = guarded.clone().with_state(Arc::clone(api));
    let guarded = guarded
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(api), auth::caller))
        .layer(from_fn_with_state(Arc::clone(api), guard::room))
        .layer(from_fn_with_state(Arc::clone(api), guard::origin));
    let open = open.into_iter().fold(Router::new(), |router, endpoint| endpoint.add_to(router));
    let open = open.method_not_allowed_fallback(wrong_method);
    let pages = pages(api, inside);
    surrounded(open.merge(guarded).merge(pages).with_state(Arc::clone(api)))
}

/// The dashboard's routes. What a form changes is changed by the API's own routes, `inside`: behind their roles, their
/// checks and their audit log.
fn pages(api: &Arc<Api>, inside: Router) -> Router<Arc<Api>> {
    let (open, guarded) =
        dashboard::endpoints().into_iter().partition::<Vec<_>, _>(|endpoint| endpoint.access == Access::Open);
    let open = open.into_iter().fold(Router::new(), |router, endpoint| endpoint.add_to(router));
    let guarded = guarded
        .into_iter()
        .fold(Router::new(), |router, endpoint| endpoint.add_to(router))
        .layer(axum::Extension(dashboard::Inside(inside)))
        .layer(from_fn_with_state(Arc::clone(api), audit::note_refused))
        .layer(from_fn_with_state(Arc::clone(api), auth::caller));
    open.merge(guarded)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(api), guard::room))
        .layer(from_fn_with_state(Arc::clone(api), guard::origin))
        .layer(from_fn(dashboard::dress))
}

/// The routes of an address that is for metrics alone: whoever reaches it needs no key.
pub(crate) fn metrics_router(api: Arc<Api>) -> Router {
    let endpoints = table::endpoints().into_iter().filter(|endpoint| ["/metrics", "/livez"].contains(&&*endpoint.path));
    let routes = endpoints.fold(Router::new(), |router, endpoint| endpoint.opened().add_to(router));
    surrounded(routes.fallback(no_such_route).method_not_allowed_fallback(wrong_method).with_state(api))
}

/// Puts around routes what every request passes first.
fn surrounded(routes: Router) -> Router {
    // Small answers are not worth it, and streams must not wait until enough has come together.
    let compressed = SizeAbove::new(COMPRESSED_FROM).and(NotForContentType::SSE);
    routes
        .layer(from_fn(guard::bounds))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(compressed))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(Arc::<Requests>::default(), requests::count))
        .layer(from_fn(trace::trace))
}

/// An answer in JSON.
fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(body).map_err(cannot_be_shown)?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn cannot_be_shown(error: serde_json::Error) -> Problem {
    tracing::error!(%error, "answer not written");
    Problem::new(Code::Internal, "what is stored cannot be shown; the log says more")
}

async fn no_such_route(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(100).collect();
    let problem = Problem::not_found(&format!("route {path:?}"));
    dashboard::or_page(problem, request.uri().path(), request.headers())
}

async fn wrong_method(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(100).collect();
    Problem::new(Code::MethodNotAllowed, format!("{} is not allowed on {path:?}; see Allow", request.method()))
}

/// The panic itself was logged when it happened.
fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    Problem::new(Code::Internal, "the request hit a bug; the log says more").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use tower::Service;

    #[tokio::test]
    async fn a_panic_is_a_problem_like_any_other() {
        async fn broken() -> StatusCode {
            panic!("a bug")
        }
        let mut app = Router::new().route("/", get(broken)).layer(CatchPanicLayer::custom(panicked));
        let response = app.call(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
