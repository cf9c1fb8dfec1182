//! A notice for the next page: what became of what somebody just did. It travels in a cookie that is read once.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::session::{attributes, cookie};

const COOKIE: &str = "punctual_notice";
/// The longest notice, in characters.
const LONGEST: usize = 500;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It was done.
    Done(String),
    /// It was refused, and why.
    Refused(String),
}

impl Notice {
    /// The notice that a request brings.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cookie(headers, COOKIE)?).ok()?).ok()?;
        match text.split_at_checked(1)? {
            ("+", text) => Some(Self::Done(text.to_owned())),
            ("-", text) => Some(Self::Refused(text.to_owned())),
            _ => None,
        }
    }

    /// Has the browser bring it with its next request.
    pub(crate) fn set(&self, headers: &HeaderMap) -> String {
        let (mark, text) = match self {
            Self::Done(text) => ('+', text),
            Self::Refused(text) => ('-', text),
        };
        let text: String = std::iter::once(mark).chain(text.chars().take(LONGEST)).collect();
        format!("{COOKIE}={}; Max-Age=60; {}", URL_SAFE_NO_PAD.encode(text), attributes(headers))
    }

    /// Has the browser forget it.
    pub(crate) fn clear(headers: &HeaderMap) -> String {
        format!("{COOKIE}=; Max-Age=0; {}", attributes(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_comes_back_as_it_was_set() {
        for notice in [Notice::Done("“nightly” is paused; <b>".into()), Notice::Refused("no".into())] {
            let set = notice.set(&HeaderMap::new());
            let cookie = set.split(';').next().unwrap();
            let headers = HeaderMap::from_iter([("cookie".parse().unwrap(), cookie.parse().unwrap())]);
            assert_eq!(Notice::of(&headers), Some(notice));
        }
    }

    #[test]
    fn what_is_no_notice_is_none() {
        for value in ["", "x", "%%", "Kw==", "eA"] {
            let cookie = format!("{COOKIE}={value}");
            let headers = HeaderMap::from_iter([("cookie".parse().unwrap(), cookie.parse().unwrap())]);
            assert_eq!(Notice::of(&headers), None, "{value}");
        }
    }
}
