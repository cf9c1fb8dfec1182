//! A new task as callers write it: read, checked, and every default filled in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::json::Json;
use punctual_domain::retry::{Backoff, Growth, MAX_ATTEMPTS, MAX_DELAY_MS, RetryPolicy};
use punctual_domain::task::{Due, MAX_PAYLOAD_BYTES, MAX_TIMEOUT_SECONDS, NewTask};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Topic, TopicDefinition};

use super::fields::Fields;
use super::instant;
use super::problem::{Code, Problem, Refusals};

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
const MAX_TASK_DELAY_MS: i64 = 100 * 365 * 24 * 60 * 60 * 1000;

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
    /// Reads the fields of one task.
    ///
    /// # Errors
    /// Every bad field, by name.
    pub(crate) fn new_task(&self, mut fields: Fields<'_>, mut refusals: Refusals) -> Result<NewTask, Problem> {
        let topic = topic(&mut fields, &mut refusals);
        let definition = topic.as_ref().and_then(|topic| TopicDefinition::for_topic(self.topics, topic));
        let mut task = NewTask::new(topic.unwrap_or_else(|| Topic::from_stored("")));

        self.read_due(&mut fields, &mut task, &mut refusals);
        if let Some(payload) = payload(&mut fields, &mut refusals) {
            task.payload = payload;
        }
        if let Some(metadata) = fields.object("metadata", &mut refusals) {
            task.metadata = metadata.all_text(&mut refusals).into_iter().collect();
        }
        task.client_request_id = fields.text("clientRequestId", &mut refusals);
        task.dedupe_key = fields.text("dedupeKey", &mut refusals);
        task.serial_key = fields.text("serialKey", &mut refusals);
        if let Some(priority) = fields.whole("priority", -100..=100, &mut refusals) {
            task.priority = priority as i32;
        }
        let timeout = fields.whole("timeoutSeconds", 1..=i64::from(MAX_TIMEOUT_SECONDS), &mut refusals);
        let default_timeout = definition.and_then(|definition| definition.timeout_seconds);
        task.timeout_seconds =
            timeout.map(|seconds| seconds as u32).or(default_timeout).unwrap_or(task.timeout_seconds);
        let default_retry = definition.and_then(|definition| definition.retry).unwrap_or_default();
        task.retry = retry(&mut fields, default_retry, &mut refusals);

        fields.finish(READ_ONLY, &mut refusals);
        if let Err(invalid) = task.validate() {
            refusals.add_all(invalid);
        }
        refusals.or(task)
    }

    fn read_due(&self, fields: &mut Fields<'_>, task: &mut NewTask, refusals: &mut Refusals) {
        let has_run_at = fields.has("runAt");
        let has_timezone = fields.has("timezone");
        let run_at = fields.text("runAt", refusals);
        let delay = fields.whole("delayMs", 0..=MAX_TASK_DELAY_MS, refusals);
        let timezone = fields.text("timezone", refusals);
        match run_at.as_deref().map(instant::read) {
            Some(Ok(at)) if at <= self.now => {
                let now = self.now.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
                refusals.add_as(Code::RunAtInPast, "runAt", format!("must be in the future; it is {now} now"));
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
        match timezone {
            None if has_run_at && !has_timezone => {
                refusals.add("timezone", "is required with runAt, an IANA name such as America/Mexico_City or UTC");
            }
            None => {}
            Some(name) => match self.zones.zone(&name) {
                Ok(_) => task.timezone = name,
                Err(error) => refusals.add_as(Code::InvalidTimezone, "timezone", error.to_string()),
            },
        }
    }
}

fn topic(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Topic> {
    let has_topic = fields.has("topic");
    let text = fields.text("topic", refusals);
    if !has_topic {
        refusals.add("topic", "is required");
    }
    text?.parse().map_err(|error: punctual_domain::topic::TopicError| refusals.add("topic", error.to_string())).ok()
}

fn payload(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Option<Json> {
    let text = fields.raw("payload")?.get();
    if text.len() > MAX_PAYLOAD_BYTES {
        let message = format!("has {} bytes, at most {MAX_PAYLOAD_BYTES} (1 MiB) are allowed", text.len());
        refusals.add_as(Code::TooLarge, "payload", message);
        return None;
    }
    Json::parse(text).map_err(|error| refusals.add("payload", error.to_string())).ok()
}

/// The policy that results from what is given and, for the rest, the default.
fn retry(fields: &mut Fields<'_>, default: RetryPolicy, refusals: &mut Refusals) -> RetryPolicy {
    let Some(mut fields) = fields.object("retry", refusals) else { return default };
    let attempts = fields.whole("attempts", 1..=i64::from(MAX_ATTEMPTS), refusals);
    let backoff = match fields.object("backoff", refusals) {
        Some(fields) => backoff(fields, default.backoff, refusals),
        None => default.backoff,
    };
    fields.finish(&[], refusals);
    RetryPolicy { attempts: attempts.map_or(default.attempts, |attempts| attempts as u32), backoff }
}

fn backoff(mut fields: Fields<'_>, default: Backoff, refusals: &mut Refusals) -> Backoff {
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
    use punctual_domain::topic::Route;

    fn read_with(body: &str, topics: &[TopicDefinition]) -> Result<NewTask, Problem> {
        let zones = ZoneDatabase::bundled();
        let now = instant::read("2026-11-16T12:00:00Z").unwrap();
        let mut refusals = Refusals::default();
        let fields = Fields::of_body(body, &mut refusals)?;
        Reading { zones: &zones, topics, now }.new_task(fields, refusals)
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
