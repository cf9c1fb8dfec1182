//! The example of `docs/bullmq.md`, as it is written.

use std::process::Command;

use serde_json::json;

use crate::fleet::packages;
use crate::support::{Database, Process, Redis, Server};

fn block(language: &str) -> &'static str {
    let mut all = include_str!("../../docs/bullmq.md").split("```").skip(1).step_by(2);
    all.find_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_the_page_works_as_written() {
    let Some(packages) = packages() else { return };
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()));
    let here = server.url.trim_start_matches("http://");
    let script = block("sh").replace("localhost:7878", here).replace("curl ", "curl -sSf ");
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The package has another name here, where there are two releases of it.
    let worker = block("js").replace(r#"require("bullmq")"#, r#"require("bullmq6")"#);
    let mut command = Command::new("node");
    command.args(["-e", &worker]).env("NODE_PATH", packages).env("REDIS_URL", redis.url());
    let _worker = Process::start(&mut command);
    let list = server.get("/api/v1/tasks?topic=thumbnail").await.json();
    let task = server.ended_task(list["items"][0]["id"].as_str().unwrap()).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"made": "640.png"})), "{task:#}");
    server.stop();
}
