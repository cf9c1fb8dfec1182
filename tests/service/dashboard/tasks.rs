//! Tasks are moved by forms, one by one or many at once.

use serde_json::json;

use super::{Visit, api, failed_task};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(
    a_task_is_cancelled_rescheduled_and_retried,
    a_retry_is_shown_and_not_repeated_by_accident,
    many_tasks_are_changed_after_they_were_counted,
    the_tasks_that_are_changed_are_those_that_were_counted,
);

async fn a_task_is_cancelled_rescheduled_and_retried(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let later = r#"{"topic":"mail","runAt":"2039-01-01T00:00:00Z","timezone":"America/Edmonton"}"#;
    let task = server.make_task(later).await["id"].as_str().unwrap().to_owned();
    let (moved, page) = visit.done(&format!("/tasks/{task}/reschedule"), &[("runAt", "2040-06-01T12:00")]).await;
    assert!(page.contains("Rescheduled") && page.contains("Instead of"), "{page}");
    assert_eq!(api(&server, &format!("/api/v1{moved}")).await["runAt"], "2040-06-01T18:00:00.000Z", "in its zone");
    let (_, refused) = visit.done(&format!("/tasks/{task}/reschedule"), &[("runAt", "2041-06-01T12:00")]).await;
    assert!(refused.contains("the task has ended"), "{refused}");
    let (_, page) = visit.done(&format!("{moved}/cancel"), &[]).await;
    assert!(page.contains("The task is cancelled") && !page.contains("Reschedule"), "{page}");
    let failed = failed_task(&server, "pulled", "broken").await;
    let (retried, page) = visit.done(&format!("/tasks/{failed}/retry"), &[]).await;
    assert!(page.contains("Retry of"), "{page}");
    assert_eq!(api(&server, &format!("/api/v1{retried}")).await["retryOf"], json!(failed));
    let (_, refused) = visit.done(&format!("{retried}/retry"), &[]).await;
    assert!(refused.contains("has not failed"), "{refused}");
    server.stop();
}

/// What the form that retries a task says of the retries its page has shown.
fn seen_by(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"after\" value=\"").unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().to_owned()
}

async fn a_retry_is_shown_and_not_repeated_by_accident(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let failed = failed_task(&server, "pulled", "broken").await;
    let path = format!("/tasks/{failed}");
    let retries = || async { api(&server, "/api/v1/tasks?topic=pulled").await["items"].as_array().unwrap().len() - 1 };
    let page = visit.page(&path).await;
    assert!(page.contains(">Retry</button>") && !page.contains("Retried"), "{page}");
    let seen = seen_by(&page);
    let form = [("after", seen.as_str())];
    let retry = format!("{path}/retry");
    // Pressed twice, or in two tabs.
    let (one, two) = tokio::join!(visit.post(&retry, &form), visit.post(&retry, &form));
    assert_eq!((one.status.as_u16(), &one.location), (303, &two.location), "sent twice: {two:?}");
    assert_eq!(retries().await, 1);

    let page = visit.page(&path).await;
    assert!(page.contains("Retried once") && page.contains(&one.location), "{page}");
    assert!(page.contains(">Retry again</button>") && !page.contains(">Retry</button>"), "{page}");
    // Somebody whose page is older than that.
    let (location, page) = visit.done(&retry, &[("after", "")]).await;
    assert!(location == one.location && page.contains("It was retried already"), "{page}");
    assert_eq!(retries().await, 1);

    let seen = seen_by(&visit.page(&path).await);
    let (again, _) = visit.done(&retry, &[("after", seen.as_str())]).await;
    assert_ne!(again, one.location, "on purpose");
    assert_eq!(retries().await, 2);
    assert!(visit.page(&path).await.contains("Retried twice"));
    server.stop();
}

async fn many_tasks_are_changed_after_they_were_counted(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    for _ in 0..3 {
        server.make_task(r#"{"topic":"mail","delayMs":3600000}"#).await;
    }
    server.make_task(r#"{"topic":"other","delayMs":3600000}"#).await;
    assert!(!visit.page("/tasks").await.contains("Everything that matches"), "not without a filter");
    let list = visit.page("/tasks?topic=mail").await;
    assert!(list.contains("/tasks/bulk?action=cancel&amp;topic=mail"), "{list}");
    let asked = visit.page("/tasks/bulk?action=cancel&topic=mail").await;
    assert!(asked.contains("Cancel 3 tasks?"), "{asked}");
    let (_, page) = visit.done("/tasks/bulk/cancel", &[("topic", "mail")]).await;
    assert!(page.contains("3 tasks were cancelled"), "{page}");
    let left = api(&server, "/api/v1/tasks?status=pending").await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    let (_, refused) = visit.done("/tasks/bulk/cancel", &[]).await;
    assert!(refused.contains("must say which tasks"), "{refused}");

    failed_task(&server, "pulled", "broken").await;
    assert!(visit.page("/tasks/bulk?action=retry&topic=pulled").await.contains("Retry 1 failed task?"));
    let (_, page) = visit.done("/tasks/bulk/retry", &[("topic", "pulled"), ("status", "failed")]).await;
    assert!(page.contains("1 task was made anew"), "{page}");
    server.stop();
}

async fn the_tasks_that_are_changed_are_those_that_were_counted(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    server.make_task(r#"{"topic":"mail","delayMs":3600000}"#).await;
    server.make_task(r#"{"topic":"mail","delayMs":3600000,"metadata":{"ownerId":" "}}"#).await;
    let asked = visit.page("/tasks/bulk?action=cancel&topic=mail&ownerId=%20").await;
    assert!(asked.contains("Cancel 1 task?") && asked.contains(r#"name="ownerId" value=" ""#), "{asked}");
    let (_, page) = visit.done("/tasks/bulk/cancel", &[("topic", "mail"), ("ownerId", " "), ("tenantId", "")]).await;
    assert!(page.contains("1 task was cancelled"), "{page}");
    let left = api(&server, "/api/v1/tasks?status=pending").await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "{left}");
    server.stop();
}
