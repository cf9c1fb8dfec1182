//! `POST /api/v1/resume` and `/pause`: whether this node works. A paused one neither claims nor ticks, answers workers
//! with nothing, and still takes tasks.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tokio::sync::oneshot;

use super::Api;
use super::auth::Caller;
use super::body::{JsonBody, OptionalBody};
use super::call::{self, Call, idempotency_key};
use super::fields::Fields;
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use crate::engine::Command;

/// `POST /api/v1/resume`.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    command(&api, &caller, &uri, &headers, &body, Command::Resume).await
}

/// `POST /api/v1/pause`.
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    command(&api, &caller, &uri, &headers, &body, Command::Pause).await
}

async fn command(
    api: &Api,
    caller: &Caller,
    uri: &Uri,
    headers: &HeaderMap,
    body: &JsonBody,
    command: impl FnOnce(oneshot::Sender<bool>) -> Command,
) -> Result<Response, Problem> {
    Parameters::of(uri)?.finish()?;
    caller.check_unlimited("a node's work is")?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(headers, &mut refusals);
    Fields::of_body(&body.text, &mut refusals)?.finish(&[], &mut refusals);
    let key = refusals.or(key)?;
    let call = Call::new(caller, key, uri.path(), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let (done, outcome) = oneshot::channel();
    let refused = || Problem::unavailable("the engine does not answer; the log says more");
    api.commands.send(command(done)).await.map_err(|_| refused())?;
    if !outcome.await.map_err(|_| refused())? {
        return Err(refused());
    }
    // Whoever waits for tasks looks again, or has to wait longer.
    api.desk.ring();
    #[derive(Serialize)]
    struct Work {
        paused: bool,
    }
    let answer = call::written(StatusCode::OK, &Work { paused: api.state.is_paused() });
    call.respond_and_keep(&*api.store, answer).await
}
