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
