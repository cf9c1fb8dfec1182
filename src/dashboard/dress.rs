//! What every answer of the dashboard wears: headers that keep other pages and foreign scripts out, and problems as pages.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::form::encoded;
use super::{layout, login, visitor};
use crate::http::problem::{Code, Problem};

/// Nothing from anywhere but here, and nothing written into a page runs.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Dresses an answer.
pub(crate) async fn dress(request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    let asked = uri.path_and_query().map_or("/", |asked| asked.as_str());
    dressed(match response.extensions().get::<Problem>() {
        Some(problem) if problem.code == Code::Unauthenticated && method == Method::GET => {
            visitor::led(&format!("{}?next={}", login::PATH, encoded(asked)))
        }
        Some(problem) if problem.code == Code::Unauthenticated => visitor::led(login::PATH),
        Some(problem) => as_page(problem, response.headers()),
        None => response,
    })
}

/// A problem with an address that is none: as a page for a browser that looks for one.
pub(crate) fn or_page(problem: Problem, path: &str, headers: &HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if path.starts_with("/api/") || !accepts.contains("text/html") {
        return problem.into_response();
    }
    dressed(as_page(&problem, &HeaderMap::new()))
}

fn as_page(problem: &Problem, told: &HeaderMap) -> Response {
    let mut response = (problem.code.status(), layout::problem(problem)).into_response();
    for name in [header::ALLOW, header::RETRY_AFTER, header::CONNECTION] {
        if let Some(value) = told.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn dressed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // What a page shows of others' making has a stricter one of its own.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
