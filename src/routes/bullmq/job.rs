//! What a task looks like as a job of BullMQ.

use punctual_domain::hand_over::{attempts_left, job_id};
use punctual_domain::id::FireId;
use punctual_domain::retry::Growth;
use punctual_domain::task::Task;
use serde_json::{Value, json};
use uuid::Uuid;

/// How long BullMQ keeps a job that ended, in seconds. For as long a second hand-over is known to be one: the job must outlive
/// every pause after which a task is handed over again, such as a week-end without Punctual.
const KEPT_SECONDS: u32 = 7 * 24 * 60 * 60;

/// Names of a queue's own keys: a job of such an id would take their place.
const RESERVED: [&str; 18] = [
    "id",
    "meta",
    "wait",
    "paused",
    "prioritized",
    "pc",
    "delayed",
    "active",
    "marker",
    "events",
    "completed",
    "failed",
    "stalled",
    "stalled-check",
    "limiter",
    "repeat",
    "waiting-children",
    "de",
];

/// A job to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON.
    pub(crate) data: String,
    /// JSON.
    pub(crate) options: String,
}

impl Job {
    /// The job of a task. Jobs of fires have the schedule and the instant in their id, and the execution in their data.
    pub(crate) fn of_task(task: &Task, execution: Option<FireId>) -> Self {
        // What takes another task's place is not that one.
        let fire = task.fire.filter(|_| task.retry_of.is_none() && task.rescheduled_from.is_none());
        Self::with_id(job_id(task.id, fire), task, execution)
    }

    /// The job of a task whose fire's id was taken by another task.
    pub(crate) fn of_its_own(task: &Task, execution: Option<FireId>) -> Self {
        Self::with_id(job_id(task.id, None), task, execution)
    }

    fn with_id(id: String, task: &Task, execution: Option<FireId>) -> Self {
        let backoff = &task.retry.backoff;
        let growth = match backoff.growth {
            Growth::Fixed => "fixed",
            Growth::Exponential => "exponential",
        };
        let options = json!({
            "jobId": id,
            "attempts": attempts_left(task),
            "backoff": {"type": growth, "delay": backoff.delay, "jitter": backoff.jitter},
            "removeOnComplete": {"age": KEPT_SECONDS},
            "removeOnFail": {"age": KEPT_SECONDS},
        });
        Self { id, name: task.topic.to_string(), data: data(task, execution), options: options.to_string() }
    }

    /// A job that is no task: it is tried once, unless its worker says otherwise.
    pub(crate) fn of_key(key: &str, name: &str, data: &Value) -> Self {
        let id = id_of_key(key);
        let options = json!({
            "jobId": id,
            "attempts": 1,
            "removeOnComplete": {"age": KEPT_SECONDS},
            "removeOnFail": {"age": KEPT_SECONDS},
        });
        Self { id, name: name.to_owned(), data: data.to_string(), options: options.to_string() }
    }

    /// Whether a job of this id may be that of a task: it is of the form of the ids that tasks get.
    pub(crate) fn is_of_task(id: &str) -> bool {
        let is_uuid = |text: &str| text.len() == 36 && Uuid::try_parse(text).is_ok();
        let is_of_fire = |rest: &str| {
            rest.rsplit_once('_').is_some_and(|(schedule, at)| is_uuid(schedule) && at.parse::<i64>().is_ok())
        };
        id.strip_prefix("t_").is_some_and(is_uuid) || id.strip_prefix("f_").is_some_and(is_of_fire)
    }
}

/// The payload, letter by letter; fires say beside it where they come from.
fn data(task: &Task, execution: Option<FireId>) -> String {
    let payload = task.payload.as_str().trim();
    let Some(fire) = task.fire else { return payload.to_owned() };
    let origin = format!(
        r#""_schedulerId":"{}","_executionId":{},"_scheduledAt":"{}""#,
        fire.schedule_id,
        execution.map_or("null".to_owned(), |id| format!("\"{id}\"")),
        fire.scheduled_at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
    );
    match payload.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(members) if members.trim().is_empty() => format!("{{{origin}}}"),
        Some(members) => format!("{{{members},{origin}}}"),
        // There is no other place for it.
        None => format!(r#"{{"payload":{payload},{origin}}}"#),
    }
}

/// A dedupe key as a job's id: as it is where BullMQ can take it, so that others who use the key mean the same job, else
/// percent-encoded behind `k_`. So are keys that look like the id of a task's job, or like what another key is encoded as.
pub(crate) fn id_of_key(key: &str) -> String {
    if must_be_encoded(key) { encoded(key) } else { key.to_owned() }
}

fn must_be_encoded(key: &str) -> bool {
    let is_number = key.bytes().all(|byte| byte.is_ascii_digit());
    let is_taken = RESERVED.contains(&key) || Job::is_of_task(key) || is_encoded(key);
    is_number || is_taken || key.contains(':')
}

/// Whether a key reads as another one may that is encoded: what has no `%` behind the `k_` is that other one.
fn is_encoded(key: &str) -> bool {
    key.strip_prefix("k_").is_some_and(|other| other.contains('%') || must_be_encoded(other))
}

fn encoded(key: &str) -> String {
    let mut id = String::from("k_");
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => id.push(char::from(byte)),
            _ => id.push_str(&format!("%{byte:02X}")),
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::id::{ScheduleId, TaskId};
    use punctual_domain::json::Json;
    use punctual_domain::retry::{Backoff, RetryPolicy};
    use punctual_domain::task::{FireOfTask, NewTask};

    fn task(payload: &str) -> Task {
        let now = "2026-11-16T12:00:00.123Z".parse().unwrap();
        let mut new = NewTask::new("mail.send".parse().unwrap());
        new.id = TaskId(Uuid::from_u128(1));
        new.payload = Json::parse(payload).unwrap();
        let backoff = Backoff { growth: Growth::Exponential, delay: 250, max_delay: 1_000, jitter: 0.0 };
        new.retry = RetryPolicy { attempts: 3, backoff };
        let mut task = new.into_task(now, now);
        (task.attempt, task.lost) = (1, 1);
        task
    }

    fn fire(payload: &str) -> Task {
        let schedule_id = ScheduleId(Uuid::from_u128(2));
        let scheduled_at = "2026-11-16T12:00:00.123Z".parse().unwrap();
        Task { fire: Some(FireOfTask { schedule_id, scheduled_at }), ..task(payload) }
    }

    #[test]
    fn a_task_is_a_job_with_its_payload_letter_by_letter() {
        let job = Job::of_task(&task("{\"n\": 1.50,\n \"e\":[]}"), None);
        assert_eq!(job.id, "t_00000000-0000-0000-0000-000000000001");
        assert_eq!((job.name.as_str(), job.data.as_str()), ("mail.send", "{\"n\": 1.50,\n \"e\":[]}"));
        let options: Value = serde_json::from_str(&job.options).unwrap();
        assert_eq!(options["jobId"], job.id);
        assert_eq!(options["attempts"], 3);
        assert_eq!(options["backoff"], json!({"type": "exponential", "delay": 250, "jitter": 0.0}));
        assert_eq!(options["removeOnComplete"], json!({"age": KEPT_SECONDS}));
        assert_eq!(options["removeOnFail"], json!({"age": KEPT_SECONDS}));
        // Two attempts have ended, one was lost and the present one is counted.
        let later = Task { attempt: 4, lost: 2, ..task("{}") };
        let options: Value = serde_json::from_str(&Job::of_task(&later, None).options).unwrap();
        assert_eq!(options["attempts"], 1);
    }

    #[test]
    fn a_fire_says_where_it_comes_from() {
        let execution = Some(FireId(Uuid::from_u128(3)));
        let origin = r#""_schedulerId":"00000000-0000-0000-0000-000000000002","_executionId":"00000000-0000-0000-0000-000000000003","_scheduledAt":"2026-11-16T12:00:00.123Z""#;
        for (payload, data) in [
            ("{}", format!("{{{origin}}}")),
            (" { } ", format!("{{{origin}}}")),
            (r#"{"a": {}}"#, format!(r#"{{"a": {{}},{origin}}}"#)),
            ("[1]", format!(r#"{{"payload":[1],{origin}}}"#)),
            ("null", format!(r#"{{"payload":null,{origin}}}"#)),
        ] {
            let job = Job::of_task(&fire(payload), execution);
            assert_eq!(job.data, data);
            serde_json::from_str::<Value>(&job.data).unwrap();
            assert_eq!(job.id, "f_00000000-0000-0000-0000-000000000002_1794830400123");
        }
        // One that takes another's place is a job of its own.
        let retried = Task { retry_of: Some(TaskId(Uuid::from_u128(9))), ..fire("{}") };
        let job = Job::of_task(&retried, execution);
        assert_eq!(job.id, "t_00000000-0000-0000-0000-000000000001");
        assert!(job.data.contains("_executionId"));
        assert_eq!(Job::of_its_own(&fire("{}"), execution).id, job.id);
    }

    #[test]
    fn a_key_is_an_id_as_it_is_where_a_queue_can_take_it() {
        for same in [
            "signup-reminder-early__5",
            "ab c",
            "é",
            "x1",
            "ids",
            "t_x",
            "f_",
            "t_shirts__42",
            "f_5_1794830400123",
            "t_00000000-0000-0000-0000-00000000000",
            "k_x",
            "k_ab c",
            "k_42x",
        ] {
            assert_eq!(id_of_key(same), same);
            assert!(!Job::is_of_task(same), "{same}");
        }
        for (key, id) in [
            ("42", "k_42"),
            ("0", "k_0"),
            ("0:x", "k_0%3Ax"),
            ("a:b:c", "k_a%3Ab%3Ac"),
            ("tenant 1:é", "k_tenant%201%3A%C3%A9"),
            ("", "k_"),
            // Else a message could take the place of a task.
            ("t_00000000-0000-0000-0000-000000000001", "k_t_00000000-0000-0000-0000-000000000001"),
            (
                "f_00000000-0000-0000-0000-000000000002_1794830400123",
                "k_f_00000000-0000-0000-0000-000000000002_1794830400123",
            ),
            // Else two keys could have the same id.
            ("k_42", "k_k_42"),
            ("k_k_42", "k_k_k_42"),
            ("k_", "k_k_"),
            ("k_meta", "k_k_meta"),
            ("k_a%3Ab", "k_k_a%253Ab"),
            ("k_t_00000000-0000-0000-0000-000000000001", "k_k_t_00000000-0000-0000-0000-000000000001"),
        ] {
            assert_eq!(id_of_key(key), id);
            assert_eq!(id_of_key(&id_of_key(key)), format!("k_{}", id.replace('%', "%25")), "no other key has it");
        }
        for reserved in RESERVED {
            assert_eq!(id_of_key(reserved), format!("k_{reserved}"));
        }
    }
}
