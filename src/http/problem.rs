//! Problems: every answer that is not a success, as RFC 9457 describes it. The one place that knows HTTP statuses.

use std::fmt;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::invalid::{FieldError, Invalid};
use punctual_domain::store::StoreError;
use serde::Serialize;

/// How many bad fields are listed; the rest are counted.
const MOST_ERRORS: usize = 100;

/// What kind of problem it is, as a program tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Invalid,
    RunAtInPast,
    InvalidTimezone,
    InvalidCron,
    NeverFires,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    ClientRequestIdInUse,
    IdempotencyKeyReused,
    DedupeKeyInUse,
    NameTaken,
    CalendarInUse,
    AlreadyEnded,
    NotFailed,
    LeaseLost,
    Conflict,
    HandlerRegistered,
    VersionMismatch,
    TooLarge,
    UriTooLong,
    HeadersTooLarge,
    UnsupportedMediaType,
    RateLimited,
    Internal,
    Unavailable,
}

impl Code {
    /// Every code.
    pub(crate) const ALL: [Self; 28] = [
        Self::Invalid,
        Self::RunAtInPast,
        Self::InvalidTimezone,
        Self::InvalidCron,
        Self::NeverFires,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::ClientRequestIdInUse,
        Self::IdempotencyKeyReused,
        Self::DedupeKeyInUse,
        Self::NameTaken,
        Self::CalendarInUse,
        Self::AlreadyEnded,
        Self::NotFailed,
        Self::LeaseLost,
        Self::Conflict,
        Self::HandlerRegistered,
        Self::VersionMismatch,
        Self::TooLarge,
        Self::UriTooLong,
        Self::HeadersTooLarge,
        Self::UnsupportedMediaType,
        Self::RateLimited,
        Self::Internal,
        Self::Unavailable,
    ];

    /// The one word for it, everywhere.
    pub(crate) fn name(self) -> &'static str {
        self.parts().0
    }

    pub(crate) fn status(self) -> StatusCode {
        self.parts().1
    }

    pub(crate) fn title(self) -> &'static str {
        self.parts().2
    }

    /// A header that goes with it, its value, and what that tells.
    pub(crate) fn header(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Unavailable | Self::RateLimited => Some(("Retry-After", "1", "in how many seconds to try again")),
            // Part of the body may still be on its way: the connection cannot be used again.
            Self::TooLarge | Self::RequestTimeout => Some(("Connection", "close", "the connection ends here")),
            Self::Unauthenticated => Some(("WWW-Authenticate", "Bearer", "how to say who one is")),
            _ => None,
        }
    }

    /// A problem of this kind as it is answered.
    pub(crate) fn example(self) -> serde_json::Value {
        let problem = Problem::new(self, self.title());
        serde_json::to_value(Body::of(&problem)).unwrap_or_default()
    }

    /// Its name, its status, and its title.
    fn parts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::Invalid => ("INVALID", S::BAD_REQUEST, "The request is not valid"),
            Self::RunAtInPast => ("RUN_AT_IN_PAST", S::BAD_REQUEST, "runAt is in the past"),
            Self::InvalidTimezone => ("INVALID_TIMEZONE", S::BAD_REQUEST, "The time zone is not valid"),
            Self::InvalidCron => ("INVALID_CRON", S::BAD_REQUEST, "The cron expression is not valid"),
            Self::NeverFires => ("NEVER_FIRES", S::BAD_REQUEST, "The schedule would never fire"),
            Self::Unauthenticated => ("UNAUTHENTICATED", S::UNAUTHORIZED, "An API key is needed"),
            Self::Forbidden => ("FORBIDDEN", S::FORBIDDEN, "This is not allowed"),
            Self::NotFound => ("NOT_FOUND", S::NOT_FOUND, "There is no such thing"),
            Self::MethodNotAllowed => ("METHOD_NOT_ALLOWED", S::METHOD_NOT_ALLOWED, "The method is not allowed here"),
            Self::RequestTimeout => ("REQUEST_TIMEOUT", S::REQUEST_TIMEOUT, "The request took too long to arrive"),
            Self::ClientRequestIdInUse => {
                ("SCHEDULE_CLIENT_REQUEST_ID_IN_USE", S::CONFLICT, "The clientRequestId was used before")
            }
            Self::IdempotencyKeyReused => {
                ("IDEMPOTENCY_KEY_REUSED", S::CONFLICT, "The Idempotency-Key was used with another body")
            }
            Self::DedupeKeyInUse => ("DEDUPE_KEY_IN_USE", S::CONFLICT, "The dedupeKey belongs to another live task"),
            Self::NameTaken => ("NAME_TAKEN", S::CONFLICT, "The name is taken"),
            Self::CalendarInUse => ("CALENDAR_IN_USE", S::CONFLICT, "The calendar is in use"),
            Self::AlreadyEnded => ("ALREADY_ENDED", S::CONFLICT, "The task has ended"),
            Self::NotFailed => ("NOT_FAILED", S::CONFLICT, "The task has not failed"),
            Self::LeaseLost => ("LEASE_LOST", S::CONFLICT, "The lease was lost"),
            Self::Conflict => ("CONFLICT", S::CONFLICT, "It does not fit what is there"),
            Self::HandlerRegistered => ("HANDLER_REGISTERED", S::CONFLICT, "The topic has a handler"),
            Self::VersionMismatch => ("VERSION_MISMATCH", S::PRECONDITION_FAILED, "It was edited in between"),
            Self::TooLarge => ("TOO_LARGE", S::PAYLOAD_TOO_LARGE, "Too large"),
            Self::UriTooLong => ("TOO_LARGE", S::URI_TOO_LONG, "The address is too long"),
            Self::HeadersTooLarge => ("TOO_LARGE", S::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large"),
            Self::UnsupportedMediaType => {
                ("UNSUPPORTED_MEDIA_TYPE", S::UNSUPPORTED_MEDIA_TYPE, "The content type is not supported")
            }
            Self::RateLimited => ("RATE_LIMITED", S::TOO_MANY_REQUESTS, "Too many requests"),
            Self::Internal => ("INTERNAL", S::INTERNAL_SERVER_ERROR, "Something broke on our side"),
            Self::Unavailable => ("UNAVAILABLE", S::SERVICE_UNAVAILABLE, "Not available at the moment"),
        }
    }
}

/// One problem, to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: String,
    pub(crate) errors: Vec<FieldError>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new() }
    }

    /// No such thing as `what`.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("there is no {what}"))
    }

    /// One bad field.
    pub(crate) fn invalid(field: &str, message: impl fmt::Display) -> Self {
        let error = FieldError { field: field.into(), message: message.to_string() };
        Self { code: Code::Invalid, detail: format!("{field}: {message}"), errors: vec![error] }
    }

    /// Overload or outage, worth another try.
    pub(crate) fn unavailable(detail: &str) -> Self {
        Self::new(Code::Unavailable, detail)
    }
}

/// A problem as it is written.
#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
}

impl<'a> Body<'a> {
    fn of(problem: &'a Problem) -> Self {
        let (code, status, title) = problem.code.parts();
        Self {
            r#type: format!("urn:punctual:problem:{}", code.to_ascii_lowercase().replace('_', "-")),
            title,
            status: status.as_u16(),
            detail: &problem.detail,
            code,
            errors: &problem.errors,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&Body::of(&self)).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.code.status(), kind, body).into_response();
        if let Some((name, value, _)) = self.code.header()
            && let Ok(name) = HeaderName::try_from(name)
        {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        // Whoever shows it in another form finds it here.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable(reason) => {
                tracing::debug!(reason, "store unavailable");
                return Self::unavailable(
                    "the database is not available; try again, a write with the same Idempotency-Key",
                );
            }
            StoreError::Broken(reason) => {
                tracing::error!(reason, "store broken");
                return Self::new(Code::Internal, "the database does not answer as it should; the log says more");
            }
            StoreError::Moved => {
                return Self::unavailable("the schedule fires faster than it can be changed; try again");
            }
            StoreError::UnknownCalendar(_) => return Self::invalid("excludeCalendars", error),
            StoreError::TooManyFires(_) => return Self::invalid("maxFires", error),
            StoreError::NotFound => Code::NotFound,
            StoreError::ClientRequestIdInUse(_) => Code::ClientRequestIdInUse,
            StoreError::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            StoreError::DedupeKeyInUse(_) => Code::DedupeKeyInUse,
            StoreError::NameTaken(_) => Code::NameTaken,
            StoreError::VersionMismatch(_) => Code::VersionMismatch,
            StoreError::CalendarInUse(_) => Code::CalendarInUse,
            StoreError::AlreadyEnded => Code::AlreadyEnded,
            StoreError::NotFailed => Code::NotFailed,
            StoreError::HandlerRegistered(_) => Code::HandlerRegistered,
        };
        Self::new(code, error.to_string())
    }
}

/// Collects the bad fields of a request, however many: the first are listed, the rest counted.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    code: Option<Code>,
    errors: Vec<FieldError>,
    total: usize,
}

impl Refusals {
    /// Notes a bad field.
    pub(crate) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add_as(Code::Invalid, field, message);
    }

    /// Notes a bad field that has a code of its own.
    pub(crate) fn add_as(&mut self, code: Code, field: impl Into<String>, message: impl Into<String>) {
        self.note(Some(code), 1, [FieldError { field: field.into(), message: message.into() }]);
    }

    /// Notes what the domain refused.
    pub(crate) fn add_all(&mut self, invalid: Invalid) {
        self.note((!invalid.0.is_empty()).then_some(Code::Invalid), invalid.0.len(), invalid.0);
    }

    /// Notes what was refused inside a part of the request, such as `tasks[3].`.
    pub(crate) fn add_within(&mut self, part: &str, inner: Self) {
        let named = |error: FieldError| FieldError { field: format!("{part}{}", error.field), ..error };
        self.note(inner.code, inner.total, inner.errors.into_iter().map(named));
    }

    /// Whether nothing was refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many fields were refused so far.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// `value` if nothing was refused.
    ///
    /// A size that is too large decides the code; else all errors' own code if they agree, else `INVALID`.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Problem> {
        let Self { code: Some(code), errors, total } = self else { return Ok(value) };
        let detail = match (errors.as_slice(), total) {
            ([only], 1) => format!("{}: {}", only.field, only.message),
            (_, total) if total > MOST_ERRORS => {
                format!("{total} fields are wrong; the first {MOST_ERRORS} are listed")
            }
            (_, total) => format!("{total} fields are wrong"),
        };
        Err(Problem { code, detail, errors })
    }

    fn note(&mut self, code: Option<Code>, count: usize, errors: impl IntoIterator<Item = FieldError>) {
        self.code = match (self.code, code) {
            (Some(Code::TooLarge), _) | (_, Some(Code::TooLarge)) => Some(Code::TooLarge),
            (Some(before), Some(now)) if before != now => Some(Code::Invalid),
            (before, now) => before.or(now),
        };
        self.total += count;
        let room = MOST_ERRORS - self.errors.len();
        self.errors.extend(errors.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_one_all_errors_share() {
        let problem = |codes: &[Code]| {
            let mut refusals = Refusals::default();
            codes.iter().for_each(|code| refusals.add_as(*code, "f", "m"));
            refusals.or(()).unwrap_err().code
        };
        assert_eq!(problem(&[Code::RunAtInPast]), Code::RunAtInPast);
        assert_eq!(problem(&[Code::RunAtInPast, Code::InvalidTimezone]), Code::Invalid);
        assert_eq!(problem(&[Code::Invalid, Code::TooLarge]), Code::TooLarge);
        assert!(Refusals::default().or(1).is_ok());
    }

    #[test]
    fn a_long_list_of_errors_is_cut() {
        let mut refusals = Refusals::default();
        (0..250).for_each(|n| refusals.add(format!("f{n}"), "is unknown"));
        let problem = refusals.or(()).unwrap_err();
        assert_eq!(problem.errors.len(), MOST_ERRORS);
        assert!(problem.detail.starts_with("250 fields"));
    }

    #[test]
    fn what_is_wrong_inside_a_part_is_named_by_it() {
        let mut inner = Refusals::default();
        inner.add_as(Code::RunAtInPast, "runAt", "is past");
        let mut refusals = Refusals::default();
        refusals.add_within("tasks[2].", Refusals::default());
        refusals.add_within("tasks[3].", inner);
        let problem = refusals.or(()).unwrap_err();
        assert_eq!((problem.code, problem.errors[0].field.as_str()), (Code::RunAtInPast, "tasks[3].runAt"));
    }
}
