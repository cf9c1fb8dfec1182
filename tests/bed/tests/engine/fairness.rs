//! A topic that is full to the brim beside one that is not.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::bed::{node, queue, scaled, tasks, until_running};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(a_topic_that_is_full_holds_up_nobody_else);

async fn a_topic_that_is_full_holds_up_nobody_else(database: Database) {
    // No lease is to be lost on a busy machine: what has lost one gives way to all others.
    let start = || node(&database, &[("PUNCTUAL_LEASE_SECONDS", "30"), ("PUNCTUAL_DRAIN_SECONDS", "0")]);
    let (count, queued) = (scaled(500, 5_000), scaled(2_000, 10_000));
    let server = start();
    let alone = lags(&server, count).await;
    server.stop();
    queue(&database, "bed.sleep", json!({"ms": 60_000}), queued).await;
    let server = start();
    until_running(&database, 50).await;
    let beside = lags(&server, count).await;
    for (how, lags) in [("alone", alone), ("beside the full topic", beside)] {
        let at = |percent: usize| lags[(lags.len() * percent / 100).min(lags.len() - 1)];
        println!("{count} quick tasks {how}: p50 {:?}, p99 {:?}, longest {:?}", at(50), at(99), at(100));
    }
    assert_eq!(tasks(&server, "topic=bed.sleep&status=pending,running,completed").await.len(), queued);
    server.stop();
}

/// Makes quick tasks one after another; once all have completed, answers how long each was due before it began, in order.
async fn lags(server: &Server, count: usize) -> Vec<Duration> {
    let mut ids = BTreeSet::new();
    for _ in 0..count {
        let task = server.make_task(r#"{"topic":"bed.quick"}"#).await;
        ids.insert(task["id"].as_str().unwrap().to_owned());
    }
    for id in &ids {
        assert_eq!(server.ended_task(id).await["status"], "completed");
    }
    let all = tasks(server, "topic=bed.quick").await;
    let mut lags: Vec<_> = all.iter().filter(|task| ids.contains(task["id"].as_str().unwrap())).map(lag).collect();
    assert_eq!(lags.len(), count);
    lags.sort_unstable();
    lags
}

fn lag(task: &Value) -> Duration {
    let instant = |field: &str| -> DateTime<Utc> { task[field].as_str().unwrap().parse().unwrap() };
    (instant("startedAt") - instant("runAt")).to_std().unwrap_or_default()
}
