//! Who is logged in: the cookie that says so from page to page.
//!
//! A login makes a session of an API key: the key's id, when it ends, and a signature over both. It is signed with the
//! hash that is stored of the key, so every node can check it and nothing about sessions is stored; what was signed for
//! a key that is revoked since is worth nothing from the next request on. The key itself cannot be told from it. A
//! logout has the browser forget it.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use punctual_domain::id::KeyId;
use punctual_domain::key::ApiKey;
use sha2::Sha256;

const COOKIE: &str = "punctual_session";
/// How long a session lasts.
const LASTS: TimeDelta = TimeDelta::hours(12);

/// A session as a request shows it: nobody has checked its signature yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The key that somebody logged in with.
    pub(crate) key_id: KeyId,
    ends_at: i64,
    signature: Vec<u8>,
}

impl Session {
    /// The session of whoever sends a request.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parts = cookie(headers, COOKIE)?.split('.');
        let session = Self {
            key_id: parts.next()?.parse().ok()?,
            ends_at: parts.next()?.parse().ok()?,
            signature: URL_SAFE_NO_PAD.decode(parts.next()?).ok()?,
        };
        parts.next().is_none().then_some(session)
    }

    /// Whether it was made for this key, and has not ended.
    pub(crate) fn is_of(&self, key: &ApiKey, now: DateTime<Utc>) -> bool {
        // In a time that tells nothing about the signature that was expected.
        key.id == self.key_id
            && signed(key, self.ends_at).verify_slice(&self.signature).is_ok()
            && now.timestamp() < self.ends_at
    }
}

/// Has the browser keep a session of a key.
pub(super) fn begin(key: &ApiKey, now: DateTime<Utc>, headers: &HeaderMap) -> String {
    let ends_at = (now + LASTS).timestamp();
    let signature = URL_SAFE_NO_PAD.encode(signed(key, ends_at).finalize().into_bytes());
    let age = LASTS.num_seconds();
    format!("{COOKIE}={}.{ends_at}.{signature}; Max-Age={age}; {}", key.id, attributes(headers))
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

/// What signs a session; the words in front keep it from being mistaken for anything else that is ever signed so.
fn signed(key: &ApiKey, ends_at: i64) -> Hmac<Sha256> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.hash).expect("a key of any length");
    mac.update(format!("punctual dashboard session\n{}\n{ends_at}", key.id).as_bytes());
    mac
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
    use punctual_domain::key::Role;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn key(byte: u8) -> ApiKey {
        let created_at = DateTime::UNIX_EPOCH;
        let (name, role, topics, hash) = ("ops".into(), Role::Read, Vec::new(), [byte; 32]);
        ApiKey { id: KeyId::generate(), name, role, topics, hash, created_at, revoked_at: None }
    }

    fn now() -> DateTime<Utc> {
        "2026-11-18T12:00:00Z".parse().unwrap()
    }

    /// What the browser sends back.
    fn begun(key: &ApiKey) -> String {
        begin(key, now(), &HeaderMap::new()).split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_session_is_of_its_key_until_it_ends() {
        let (one, other) = (key(1), key(2));
        let session = Session::of(&headers(&[("cookie", &begun(&one))])).unwrap();
        assert!(session.is_of(&one, now()) && session.is_of(&one, now() + LASTS - TimeDelta::seconds(1)));
        assert!(!session.is_of(&one, now() + LASTS), "it has ended");
        assert!(!session.is_of(&other, now()));
        assert!(!session.is_of(&ApiKey { hash: other.hash, ..one.clone() }, now()), "signed with something else");
        assert!(!session.is_of(&ApiKey { id: other.id, ..one.clone() }, now()));
        let longer = Session { ends_at: session.ends_at + 1, ..session.clone() };
        assert!(!longer.is_of(&one, now()), "nobody makes it longer");
        let cut = Session { signature: session.signature[..16].to_vec(), ..session };
        assert!(!cut.is_of(&one, now()));
    }

    #[test]
    fn a_session_is_found_among_other_cookies() {
        let session = begun(&key(1));
        for (cookies, expected) in [
            (session.clone(), true),
            (format!("a=b; {session}; c=d"), true),
            (format!("x{session}"), false),
            (format!("{session}.x"), false),
            ("punctual_session=pk_a".to_owned(), false),
            ("punctual_session=..".to_owned(), false),
            ("punctual_session=".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(Session::of(&headers(&[("cookie", &cookies)])).is_some(), expected, "{cookies}");
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
            let begun = begin(&key(1), now(), &headers(&[(name, value)]));
            assert_eq!(begun.ends_with("Secure"), expected, "{name}: {value}");
        }
    }
}
