use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::{Fields, Problem};

/// How many items a page of a list has where nobody says it, and at the most.
const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 1000;

/// What a call of a route is answered.
///
/// A 201 whose body has an `id` gets a `Location` by itself: the address that was called, and the id behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status, a success.
    pub status: u16,
    /// The body.
    pub content: AnswerContent,
    pub(crate) is_kept: bool,
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerContent {
    /// JSON.
    Json(String),
    /// A file.
    File {
        /// Its media type.
        kind: &'static str,
        /// What it is called.
        name: String,
        /// What is in it.
        bytes: Vec<u8>,
    },
    /// Nothing.
    Nothing,
}

impl Answer {
    /// 200 with what there is.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn ok(body: impl Serialize) -> Result<Self, Problem> {
        Self::json(200, body)
    }

    /// 201 with what was made.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn created(body: impl Serialize) -> Result<Self, Problem> {
        Self::json(201, body)
    }

    /// The same answer with another body, for what has changed since it was kept.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn showing(self, body: impl Serialize) -> Result<Self, Problem> {
        Ok(Self { content: Self::json(self.status, body)?.content, ..self })
    }

    /// 204.
    pub fn nothing() -> Self {
        Self { status: 204, content: AnswerContent::Nothing, is_kept: false }
    }

    /// 200 with a file.
    pub fn file(kind: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { status: 200, content: AnswerContent::File { kind, name: name.into(), bytes }, is_kept: false }
    }

    fn json(status: u16, body: impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(&body).map_err(|error| crate::Error::from(error.to_string()))?;
        Ok(Self { status, content: AnswerContent::Json(body), is_kept: false })
    }
}

/// Which page of a list is wanted: so many, newest first, older than the last one of the page before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    limit: i64,
    after: Option<Uuid>,
}

impl Page {
    /// Reads `limit` and `cursor`.
    pub fn of(query: &mut Fields) -> Self {
        let limit = query.check("limit", |value| {
            let limit = value.as_str().and_then(|text| text.parse().ok()).filter(|n| (1..=MAX_LIMIT).contains(n));
            limit.ok_or_else(|| format!("must be a whole number from 1 to {MAX_LIMIT}"))
        });
        let after = query.check("cursor", |value| {
            let id = value.as_str().and_then(|text| Uuid::parse_str(text).ok());
            id.ok_or_else(|| "is not a cursor; use nextCursor of the page before as it is".to_owned())
        });
        Self { limit: limit.unwrap_or(DEFAULT_LIMIT), after }
    }

    /// How many rows to look for: one more than is shown tells whether more follow.
    pub fn rows(self) -> i64 {
        self.limit + 1
    }

    /// The id that all rows to look for are smaller than; ids must grow with time, as UUIDs of version 7 do.
    pub fn before(self) -> Uuid {
        self.after.unwrap_or(Uuid::max())
    }

    /// The page of these rows, each of which shows itself and has its id as `id`.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub fn answer(self, rows: impl IntoIterator<Item = serde_json::Value>) -> Result<Answer, Problem> {
        let mut items: Vec<_> = rows.into_iter().collect();
        let has_more = items.len() as i64 > self.limit;
        items.truncate(self.limit as usize);
        let next = items.last().filter(|_| has_more).map(|last| last["id"].clone());
        Answer::ok(json!({"items": items, "nextCursor": next}))
    }
}

/// An instant as the API shows it: UTC, with milliseconds.
pub fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// An instant with everything the database holds of it, for [`merged_into`](crate::Request::merged_into): what a caller leaves
/// alone does not change.
pub fn exactly(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_whether_more_follow() {
        let mut query = Fields::of(json!({"limit": "2"}));
        let page = Page::of(&mut query);
        assert_eq!((page.rows(), page.before()), (3, Uuid::max()));
        let body = |answer: Answer| match answer.content {
            AnswerContent::Json(text) => serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        };
        let rows = |count: usize| (0..count).map(|n| json!({ "id": n.to_string() })).collect::<Vec<_>>();
        assert_eq!(body(page.answer(rows(3)).unwrap()), json!({"items": rows(2), "nextCursor": "1"}));
        assert_eq!(body(page.answer(rows(2)).unwrap()), json!({"items": rows(2), "nextCursor": null}));
    }

    #[test]
    fn a_page_that_cannot_be_is_refused_by_name() {
        let mut query = Fields::of(json!({"limit": "0", "cursor": "x"}));
        Page::of(&mut query);
        let fields: Vec<_> = query.finish().unwrap_err().errors.into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["limit", "cursor"]);
    }
}
