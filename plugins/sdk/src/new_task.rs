use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::Error;

/// A task to be written: a topic, and whatever else is not left to the topic's definition and the defaults.
///
/// ```
/// # use std::time::Duration;
/// # use punctual_sdk::NewTask;
/// NewTask::new("signup.reminder").payload(("session", 7)).after(Duration::from_secs(3600)).dedupe_key("session-7");
/// ```
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Leads it to its route.
    pub topic: String,
    /// What it is about, or why that cannot be written as JSON; `None` is `{}`.
    pub payload: Option<Result<Box<RawValue>, String>>,
    /// When it is due.
    pub due: Due,
    /// The IANA zone it is scheduled in.
    pub timezone: String,
    /// For filtering, audit and tracing.
    pub metadata: BTreeMap<String, String>,
    /// Never makes two tasks.
    pub client_request_id: Option<String>,
    /// One live task per topic and key.
    pub dedupe_key: Option<String>,
    /// At most one running per topic and key, in order.
    pub serial_key: Option<String>,
    /// Larger goes first, -100 to 100.
    pub priority: i32,
    /// The time limit of one attempt.
    pub timeout: Option<Duration>,
    /// How many attempts may end by themselves.
    pub attempts: Option<u32>,
}

/// When a new task is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// As soon as it is written.
    Now,
    /// So long after it is written.
    After(Duration),
    /// At an instant.
    At(DateTime<Utc>),
}

impl NewTask {
    /// A task with nothing but a topic, due at once.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            payload: None,
            due: Due::Now,
            timezone: "UTC".to_owned(),
            metadata: BTreeMap::new(),
            client_request_id: None,
            dedupe_key: None,
            serial_key: None,
            priority: 0,
            timeout: None,
            attempts: None,
        }
    }

    /// With this payload, of at most 1 MiB of JSON.
    pub fn payload(self, payload: impl Serialize) -> Self {
        Self { payload: Some(to_raw_value(&payload).map_err(|error| error.to_string())), ..self }
    }

    /// Due so long after it is written.
    pub fn after(self, delay: Duration) -> Self {
        Self { due: Due::After(delay), ..self }
    }

    /// Due at an instant; at once if that is past.
    pub fn at(self, at: DateTime<Utc>) -> Self {
        Self { due: Due::At(at), ..self }
    }

    /// Scheduled in this IANA zone.
    pub fn timezone(self, name: impl Into<String>) -> Self {
        Self { timezone: name.into(), ..self }
    }

    /// With an entry of metadata.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// With an id that never makes two tasks: a second one is refused.
    pub fn client_request_id(self, id: impl Into<String>) -> Self {
        Self { client_request_id: Some(id.into()), ..self }
    }

    /// With a key that one live task of the topic can have: a second one is the first.
    pub fn dedupe_key(self, key: impl Into<String>) -> Self {
        Self { dedupe_key: Some(key.into()), ..self }
    }

    /// With a key of which at most one task of the topic runs at a time, in order.
    pub fn serial_key(self, key: impl Into<String>) -> Self {
        Self { serial_key: Some(key.into()), ..self }
    }

    /// With a priority, -100 to 100; larger goes first.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// With a time limit for each attempt.
    pub fn timeout(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }

    /// With so many attempts in all before it fails for good.
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts: Some(attempts), ..self }
    }
}

/// Why a task was not written.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// It is not a task that can be; the text names every bad field.
    #[error("the task is invalid: {0}")]
    Invalid(String),
    /// Its `client_request_id` made a task before.
    #[error("the clientRequestId {0:?} was used before")]
    ClientRequestIdInUse(String),
    /// The database did not do it.
    #[error(transparent)]
    Unavailable(Error),
}

impl From<sqlx::Error> for EnqueueError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.into())
    }
}
