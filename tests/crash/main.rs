//! What survives a crash: everything that was answered.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use support::{Database, Server};
use tokio::sync::Notify;

on_each_database!(
    every_task_that_was_answered_is_there_after_kill_9,
    every_due_task_that_was_answered_ends_once_after_kill_9,
);

const CONNECTIONS: usize = 16;

async fn every_task_that_was_answered_is_there_after_kill_9(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"topic":"echo","payload":{"n":1},"delayMs":3600000}"#;
    let ids = kill_amid(server, Posts { body, all: 10_000, before_the_kill: 3_000 }).await;

    let server = Server::start(&database);
    let mut missing = Vec::new();
    for (id, answer) in show(&server, &ids).await {
        if answer.is_none() {
            missing.push(id);
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "of {} answered", ids.len());
    server.stop();
}

/// The tasks are due at once, so that claims, attempts and settles are under way when the service is killed.
async fn every_due_task_that_was_answered_ends_once_after_kill_9(database: Database) {
    let start = || Server::start_with(&database, |command| command.env("PUNCTUAL_LEASE_SECONDS", "1"));
    let body = r#"{"topic":"echo","payload":{"n":1}}"#;
    let answered = kill_amid(start(), Posts { body, all: 3_000, before_the_kill: 1_000 }).await;

    let server = start();
    let restarted_at = Instant::now();
    loop {
        let live = server.get("/api/v1/tasks?status=pending,running&limit=5").await.json();
        if live["items"] == json!([]) {
            break;
        }
        assert!(restarted_at.elapsed() < Duration::from_secs(120), "these do not end: {live:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let listed = list(&server).await;
    let all: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(all.len(), listed.len(), "no task is listed twice");
    assert!(answered.iter().all(|id| all.contains(id)), "all that were answered are there");
    for (id, task) in show(&server, &listed).await {
        let task = task.unwrap_or_else(|| panic!("{id} is listed, but not there"));
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"n": 1})), "{task}");
        let outcomes: Vec<_> = task["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
        let (last, before) = outcomes.split_last().unwrap();
        assert!(*last == "completed" && before.iter().all(|outcome| *outcome == "lost"), "{task}");
    }
    server.stop();
}

/// What is sent to a service that will be killed.
#[derive(Clone, Copy)]
struct Posts {
    body: &'static str,
    /// How many there are at the most.
    all: usize,
    /// How many answers there are before the service is killed.
    before_the_kill: usize,
}

/// Sends tasks, and kills the service in the middle of it; answers the ids it was told.
async fn kill_amid(mut server: Server, posts: Posts) -> Vec<String> {
    let begun = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(Notify::new());
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let url = format!("{}/api/v1/tasks", server.url);
            tokio::spawn(send(url, posts, Arc::clone(&begun), Arc::clone(&answered), Arc::clone(&enough)))
        })
        .collect();
    enough.notified().await;
    server.process.signal("KILL");
    assert_eq!(server.process.wait().code(), None, "it was killed");

    let mut ids = Vec::new();
    for sender in senders {
        ids.extend(sender.await.unwrap());
    }
    assert!((posts.before_the_kill..posts.all).contains(&ids.len()), "{} were answered", ids.len());
    ids
}

/// Sends tasks one after another until all are sent or the service is gone; answers the ids it was told.
async fn send(
    url: String,
    posts: Posts,
    begun: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    enough: Arc<Notify>,
) -> Vec<String> {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut ids = Vec::new();
    while begun.fetch_add(1, Ordering::Relaxed) < posts.all {
        let request = client.request(Method::POST, &url).header("content-type", "application/json").body(posts.body);
        let Ok(response) = request.send().await else { break };
        let status = response.status();
        let Ok(text) = response.text().await else { break };
        assert_eq!(status, 201, "{text}");
        let task: Value = serde_json::from_str(&text).unwrap();
        ids.push(task["id"].as_str().unwrap().to_owned());
        if answered.fetch_add(1, Ordering::Relaxed) + 1 == posts.before_the_kill {
            enough.notify_one();
        }
    }
    ids
}

/// Every task by its id, `None` if it is not there.
async fn show(server: &Server, ids: &[String]) -> Vec<(String, Option<Value>)> {
    let mut shown = Vec::new();
    for chunk in ids.chunks(CONNECTIONS) {
        let paths: Vec<_> = chunk.iter().map(|id| format!("/api/v1/tasks/{id}")).collect();
        let answers = futures::future::join_all(paths.iter().map(|path| server.get(path))).await;
        let tasks = answers.iter().map(|answer| (answer.status == 200).then(|| answer.json()));
        shown.extend(chunk.iter().cloned().zip(tasks));
    }
    shown
}

/// The ids of all tasks, page by page.
async fn list(server: &Server) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/api/v1/tasks?limit=1000&cursor={cursor}")).await.json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return ids,
        }
    }
}
