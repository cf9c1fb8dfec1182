//! Several nodes behind a pooler that hands out another connection for every transaction.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Database, Process, Server, punctual};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_make_one_schema_and_share_the_work() {
    let Some(database) = Database::pooled().await else { return };
    // All of them before any is waited for.
    let starting: Vec<_> = (0..4).map(|_| Server::spawn(&database, |command| command)).collect();
    let mut nodes: Vec<_> = starting.into_iter().map(Server::listening).collect();
    for node in &mut nodes {
        node.process.wait_for_log("a pooler stands before PostgreSQL");
    }
    let every_second = json!({"name": "every second", "everyMs": 1000, "timezone": "UTC", "topic": "echo"});
    let schedule = nodes[0].post("/api/v1/schedules", every_second.to_string()).await.json();
    let mut ids = HashSet::new();
    for i in 0..200 {
        let body = json!({"topic": "echo", "payload": i, "serialKey": (i % 3 == 0).then(|| format!("k{}", i % 5))});
        let task = nodes[i % nodes.len()].make_task(&body.to_string()).await;
        ids.insert(task["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 200);
    for id in &ids {
        let task = nodes[0].ended_task(id).await;
        assert_eq!(
            (&task["status"], task["attempts"].as_array().map(Vec::len)),
            (&json!("completed"), Some(1)),
            "{task}"
        );
    }
    let path = format!("/api/v1/schedules/{}/executions", schedule["id"].as_str().unwrap());
    let asked_at = Instant::now();
    let fires = loop {
        let fires = nodes[1].get(&path).await.json()["items"].as_array().unwrap().clone();
        if fires.len() >= 3 {
            break fires;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(30), "{fires:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let instants: HashSet<_> = fires.iter().map(|fire| fire["scheduledAt"].to_string()).collect();
    assert_eq!(instants.len(), fires.len(), "{fires:?}");
    nodes.into_iter().for_each(Server::stop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_measured_behind_it_is_refused() {
    let Some(database) = Database::pooled().await else { return };
    let mut command = punctual(database.folder.path());
    let mut bench = Process::start(command.args(["bench", "drain", "--tasks", "10", "--database", &database.url]));
    assert_eq!(bench.wait().code(), Some(1));
    bench.wait_for_log("measure on the server itself");
}
