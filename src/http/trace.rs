//! Ties what is logged during a request to it: by the request's id, which the caller may bring and is told, and by the id of
//! the trace that it belongs to.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, debug, field, info_span, warn};
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The id of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) String);

/// Gives a request its span, and its answer the request's id.
pub(crate) async fn trace(mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    let span = info_span!("request", request_id = id, trace_id = field::Empty, method = %request.method(), route);
    if let Some(trace_id) = trace_id(request.headers()) {
        span.record("trace_id", trace_id);
    }
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = async {
        let response = next.run(request).await;
        let status = response.status();
        if status.is_server_error() {
            warn!(status = status.as_u16(), "request not served");
        } else {
            debug!(status = status.as_u16(), "request answered");
        }
        response
    }
    .instrument(span)
    .await;
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The caller's own id if it is fit to be logged, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let is_fit = |id: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        (1..=64).contains(&id.len()) && id.bytes().all(is_letter)
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_fit);
    given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// The trace in the header `traceparent`, as W3C's Trace Context has it.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(TRACE_PARENT)?.to_str().ok()?.split('-');
    let (version, trace_id) = (parts.next()?, parts.next()?);
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_valid = version.len() == 2 && trace_id.len() == 32 && is_hex(version) && is_hex(trace_id);
    (is_valid && version != "ff" && trace_id.bytes().any(|byte| byte != b'0')).then_some(trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_by_its_id() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, expected) in [
            (format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
            (format!("00-{id}"), Some(id)),
            (format!("ff-{id}-00f067aa0ba902b7-01"), None),
            (format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()), None),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), None),
            ("00-secret-1-1".to_owned(), None),
            (String::new(), None),
        ] {
            let headers = HeaderMap::from_iter([(TRACE_PARENT, header.parse().unwrap())]);
            assert_eq!(trace_id(&headers), expected, "{header}");
        }
    }

    #[test]
    fn an_id_that_is_not_fit_to_be_logged_is_replaced() {
        for (given, is_kept) in [("order-17.a_B", true), ("", false), ("a b", false), ("{\"x\":1}", false)] {
            let headers = HeaderMap::from_iter([(REQUEST_ID, given.parse().unwrap())]);
            assert_eq!(request_id(&headers) == given, is_kept, "{given}");
        }
        let headers = HeaderMap::from_iter([(REQUEST_ID, "x".repeat(65).parse().unwrap())]);
        assert_eq!(request_id(&headers).len(), 36);
    }
}
