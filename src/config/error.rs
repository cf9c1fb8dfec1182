//! What is wrong with a configuration, fit to be read by whoever must mend it.

use std::fmt;
use std::path::Path;

use super::key::KEYS;

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable, flag, key or file it came from.
    pub origin: String,
    /// The value, with secrets hidden.
    pub value: Option<String>,
    /// What was expected, or what is wrong.
    pub expected: String,
}

impl ConfigErrors {
    pub(super) fn add(&mut self, error: ConfigError) {
        self.0.push(error);
    }
}

impl ConfigError {
    pub(super) fn file(path: &Path, problem: String) -> Self {
        Self { origin: path.display().to_string(), value: None, expected: problem }
    }

    pub(super) fn key(path: &Path, name: &str, value: Option<String>, expected: String) -> Self {
        let value = value.unwrap_or_else(|| "this value".into());
        Self { origin: format!("{name} in {}", path.display()), value: Some(value), expected }
    }

    pub(super) fn unknown(path: &Path, name: &str) -> Self {
        let last = name.rsplit('.').next().unwrap_or(name);
        let alike = KEYS.iter().map(|key| key.name).find(|known| known.rsplit('.').next() == Some(last));
        let hint = alike.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        Self { origin: format!("{name} in {}", path.display()), value: None, expected: format!("is not a key{hint}") }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} is {value}, expected {}", self.origin, self.expected),
            None => write!(f, "{} {}", self.origin, self.expected),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = if self.0.len() == 1 { "error" } else { "errors" };
        write!(f, "the configuration has {} {errors}:", self.0.len())?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}
