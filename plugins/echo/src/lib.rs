//! The smallest plugin: a task on topic `echo` completes with its payload as the result.

use punctual_sdk::{Attempt, Handler, Outcome, Plugin};

/// Registers the topic `echo`.
pub struct Echo;

impl Plugin for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("echo", Box::new(echo))]
    }
}

async fn echo(attempt: Attempt) -> Outcome {
    Outcome::Completed { result: Some(attempt.payload) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_testing::TaskStatus;
    use serde_json::{json, value::RawValue};

    #[tokio::test]
    async fn a_task_completes_with_its_payload() {
        let punctual = punctual_testing::start(Echo).await;
        let task = punctual.run("echo", json!({ "a": 1 })).await;
        assert_eq!((task.status, task.result), (TaskStatus::Completed, json!({ "a": 1 })));
    }

    #[tokio::test]
    async fn the_payload_comes_back_digit_by_digit() {
        let payload = r#"{"z": 1.50, "a": [null, 12345678901234567890123]}"#;
        let punctual = punctual_testing::start(Echo).await;
        let task = punctual.run("echo", RawValue::from_string(payload.into()).unwrap()).await;
        assert_eq!(task.stored.result.unwrap().as_str(), payload);
    }
}
