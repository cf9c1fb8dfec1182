//! A whole node: paused and resumed, and gone on with after its clock was set back.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::on_each_database_and_pooler;
use crate::support::{Database, Server};

on_each_database_and_pooler!(a_node_that_starts_paused_is_resumed, a_working_node_is_paused_and_resumed);

async fn a_node_that_starts_paused_is_resumed(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    server.put_topic("pull", r#"{"route":{"type":"pull"}}"#).await;
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.make_task(r#"{"topic":"pull"}"#).await;
    assert_eq!(server.get("/readyz").await.json()["status"], "paused");
    let claim = r#"{"topics":["pull"]}"#;
    assert_eq!(server.post("/api/v1/claims", claim).await.json(), json!({"tasks": []}));
    for _ in 0..2 {
        let resumed = server.post("/api/v1/resume", "").await;
        assert_eq!((resumed.status.as_u16(), resumed.json()), (200, json!({"paused": false})));
    }
    assert_eq!(server.ended_task(task["id"].as_str().unwrap()).await["status"], "completed");
    assert_eq!(server.get("/readyz").await.json()["status"], "ready");
    assert_eq!(server.post("/api/v1/claims", claim).await.json()["tasks"].as_array().unwrap().len(), 1);
    let next = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(next["id"].as_str().unwrap()).await;
    server.stop();
}

async fn a_working_node_is_paused_and_resumed(database: Database) {
    let server = Server::start(&database);
    let first = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(first["id"].as_str().unwrap()).await;
    assert_eq!(server.post("/api/v1/pause", "").await.json(), json!({"paused": true}));
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["status"], "pending");
    assert_eq!(server.get("/readyz").await.json()["status"], "paused");
    assert_eq!(server.post("/api/v1/resume", "").await.json(), json!({"paused": false}));
    server.ended_task(task["id"].as_str().unwrap()).await;
    server.post("/api/v1/resume", r#"{"colour":1}"#).await.problem(400, "INVALID");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_clock_was_set_back_what_waits_begins_as_soon_as_it_has_caught_up() {
    let database = Database::sqlite();
    let mut server = Server::start(&database);
    server.process.signal("KILL");
    server.process.wait();
    database.execute("UPDATE punctual_nodes SET seen_at = seen_at + 6000000").await;
    let mut server = Server::start(&database);
    let started_at = Instant::now();
    server.process.wait_for_log("the clock was set back");
    let waits = server.make_task(r#"{"topic":"echo","delayMs":200}"#).await;
    let at_once = server.make_task(r#"{"topic":"echo"}"#).await;
    assert_eq!(server.ended_task(at_once["id"].as_str().unwrap()).await["status"], "completed");
    assert_eq!(server.ended_task(waits["id"].as_str().unwrap()).await["status"], "completed");
    assert!(started_at.elapsed() < Duration::from_secs(9), "{:?}", started_at.elapsed());
    server.stop();
}
