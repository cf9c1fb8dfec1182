use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// How an attempt ended, as its handler tells it.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The work is done. The result, of at most 64 KiB of JSON, can be read with the task.
    Completed {
        /// What the work produced.
        result: Option<Box<RawValue>>,
    },
    /// The work failed; the task's retry policy decides whether and when it is tried again.
    Failed {
        /// What went wrong.
        error: String,
    },
    /// The work failed and should be tried again after the given time, if attempts are left.
    RetryAfter {
        /// How long to wait.
        delay: Duration,
        /// What went wrong.
        error: String,
    },
    /// Not now: try again after the given time, without using up an attempt.
    Snoozed {
        /// How long to wait.
        delay: Duration,
    },
    /// The work failed and trying again would not help.
    FailedForGood {
        /// What went wrong.
        error: String,
    },
    /// The work should not be done any more.
    Cancelled,
}

impl Outcome {
    /// The work is done, with nothing to show.
    pub fn completed() -> Self {
        Self::Completed { result: None }
    }

    /// The work is done, with a result; one that cannot be written as JSON fails the attempt.
    pub fn completed_with(result: impl Serialize) -> Self {
        match to_raw_value(&result) {
            Ok(result) => Self::Completed { result: Some(result) },
            Err(error) => Self::failed(format!("the result is not JSON: {error}")),
        }
    }

    /// The work failed; the retry policy decides what follows.
    pub fn failed(error: impl ToString) -> Self {
        Self::Failed { error: error.to_string() }
    }
}

/// Lets a handler end with `?`: an error is a failed attempt.
impl<E: ToString> From<Result<Outcome, E>> for Outcome {
    fn from(ended: Result<Outcome, E>) -> Self {
        ended.unwrap_or_else(Self::failed)
    }
}
