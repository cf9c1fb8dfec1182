//! What a handler can reach: the database, tasks inside its own transaction, state cells, the blocking pool.

use std::time::Duration;

use punctual_sdk::{Attempt, Error, Handler, Migration, NewTask, Outcome, Plugin, blocking, on_either, sqlx};
use punctual_testing::{AttemptOutcome, Punctual, TaskStatus};
use serde_json::json;

struct Diary;

impl Plugin for Diary {
    fn name(&self) -> &'static str {
        "diary"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![
            ("diary.write", Box::new(write)),
            ("diary.count", Box::new(count)),
            ("diary.hang", Box::new(hang)),
            ("diary.blocking", Box::new(block)),
            ("diary.large", Box::new(|_: Attempt| async { Outcome::completed_with("x".repeat(70_000)) })),
            ("diary.panic", Box::new(|_: Attempt| async { panic!("boom") as Outcome })),
        ]
    }

    fn migrations(&self) -> Vec<Migration> {
        let entries = "CREATE TABLE diary_entries (task_id TEXT PRIMARY KEY, text TEXT NOT NULL)";
        vec![Migration { name: "1_entries", sqlite: entries, postgres: entries }]
    }
}

/// Writes an entry and a task that counts them, or neither.
async fn write(attempt: Attempt) -> Result<Outcome, Error> {
    let text: String = attempt.payload_as()?;
    let mut transaction = attempt.database().begin().await?;
    let insert = "INSERT INTO diary_entries VALUES ($1, $2)";
    on_either!(transaction, |connection| {
        sqlx::query(insert).bind(attempt.task_id.to_string()).bind(&text).execute(connection).await?;
    });
    let next = transaction.enqueue(NewTask::new("diary.count").after(Duration::from_secs(60))).await?;
    if text == "secret" {
        return Err("not for the diary".into());
    }
    transaction.commit().await?;
    Ok(Outcome::completed_with(next))
}

async fn count(attempt: Attempt) -> Result<Outcome, Error> {
    let count = "SELECT count(*) FROM diary_entries";
    let entries: i64 = on_either!(attempt.database(), |pool| sqlx::query_scalar(count).fetch_one(pool).await?);
    let counted = attempt.state_cell::<Vec<i64>>("counted");
    let counted = counted.update(|counted| counted.into_iter().flatten().chain([entries]).collect()).await?;
    Ok(Outcome::completed_with(counted))
}

/// Keeps everybody from writing.
async fn hang(attempt: Attempt) -> Result<Outcome, Error> {
    let _open = attempt.database().begin().await?;
    std::future::pending().await
}

async fn block(attempt: Attempt) -> Result<Outcome, Error> {
    let text: String = attempt.payload_as()?;
    let length = blocking(move || if text.is_empty() { panic!("nothing to count") } else { text.len() }).await;
    Ok(Outcome::completed_with(length))
}

async fn entries(punctual: &Punctual) -> i64 {
    let count = "SELECT count(*) FROM diary_entries";
    on_either!(punctual.database(), |pool| sqlx::query_scalar(count).fetch_one(pool).await.unwrap())
}

#[tokio::test]
async fn tables_and_tasks_are_written_together_or_not_at_all() {
    let punctual = punctual_testing::start(Diary).await;
    let refused = punctual.run("diary.write", "secret").await;
    assert_eq!((refused.status, refused.error.as_deref()), (TaskStatus::Failed, Some("not for the diary")));
    assert_eq!(entries(&punctual).await, 0);

    let written = punctual.run("diary.write", "dear diary").await;
    assert_eq!((written.status, entries(&punctual).await), (TaskStatus::Completed, 1));
    let count = serde_json::from_value(written.result).unwrap();
    assert_eq!(punctual.task(count).await.status, TaskStatus::Pending);
    punctual.advance(Duration::from_secs(60)).await;
    assert_eq!(punctual.task(count).await.result, json!([1]));
    punctual.stop().await;
}

#[tokio::test]
async fn a_state_cell_keeps_what_attempts_side_by_side_put_in() {
    let punctual = punctual_testing::start(Diary).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(punctual.enqueue(NewTask::new("diary.count")).await);
    }
    let mut lengths = Vec::new();
    for id in ids {
        let task = punctual.task(id).await;
        assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
        lengths.push(task.result.as_array().unwrap().len());
    }
    lengths.sort_unstable();
    assert_eq!(lengths, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_handler_that_hangs_in_a_transaction_fails_and_others_go_on() {
    let punctual = punctual_testing::start(Diary).await;
    let hanging = punctual.enqueue(NewTask::new("diary.hang")).await;
    let (hanged, written) = tokio::join!(punctual.task(hanging), punctual.run("diary.write", "patience"));
    assert_eq!(hanged.status, TaskStatus::Failed);
    assert!(hanged.error.as_ref().unwrap().contains("a transaction was open for more than 3s"), "{hanged:?}");
    assert_eq!(written.status, TaskStatus::Completed, "{written:?}");
}

#[tokio::test]
async fn blocking_work_answers_and_its_panic_is_the_attempts() {
    let punctual = punctual_testing::start(Diary).await;
    assert_eq!(punctual.run("diary.blocking", "four").await.result, json!(4));
    let panicked = punctual.run("diary.blocking", "").await;
    assert_eq!(panicked.error.as_deref(), Some("panicked: nothing to count"));
    assert_eq!(panicked.outcomes, [AttemptOutcome::Panicked]);
}

#[tokio::test]
async fn panics_and_results_that_are_too_large_are_the_tasks_error() {
    let punctual = punctual_testing::start(Diary).await;
    assert_eq!(punctual.run("diary.panic", ()).await.error.as_deref(), Some("panicked: boom"));
    let large = punctual.run("diary.large", ()).await;
    assert_eq!(large.error.as_deref(), Some("the result has 70002 bytes, at most 65536 are kept"));
}

#[tokio::test]
#[should_panic(expected = "no handler or listener for the topic diary.wright")]
async fn a_topic_that_the_plugin_does_not_serve_fails_the_test() {
    punctual_testing::start(Diary).await.run("diary.wright", ()).await;
}

#[tokio::test]
#[should_panic(expected = "nothing moved within 100ms")]
async fn a_task_that_never_ends_fails_the_test() {
    struct Stuck;

    impl Plugin for Stuck {
        fn name(&self) -> &'static str {
            "stuck"
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
            vec![("stuck", Box::new(|_: Attempt| std::future::pending::<Outcome>()))]
        }
    }

    let punctual = punctual_testing::start(Stuck).await.with_patience(Duration::from_millis(100));
    punctual.run("stuck", ()).await;
}
