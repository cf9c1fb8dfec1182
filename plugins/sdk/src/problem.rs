use std::fmt;

use serde::Serialize;

use crate::{EnqueueError, Error, NotifyError, StateCellError};

/// Why a call of a route was refused: answered as RFC 9457 describes it, with the status that goes with its kind.
///
/// An error of the database becomes one by `?`; its text goes to the log, not to the caller.
#[derive(Debug)]
pub struct Problem {
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// What is wrong, and what to do about it.
    pub detail: String,
    /// Every bad field.
    pub errors: Vec<FieldError>,
}

/// What kind of problem it is, as a program tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The call cannot be understood: 400 `INVALID`.
    Invalid,
    /// There is no such thing: 404 `NOT_FOUND`.
    NotFound,
    /// It does not fit what is there: 409 `CONFLICT`.
    Conflict,
    /// Not now: 503 `UNAVAILABLE`.
    Unavailable,
    /// Something broke on our side: 500 `INTERNAL`.
    Internal,
}

/// One bad field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Its name, with where it stands: `creator.email`, `participants[2].email`.
    pub field: String,
    /// What to change.
    pub message: String,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new() }
    }

    /// One bad field.
    pub fn invalid(field: impl Into<String>, message: impl fmt::Display) -> Self {
        Self::fields(vec![FieldError { field: field.into(), message: message.to_string() }])
    }

    /// Bad fields.
    pub fn fields(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [only] => format!("{}: {}", only.field, only.message),
            several => format!("{} fields are wrong", several.len()),
        };
        Self { kind: ProblemKind::Invalid, detail, errors }
    }

    /// No such thing as `what`.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(ProblemKind::NotFound, format!("there is no {what}"))
    }

    /// It does not fit what is there.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Conflict, detail)
    }

    /// A conflict, if the database says that there is such a thing already; else what the error is.
    pub fn taken(error: sqlx::Error, detail: impl Into<String>) -> Self {
        // The database knows best: whoever looks first may be overtaken.
        match error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation) {
            true => Self::conflict(detail),
            false => error.into(),
        }
    }

    fn broken(error: &dyn fmt::Display) -> Self {
        tracing::error!(%error, "a plugin's route is broken");
        Self::new(ProblemKind::Internal, "something broke on our side; the log says more")
    }

    fn unavailable(error: &dyn fmt::Display) -> Self {
        tracing::warn!(%error, "a plugin's route is not available");
        Self::new(ProblemKind::Unavailable, "the database is not available; try again")
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        // Classes of PostgreSQL: connection, resources, operator, system. SQLite: busy, locked, full, disk error.
        const AWAY: [&str; 4] = ["08", "53", "57", "58"];
        let is_away = match &error {
            sqlx::Error::Database(error) => error.code().is_some_and(|code| {
                let primary = code.parse::<u32>().map(|code| code & 0xff);
                AWAY.iter().any(|class| code.len() == 5 && code.starts_with(class))
                    || (code.len() < 5 && matches!(primary, Ok(5 | 6 | 10 | 13)))
            }),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::RowNotFound => false,
            _ => true,
        };
        if is_away { Self::unavailable(&error) } else { Self::broken(&error) }
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Unavailable(error) => Self::unavailable(&error),
            error => Self::broken(&error),
        }
    }
}

impl From<NotifyError> for Problem {
    fn from(error: NotifyError) -> Self {
        match error {
            NotifyError::Unavailable(error) => Self::unavailable(&error),
            error => Self::broken(&error),
        }
    }
}

impl From<StateCellError> for Problem {
    fn from(error: StateCellError) -> Self {
        match error {
            StateCellError::Unavailable(error) => Self::unavailable(&error),
            error => Self::broken(&error),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.downcast::<sqlx::Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::broken(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_away_is_told_from_one_that_is_wrong() {
        let kind = |error: sqlx::Error| Problem::from(error).kind;
        assert_eq!(kind(sqlx::Error::PoolTimedOut), ProblemKind::Unavailable);
        assert_eq!(kind(sqlx::Error::RowNotFound), ProblemKind::Internal);
        let boxed: Error = Box::new(sqlx::Error::PoolClosed);
        assert_eq!(Problem::from(boxed).kind, ProblemKind::Unavailable);
        assert_eq!(Problem::from(Error::from("odd")).kind, ProblemKind::Internal);
    }

    #[test]
    fn one_bad_field_is_the_detail_and_several_are_counted() {
        assert_eq!(Problem::invalid("email", "is missing").detail, "email: is missing");
        let error = |field: &str| FieldError { field: field.into(), message: String::new() };
        assert_eq!(Problem::fields(vec![error("a"), error("b")]).detail, "2 fields are wrong");
    }
}
