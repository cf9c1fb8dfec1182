//! Health: what the probes say while parts are away.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::on_each_database_and_pooler;
use crate::support::{Database, Server};

on_each_database_and_pooler!(a_service_that_can_work_is_ready, a_paused_one_says_so, without_its_redis_it_is_degraded);

async fn ready(server: &Server) -> (u16, Value) {
    let answer = server.get("/readyz").await;
    (answer.status.as_u16(), answer.json())
}

async fn a_service_that_can_work_is_ready(database: Database) {
    let server = Server::start(&database);
    assert_eq!(server.get("/livez").await.status, 200);
    let (status, body) = ready(&server).await;
    let expected = json!({
        "status": "ready", "database": "ok", "schema": body["schema"], "redis": null, "tzVersion": body["tzVersion"],
    });
    assert_eq!((status, &body), (200, &expected));
    assert!(body["schema"].as_i64().unwrap() > 0 && body["tzVersion"].as_str().unwrap() >= "2026e", "{body}");
    server.stop();
}

async fn a_paused_one_says_so(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (status, body) = ready(&server).await;
    assert_eq!((status, &body["status"]), (200, &json!("paused")));
    server.stop();
}

async fn without_its_redis_it_is_degraded(database: Database) {
    let server = Server::start_with(&database, |command| command.args(["--redis", "redis://127.0.0.1:1"]));
    let (status, body) = ready(&server).await;
    assert_eq!((status, &body["status"], &body["redis"]), (200, &json!("degraded"), &json!("unavailable")));
    assert_eq!(server.post("/api/v1/tasks", r#"{"topic":"echo"}"#).await.status, 201);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_redis_it_is_ready() {
    let Ok(redis) = std::env::var("TEST_REDIS_URL") else {
        assert!(std::env::var_os("CI").is_none(), "TEST_REDIS_URL is not set, and CI skips nothing");
        eprintln!("skipped: TEST_REDIS_URL is not set");
        return;
    };
    let database = Database::sqlite();
    let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis));
    let (status, body) = ready(&server).await;
    assert_eq!((status, &body["status"], &body["redis"]), (200, &json!("ready"), &json!("ok")));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_503_until_it_is_back() {
    let Some(mut database) = Database::postgres().await else { return };
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (there, url) = database.through_port(socket.local_addr().unwrap().port());
    database.url = url;
    let way = Arc::new(watch::Sender::new(true));
    tokio::spawn(forward(socket, there, Arc::clone(&way)));
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo"}"#).await;

    way.send_replace(false);
    let (status, body) = ready(&server).await;
    assert_eq!((status, &body["status"], &body["database"]), (503, &json!("unavailable"), &json!("unavailable")));
    assert_eq!(server.get("/livez").await.status, 200);
    let refused = server.post("/api/v1/tasks", r#"{"topic":"echo"}"#).await;
    refused.problem(503, "UNAVAILABLE");
    assert_eq!(refused.header("retry-after"), "1");

    way.send_replace(true);
    let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
    while ready(&server).await.0 != 200 || server.get(&path).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop();
}

/// Forwards connections while the way is open; closing it cuts those under way.
pub(crate) async fn forward(socket: TcpListener, there: (String, u16), way: Arc<watch::Sender<bool>>) {
    loop {
        let (mut near, _) = socket.accept().await.unwrap();
        let (there, mut open) = (there.clone(), way.subscribe());
        if !*open.borrow_and_update() {
            continue;
        }
        tokio::spawn(async move {
            let mut far = TcpStream::connect((there.0.as_str(), there.1)).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = open.wait_for(|open| !open) => {}
            }
        });
    }
}
