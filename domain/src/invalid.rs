//! Refused input: every bad field at once, each with a sentence that says what to change.

use std::fmt;

use serde::Serialize;

/// One field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The field as the caller knows it, such as `retry.backoff.type`.
    pub field: String,
    /// What to change.
    pub message: String,
}

/// Everything that is wrong with an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalid(pub Vec<FieldError>);

impl Invalid {
    /// Notes a bad field.
    pub fn add(&mut self, field: impl Into<String>, message: impl fmt::Display) {
        self.0.push(FieldError { field: field.into(), message: message.to_string() });
    }

    /// Notes a bad field if `checked` is an error, and hands on its value otherwise.
    pub fn check<T, E: fmt::Display>(&mut self, field: &str, checked: Result<T, E>) -> Option<T> {
        checked.map_err(|error| self.add(field, error)).ok()
    }

    /// `value` if nothing was wrong.
    ///
    /// # Errors
    /// Everything that was noted.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, FieldError { field, message }) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{field}: {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// Checks a name that people read: a key that is not blank.
///
/// # Errors
/// A sentence that says what to change.
pub fn check_name(text: &str) -> Result<(), String> {
    check_key(text)?;
    if text.trim().is_empty() { Err("must not be blank".into()) } else { Ok(()) }
}

/// Checks a key: 1 to 200 characters, none of them U+0000.
///
/// # Errors
/// A sentence that says what to change.
pub fn check_key(text: &str) -> Result<(), String> {
    match text.chars().count() {
        0 => Err("must not be empty".into()),
        1..=200 if text.contains('\0') => Err("must not contain the character U+0000".into()),
        1..=200 => Ok(()),
        long => Err(format!("must have at most 200 characters, not {long}")),
    }
}
