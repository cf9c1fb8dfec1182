//! Two versions on one database, under load: nothing is lost, nothing is refused.
//!
//! `PUNCTUAL_OLD_BINARY` names the binary of the version before (`scripts/side-by-side`); without it both nodes are of this
//! version, which shows that much less.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use serde_json::{Value, json};

use crate::support::{Database, Process, Server, punctual_of};

/// How long both work side by side.
fn stretch() -> Duration {
    Duration::from_secs(if std::env::var_os("PUNCTUAL_SOAK").is_some() { 60 } else { 6 })
}

fn old_node(database: &Database) -> Server {
    let binary = std::env::var_os("PUNCTUAL_OLD_BINARY").map(PathBuf::from);
    let Some(binary) = binary else { return Server::start(database) };
    let mut command = punctual_of(&binary, database.folder.path());
    command.arg("serve").envs([("DATABASE_URL", database.url.as_str()), ("PUNCTUAL_LISTEN", "127.0.0.1:0")]);
    Server::listening(Process::start(&mut command))
}

/// Calls a node of either version: an old one need not answer as this one's description says.
async fn call(node: &Server, path: &str, body: &Value) -> Value {
    let request = node.request(reqwest::Method::POST, path).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{path} {body}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Makes tasks of every kind at a node until it is enough; answers their ids.
async fn load(node: &Server, name: &str, is_enough: &AtomicBool) -> Vec<String> {
    let mut made = Vec::new();
    while !is_enough.load(Ordering::Relaxed) {
        let n = made.len();
        let body = match n % 5 {
            0 => json!({"topic": "echo", "payload": n}),
            1 => json!({"topic": "echo", "delayMs": 300, "metadata": {"ownerId": name}}),
            2 => json!({"topic": "echo", "serialKey": format!("{name}-{}", n % 7)}),
            3 => json!({"topic": "echo", "clientRequestId": format!("{name}-{n}"), "priority": 5}),
            _ => json!({"topic": "nobody.serves.it", "retry": {"attempts": 2}}),
        };
        let task = call(node, "/api/v1/tasks", &body).await;
        made.push(task["id"].as_str().unwrap().to_owned());
        // At about the rate of a busy service, not of a benchmark.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_and_the_one_before_share_the_work_and_lose_nothing() {
    let Some(database) = Database::postgres().await else { return };
    let old = old_node(&database);
    let schedules = join_all((0..3).map(|n| {
        let body = json!({
            "name": format!("every second {n}"), "everyMs": 1000, "timezone": "UTC", "topic": "echo", "overlapPolicy": "allow",
        });
        let old = &old;
        async move { call(old, "/api/v1/schedules", &body).await }
    }));
    assert_eq!(schedules.await.len(), 3);

    let is_enough = AtomicBool::new(false);
    let ids = {
        let side_by_side = async {
            // The new one migrates while the old one works; then the old one starts anew on what the new one made.
            let new = Server::start(&database);
            let also_old = old_node(&database);
            let (nodes, waited) = ([&new, &also_old], tokio::time::sleep(stretch()));
            let loads =
                join_all(nodes.iter().zip(["new", "also old"]).map(|(node, name)| load(node, name, &is_enough)));
            let (made, ()) = join(loads, async {
                waited.await;
                is_enough.store(true, Ordering::Relaxed);
            })
            .await;
            (made.concat(), new, also_old)
        };
        let (mut made, (others, new, also_old)) = join(load(&old, "old", &is_enough), side_by_side).await;
        made.extend(others);
        (made, new, also_old)
    };
    let (ids, new, also_old) = ids;
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());

    let mut by_node: HashMap<String, usize> = HashMap::new();
    let asked_at = Instant::now();
    for id in &ids {
        let task = new.ended_task(id).await;
        assert_eq!(task["status"], "completed", "{task}");
        let attempts = task["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{task}");
        *by_node.entry(attempts[0]["nodeId"].to_string()).or_default() += 1;
    }
    println!("{} tasks, {:?} until the last had ended; by node: {by_node:?}", ids.len(), asked_at.elapsed());
    assert!(by_node.len() >= 2, "several nodes worked: {by_node:?}");
    also_old.stop();
    old.stop();
    let proof = new.get("/api/v1/prove?from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z").await.json();
    assert_eq!((&proof["holds"], proof["schedules"].as_array().map(Vec::len)), (&json!(true), Some(3)), "{proof:#}");
    let fired: u64 =
        proof["schedules"].as_array().unwrap().iter().map(|proven| proven["fired"].as_u64().unwrap()).sum();
    println!("{fired} fires, none missing, none double");
    assert!(fired >= 3 * (stretch().as_secs() - 1), "{proof:#}");
    new.stop();
}
