//! What survives a crash: everything that was answered.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Client, Method};
use support::{Database, Server};
use tokio::sync::Notify;

on_each_database!(every_task_that_was_answered_is_there_after_kill_9);

const POSTS: usize = 10_000;
const CONNECTIONS: usize = 16;
/// How many answers there are before the service is killed.
const ANSWERED: usize = 3_000;

async fn every_task_that_was_answered_is_there_after_kill_9(database: Database) {
    let mut server = Server::start(&database);
    let begun = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(Notify::new());
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let url = format!("{}/api/v1/tasks", server.url);
            tokio::spawn(send(url, Arc::clone(&begun), Arc::clone(&answered), Arc::clone(&enough)))
        })
        .collect();
    enough.notified().await;
    server.process.signal("KILL");
    assert_eq!(server.process.wait().code(), None, "it was killed");

    let mut ids = Vec::new();
    for sender in senders {
        ids.extend(sender.await.unwrap());
    }
    assert!((ANSWERED..POSTS).contains(&ids.len()), "{} were answered", ids.len());

    let server = Server::start(&database);
    let mut missing = Vec::new();
    for chunk in ids.chunks(CONNECTIONS) {
        let paths: Vec<_> = chunk.iter().map(|id| format!("/api/v1/tasks/{id}")).collect();
        let answers = futures::future::join_all(paths.iter().map(|path| server.get(path))).await;
        missing.extend(answers.iter().zip(chunk).filter(|(answer, _)| answer.status != 200).map(|(_, id)| id.clone()));
    }
    assert_eq!(missing, Vec::<String>::new(), "of {} answered", ids.len());
    server.stop();
}

/// Sends tasks one after another until all are sent or the service is gone; answers the ids it was told.
async fn send(url: String, begun: Arc<AtomicUsize>, answered: Arc<AtomicUsize>, enough: Arc<Notify>) -> Vec<String> {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut ids = Vec::new();
    while begun.fetch_add(1, Ordering::Relaxed) < POSTS {
        let body = r#"{"topic":"echo","payload":{"n":1},"delayMs":3600000}"#;
        let request = client.request(Method::POST, &url).header("content-type", "application/json").body(body);
        let Ok(response) = request.send().await else { break };
        let status = response.status();
        let Ok(text) = response.text().await else { break };
        assert_eq!(status, 201, "{text}");
        let task: serde_json::Value = serde_json::from_str(&text).unwrap();
        ids.push(task["id"].as_str().unwrap().to_owned());
        if answered.fetch_add(1, Ordering::Relaxed) + 1 == ANSWERED {
            enough.notify_one();
        }
    }
    ids
}
