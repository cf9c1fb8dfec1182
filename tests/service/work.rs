//! Pausing and resuming a whole node.

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
