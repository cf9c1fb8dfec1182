//! Who is logged in: the cookie that carries the API key from page to page.
//!
//! The cookie holds the key itself, out of reach of scripts and of other sites, and ends with the browser. Nothing about a
//! session is stored here: a key that is revoked opens nothing from the next request on, on every node.

use axum::http::{HeaderMap, header};

const COOKIE: &str = "punctual_session";

/// The key that the sender of a request logged in with.
pub(crate) fn key(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE)
}

/// Has the browser keep a key.
pub(super) fn begin(key: &str, headers: &HeaderMap) -> String {
    format!("{COOKIE}={key}; {}", attributes(headers))
}

/// Has the browser forget it.
pub(super) fn end(headers: &HeaderMap) -> String {
    format!("{COOKIE}=; Max-Age=0; {}", attributes(headers))
}

/// What is said of every cookie: for this site alone, not for scripts, and not without TLS where there is TLS.
pub(super) fn attributes(headers: &HeaderMap) -> &'static str {
    match is_encrypted(headers) {
        true => "Path=/; HttpOnly; SameSite=Strict; Secure",
        false => "Path=/; HttpOnly; SameSite=Strict",
    }
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Whether the browser speaks TLS, with whoever stands in front of us: that one says so, or the browser names its origin.
fn is_encrypted(headers: &HeaderMap) -> bool {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said("x-forwarded-proto").eq_ignore_ascii_case("https")
        || said("forwarded").to_ascii_lowercase().contains("proto=https")
        || said("origin").starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        for (cookies, expected) in [
            ("punctual_session=pk_a", Some("pk_a")),
            ("a=b; punctual_session=pk_a; c=d", Some("pk_a")),
            ("xpunctual_session=pk_a", None),
            ("punctual_session=", None),
            ("", None),
        ] {
            assert_eq!(key(&headers(&[("cookie", cookies)])), expected, "{cookies}");
        }
    }

    #[test]
    fn cookies_are_for_encrypted_connections_where_there_are_any() {
        for (name, value, expected) in [
            ("x-forwarded-proto", "https", true),
            ("forwarded", "for=192.0.2.1;proto=https", true),
            ("origin", "https://punctual.example", true),
            ("origin", "http://localhost:7878", false),
            ("accept", "*/*", false),
        ] {
            assert_eq!(begin("pk_a", &headers(&[(name, value)])).ends_with("Secure"), expected, "{name}: {value}");
        }
    }
}
