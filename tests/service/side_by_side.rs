//! Two versions on one database, under load: nothing is lost, nothing is refused.
//!
//! `PUNCTUAL_OLD_BINARY` names the binary of the version before (`make soak` builds it, by `scripts/side-by-side`); without it both
//! nodes are of this version, which shows that much less.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use reqwest::Method;
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
    send(node, Method::POST, path, body).await
}

async fn send(node: &Server, method: Method, path: &str, body: &Value) -> Value {
    let request = node.request(method, path).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{path} {body}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Tasks that were made, each with how it is to end.
type Made = Vec<(String, &'static str)>;

/// Makes tasks of every kind at a node until it is enough, and does all that callers and workers do.
async fn load(node: &Server, name: &str, schedule: &str, is_enough: &AtomicBool) -> Made {
    let mut made = Made::new();
    let id_of = |task: &Value| task["id"].as_str().unwrap().to_owned();
    for n in 0.. {
        if is_enough.load(Ordering::Relaxed) {
            break;
        }
        let make = async |body: Value| id_of(&call(node, "/api/v1/tasks", &body).await);
        match n % 10 {
            0 => made.push((make(json!({"topic": "echo", "payload": n})).await, "completed")),
            1 => {
                let body = json!({"topic": "echo", "delayMs": 300, "metadata": {"ownerId": name}});
                made.push((make(body).await, "completed"));
            }
            2 => {
                made.push((make(json!({"topic": "echo", "serialKey": format!("{name}-{}", n % 7)})).await, "completed"))
            }
            3 => {
                let body = json!({"topic": "echo", "clientRequestId": format!("{name}-{n}"), "priority": 5});
                made.push((make(body).await, "completed"));
            }
            4 => made.push((make(json!({"topic": "nobody.serves.it", "retry": {"attempts": 2}})).await, "completed")),
            5 => {
                let tasks = [json!({"topic": "echo", "payload": n}), json!({"topic": "echo", "delayMs": 100})];
                let batch = call(node, "/api/v1/tasks/batch", &json!({"tasks": tasks})).await;
                let ids: Vec<String> = serde_json::from_value(batch["ids"].clone()).unwrap();
                made.extend(ids.into_iter().map(|id| (id, "completed")));
            }
            6 => {
                let id = make(json!({"topic": "echo", "delayMs": 3_600_000})).await;
                call(node, &format!("/api/v1/tasks/{id}/cancel"), &json!({})).await;
                made.push((id, "cancelled"));
            }
            7 => {
                let id = make(json!({"topic": "echo", "delayMs": 3_600_000})).await;
                let moved = call(node, &format!("/api/v1/tasks/{id}/reschedule"), &json!({"delayMs": 50})).await;
                made.extend([(id, "cancelled"), (id_of(&moved), "completed")]);
            }
            8 => {
                made.push((make(json!({"topic": "pulled", "payload": n})).await, "completed"));
                claim(node).await;
            }
            _ => {
                let edit = json!({"payload": {"n": n}, "name": format!("edited by {name} {n}")});
                send(node, Method::PATCH, &format!("/api/v1/schedules/{schedule}"), &edit).await;
            }
        }
        // At about the rate of a busy service, not of a benchmark.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    made
}

/// Claims some of what waits for workers, by any node that made it, and completes it; answers how many those were.
async fn claim(node: &Server) -> usize {
    let claimed = call(node, "/api/v1/claims", &json!({"topics": ["pulled"], "max": 3})).await;
    let tasks = claimed["tasks"].as_array().unwrap();
    for task in tasks {
        let path = format!("/api/v1/tasks/{}/complete", task["id"].as_str().unwrap());
        call(node, &path, &json!({"epoch": task["epoch"], "result": task["payload"]})).await;
    }
    tasks.len()
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
    let schedules: Vec<_> = schedules.await.iter().map(|made| made["id"].as_str().unwrap().to_owned()).collect();
    let route = json!({"route": {"type": "pull"}});
    send(&old, Method::PUT, "/api/v1/topics/pulled", &route).await;

    let is_enough = AtomicBool::new(false);
    let ids = {
        let side_by_side = async {
            // The new one migrates while the old one works; then the old one starts anew on what the new one made.
            let new = Server::start(&database);
            let also_old = old_node(&database);
            let (nodes, waited) = ([&new, &also_old], tokio::time::sleep(stretch()));
            let loads = join_all(
                nodes
                    .iter()
                    .zip(["new", "also old"])
                    .zip(&schedules)
                    .map(|((node, name), schedule)| load(node, name, schedule, &is_enough)),
            );
            let (made, ()) = join(loads, async {
                waited.await;
                is_enough.store(true, Ordering::Relaxed);
            })
            .await;
            (made.concat(), new, also_old)
        };
        let (mut made, (others, new, also_old)) =
            join(load(&old, "old", &schedules[2], &is_enough), side_by_side).await;
        made.extend(others);
        (made, new, also_old)
    };
    let (ids, new, also_old) = ids;
    assert_eq!(ids.iter().map(|(id, _)| id).collect::<HashSet<_>>().len(), ids.len());
    // What is left for workers.
    while claim(&new).await + claim(&also_old).await > 0 {}

    let mut by_node: HashMap<String, usize> = HashMap::new();
    let asked_at = Instant::now();
    for (id, status) in &ids {
        let task = new.ended_task(id).await;
        assert_eq!(task["status"], *status, "{task}");
        let attempts = task["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), usize::from(*status == "completed"), "{task}");
        if let Some(attempt) = attempts.first() {
            *by_node.entry(attempt["nodeId"].to_string()).or_default() += 1;
        }
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
