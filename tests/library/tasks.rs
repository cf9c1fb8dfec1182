//! Writing, reading, cancelling and replacing tasks.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use punctual::{
    Attempt, Backoff, Created, Error, Growth, NewTask, Outcome, Page, Punctual, RetryPolicy, TaskFilter, TaskId,
    TaskStatus,
};

use crate::support::Database;
use crate::{add, ended, much_later, on_each_database};

on_each_database!(
    everything_said_about_a_task_is_kept,
    a_dedupe_key_answers_the_living_task_and_a_client_request_id_refuses,
    many_are_written_together_or_not_at_all,
    a_task_for_an_instant_needs_one,
    lists_go_page_by_page,
    a_rescheduled_task_is_like_the_old_one_but_for_what_was_changed,
    a_running_task_is_cancelled_and_its_attempt_told,
    what_is_not_there_is_not_found,
    the_topics_defaults_reach_the_task,
);

async fn client(database: &Database) -> Punctual {
    Punctual::builder().database(&database.url).connect().await.unwrap()
}

fn bad_fields<T: std::fmt::Debug>(answer: Result<T, Error>) -> Vec<String> {
    match answer {
        Err(Error::Invalid(invalid)) => invalid.0.into_iter().map(|error| error.field).collect(),
        other => panic!("{other:?}"),
    }
}

async fn everything_said_about_a_task_is_kept(database: Database) {
    let punctual = client(&database).await;
    let run_at = "2036-12-01T21:37:00Z".parse().unwrap();
    let backoff = Backoff { growth: Growth::Fixed, delay: 10, max_delay: 20, jitter: 0.0 };
    let task = NewTask::new("signup.reminder")
        .payload(serde_json::json!({"n": 1.5}))
        .at(run_at)
        .timezone("America/Mexico_City")
        .metadata("ownerId", "o")
        .client_request_id("c")
        .dedupe_key("d")
        .serial_key("s")
        .priority(-100)
        .timeout(Duration::from_secs(5))
        .attempts(4)
        .backoff(backoff);
    let task = punctual.schedule_at(task).await.unwrap().into_task();
    assert_eq!(punctual.get(task.id).await.unwrap().unwrap().task, task);
    assert_eq!(
        (task.run_at, task.timezone.as_str(), task.payload.as_str()),
        (run_at, "America/Mexico_City", r#"{"n":1.5}"#)
    );
    assert_eq!((task.priority, task.timeout_seconds), (-100, 5));
    assert_eq!(task.retry, RetryPolicy { attempts: 4, backoff });
    assert_eq!(task.metadata["ownerId"], "o");
    let keys = [&task.client_request_id, &task.dedupe_key, &task.serial_key].map(|key| key.as_deref().unwrap());
    assert_eq!(keys, ["c", "d", "s"]);
    punctual.stop().await.unwrap();
}

async fn a_dedupe_key_answers_the_living_task_and_a_client_request_id_refuses(database: Database) {
    let punctual = client(&database).await;
    let task = || much_later("mail").dedupe_key("d");
    let first = add(&punctual, task().client_request_id("c")).await;
    assert_eq!(punctual.enqueue(task()).await.unwrap(), Created::Deduplicated(first));
    let again = punctual.enqueue(much_later("other").client_request_id("c")).await;
    assert_eq!(again, Err(Error::ClientRequestIdInUse("c".into())));
    punctual.stop().await.unwrap();
}

async fn many_are_written_together_or_not_at_all(database: Database) {
    let punctual = client(&database).await;
    let mixed = [much_later("a"), much_later("b").priority(101), much_later("c c")];
    assert_eq!(bad_fields(punctual.enqueue_many(mixed).await), ["tasks[1].priority", "tasks[2].topic"]);
    let twice = [much_later("a").client_request_id("c"), much_later("a").client_request_id("c")];
    assert_eq!(punctual.enqueue_many(twice).await, Err(Error::ClientRequestIdInUse("c".into())));
    assert_eq!(punctual.list(&TaskFilter::default(), Page::first(9)).await.unwrap(), []);

    let created = punctual.enqueue_many((0..1000).map(|n| much_later("a").payload(n))).await.unwrap();
    let payloads: Vec<_> = created.iter().map(|created| created.task().payload.as_str().to_owned()).collect();
    assert_eq!(payloads, (0..1000).map(|n: i32| n.to_string()).collect::<Vec<_>>());
    assert_eq!(punctual.enqueue_many([]).await.unwrap(), []);
    punctual.stop().await.unwrap();
}

async fn a_task_for_an_instant_needs_one(database: Database) {
    let punctual = client(&database).await;
    assert_eq!(bad_fields(punctual.schedule_at(NewTask::new("a")).await), ["runAt"]);
    let past = NewTask::new("a").at(Utc::now() - TimeDelta::seconds(1)).timezone("UTC");
    assert_eq!(bad_fields(punctual.schedule_at(past).await), ["runAt"]);
    punctual.stop().await.unwrap();
}

async fn lists_go_page_by_page(database: Database) {
    let punctual = client(&database).await;
    let made = punctual.enqueue_many((0..5).map(|_| much_later("a").metadata("tenantId", "t"))).await.unwrap();
    add(&punctual, much_later("a")).await;
    let filter = TaskFilter { tenant_id: Some("t".into()), ..TaskFilter::default() };
    let mut page = Page::first(2);
    let mut listed = Vec::new();
    loop {
        let tasks = punctual.list(&filter, page).await.unwrap();
        let Some(last) = tasks.last() else { break };
        page.after = Some(last.id);
        listed.extend(tasks);
    }
    assert_eq!(listed.iter().collect::<Vec<_>>(), made.iter().rev().map(Created::task).collect::<Vec<_>>());
    punctual.stop().await.unwrap();
}

async fn a_rescheduled_task_is_like_the_old_one_but_for_what_was_changed(database: Database) {
    let punctual = client(&database).await;
    let task = much_later("mail")
        .payload("hello")
        .timezone("Europe/Paris")
        .metadata("ownerId", "o")
        .client_request_id("c")
        .dedupe_key("d")
        .serial_key("s")
        .priority(3)
        .timeout(Duration::from_secs(7))
        .attempts(2);
    let old = add(&punctual, task).await;
    let later = old.run_at + TimeDelta::hours(1);
    let new = punctual.reschedule(old.id, |task| task.at(later).priority(4)).await.unwrap();
    let mut expected = old.clone();
    expected.id = new.id;
    expected.run_at = later;
    expected.priority = 4;
    expected.client_request_id = None;
    expected.rescheduled_from = Some(old.id);
    expected.created_at = new.created_at;
    assert_eq!(new, expected);
    assert_eq!(punctual.get(old.id).await.unwrap().unwrap().task.status, TaskStatus::Cancelled);
    assert_eq!(punctual.reschedule(old.id, |task| task).await, Err(Error::AlreadyEnded));
    assert_eq!(bad_fields(punctual.reschedule(new.id, |task| task.timezone("EST")).await), ["timezone"]);
    assert_eq!(punctual.get(new.id).await.unwrap().unwrap().task, new, "a refused change changes nothing");
    let same = punctual.reschedule(new.id, |task| task).await.unwrap();
    assert_eq!(same.run_at, later);
    punctual.stop().await.unwrap();
}

async fn a_running_task_is_cancelled_and_its_attempt_told(database: Database) {
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let wait = move |attempt: Attempt| {
        let tell = tell.clone();
        begin.send(()).unwrap();
        async move {
            attempt.cancelled.cancelled().await;
            tell.send(()).unwrap();
            Outcome::Cancelled
        }
    };
    let punctual = Punctual::builder().database(&database.url).handler("wait", wait).start().await.unwrap();
    let task = add(&punctual, NewTask::new("wait")).await;
    begun.recv().await.unwrap();
    assert_eq!(punctual.cancel(task.id).await.unwrap().status, TaskStatus::Cancelled);
    told.recv().await.unwrap();
    let cancelled = ended(&punctual, task.id).await.task;
    assert_eq!(punctual.cancel(task.id).await.unwrap(), cancelled);
    punctual.stop().await.unwrap();
}

async fn what_is_not_there_is_not_found(database: Database) {
    let punctual = client(&database).await;
    let nobody = TaskId::generate();
    assert_eq!(punctual.get(nobody).await, Ok(None));
    assert_eq!(punctual.cancel(nobody).await, Err(Error::NotFound));
    assert_eq!(punctual.retry(nobody).await, Err(Error::NotFound));
    assert_eq!(punctual.reschedule(nobody, |task| task).await, Err(Error::NotFound));
    let pending = add(&punctual, much_later("a")).await;
    assert_eq!(punctual.retry(pending.id).await, Err(Error::NotFailed));
    punctual.stop().await.unwrap();
}

async fn the_topics_defaults_reach_the_task(database: Database) {
    client(&database).await.stop().await.unwrap();
    database
        .execute(
            r#"INSERT INTO punctual_topics (name, definition) VALUES ('slow.*',
               '{"route":{"type":"event"},"concurrency":50,"ratePerSecond":null,"retry":null,"timeoutSeconds":11,
                 "paused":false,"retentionDays":null}')"#,
        )
        .await;
    let punctual = client(&database).await;
    assert_eq!(add(&punctual, much_later("slow.one")).await.timeout_seconds, 11);
    assert_eq!(add(&punctual, much_later("slow.one").timeout(Duration::from_secs(5))).await.timeout_seconds, 5);
    punctual.stop().await.unwrap();
}
