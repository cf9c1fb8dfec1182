//! Whether the process lives, and whether it can do its work.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use super::{Api, auth};

/// How long the database may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(2);

/// `GET /livez`: the process answers; nothing else is asked.
pub(crate) async fn live() -> Response {
    Json(json!({"status": "alive"})).into_response()
}

/// `GET /readyz`: 200 if work can be done here, 503 if not. Where an API key is needed, details need one.
pub(crate) async fn ready(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let (database, redis) = tokio::join!(database_is_up(&api), redis_is_up(&api));
    let schema = api.state.schema();
    let status = if api.state.is_draining() {
        Status::Draining
    } else if !database || schema.check_not_newer().and_then(|()| schema.check_complete()).is_err() {
        Status::Unavailable
    } else if api.state.is_paused() {
        Status::Paused
    } else if redis == Some(false) {
        Status::Degraded
    } else {
        Status::Ready
    };
    let code = match status {
        Status::Ready | Status::Degraded | Status::Paused => StatusCode::OK,
        Status::Draining | Status::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    if !auth::may_see_details(&api, &headers, database).await {
        return (code, Json(json!({"status": status}))).into_response();
    }
    let word = |up: bool| if up { "ok" } else { "unavailable" };
    let body = Readiness {
        status,
        database: word(database),
        schema: schema.version,
        redis: redis.map(word),
        tz_version: api.zones.version(),
    };
    (code, Json(body)).into_response()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Readiness<'a> {
    status: Status,
    database: &'a str,
    schema: i32,
    redis: Option<&'a str>,
    tz_version: &'a str,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ready,
    Degraded,
    Paused,
    Draining,
    Unavailable,
}

async fn database_is_up(api: &Api) -> bool {
    matches!(tokio::time::timeout(PATIENCE, api.store.check()).await, Ok(Ok(())))
}

/// Whether Redis answers, if there is to be one.
pub(crate) async fn redis_is_up(api: &Api) -> Option<bool> {
    match &api.redis {
        Some(redis) => Some(redis.ping().await.is_ok()),
        None => None,
    }
}
