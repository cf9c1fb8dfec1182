//! A new task as callers write it: read, checked, and every default filled in.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::json::Json;
use punctual_domain::retry::{Backoff, Growth, MAX_ATTEMPTS, MAX_DELAY_MS, RetryPolicy};
use punctual_domain::task::{Due, MAX_PAYLOAD_BYTES, MAX_TIMEOUT_SECONDS, NewTask, Task};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Topic, TopicDefinition};

use super::fields::Fields;
use super::instant;
use super::problem::{Code, Refusals};

/// Fields of a task that nobody can write.
pub(crate) const READ_ONLY: &[&str] = &[
    "id",
    "status",
    "attempt",
    "attempts",
    "result",
    "error",
    "scheduleId",
    "scheduledAt",
    "retryOf",
    "rescheduledFrom",
    "createdAt",
    "startedAt",
    "completedAt",
    "warnings",
    "deduplicated",
];

/// The longest delay: a hundred years.
pub(crate) const MAX_TASK_DELAY_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// What a new task is read against.
pub(crate) struct Reading<'a> {
    /// The known zones.
    pub(crate) zones: &'a ZoneDatabase,
    /// The definitions of topics, for defaults.
    pub(crate) topics: &'a [TopicDefinition],
    /// The present instant.
    pub(crate) now: DateTime<Utc>,
}

impl Reading<'_> {
    /// Reads the fields of a new task; worthless if anything was refused.
    pub(crate) fn new_task(&self, mut fields: Fields<'_>, refusals: &mut Refusals) -> NewTask {
        if !fields.has("topic") {
            refusals.add("topic", "is required");
        }
        if fields.has("runAt") && !fields.has("timezone") {
            refusals.add("timezone", "is required with runAt, an IANA name such as America/Mexico_City or UTC");
        }
        let topic = topic(&mut fields, refusals);
        let definition = topic.as_ref().and_then(|topic| TopicDefinition::for_topic(self.topics, topic));
        let mut task = NewTask::new(topic.unwrap_or_else(|| Topic::from_stored("")));
        if let Some(definition) = definition {
            task.timeout_seconds = definition.timeout_seconds.unwrap_or(task.timeout_seconds);
            task.retry = definition.retry.unwrap_or_default();
        }
        self.read(fields, task, refusals)
    }

    /// Reads the fields of a task that takes the place of another: what is left out is as it was there, except the
    /// `clientRequestId`. Worthless if anything was refused.
    pub(crate) fn replacement(&self, mut fields: Fields<'_>, replaced: &Task, refusals: &mut Refusals) -> NewTask {
        let like_it = NewTask { due: Due::At(replaced.run_at), ..NewTask::like(replaced) };
        let topic = topic(&mut fields, refusals).unwrap_or_else(|| replaced.topic.clone());
        self.read(fields, NewTask { topic, ..like_it }, refusals)
    }

    /// Reads everything but the topic, over what `task` has already.
    fn read(&self, mut fields: Fields<'_>, mut task: NewTask, refusals: &mut Refusals) -> NewTask {
        self.read_due(&mut fields, &mut task, refusals);
        if let Some(payload) = payload(&mut fields, refusals) {
            task.payload = payload;
        }
        if let Some(metadata) = fields.object("metadata", refusals) {
            task.metadata = metadata.all_text(refusals).into_iter().collect();
        }
        task.client_request_id = fields.text("clientRequestId", refusals);
        task.dedupe_key = fields.text("dedupeKey", refusals).or(task.dedupe_key);
        task.serial_key = fields.text("serialKey", refusals).or(task.serial_key);
        if let Some(priority) = fields.whole("priority", -100..=100, refusals) {
            task.priority = priority as i32;
        }
        if let Some(seconds) = fields.whole("timeoutSeconds", 1..=i64::from(MAX_TIMEOUT_SECONDS), refusals) {
            task.timeout_seconds = seconds as u32;
        }
        task.retry = retry(&mut fields, task.retry, refusals);

        fields.finish(READ_ONLY, refusals);
        if let Err(invalid) = task.validate() {
            refusals.add_all(invalid);
        }
        task
    }

    fn read_due(&self, fields: &mut Fields<'_>, task: &mut NewTask, refusals: &mut Refusals) {
        let has_run_at = fields.has("runAt");
        let run_at = fields.text("runAt", refusals);
        let delay = fields.whole("delayMs", 0..=MAX_TASK_DELAY_MS, refusals);
        let timezone = fields.text("timezone", refusals);
        match run_at.as_deref().map(instant::read) {
            Some(Ok(at)) if at <= self.now => {
                let now = self.now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
                refusals.add_as(Code::RunAtInPast, "runAt", format!("must be in the future; it is {now} now"));
            }
            Some(Ok(at)) if at - self.now > TimeDelta::milliseconds(MAX_TASK_DELAY_MS) => {
                refusals.add("runAt", "must be at most 100 years from now");
            }
            Some(Ok(at)) => task.due = Due::At(at),
            Some(Err(message)) => refusals.add("runAt", message),
            None => {}
        }
        if let Some(delay) = delay {
            if has_run_at {
                refusals.add("delayMs", "cannot stand beside runAt; give one of them");
            }
            task.due = Due::After(Duration::from_millis(delay.unsigned_abs()));
        }
        if let Some(name) = timezone {
            match self.zones.zone(&name) {
                Ok(_) => task.timezone = name,
                Err(error) => refusals.add_as(Code::InvalidTimezone, "timezone", error.to_string()),
            }
        }
    }
}

fn topic(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Topic> {
    topic_named("topic", fields, refusals)
}

/// A field with a topic.
pub(crate) fn topic_named(name: &str, fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Topic> {
    fields
        .text(name, refusals)?
        .parse()
        .map_err(|error: punctual_domain::topic::TopicError| refusals.add(name, error.to_string()))
        .ok()
}

fn payload(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Json> {
    payload_named("payload", fields, refusals)
}

/// A field with a payload: any JSON value of at most 1 MiB.
pub(crate) fn payload_named(name: &str, fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Json> {
    let text = fields.raw(name)?.get();
    if text.len() > MAX_PAYLOAD_BYTES {
        let message = format!("has {} bytes, at most {MAX_PAYLOAD_BYTES} (1 MiB) are allowed", text.len());
        refusals.add_as(Code::TooLarge, name, message);
        return None;
    }
    Json::parse(text).map_err(|error| refusals.add(name, error.to_string())).ok()
}

/// The policy that results from what is given and, for the rest, the default.
pub(crate) fn retry(fields: &mut Fields<'_>, default: RetryPolicy, refusals: &mut Refusals) -> RetryPolicy {
    let Some(mut fields) = fields.object("retry", refusals) else { return default };
    let attempts = fields.whole("attempts", 1..=i64::from(MAX_ATTEMPTS), refusals);
    let backoff = match fields.object("backoff", refusals) {
        Some(fields) => backoff(fields, default.backoff, refusals),
        None => default.backoff,
    };
    fields.finish(&[], refusals);
    RetryPolicy { attempts: attempts.map_or(default.attempts, |attempts| attempts as u32), backoff }
}

/// The back-off that results from what is given and, for the rest, the default.
pub(crate) fn backoff(mut fields: Fields<'_>, default: Backoff, refusals: &mut Refusals) -> Backoff {
    let growth = match fields.text("type", refusals).as_deref() {
        Some("fixed") => Growth::Fixed,
        Some("exponential") => Growth::Exponential,
        Some(_) => {
            refusals.add("retry.backoff.type", "must be \"fixed\" or \"exponential\"");
            default.growth
        }
        None => default.growth,
    };
    let delay = fields.whole("delay", 0..=MAX_DELAY_MS as i64, refusals).map(i64::unsigned_abs);
    let max_delay = fields.whole("maxDelay", 0..=MAX_DELAY_MS as i64, refusals).map(i64::unsigned_abs);
    let jitter = fields.number("jitter", 0.0..=1.0, refusals).unwrap_or(default.jitter);
    fields.finish(&[], refusals);
    if let (Some(delay), Some(max_delay)) = (delay, max_delay)
        && delay > max_delay
    {
        refusals.add("retry.backoff.maxDelay", format!("must be at least delay ({delay})"));
    }
    // A bound or a start that nobody named gives way to the one that was named.
    let (delay, max_delay) = match (delay, max_delay) {
        (Some(delay), None) => (delay, default.max_delay.max(delay)),
        (None, Some(max_delay)) => (default.delay.min(max_delay), max_delay),
        (delay, max_delay) => (delay.unwrap_or(default.delay), max_delay.unwrap_or(default.max_delay)),
    };
    Backoff { growth, delay, max_delay, jitter }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Problem;
    use punctual_domain::topic::Route;

    fn read_with(body: &str, topics: &[TopicDefinition]) -> Result<NewTask, Problem> {
        let zones = ZoneDatabase::bundled();
        let now = instant::read("2026-11-16T12:00:00Z").unwrap();
        let mut refusals = Refusals::default();
        let fields = Fields::of_body(body, &mut refusals)?;
        let task = Reading { zones: &zones, topics, now }.new_task(fields, &mut refusals);
        refusals.or(task)
    }

    fn replace(task: &Task, body: &str) -> Result<NewTask, Problem> {
        let zones = ZoneDatabase::bundled();
        let now = instant::read("2026-11-16T12:00:00Z").unwrap();
        let mut refusals = Refusals::default();
        let fields = Fields::of_body(body, &mut refusals)?;
        let replacement = Reading { zones: &zones, topics: &[], now }.replacement(fields, task, &mut refusals);
        refusals.or(replacement)
    }

    fn read(body: &str) -> Result<NewTask, Problem> {
        read_with(body, &[])
    }

    fn refused(body: &str) -> (Code, Vec<String>) {
        let problem = read(body).unwrap_err();
        (problem.code, problem.errors.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn a_topic_is_enough() {
        let task = read(r#"{"topic":"a.b"}"#).unwrap();
        assert_eq!((task.due, task.timezone.as_str(), task.payload.as_str()), (Due::Now, "UTC", "{}"));
        assert_eq!((task.retry, task.timeout_seconds, task.priority), (RetryPolicy::default(), 3600, 0));
    }

    #[test]
    fn every_field_is_read() {
        let body = r#"{"topic":"a","runAt":"2026-11-16T08:30:00-06:00","timezone":"America/Edmonton",
            "payload":{"n":1.50},"metadata":{"ownerId":"o"},"clientRequestId":"c","dedupeKey":"d","serialKey":"s",
            "priority":-100,"timeoutSeconds":5,
            "retry":{"attempts":4,"backoff":{"type":"fixed","delay":10,"maxDelay":20,"jitter":0}}}"#;
        let task = read(body).unwrap();
        assert_eq!(task.due, Due::At(instant::read("2026-11-16T14:30:00Z").unwrap()));
        assert_eq!(task.payload.as_str(), r#"{"n":1.50}"#);
        assert_eq!(task.metadata["ownerId"], "o");
        assert_eq!((task.priority, task.timeout_seconds, task.retry.attempts), (-100, 5, 4));
        assert_eq!(task.retry.backoff, Backoff { growth: Growth::Fixed, delay: 10, max_delay: 20, jitter: 0.0 });
        assert_eq!(read(r#"{"topic":"a","delayMs":1500}"#).unwrap().due, Due::After(Duration::from_millis(1500)));
        assert_eq!(read(r#"{"topic":"a","payload":null}"#).unwrap().payload.as_str(), "null");
    }

    #[test]
    fn every_bad_field_is_listed_by_name() {
        let (code, mut fields) = refused(
            r#"{"topic":"a b","payload":{"x":1,"x":2},"metadata":{"k":1},"dedupeKey":"","serialKey":7,"priority":101,
            "timeoutSeconds":0,"retry":{"attempts":0,"backoff":{"type":"linear","delay":-1,"jitter":2,"foo":1},"bar":1},
            "status":"pending","colour":"red","delayMs":-5}"#,
        );
        fields.sort();
        let expected = [
            "colour",
            "dedupeKey",
            "delayMs",
            "metadata.k",
            "payload",
            "priority",
            "retry.attempts",
            "retry.backoff.delay",
            "retry.backoff.foo",
            "retry.backoff.jitter",
            "retry.backoff.type",
            "retry.bar",
            "serialKey",
            "status",
            "timeoutSeconds",
            "topic",
        ];
        assert_eq!(code, Code::Invalid);
        assert_eq!(fields, expected);
    }

    #[test]
    fn times_follow_their_rules() {
        let with = |rest: &str| refused(&format!(r#"{{"topic":"a",{rest}}}"#));
        let run_at = r#""runAt":"2027-01-01T00:00:00Z""#;
        for (rest, code, fields) in [
            (r#""runAt":"2026-11-16T12:00:00Z","timezone":"UTC""#.to_owned(), Code::RunAtInPast, vec!["runAt"]),
            (run_at.to_owned(), Code::Invalid, vec!["timezone"]),
            (format!(r#"{run_at},"timezone":null"#), Code::Invalid, vec!["timezone"]),
            (format!(r#"{run_at},"timezone":5"#), Code::Invalid, vec!["timezone"]),
            (format!(r#"{run_at},"timezone":"EST""#), Code::InvalidTimezone, vec!["timezone"]),
            (r#""timezone":"Mars/Base""#.to_owned(), Code::InvalidTimezone, vec!["timezone"]),
            (format!(r#"{run_at},"timezone":"UTC","delayMs":1"#), Code::Invalid, vec!["delayMs"]),
            (r#""runAt":"2027-01-01T00:00:00","timezone":"UTC""#.to_owned(), Code::Invalid, vec!["runAt"]),
            (r#""runAt":"2127-01-01T00:00:00Z","timezone":"UTC""#.to_owned(), Code::Invalid, vec!["runAt"]),
        ] {
            let fields: Vec<_> = fields.into_iter().map(str::to_owned).collect();
            assert_eq!(with(&rest), (code, fields), "{rest}");
        }
        let problem = read(r#"{"topic":"a","timezone":"MST7MDT"}"#).unwrap_err();
        assert!(problem.detail.contains("America/Denver"), "{}", problem.detail);
    }

    #[test]
    fn a_partial_retry_takes_the_rest_from_the_topic_then_the_default() {
        let mut definition = TopicDefinition::new("a.*".parse().unwrap(), Route::Event);
        let fixed = Backoff { growth: Growth::Fixed, delay: 7, max_delay: 70, jitter: 0.5 };
        definition.retry = Some(RetryPolicy { attempts: 9, backoff: fixed });
        definition.timeout_seconds = Some(11);
        let topics = [definition];
        for (body, attempts, backoff) in [
            (r#"{"topic":"a.x"}"#, 9, fixed),
            (r#"{"topic":"a.x","retry":{"attempts":2}}"#, 2, fixed),
            (r#"{"topic":"a.x","retry":{"backoff":{"delay":8}}}"#, 9, Backoff { delay: 8, ..fixed }),
            (r#"{"topic":"a.x","retry":{"backoff":{"delay":80}}}"#, 9, Backoff { delay: 80, max_delay: 80, ..fixed }),
            (r#"{"topic":"b","retry":{"attempts":3}}"#, 3, Backoff::default()),
            (
                r#"{"topic":"b","retry":{"backoff":{"maxDelay":100}}}"#,
                1,
                Backoff { delay: 100, max_delay: 100, ..Backoff::default() },
            ),
        ] {
            let task = read_with(body, &topics).unwrap();
            assert_eq!((task.retry.attempts, task.retry.backoff), (attempts, backoff), "{body}");
            assert_eq!(task.timeout_seconds, if body.contains("a.x") { 11 } else { 3600 });
        }
    }

    #[test]
    fn a_replacement_is_like_the_one_it_replaces_but_for_what_is_given() {
        let past = instant::read("2026-11-16T11:00:00Z").unwrap();
        let body = r#"{"topic":"a","payload":[1],"metadata":{"k":"v"},"clientRequestId":"c","dedupeKey":"d",
            "serialKey":"s","priority":7,"timeoutSeconds":5,"timezone":"America/Edmonton",
            "retry":{"attempts":4,"backoff":{"type":"fixed","delay":10}}}"#;
        let task = read(body).unwrap().into_task(past, past);
        let same = NewTask { due: Due::At(past), ..NewTask::like(&task) };
        let with_id_of = |made: &NewTask, expected: NewTask| NewTask { id: made.id, ..expected };

        let made = replace(&task, "{}").unwrap();
        assert_eq!((made.client_request_id.as_ref(), made.dedupe_key.as_deref()), (None, Some("d")));
        assert_eq!(made, with_id_of(&made, same.clone()), "also an instant that has passed");
        let made = replace(&task, r#"{"runAt":"2026-11-16T13:00:00Z","priority":null}"#).unwrap();
        let due = Due::At(instant::read("2026-11-16T13:00:00Z").unwrap());
        assert_eq!(made, with_id_of(&made, NewTask { due, ..same.clone() }), "in the zone that it had");
        let made =
            replace(&task, r#"{"topic":"b","retry":{"attempts":2},"clientRequestId":"e","metadata":{}}"#).unwrap();
        assert_eq!((made.topic.as_str(), made.client_request_id.as_deref()), ("b", Some("e")));
        assert_eq!((made.retry.attempts, made.retry.backoff, made.metadata.len()), (2, task.retry.backoff, 0));

        for (body, field) in [
            (r#"{"runAt":"2026-11-16T11:00:00Z"}"#, "runAt"),
            (r#"{"topic":"a b"}"#, "topic"),
            (r#"{"id":"x"}"#, "id"),
            (r#"{"rescheduledFrom":"x"}"#, "rescheduledFrom"),
        ] {
            assert_eq!(replace(&task, body).unwrap_err().errors[0].field, field);
        }
    }

    #[test]
    fn a_payload_over_a_mebibyte_is_too_large_and_one_byte_less_is_not() {
        let body = |bytes: usize| format!(r#"{{"topic":"a","payload":"{}"}}"#, "x".repeat(bytes - 2));
        assert!(read(&body(MAX_PAYLOAD_BYTES)).is_ok());
        assert_eq!(refused(&body(MAX_PAYLOAD_BYTES + 1)), (Code::TooLarge, vec!["payload".to_owned()]));
    }

    #[test]
    fn a_payload_that_readers_would_disagree_about_is_refused() {
        for payload in [r#""\u0000""#, r#"{"a":1,"a":1}"#, &format!("{}{}", "[".repeat(129), "]".repeat(129))] {
            let (code, fields) = refused(&format!(r#"{{"topic":"a","payload":{payload}}}"#));
            assert_eq!((code, fields), (Code::Invalid, vec!["payload".to_owned()]), "{payload}");
        }
    }
}
