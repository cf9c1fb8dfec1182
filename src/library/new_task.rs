//! A task to be written, as a program says it.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use punctual_domain::invalid::Invalid;
use punctual_domain::json::Json;
use punctual_domain::retry::Backoff;
use punctual_domain::task::{self, Due, FireOfTask, MAX_PAYLOAD_BYTES, Task};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Topic, TopicDefinition};
use serde::Serialize;

/// A task to be written: a topic, and whatever else is not left to the topic's definition and the defaults.
///
/// ```
/// use std::time::Duration;
/// use punctual::NewTask;
///
/// let reminder = NewTask::new("signup.reminder")
///     .payload(("session", 7))
///     .after(Duration::from_secs(1800))
///     .dedupe_key("session-7")
///     .attempts(3);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct NewTask {
    topic: String,
    when: When,
    timezone: Option<String>,
    /// The payload, or why it is none.
    payload: Result<Json, String>,
    metadata: BTreeMap<String, String>,
    client_request_id: Option<String>,
    dedupe_key: Option<String>,
    serial_key: Option<String>,
    priority: i32,
    timeout: Option<Duration>,
    attempts: Option<u32>,
    backoff: Option<Backoff>,
    fire: Option<FireOfTask>,
}

/// When it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    After(Duration),
    At(DateTime<Utc>),
    /// As the task whose place it takes; that may have been a while ago.
    Kept(DateTime<Utc>),
}

impl NewTask {
    /// A task with nothing but a topic, due at once.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            when: When::Now,
            timezone: None,
            payload: Ok(Json::empty_object()),
            metadata: BTreeMap::new(),
            client_request_id: None,
            dedupe_key: None,
            serial_key: None,
            priority: 0,
            timeout: None,
            attempts: None,
            backoff: None,
            fire: None,
        }
    }

    /// A task like another one, but for its client request id.
    pub(super) fn like(task: &Task) -> Self {
        Self {
            when: When::Kept(task.run_at),
            timezone: Some(task.timezone.clone()),
            payload: Ok(task.payload.clone()),
            metadata: task.metadata.clone(),
            dedupe_key: task.dedupe_key.clone(),
            serial_key: task.serial_key.clone(),
            priority: task.priority,
            timeout: Some(Duration::from_secs(task.timeout_seconds.into())),
            attempts: Some(task.retry.attempts),
            backoff: Some(task.retry.backoff),
            fire: task.fire,
            ..Self::new(task.topic.as_str())
        }
    }

    /// With this payload, of at most 1 MiB of JSON.
    pub fn payload(self, payload: impl Serialize) -> Self {
        Self { payload: to_json(&payload), ..self }
    }

    /// Due so long after it is written.
    pub fn after(self, delay: Duration) -> Self {
        Self { when: When::After(delay), ..self }
    }

    /// Due at an instant, which has to be in the future.
    pub fn at(self, at: DateTime<Utc>) -> Self {
        Self { when: When::At(at), ..self }
    }

    /// Scheduled in this IANA zone, such as `America/Mexico_City`; required with [`NewTask::at`]. It is handed on to
    /// handlers, and does not move the instant.
    pub fn timezone(self, name: impl Into<String>) -> Self {
        Self { timezone: Some(name.into()), ..self }
    }

    /// With an entry of metadata; `ownerId`, `tenantId` and `correlationId` can be filtered by.
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

    /// With a time limit for each attempt, in whole seconds.
    pub fn timeout(self, limit: Duration) -> Self {
        Self { timeout: Some(limit), ..self }
    }

    /// With so many attempts in all before it fails for good.
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts: Some(attempts), ..self }
    }

    /// With this wait between attempts.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// Whether it names an instant.
    pub(super) fn has_instant(&self) -> bool {
        matches!(self.when, When::At(_))
    }

    /// The task as the store takes it, every default filled in.
    pub(super) fn check(self, rules: &Rules<'_>) -> Result<task::NewTask, Invalid> {
        let mut invalid = Invalid::default();
        let topic = invalid.check("topic", self.topic.parse::<Topic>());
        let definition = topic.as_ref().and_then(|topic| TopicDefinition::for_topic(rules.topics, topic));
        let mut task = task::NewTask::new(topic.unwrap_or_else(|| Topic::from_stored("")));
        task.due = match self.when {
            When::Now => Due::Now,
            When::After(delay) => Due::After(delay),
            When::At(at) | When::Kept(at) => Due::At(at),
        };
        if self.has_instant() && self.timezone.is_none() {
            invalid.add("timezone", "is required with an instant, an IANA name such as America/Mexico_City or UTC");
        }
        if let When::At(at) = self.when
            && at <= rules.now
        {
            let now = rules.now.to_rfc3339_opts(SecondsFormat::Millis, true);
            invalid.add("runAt", format!("must be in the future; it is {now} now"));
        }
        if let Some(name) = self.timezone {
            invalid.check("timezone", rules.zones.zone(&name));
            task.timezone = name;
        }
        if let Some(payload) = invalid.check("payload", self.payload) {
            task.payload = payload;
        }
        task.metadata = self.metadata;
        task.client_request_id = self.client_request_id;
        task.dedupe_key = self.dedupe_key;
        task.serial_key = self.serial_key;
        task.priority = self.priority;
        let default_timeout = definition.and_then(|definition| definition.timeout_seconds);
        task.timeout_seconds = self.timeout.map(seconds).or(default_timeout).unwrap_or(task.timeout_seconds);
        task.retry = definition.and_then(|definition| definition.retry).unwrap_or(task.retry);
        task.retry.attempts = self.attempts.unwrap_or(task.retry.attempts);
        task.retry.backoff = self.backoff.unwrap_or(task.retry.backoff);
        task.fire = self.fire;
        if let Err(Invalid(more)) = task.validate() {
            invalid.0.extend(more);
        }
        invalid.or(task)
    }
}

/// What a new task is checked against.
pub(super) struct Rules<'a> {
    /// The known zones.
    pub(super) zones: &'a ZoneDatabase,
    /// The definitions of topics, for defaults.
    pub(super) topics: &'a [TopicDefinition],
    /// The present instant.
    pub(super) now: DateTime<Utc>,
}

/// A payload as it is stored.
pub(super) fn to_json(payload: &impl Serialize) -> Result<Json, String> {
    let text = serde_json::to_string(payload).map_err(|error| error.to_string())?;
    if text.len() > MAX_PAYLOAD_BYTES {
        return Err(format!("has {} bytes, at most {MAX_PAYLOAD_BYTES} (1 MiB) are allowed", text.len()));
    }
    Json::parse(text).map_err(|error| error.to_string())
}

/// A limit in whole seconds, rather longer than shorter.
pub(super) fn seconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::retry::{Growth, RetryPolicy};
    use punctual_domain::topic::Route;

    fn now() -> DateTime<Utc> {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn check_with(task: NewTask, topics: &[TopicDefinition]) -> Result<task::NewTask, Invalid> {
        task.check(&Rules { zones: &ZoneDatabase::bundled(), topics, now: now() })
    }

    fn bad_fields(task: NewTask) -> Vec<String> {
        check_with(task, &[]).unwrap_err().0.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_topic_is_enough() {
        let task = check_with(NewTask::new("a.b"), &[]).unwrap();
        assert_eq!(task, task::NewTask { id: task.id, ..task::NewTask::new("a.b".parse().unwrap()) });
    }

    #[test]
    fn the_task_comes_before_its_topic_and_that_before_the_defaults() {
        let mut definition = TopicDefinition::new("a.*".parse().unwrap(), Route::Event);
        let fixed = Backoff { growth: Growth::Fixed, delay: 7, max_delay: 70, jitter: 0.5 };
        definition.retry = Some(RetryPolicy { attempts: 9, backoff: fixed });
        definition.timeout_seconds = Some(11);
        let topics = [definition];
        for (task, timeout_seconds, attempts, backoff) in [
            (NewTask::new("a.x"), 11, 9, fixed),
            (NewTask::new("a.x").attempts(2).timeout(Duration::from_millis(4001)), 5, 2, fixed),
            (NewTask::new("a.x").backoff(Backoff::default()), 11, 9, Backoff::default()),
            (NewTask::new("b"), 3600, 1, Backoff::default()),
        ] {
            let task = check_with(task, &topics).unwrap();
            assert_eq!((task.timeout_seconds, task.retry), (timeout_seconds, RetryPolicy { attempts, backoff }));
        }
    }

    #[test]
    fn every_bad_field_is_named() {
        let bad = NewTask::new("a b")
            .payload("x".repeat(MAX_PAYLOAD_BYTES))
            .timezone("EST")
            .metadata("", "x")
            .dedupe_key("")
            .priority(101)
            .timeout(Duration::ZERO)
            .attempts(0);
        let fields =
            ["topic", "timezone", "payload", "dedupeKey", "priority", "timeoutSeconds", "metadata", "retry.attempts"];
        assert_eq!(bad_fields(bad), fields);
    }

    #[test]
    fn an_instant_is_in_the_future_and_has_a_zone() {
        let later = now() + chrono::TimeDelta::seconds(1);
        assert_eq!(bad_fields(NewTask::new("a").at(later)), ["timezone"]);
        assert_eq!(bad_fields(NewTask::new("a").at(now()).timezone("UTC")), ["runAt"]);
        let task = check_with(NewTask::new("a").at(later).timezone("America/Edmonton"), &[]).unwrap();
        assert_eq!((task.due, task.timezone.as_str()), (Due::At(later), "America/Edmonton"));
    }

    #[test]
    fn a_payload_that_is_no_json_is_refused() {
        let no_json = std::collections::HashMap::from([((1, 2), 3)]);
        assert_eq!(bad_fields(NewTask::new("a").payload(no_json)), ["payload"]);
        assert_eq!(bad_fields(NewTask::new("a").payload("\0")), ["payload"]);
    }
}
