//! Cancelling and retrying whatever a filter finds.

use serde_json::json;

use crate::on_each_database_and_pooler;
use crate::support::{Database, Past, Server};

on_each_database_and_pooler!(
    what_matches_is_cancelled_and_nothing_else,
    what_failed_and_matches_is_retried,
    thousands_are_changed_in_one_call,
    a_dry_run_counts_and_changes_nothing,
    a_bulk_change_without_a_filter_is_refused,
);

const CANCEL: &str = "/api/v1/tasks/cancel";
const RETRY: &str = "/api/v1/tasks/retry";

async fn what_matches_is_cancelled_and_nothing_else(database: Database) {
    let past = Past::of(&database).await;
    let running = past.running("echo.running").await.id.to_string();
    past.close().await;
    let server = Server::start(&database);
    let task = |more: &str| format!(r#"{{"topic":"a","runAt":"2036-01-01T00:00:00Z","timezone":"UTC"{more}}}"#);
    let bystander = server.make_task(&task(r#","metadata":{"ownerId":"you"}"#)).await;
    for (more, filter) in [
        (r#","metadata":{"ownerId":"me"}"#, r#"{"ownerId":"me"}"#),
        (r#","metadata":{"tenantId":"t"}"#, r#"{"tenantId":"t","status":"pending"}"#),
        (r#","metadata":{"correlationId":"c"}"#, r#"{"correlationId":"c","status":["pending","active"]}"#),
        (r#","clientRequestId":"r""#, r#"{"clientRequestId":"r","topic":"a"}"#),
        (r#","topic":"b""#, r#"{"topic":"b","status":"pending,failed"}"#),
        (r#","runAt":"2037-01-01T00:00:00Z""#, r#"{"from":"2037-01-01T00:00:00Z","to":"2037-01-01T00:00:01+00:00"}"#),
    ] {
        // The later of two fields of a name would be refused: it takes the place of the first.
        let mut body: serde_json::Value = serde_json::from_str(&task("")).unwrap();
        let more: serde_json::Value = serde_json::from_str(&format!("{{{}}}", &more[1..])).unwrap();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = server.make_task(&body.to_string()).await;
        let body = format!(r#"{{"filter":{filter}}}"#);
        let answer = server.post(CANCEL, body.as_str()).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"count": 1})), "{filter}");
        assert_eq!(server.ended_task(made["id"].as_str().unwrap()).await["status"], "cancelled", "{filter}");
        assert_eq!(server.post(CANCEL, body.as_str()).await.json(), json!({"count": 0}), "{filter}");
    }
    assert_eq!(server.post(CANCEL, r#"{"filter":{"status":"failed"}}"#).await.json(), json!({"count": 0}));
    let shown = server.get(&format!("/api/v1/tasks/{}", bystander["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["status"], "pending");
    assert_eq!(server.post(CANCEL, r#"{"filter":{"status":"active"}}"#).await.json(), json!({"count": 1}));
    let stopped = server.ended_task(&running).await;
    assert_eq!((&stopped["status"], &stopped["attempts"][0]["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    server.stop();
}

async fn what_failed_and_matches_is_retried(database: Database) {
    let past = Past::of(&database).await;
    let mut failed = vec![past.failed("echo").await.to_string(), past.failed("echo").await.to_string()];
    past.failed("other").await;
    past.close().await;
    let server = Server::start(&database);
    let made = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(made["id"].as_str().unwrap()).await;
    assert_eq!(server.post(RETRY, r#"{"filter":{"topic":"echo"}}"#).await.json(), json!({"count": 2}));
    let tasks = server.get("/api/v1/tasks?topic=echo").await.json()["items"].clone();
    let mut retried = Vec::new();
    for task in tasks.as_array().unwrap().iter().filter(|task| task["retryOf"].is_string()) {
        assert_eq!(server.ended_task(task["id"].as_str().unwrap()).await["status"], "completed");
        retried.push(task["retryOf"].as_str().unwrap().to_owned());
    }
    retried.sort();
    failed.sort();
    assert_eq!(retried, failed);
    assert_eq!(server.post(RETRY, r#"{"filter":{"status":"completed"}}"#).await.json(), json!({"count": 0}));
    server.stop();
}

async fn thousands_are_changed_in_one_call(database: Database) {
    let past = Past::of(&database).await;
    past.many_failed("echo", 2_500).await;
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let body = r#"{"filter":{"status":"failed"},"dryRun":false}"#;
    assert_eq!(server.post(RETRY, body).await.json(), json!({"count": 2_500}));
    assert_eq!(server.post(CANCEL, r#"{"filter":{"topic":"echo"}}"#).await.json(), json!({"count": 2_500}));
    server.stop();
}

async fn a_dry_run_counts_and_changes_nothing(database: Database) {
    let past = Past::of(&database).await;
    past.failed("echo").await;
    past.close().await;
    let server = Server::start(&database);
    server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    let before = server.get("/api/v1/tasks").await.text;
    for path in [CANCEL, RETRY] {
        for _ in 0..2 {
            let answer = server.post(path, r#"{"filter":{"topic":"echo"},"dryRun":true}"#).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"count": 1})), "{path}");
        }
    }
    assert_eq!(server.get("/api/v1/tasks").await.text, before);
    server.stop();
}

async fn a_bulk_change_without_a_filter_is_refused(database: Database) {
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    for (body, fields) in [
        ("", vec![]),
        ("[]", vec![]),
        ("{", vec![]),
        ("{}", vec!["filter"]),
        (r#"{"dryRun":true}"#, vec!["filter"]),
        (r#"{"filter":null}"#, vec!["filter"]),
        (r#"{"filter":{}}"#, vec!["filter"]),
        (r#"{"filter":[]}"#, vec!["filter"]),
        (r#"{"filter":"all"}"#, vec!["filter"]),
        (r#"{"filter":{"topic":null}}"#, vec!["filter"]),
        (r#"{"filter":{"topic":""}}"#, vec!["filter.topic"]),
        (r#"{"filter":{"ownerId":""}}"#, vec!["filter.ownerId"]),
        (r#"{"filter":{"ownerId":"\u0000"}}"#, vec!["filter.ownerId"]),
        (r#"{"filter":{"ownerId":7}}"#, vec!["filter.ownerId"]),
        (r#"{"filter":{"topic":"a b"}}"#, vec!["filter.topic"]),
        (r#"{"filter":{"topic":"a.*"}}"#, vec!["filter.topic"]),
        (r#"{"filter":{"status":"done"}}"#, vec!["filter.status"]),
        (r#"{"filter":{"status":[]}}"#, vec!["filter.status"]),
        (r#"{"filter":{"status":""}}"#, vec!["filter.status"]),
        (r#"{"filter":{"status":7}}"#, vec!["filter.status"]),
        (r#"{"filter":{"from":"yesterday"}}"#, vec!["filter.from"]),
        (r#"{"filter":{"scheduleId":"1"}}"#, vec!["filter.scheduleId"]),
        (r#"{"filter":{"limit":5}}"#, vec!["filter.limit"]),
        (r#"{"filter":{"topic":"echo","colour":"red"}}"#, vec!["filter.colour"]),
        (r#"{"filter":{"topic":"echo"},"dryRun":"yes"}"#, vec!["dryRun"]),
        (r#"{"filter":{"topic":"echo"},"dryRUN":true}"#, vec!["dryRUN"]),
        (r#"{"filter":{"topic":"echo"},"ids":["x"]}"#, vec!["ids"]),
        (r#"{"filter":{"topic":"echo","topic":"b"}}"#, vec!["filter.topic"]),
    ] {
        for path in [CANCEL, RETRY] {
            assert_eq!(server.post(path, body).await.problem(400, "INVALID"), fields, "{path} {body}");
        }
    }
    assert_eq!(
        server.post("/api/v1/tasks/cancel?dryRun=true", r#"{"filter":{"topic":"echo"}}"#).await.problem(400, "INVALID"),
        ["dryRun"]
    );
    let shown = server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["status"], "pending");
    server.stop();
}
