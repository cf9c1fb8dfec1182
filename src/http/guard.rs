//! What every request must pass before a handler sees it: bounds, a trustworthy `Host`, no foreign web page behind it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::listener::Headers;
use super::problem::{Code, Problem};
use super::{Api, claims};

/// The longest address.
const MAX_URI_BYTES: usize = 8 * 1024;
/// How large all headers may be together.
const MAX_HEADER_BYTES: usize = 32 * 1024;

/// Refuses addresses and headers without measure.
pub(crate) async fn bounds(request: Request, next: Next) -> Response {
    if let Some(ConnectInfo(headers)) = request.extensions().get::<ConnectInfo<Headers>>() {
        headers.were_read();
    }
    let uri_bytes = request.uri().path().len() + request.uri().query().map_or(0, str::len);
    if uri_bytes > MAX_URI_BYTES {
        let detail = format!("an address has at most {MAX_URI_BYTES} bytes (8 KiB)");
        return Problem::new(Code::UriTooLong, detail).into_response();
    }
    if !is_utf8(request.uri().path()) {
        return Problem::new(Code::Invalid, "the path is not UTF-8 once its escapes are read").into_response();
    }
    let header_bytes: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > MAX_HEADER_BYTES {
        let detail = format!("headers have at most {MAX_HEADER_BYTES} bytes (32 KiB) together");
        return Problem::new(Code::HeadersTooLarge, detail).into_response();
    }
    next.run(request).await
}

/// Whether a path is UTF-8 once its escapes are read. Escapes that are none are left as they are.
fn is_utf8(path: &str) -> bool {
    let bytes = path.as_bytes();
    let mut read = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let escaped = (bytes[i] == b'%').then(|| path.get(i + 1..i + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                read.push(byte);
                i += 3;
            }
            None => {
                read.push(bytes[i]);
                i += 1;
            }
        }
    }
    std::str::from_utf8(&read).is_ok()
}

/// Lets a request through if there is room for it.
pub(crate) async fn room(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    // Workers wait at a desk that has places of its own.
    if request.uri().path() == claims::PATH {
        return next.run(request).await;
    }
    let Ok(_place) = api.places.try_acquire() else {
        return Problem::unavailable("too many requests at once; try again").into_response();
    };
    next.run(request).await
}

/// Refuses what a web page of another origin could send, and where no API key is needed what names another host.
pub(crate) async fn origin(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    match check_origin(&api, request.method(), request.uri(), request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn check_origin(api: &Api, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = host(uri, headers);
    if !host.as_ref().is_some_and(is_loopback) && !api.keys.are_needed().await? {
        let detail = "without API keys the header Host must name this machine: localhost, 127.0.0.1 or [::1]";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_read && is_cross_site(headers, host.as_ref()) {
        return Err(Problem::new(Code::Forbidden, "a web page of another origin cannot write here"));
    }
    Ok(())
}

pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let named = || headers.get(header::HOST)?.to_str().ok()?.parse().ok();
    uri.authority().cloned().or_else(named)
}

pub(crate) fn is_loopback(host: &Authority) -> bool {
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_local_name = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    is_local_name || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Browsers say where a request comes from: the newer header decides where it is sent, else the older one.
fn is_cross_site(headers: &HeaderMap, host: Option<&Authority>) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let authority = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok()?.authority().cloned());
    authority.is_none() || authority.as_ref() != host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_told_from_others() {
        for name in ["localhost", "LOCALHOST:7878", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "[::1]", "a.localhost"] {
            assert!(is_loopback(&name.parse().unwrap()), "{name}");
        }
        for name in ["example.com", "localhost.example.com", "10.0.0.1", "[::2]", "127.0.0.1.example.com", "0.0.0.0"] {
            assert!(!is_loopback(&name.parse().unwrap()), "{name}");
        }
    }

    #[test]
    fn paths_are_utf8_once_their_escapes_are_read() {
        for path in ["/", "/a%20b", "/%C3%A9", "/%", "/%zz", "/%+1", "/100%25"] {
            assert!(is_utf8(path), "{path}");
        }
        for path in ["/%ff", "/%C3", "/a%80b", "/%C3%28"] {
            assert!(!is_utf8(path), "{path}");
        }
    }

    #[test]
    fn browsers_say_where_a_request_comes_from() {
        let host: Authority = "localhost:7878".parse().unwrap();
        for (name, value, expected) in [
            ("sec-fetch-site", "cross-site", true),
            ("sec-fetch-site", "same-site", true),
            ("sec-fetch-site", "same-origin", false),
            ("sec-fetch-site", "none", false),
            ("origin", "http://localhost:7878", false),
            ("origin", "http://localhost:3000", true),
            ("origin", "https://evil.example", true),
            ("origin", "null", true),
            ("accept", "*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(is_cross_site(&headers, Some(&host)), expected, "{name}: {value}");
        }
    }
}
