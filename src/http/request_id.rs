//! The id of a request: the caller's own, or a new one; in the answer, the audit log and the log.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use uuid::Uuid;

const NAME: HeaderName = HeaderName::from_static("x-request-id");
const MAX_BYTES: usize = 128;

/// The id of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) String);

/// Gives a request its id.
pub(crate) async fn mark(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&NAME).and_then(|value| value.to_str().ok());
    let is_id = |id: &&str| (1..=MAX_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let id = given.filter(is_id).map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if response.status().is_server_error() {
        tracing::warn!(request_id = id, %method, path, status = response.status().as_u16(), "request not served");
    }
    if let Ok(value) = HeaderValue::try_from(id) {
        response.headers_mut().insert(NAME, value);
    }
    response
}
