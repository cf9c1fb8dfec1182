//! Handlers and plugins at work inside a program, and their end.

use std::time::Duration;

use punctual::service::Schema;
use punctual::{Attempt, BuildError, Error, Handler, NewTask, Outcome, Punctual, TaskStatus, async_trait};

use crate::support::{Database, Server};
use crate::{add, ended, much_later, on_each_database, start};

on_each_database!(
    closures_handlers_and_plugins_run_tasks,
    an_error_in_a_closure_is_a_failed_attempt,
    a_client_writes_and_another_program_runs,
    a_stop_hands_back_what_takes_too_long,
    the_last_handle_takes_the_engine_with_it,
    a_schema_may_be_required,
    a_handlers_topic_is_stored_so_that_others_leave_it_alone,
);

struct Double;

#[async_trait]
impl Handler for Double {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        match attempt.payload_as::<u64>() {
            Ok(number) => Outcome::completed_with(number * 2),
            Err(error) => Outcome::failed(error),
        }
    }
}

async fn closures_handlers_and_plugins_run_tasks(database: Database) {
    let punctual = Punctual::builder()
        .database(&database.url)
        .plugin(punctual_echo::Echo)
        .handler("double", Double)
        .handler("length.*", |attempt: Attempt| async move { Outcome::completed_with(attempt.payload.get().len()) })
        .start()
        .await
        .unwrap();
    for (topic, result) in [("echo", "7"), ("double", "14"), ("length.of.it", "1")] {
        let task = add(&punctual, NewTask::new(topic).payload(7)).await;
        let task = ended(&punctual, task.id).await.task;
        assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
        assert_eq!(task.result.unwrap().as_str(), result, "{topic}");
    }
    punctual.stop().await.unwrap();
    punctual.stopped().await.unwrap();
    let gone = punctual.enqueue(NewTask::new("echo")).await;
    assert!(matches!(gone, Err(Error::Unavailable(_))), "{gone:?}");
}

async fn an_error_in_a_closure_is_a_failed_attempt(database: Database) {
    async fn read(attempt: Attempt) -> Result<Outcome, std::num::ParseIntError> {
        attempt.payload.get().trim_matches('"').parse::<u8>()?;
        Ok(Outcome::completed())
    }
    let punctual = Punctual::builder().database(&database.url).handler("read", read).start().await.unwrap();
    let task = add(&punctual, NewTask::new("read").payload("seven")).await;
    let failed = ended(&punctual, task.id).await;
    assert_eq!((failed.task.status, failed.attempts.len()), (TaskStatus::Failed, 1));
    assert!(failed.task.error.unwrap().contains("invalid digit"));

    let again = punctual.retry(task.id).await.unwrap().into_task();
    assert_eq!(again.retry_of, Some(task.id));
    assert_eq!(ended(&punctual, again.id).await.task.status, TaskStatus::Failed);
    punctual.stop().await.unwrap();
}

async fn a_client_writes_and_another_program_runs(database: Database) {
    let client = Punctual::builder().database(&database.url).connect().await.unwrap();
    let task = add(&client, NewTask::new("echo").payload("hello")).await;
    // A SQLite file serves one process at a time.
    client.stop().await.unwrap();
    let server = Server::start(&database);
    let echoed = server.ended_task(&task.id.to_string()).await;
    assert_eq!((echoed["status"].as_str(), echoed["result"].as_str()), (Some("completed"), Some("hello")));
    server.stop();
}

async fn a_stop_hands_back_what_takes_too_long(database: Database) {
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let slow = move |attempt: Attempt| {
        begin.send(()).unwrap();
        async move {
            attempt.cancelled.cancelled().await;
            Outcome::failed("cut short")
        }
    };
    let punctual = Punctual::builder().database(&database.url).handler("slow", slow).start().await.unwrap();
    let task = add(&punctual, NewTask::new("slow")).await;
    begun.recv().await.unwrap();
    punctual.drain(Duration::ZERO).await.unwrap();
    drop(punctual);

    let client = Punctual::builder().database(&database.url).connect().await.unwrap();
    let found = client.get(task.id).await.unwrap().unwrap();
    assert_eq!((found.task.status, found.task.attempt, found.task.lost), (TaskStatus::Pending, 0, 0), "{found:?}");
    client.stop().await.unwrap();
}

async fn the_last_handle_takes_the_engine_with_it(database: Database) {
    let (punctual, mut seen) = start(&database).await;
    add(&punctual, NewTask::new("test.now")).await;
    seen.recv().await.unwrap();
    drop(punctual);
    assert_eq!(seen.recv().await, None, "the handler is gone, and with it who could run another task");
}

async fn a_schema_may_be_required(database: Database) {
    let required = || Punctual::builder().database(&database.url).schema(Schema::Required);
    let refused = required().connect().await.err().expect("a refusal");
    assert!(refused.to_string().contains("punctual migrate"), "{refused}");
    Punctual::builder().database(&database.url).connect().await.unwrap().stop().await.unwrap();
    required().connect().await.unwrap().stop().await.unwrap();
}

async fn a_handlers_topic_is_stored_so_that_others_leave_it_alone(database: Database) {
    let (punctual, _) = start(&database).await;
    let task = add(&punctual, much_later("test.later")).await;
    punctual.stop().await.unwrap();
    drop(punctual);
    let other = Punctual::builder().database(&database.url).start().await.unwrap();
    let due = add(&other, NewTask::new("test.now")).await;
    let announced = add(&other, NewTask::new("elsewhere")).await;
    ended(&other, announced.id).await;
    for id in [task.id, due.id] {
        assert_eq!(other.get(id).await.unwrap().unwrap().task.status, TaskStatus::Pending);
    }
    other.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_built_is_refused_with_a_reason() {
    let builder = || Punctual::builder().database("sqlite::memory:");
    let refused = builder().handler("two words", Double).start().await.err().expect("a refusal");
    assert!(matches!(refused, BuildError::Topic(_)), "{refused:?}");
    let refused = Punctual::builder().database("mysql://me:swordfish@db/app").connect().await.err().expect("a refusal");
    assert!(matches!(refused, BuildError::Database { .. }), "{refused:?}");
    assert!(!format!("{refused} {refused:?}").contains("swordfish"));
    let refused = builder().zone_folder("/nowhere").connect().await.err().expect("a refusal");
    assert!(refused.to_string().contains("/nowhere"), "{refused}");
}
