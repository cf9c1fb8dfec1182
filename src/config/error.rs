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

    pub(super) fn key(path: &Path, name: &str, value: String, expected: String) -> Self {
        Self { origin: format!("{name} in {}", path.display()), value: Some(value), expected }
    }

    pub(super) fn unknown(path: &Path, name: &str) -> Self {
        let last = name.rsplit('.').next().unwrap_or(name);
        let alike = KEYS.iter().map(|key| key.name).find(|known| known.rsplit('.').next() == Some(last));
        let hint = match alike {
            Some(known) => did_you_mean(known),
            None => suggestion(name, KEYS.iter().map(|key| key.name)),
        };
        Self { origin: format!("{name} in {}", path.display()), value: None, expected: format!("is not a key{hint}") }
    }
}

/// A hint at the one of `known` that is spelled almost like `name`, if one is.
pub(super) fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let closest = known.map(|known| (distance(name, known), known)).min_by_key(|(distance, _)| *distance);
    let close = closest.filter(|(distance, known)| *distance <= 3 && distance * 3 <= known.len());
    close.map(|(_, known)| did_you_mean(known)).unwrap_or_default()
}

fn did_you_mean(known: &str) -> String {
    format!("; did you mean {known}?")
}

/// How many bytes have to be added, removed or changed to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
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
