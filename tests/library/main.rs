//! The library from the outside: a program that runs Punctual inside itself, or writes for others to run.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

// The receiver that the tests of the service have.
#[allow(dead_code)]
#[path = "../service/receiver.rs"]
mod receiver;
mod running;
mod schedules;
mod tasks;
mod transactions;
mod webhooks;

use std::time::{Duration, Instant};

use punctual::{Attempt, NewTask, Outcome, Punctual, Task, TaskId, TaskWithAttempts};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use support::Database;

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Punctual with a handler for `test.*`, and the payloads that this one has seen.
async fn start(database: &Database) -> (Punctual, UnboundedReceiver<String>) {
    let (see, seen) = unbounded_channel();
    let handler = move |attempt: Attempt| {
        let see = see.clone();
        async move { see.send(attempt.payload.get().to_owned()).map(|()| Outcome::completed_with("seen")) }
    };
    let punctual = Punctual::builder().database(&database.url).handler("test.*", handler).start().await.unwrap();
    (punctual, seen)
}

/// A task that is due when the test is long over.
fn much_later(topic: &str) -> NewTask {
    NewTask::new(topic).after(Duration::from_secs(3600))
}

async fn add(punctual: &Punctual, task: NewTask) -> Task {
    punctual.enqueue(task).await.unwrap().into_task()
}

/// Waits until a task has ended.
async fn ended(punctual: &Punctual, id: TaskId) -> TaskWithAttempts {
    let asked_at = Instant::now();
    loop {
        let found = punctual.get(id).await.unwrap().expect("a task");
        if found.task.status.has_ended() {
            return found;
        }
        assert!(asked_at.elapsed() < PATIENCE, "it does not end: {found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
