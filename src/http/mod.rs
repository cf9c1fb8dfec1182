//! The HTTP API: the router, built apart from whoever serves it.
//!
//! A request passes, from the outside in: its span and the count, panics caught, compression of the answer, bounds on address and headers, and for the API the origin check,
//! room and deadline, the API key and its role; then its handler. Health checks need none of the latter. Which routes
//! there are stands in `table.rs`, and nowhere else.

mod audit;
mod auth;
mod batch;
mod body;
mod bulk;
mod calendars;
mod call;
mod claims;
mod cursor;
mod endpoint;
mod etag;
mod event_view;
mod events;
mod executions;
mod fields;
mod fingerprint;
mod guard;
mod health;
mod inspection;
mod instant;
mod keys;
mod limits;
mod list_page;
mod listener;
mod memory;
mod merge_patch;
mod metrics;
mod moves;
mod new_schedule;
mod new_task;
mod nodes;
mod openapi;
mod outbox;
mod outlook;
mod plugin_routes;
mod problem;
mod query;
mod requests;
mod schedule_edit;
mod schedule_moves;
mod schedule_view;
mod schedules;
mod settle;
mod state;
mod table;
mod task_view;
mod tasks;
mod templates;
mod topics;
mod trace;
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
    store: Arc<dyn Store>,
    zones: ZoneDatabase,
    time: Arc<StoreTime>,
    topics: Arc<TopicDirectory>,
    fire_rules: FireRules,
    inspector: Inspector,
    keys: auth::Keys,
    redis: Option<Redis>,
    state: Arc<State>,
    wake: Arc<Wake>,
    desk: PullDesk,
    webhook_allow: Vec<Network>,
    commands: mpsc::Sender<Command>,
    limits: limits::Limits,
    places: Semaphore,
    body_memory: Memory,
    batch_memory: Memory,
    page_memory: Memory,
    gauges: metrics::Gauges,
    feed: Feed,
    templates: Templates,
    plugins: PluginRoutes,
    document: OnceLock<serde_json::Value>,
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
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(api), audit::note))
        .layer(from_fn_with_state(Arc::clone(api), auth::caller))
        .layer(from_fn_with_state(Arc::clone(api), guard::room))
        .layer(from_fn_with_state(Arc::clone(api), guard::origin));
    let open = open.into_iter().fold(Router::new(), |router, endpoint| endpoint.add_to(router));
    surrounded(open.method_not_allowed_fallback(wrong_method).merge(guarded).with_state(Arc::clone(api)))
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

async fn no_such_route(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(100).collect();
    Problem::not_found(&format!("route {path:?}"))
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
