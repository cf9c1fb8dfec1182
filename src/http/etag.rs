//! `ETag` and `If-Match`: an edit is made to what its author has seen, or not at all.

use axum::http::{HeaderMap, HeaderValue, header};

use super::problem::{Code, Problem};

/// The entity tag of a version.
pub(crate) fn of(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// What `If-Match` asks for; nothing given is anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IfMatch(Option<Vec<String>>);

impl IfMatch {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::IF_MATCH).iter();
        let tags = lines.flat_map(|line| line.to_str().unwrap_or_default().split(','));
        let tags = tags.map(|tag| tag.trim().to_owned()).collect();
        Self(headers.contains_key(header::IF_MATCH).then_some(tags))
    }

    /// The version that an edit must find, if one was asked for.
    pub(crate) fn version(&self, present: u64) -> Option<u64> {
        self.0.as_ref().filter(|tags| !tags.iter().any(|tag| tag == "*")).map(|_| present)
    }

    /// Refuses a version that was not asked for. Weak tags never match, as RFC 9110 has it.
    pub(crate) fn check(&self, version: u64) -> Result<(), Problem> {
        let Some(tags) = &self.0 else { return Ok(()) };
        let present = version.to_string();
        let is_meant = |tag: &String| tag == "*" || *tag == present || *tag == format!("\"{present}\"");
        if tags.iter().any(is_meant) {
            return Ok(());
        }
        let detail = format!("If-Match does not name version \"{version}\", which it has now; read it again");
        Err(Problem::new(Code::VersionMismatch, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_matches_if_it_is_among_those_asked_for() {
        for (lines, matches) in [
            (vec![], true),
            (vec!["*"], true),
            (vec!["\"3\""], true),
            (vec!["3"], true),
            (vec!["\"1\", \"3\""], true),
            (vec!["\"1\"", "\"3\""], true),
            (vec!["\"2\""], false),
            (vec!["W/\"3\""], false),
            (vec!["W/\"3\", \"3\""], true),
            (vec!["\"33\""], false),
            (vec!["nonsense"], false),
            (vec![""], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(header::IF_MATCH, HeaderValue::from_static(line));
            }
            assert_eq!(IfMatch::of(&headers).check(3).is_ok(), matches, "{lines:?}");
        }
        assert_eq!(of(3), "\"3\"");
    }
}
