//! The smallest plugin: a task on topic `echo` completes with its payload as the result.

use punctual_sdk::{Attempt, Handler, Outcome, Plugin, async_trait};

/// Registers the topic `echo`.
pub struct Echo;

impl Plugin for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("echo", Box::new(EchoHandler))]
    }
}

struct EchoHandler;

#[async_trait]
impl Handler for EchoHandler {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        Outcome::Completed { result: Some(attempt.payload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_payload_comes_back_digit_by_digit() {
        let payload = r#"{"z": 1.50, "a": [null, 12345678901234567890123]}"#;
        for (topic, handler) in Echo.handlers() {
            match handler.handle(Attempt::sample(topic, payload)).await {
                Outcome::Completed { result: Some(result) } => assert_eq!(result.get(), payload),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn it_serves_one_topic() {
        assert_eq!(Echo.handlers().into_iter().map(|(topic, _)| topic).collect::<Vec<_>>(), ["echo"]);
    }
}
