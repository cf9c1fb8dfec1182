//! Tasks: found, understood, tried again, moved and stopped.

use serde_json::json;

use crate::browser::Browser;
use crate::support::{Database, Server};

/// A task that a worker failed.
async fn failed_task(server: &Server, error: &str) -> String {
    let id =
        server.make_task(r#"{"topic": "resize", "payload": {"width": 640}}"#).await["id"].as_str().unwrap().to_owned();
    let claimed = server.post("/api/v1/claims", r#"{"topics": ["resize"]}"#).await.json();
    let fail = json!({ "epoch": claimed["tasks"][0]["epoch"], "error": error });
    assert_eq!(server.post(&format!("/api/v1/tasks/{id}/fail"), fail.to_string()).await.status, 200);
    id
}

async fn start() -> Option<(Server, Browser, Database)> {
    let database = Database::sqlite();
    let server = Server::start(&database);
    server.put_topic("resize", r#"{"route": {"type": "pull"}}"#).await;
    let browser = Browser::open(&server.url).await?;
    Some((server, browser, database))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_task_is_found_understood_and_tried_again() {
    let Some((server, browser, _database)) = start().await else { return };
    let id = failed_task(&server, "the picture <b>is</b> broken").await;
    browser.go("/").await;
    browser.wait_for_text("the picture <b>is</b> broken").await;
    browser.go("/tasks?status=failed").await;
    browser.click(&format!("tbody a[href='/tasks/{id}']")).await;
    browser.wait_for_text("Why it failed").await;
    let page = browser.text("main").await;
    for said in ["the picture <b>is</b> broken", "\"width\": 640", "Attempt 1"] {
        assert!(page.contains(said), "{said:?} is not in {page}");
    }
    browser.press("main", "Retry").await;
    browser.wait_for_text("Made anew").await;
    let again = server.get("/api/v1/tasks?status=pending").await.json();
    assert_eq!(again["items"][0]["retryOf"], json!(id));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_found_by_its_id_moved_and_cancelled() {
    let Some((server, browser, _database)) = start().await else { return };
    let id = server.make_task(r#"{"topic": "echo", "delayMs": 3600000}"#).await["id"].as_str().unwrap().to_owned();
    browser.go("/tasks").await;
    browser.fill("input[name=id]", &id).await;
    browser.press("form[role=search]", "Find").await;
    browser.wait_for("return location.pathname === '/tasks/' + arguments[0]", &[json!(id)], "the task").await;
    let later = "document.querySelector('#runAt').value = '2036-12-01T09:30'";
    browser.run(&format!("document.querySelector('details')?.setAttribute('open', ''); {later}"), &[]).await;
    browser.press("main", "Reschedule").await;
    browser.wait_for("return location.pathname !== '/tasks/' + arguments[0]", &[json!(id)], "the new task").await;
    let moved = server.get("/api/v1/tasks?status=pending").await.json()["items"][0].clone();
    assert_eq!((&moved["rescheduledFrom"], moved["runAt"].as_str().unwrap()), (&json!(id), "2036-12-01T09:30:00.000Z"));
    browser.press("main", "Cancel").await;
    browser.wait_for_text("The task is cancelled.").await;
    let path = format!("/api/v1/tasks/{}", moved["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["status"], "cancelled");
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_counted_before_they_are_tried_again() {
    let Some((server, browser, _database)) = start().await else { return };
    for _ in 0..3 {
        failed_task(&server, "broken").await;
    }
    browser.go("/tasks").await;
    browser.press("nav.tabs", "failed").await;
    browser.wait_for("return location.search.includes('status=failed')", &[], "the filter in the address").await;
    browser.press("main", "Retry failed…").await;
    browser.wait_for_text("Retry 3 failed tasks?").await;
    browser.press("main", "Retry them").await;
    let all = |list: &serde_json::Value| list["items"].as_array().unwrap().len() == 3;
    server.wait_for("/api/v1/tasks?status=pending&topic=resize", all).await;
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_counted_before_they_are_cancelled() {
    let Some((server, browser, _database)) = start().await else { return };
    for _ in 0..3 {
        server.make_task(r#"{"topic": "resize", "delayMs": 3600000}"#).await;
    }
    let ended = failed_task(&server, "broken").await;
    let other = server.make_task(r#"{"topic": "echo", "delayMs": 3600000}"#).await["id"].clone();
    browser.go("/tasks").await;
    browser.fill("input[name=topic]", "resize").await;
    browser.press("form.gap", "Filter").await;
    browser.wait_for("return location.search.includes('topic=resize')", &[], "the filter in the address").await;
    browser.press("main", "Cancel…").await;
    browser.wait_for_text("Cancel 3 tasks?").await;
    browser.press("main", "Leave them").await;
    browser.wait_for("return location.pathname === '/tasks'", &[], "the tasks").await;
    let listed = server.get("/api/v1/tasks?topic=resize&status=pending").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "nothing was done yet");

    browser.fill("input[name=topic]", "resize").await;
    browser.press("form.gap", "Filter").await;
    browser.press("main", "Cancel…").await;
    browser.press("main", "Cancel them").await;
    browser.wait_for_text("3 tasks were cancelled.").await;
    let listed = server.get("/api/v1/tasks?topic=resize&status=cancelled").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    for (id, status) in [(json!(ended), "failed"), (other, "pending")] {
        let task = server.get(&format!("/api/v1/tasks/{}", id.as_str().unwrap())).await.json();
        assert_eq!(task["status"], status, "{task}");
    }
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_does_not_run_says_why() {
    let Some((server, browser, _database)) = start().await else { return };
    server.put_topic("mail", r#"{"route": {"type": "event"}, "paused": true}"#).await;
    let id = server.make_task(r#"{"topic": "mail"}"#).await["id"].as_str().unwrap().to_owned();
    browser.go(&format!("/tasks/{id}")).await;
    let why = browser.text("#why").await;
    assert!(why.contains("Why is this not running?") && why.contains("paused"), "{why}");
    browser.check().await;
}
