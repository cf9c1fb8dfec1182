//! The header `Retry-After`: seconds, or an instant.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// How long after `now` the other side wants to be asked again; `None` if it does not say, or nobody can read it.
pub(crate) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTime::parse_from_rfc2822(said).ok()?;
    Some((at.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn it_is_seconds_or_an_instant() {
        let now = "2026-11-16T14:30:00Z".parse().unwrap();
        for (said, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Mon, 16 Nov 2026 14:31:30 GMT", Some(90)),
            ("Mon, 16 Nov 2026 14:29:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(said))]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{said:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
