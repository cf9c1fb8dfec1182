//! A task that a plugin wants written: checked, and every default filled in.

use std::sync::LazyLock;

use punctual_sdk as sdk;

use crate::invalid::Invalid;
use crate::json::Json;
use crate::task::{Due, MAX_PAYLOAD_BYTES, NewTask};
use crate::time::ZoneDatabase;
use crate::topic::{Topic, TopicDefinition};

/// Which names are zones does not depend on how new the rules are.
static ZONES: LazyLock<ZoneDatabase> = LazyLock::new(ZoneDatabase::bundled);

/// The task to be written. What the plugin left open comes from the topic's definition, then from the defaults.
///
/// # Errors
/// Every bad field, by its name in the API.
pub fn new_task(task: sdk::NewTask, definitions: &[TopicDefinition]) -> Result<NewTask, Invalid> {
    let mut invalid = Invalid::default();
    let topic = invalid.check("topic", task.topic.parse::<Topic>());
    let definition = topic.as_ref().and_then(|topic| TopicDefinition::for_topic(definitions, topic));
    let mut new = NewTask::new(topic.unwrap_or_else(|| Topic::from_stored("")));
    new.due = match task.due {
        sdk::Due::Now => Due::Now,
        sdk::Due::After(delay) => Due::After(delay),
        sdk::Due::At(at) => Due::At(at),
    };
    invalid.check("timezone", ZONES.zone(&task.timezone));
    new.timezone = task.timezone;
    if let Some(payload) = task.payload {
        new.payload =
            invalid.check("payload", payload.and_then(|text| read_payload(text.get()))).unwrap_or(new.payload);
    }
    new.metadata = task.metadata;
    new.client_request_id = task.client_request_id;
    new.dedupe_key = task.dedupe_key;
    new.serial_key = task.serial_key;
    new.priority = task.priority;
    let seconds = |limit: std::time::Duration| u32::try_from(limit.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
    new.timeout_seconds = task
        .timeout
        .map(seconds)
        .or_else(|| definition.and_then(|definition| definition.timeout_seconds))
        .unwrap_or(new.timeout_seconds);
    new.retry = definition.and_then(|definition| definition.retry).unwrap_or(new.retry);
    new.retry.attempts = task.attempts.unwrap_or(new.retry.attempts);
    if let Err(Invalid(more)) = new.validate() {
        invalid.0.extend(more);
    }
    invalid.or(new)
}

fn read_payload(text: &str) -> Result<Json, String> {
    if text.len() > MAX_PAYLOAD_BYTES {
        return Err(format!("has {} bytes, at most {MAX_PAYLOAD_BYTES} (1 MiB) are allowed", text.len()));
    }
    Json::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::retry::RetryPolicy;
    use crate::topic::Route;

    #[test]
    fn the_task_comes_before_its_topic_and_that_before_the_defaults() {
        let mut definition = TopicDefinition::new("mail.*".parse().unwrap(), Route::Event);
        definition.timeout_seconds = Some(60);
        definition.retry = Some(RetryPolicy { attempts: 5, ..RetryPolicy::default() });
        let definitions = [definition];
        let made = |task| new_task(task, &definitions).unwrap();
        let plain = made(sdk::NewTask::new("report"));
        assert_eq!((plain.timeout_seconds, plain.retry.attempts, plain.payload.as_str()), (3600, 1, "{}"));
        let defined = made(sdk::NewTask::new("mail.send").payload([1, 2]));
        assert_eq!((defined.timeout_seconds, defined.retry.attempts, defined.payload.as_str()), (60, 5, "[1,2]"));
        let own = made(sdk::NewTask::new("mail.send").attempts(2).timeout(Duration::from_millis(1500)));
        assert_eq!((own.timeout_seconds, own.retry.attempts), (2, 2));
    }

    #[test]
    fn every_bad_field_is_named() {
        let bad = sdk::NewTask::new("two words")
            .timezone("Mars/Base")
            .payload("x".repeat(MAX_PAYLOAD_BYTES))
            .dedupe_key("")
            .priority(101)
            .attempts(0);
        let Invalid(errors) = new_task(bad, &[]).unwrap_err();
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["topic", "timezone", "payload", "dedupeKey", "priority", "retry.attempts"]);
    }
}
