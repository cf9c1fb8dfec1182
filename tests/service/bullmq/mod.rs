//! The route `bullmq`, seen by unmodified workers of BullMQ's releases 5 and 6.

mod cancelling;
mod checklist;
mod hand_over;
mod healing;
mod messages;
mod refusing;
mod tries;

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::support::{Database, Redis, Server};

/// A service with a Redis of its own.
fn serve(database: &Database) -> (Redis, Server) {
    let redis = Redis::start();
    let server = serve_by(database, &redis);
    (redis, server)
}

fn serve_by(database: &Database, redis: &Redis) -> Server {
    Server::start_with(database, |command| {
        command.envs([("REDIS_URL", redis.url().as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")])
    })
}

/// A queue with a topic of its name, and a process of that release without workers yet; none where there is no Node.
async fn fleet(server: &Server, redis: &Redis, release: &str, queue: &str) -> Option<Fleet> {
    define(server, queue).await;
    Fleet::start(redis, release, queue)
}

/// The same, with a worker.
async fn working_fleet(server: &Server, redis: &Redis, release: &str, queue: &str) -> Option<Fleet> {
    define(server, queue).await;
    Fleet::with_worker(redis, release, queue)
}

async fn define(server: &Server, queue: &str) {
    let retry = json!({"attempts": 1, "backoff": {"type": "fixed", "delay": 20, "jitter": 0}});
    let body = json!({"route": {"type": "bullmq", "queue": queue}, "retry": retry});
    server.put_topic(queue, &body.to_string()).await;
}

async fn make(server: &Server, body: Value) -> String {
    server.make_task(&body.to_string()).await["id"].as_str().unwrap().to_owned()
}

/// Makes tasks together; answers their ids.
async fn make_all(server: &Server, tasks: Vec<Value>) -> Vec<String> {
    let answer = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    serde_json::from_value(answer.json()["ids"].clone()).unwrap()
}

/// Waits until a statement counts so many.
async fn until(database: &Database, statement: &str, count: i64) {
    let asked_at = std::time::Instant::now();
    loop {
        let found = database.number(statement).await;
        if found == count {
            return;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{statement}: {found} instead of {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until Redis answers that.
async fn until_answered(redis: &Redis, command: &str, answer: &str) {
    let asked_at = std::time::Instant::now();
    while redis.ask(command) != answer {
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{command}: {} instead of {answer}", redis.ask(command));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_handed_over(database: &Database, count: i64) {
    until(database, "SELECT count(*) FROM punctual_hand_overs", count).await;
}

async fn until_completed(database: &Database, count: i64) {
    until(database, "SELECT count(*) FROM punctual_task_history WHERE status = 'completed'", count).await;
}

/// Makes a schedule of that topic which does not fire by itself for a while.
async fn schedule(server: &Server, topic: &str) -> String {
    schedule_of(server, topic, json!({"n": 7, "e": []})).await
}

async fn schedule_of(server: &Server, topic: &str, payload: Value) -> String {
    let body = json!({
        "name": topic, "topic": topic, "cronExpression": "* * * * *", "timezone": "UTC", "payload": payload,
        "overlapPolicy": "allow", "maxRetries": 2, "enabled": false,
    });
    let answer = server.post("/api/v1/schedules", body.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Has a schedule of every minute fire for so many minutes that are past.
async fn backfill(server: &Server, schedule: &str, minutes: usize) {
    let to = Utc::now() - TimeDelta::minutes(1);
    let stretch = json!({"from": (to - TimeDelta::minutes(minutes as i64)).to_rfc3339(), "to": to.to_rfc3339()});
    let filled = server.post(&format!("/api/v1/schedules/{schedule}/backfill"), stretch.to_string()).await;
    assert_eq!(filled.json()["made"], minutes, "{filled:?}");
}

/// Whether there is time for more.
fn is_soak() -> bool {
    std::env::var_os("PUNCTUAL_SOAK").is_some()
}

/// Number, outcome and error of a task's attempts; each begins when the one before has ended.
fn attempts(task: &Value) -> Vec<(u64, Option<String>, Option<String>)> {
    let mut last = String::new();
    let mut told = Vec::new();
    for attempt in task["attempts"].as_array().unwrap() {
        for at in ["startedAt", "endedAt"] {
            let at = attempt[at].as_str().unwrap_or("9").to_owned();
            assert!(last <= at, "{task:#}");
            last = at;
        }
        let text = |field: &str| attempt[field].as_str().map(str::to_owned);
        told.push((attempt["number"].as_u64().unwrap(), text("outcome"), text("error")));
    }
    told
}
