//! Topics beside one that is full to the brim, and beside one whose tasks fail all the time: nobody waits for them.

use std::time::Duration;

use punctual_domain::retry::{Backoff, Growth, RetryPolicy};
use punctual_domain::task::NewTask;
use serde_json::json;

use crate::bed::{node, queue, queue_like, scaled, tasks, until, until_running};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(a_topic_that_is_full_or_fails_holds_up_nobody_else);

/// How far apart the tasks of a round become due.
const APART: Duration = Duration::from_millis(5);
/// How long after they were written the first of them is due, so that none is claimed as it is written.
const AHEAD: Duration = Duration::from_secs(1);
/// How many tasks fail, once a second each.
const FAILING: usize = 100;

async fn a_topic_that_is_full_or_fails_holds_up_nobody_else(database: Database) {
    // No lease is to be lost on a busy machine: what has lost one gives way to all others.
    let start = || node(&database, &[("PUNCTUAL_LEASE_SECONDS", "30"), ("PUNCTUAL_DRAIN_SECONDS", "0")]);
    let queued = scaled(2_000, 10_000);
    let server = start();
    let alone = Lags::of(&server, &database, "alone").await;
    server.stop();

    queue(&database, "bed.sleep", json!({"ms": 600_000}), queued).await;
    let server = start();
    until_running(&database, 50).await;
    let full = Lags::of(&server, &database, "full").await;
    assert_eq!(tasks(&server, "topic=bed.sleep&status=pending,running").await.len(), queued);
    server.stop();

    let backoff = Backoff { growth: Growth::Fixed, delay: 1_000, max_delay: 1_000, jitter: 1.0 };
    let mut task = NewTask::new("bed.panic".parse().unwrap());
    task.retry = RetryPolicy { attempts: 1_000, backoff };
    queue_like(&database, &task, FAILING).await;
    let server = start();
    let failed = "SELECT count(*) FROM punctual_attempts WHERE outcome = 'panicked'";
    until(&database, failed, |found| found >= FAILING as i64).await;
    let failing = Lags::of(&server, &database, "failing").await;
    assert_eq!(tasks(&server, "topic=bed.panic&status=pending,running").await.len(), FAILING);
    until(&database, failed, |found| found >= 3 * FAILING as i64).await;
    server.stop();

    for beside in [&full, &failing] {
        beside.is_hardly_longer_than(&alone);
    }
}

/// How late tasks began, round by round, each in order.
struct Lags {
    /// What is beside them.
    beside: &'static str,
    rounds: Vec<Vec<Duration>>,
}

impl Lags {
    /// Has tasks become due one after another, each of which says by itself how late it began.
    async fn of(server: &Server, database: &Database, beside: &'static str) -> Self {
        let mut rounds = Vec::new();
        for round in 0..scaled(1, 5) {
            rounds.push(measure(server, database, &format!("{beside}-{round}")).await);
        }
        let lags = Self { beside, rounds };
        let [p50, p99, longest] = [50, 99, 100].map(|percent| lags.percentile(percent));
        println!("tasks, {beside}: p50 {p50:?}, p99 {p99:?}, longest {longest:?}");
        lags
    }

    /// That of the best round: what else the machine does makes one longer, never shorter.
    fn percentile(&self, percent: usize) -> Duration {
        let of_round = |sorted: &Vec<Duration>| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
        self.rounds.iter().map(of_round).min().unwrap()
    }

    /// A fifth longer at the most, and a little that any machine may take; in short, on a machine with other things
    /// to do, hardly more than that it did not wait for what is in the other topic.
    fn is_hardly_longer_than(&self, alone: &Self) {
        let factor = scaled(500, 120) as u32;
        for (percent, more) in [(50, scaled(250, 1)), (99, scaled(2_000, 4))] {
            let (found, reference) = (self.percentile(percent), alone.percentile(percent));
            let most = reference * factor / 100 + Duration::from_millis(more as u64);
            assert!(found <= most, "{}: p{percent} is {found:?}, and {reference:?} alone", self.beside);
        }
    }
}

/// How late the tasks of one round began, in order.
async fn measure(server: &Server, database: &Database, round: &str) -> Vec<Duration> {
    let count = scaled(400, 1_000);
    let due = |i: usize| AHEAD + APART * i as u32;
    let task = |i| json!({"topic": "bed.late", "delayMs": due(i).as_millis(), "metadata": {"ownerId": round}});
    let batch = json!({"tasks": (0..count).map(task).collect::<Vec<_>>()});
    let answer = server.post("/api/v1/tasks/batch", batch.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let ended = format!("SELECT count(*) FROM punctual_task_history WHERE topic = 'bed.late' AND owner_id = '{round}'");
    until(database, &ended, |found| found == count as i64).await;
    let ended = tasks(server, &format!("topic=bed.late&status=completed&ownerId={round}")).await;
    let mut sorted: Vec<_> = ended.iter().map(|task| Duration::from_micros(task["result"].as_u64().unwrap())).collect();
    assert_eq!(sorted.len(), count);
    sorted.sort_unstable();
    sorted
}
