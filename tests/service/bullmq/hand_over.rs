//! What queues get, and when.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::{
    backfill, define, fleet, is_soak, make, make_all, schedule, serve, serve_by, until_completed, until_handed_over,
    working_fleet,
};
use crate::fleet::{Fleet, RELEASES};
use crate::on_each_database;
use crate::support::{Database, Redis, Server};

on_each_database!(
    a_thousand_tasks_run_once_each_with_all_that_they_carry,
    an_execution_is_dispatched_until_the_queue_says_how_it_ended,
);

async fn a_thousand_tasks_run_once_each_with_all_that_they_carry(database: Database) {
    let (redis, server) = serve(&database);
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let schedule = schedule(&server, release).await;
        let payload = |n: usize| json!({"n": n, "empty": {"list": [], "object": {}}, "text": "é ✓"});
        let task = |n| json!({"topic": release, "payload": payload(n), "retry": {"attempts": 3}});
        let ids = make_all(&server, (0..500).map(task).collect()).await;
        backfill(&server, &schedule, 500).await;
        until_completed(&database, 1_000 * (nth as i64 + 1)).await;

        let mut jobs = fleet.jobs(1_000);
        for (n, id) in ids.iter().enumerate() {
            let job = jobs.remove(&format!("t_{id}")).expect("a job with the task's id");
            assert_eq!((&job["name"], &job["data"]), (&json!(release), &payload(n)));
            assert_eq!((&job["opts"]["attempts"], &job["opts"]["jobId"]), (&json!(3), &job["id"]));
        }
        let executions = server.get(&format!("/api/v1/schedules/{schedule}/executions?limit=1000")).await.json();
        for execution in executions["items"].as_array().unwrap() {
            let at: DateTime<Utc> = execution["scheduledAt"].as_str().unwrap().parse().unwrap();
            let job =
                jobs.remove(&format!("f_{schedule}_{}", at.timestamp_millis())).expect("a job with the fire's id");
            let data = json!({
                "n": 7, "e": [], "_schedulerId": schedule, "_executionId": execution["id"],
                "_scheduledAt": execution["scheduledAt"],
            });
            assert_eq!((&job["data"], &job["opts"]["attempts"]), (&data, &json!(2)));
            assert_eq!(execution["status"], "completed");
        }
        assert!(jobs.is_empty(), "{jobs:?}");
        let task = server.get(&format!("/api/v1/tasks/{}", ids[3])).await.json();
        assert_eq!((&task["result"], &task["attempt"]), (&json!({"did": 3}), &json!(1)), "{task}");
    }
    assert_eq!(database.number("SELECT count(*) FROM punctual_hand_overs").await, 0);
    server.stop();
}

async fn an_execution_is_dispatched_until_the_queue_says_how_it_ended(database: Database) {
    let (redis, server) = serve(&database);
    let Some(mut fleet) = fleet(&server, &redis, "bullmq6", "jobs").await else { return };
    let schedule = schedule(&server, "jobs").await;
    let task = server.post(&format!("/api/v1/schedules/{schedule}/trigger"), "").await.json();
    until_handed_over(&database, 1).await;
    let path = format!("/api/v1/schedules/{schedule}/executions");
    let execution = &server.get(&path).await.json()["items"][0];
    assert_eq!(execution["status"], "dispatched", "{execution}");
    for (status, count) in [("dispatched", 1), ("running", 0)] {
        let found = server.get(&format!("{path}?status={status}")).await.json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{status}");
    }
    let id = task["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/v1/tasks/{id}")).await.json()["status"], "running");
    let why = server.get(&format!("/api/v1/why/{id}")).await.json();
    let said = why["reasons"][0]["message"].as_str().unwrap();
    assert!(said.starts_with("it was handed to the queue jobs of BullMQ at "), "{said}");
    fleet.tell("worker");
    server.ended_task(id).await;
    assert_eq!(server.get(&path).await.json()["items"][0]["status"], "completed");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_handed_to_a_paused_queue_runs_when_it_goes_on() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        for has_jobs in [false, true] {
            let queue = format!("{release}-{has_jobs}");
            let Some(mut fleet) = fleet(&server, &redis, release, &queue).await else { return };
            let mut expected = Vec::new();
            let mut hand_over = async |count: usize| {
                let tasks = (0..count).map(|n| json!({"topic": queue, "payload": {"n": n}})).collect();
                expected.extend(make_all(&server, tasks).await.into_iter().map(|id| format!("t_{id}")));
                until_handed_over(&database, expected.len() as i64).await;
            };
            if has_jobs {
                hand_over(3).await;
                fleet.tell("add before");
            }
            fleet.tell("pause");
            hand_over(5).await;
            fleet.tell("add during");
            hand_over(2).await;
            fleet.tell("worker");
            fleet.tell("resume");
            let count = expected.len() + if has_jobs { 2 } else { 1 };
            let jobs = fleet.jobs(count);
            assert!(
                expected.iter().all(|id| jobs.contains_key(id)) && jobs.contains_key("during"),
                "{queue}: {jobs:?}"
            );
            until_handed_over(&database, 0).await;
        }
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_begins_when_the_task_is_due() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        server.ended_task(&make(&server, json!({"topic": release})).await).await;
        // A machine that halts for a moment does not do so three times.
        for round in 1..=3 {
            let late = lateness(&server, &mut fleet, release, round).await;
            println!(
                "{release}: a blocked worker began {} ms (p50), {} ms (p99) after the instant",
                late[50], late[98]
            );
            assert!(late[0] >= 0, "{} ms early", -late[0]);
            // One that nobody wakes looks every five seconds at the soonest.
            assert!(late[50] < 1_000, "{release}: {late:?}");
            // The rest is for a machine that has nothing else to do.
            if !is_soak() || late[98] <= 50 {
                break;
            }
            assert!(round < 3, "{release}: {late:?}");
        }
    }
    server.stop();
}

/// How late the jobs of a hundred tasks begin, one every 20 ms, in milliseconds and in order.
async fn lateness(server: &Server, fleet: &mut Fleet, topic: &str, round: usize) -> Vec<i64> {
    let due = |n: i64| Utc::now() + TimeDelta::milliseconds(1_000 + 20 * n);
    let instants: Vec<_> = (0..100).map(due).collect();
    let task = |at: &DateTime<Utc>| json!({"topic": topic, "runAt": at.to_rfc3339(), "timezone": "UTC"});
    let ids = make_all(server, instants.iter().map(task).collect()).await;
    let jobs = fleet.jobs(1 + 100 * round);
    let mut late: Vec<i64> = ids
        .iter()
        .zip(&instants)
        .map(|(id, at)| jobs[&format!("t_{id}")]["at"].as_i64().unwrap() - at.timestamp_millis())
        .collect();
    late.sort_unstable();
    late
}

/// The database is what it was before, as after a crash or from a backup; the queue is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_hand_over_of_the_same_id_does_nothing() {
    for release in RELEASES {
        let (database, redis) = (Database::sqlite(), Redis::start());
        let Some(mut fleet) = Fleet::start(&redis, release, "jobs") else { return };
        let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()).arg("--paused"));
        define(&server, "jobs").await;
        let tasks = [json!({"n": 1}), json!({"n": 2, "fails": 9})];
        let tasks = tasks.map(|payload| json!({"topic": "jobs", "payload": payload}));
        let ids = make_all(&server, tasks.to_vec()).await;
        server.stop();
        let saved = database.folder.path().join("saved.db");
        database.execute(format!("VACUUM INTO '{}'", saved.display())).await;
        let restore = || {
            for file in ["punctual.db-wal", "punctual.db-shm"] {
                let _ = std::fs::remove_file(database.folder.path().join(file));
            }
            std::fs::copy(&saved, database.folder.path().join("punctual.db")).unwrap();
        };
        let handed_over = async |server: &Server, result: &str| {
            let sample = format!("punctual_hand_overs_total{{result=\"{result}\"}}");
            server.samples(|samples| samples.value(&sample) == Some(2.0)).await;
        };
        let server = serve_by(&database, &redis);
        handed_over(&server, "queued").await;
        server.stop();

        restore();
        let server = serve_by(&database, &redis);
        handed_over(&server, "was_there").await;
        fleet.tell("worker");
        fleet.jobs(2);
        let ended = async |server: &Server| {
            let (done, failed) = (server.ended_task(&ids[0]).await, server.ended_task(&ids[1]).await);
            assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!({"did": 1})), "{done:#}");
            assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("no 1")), "{failed:#}");
        };
        ended(&server).await;
        server.stop();

        // Both have ended there; what they ended with is what counts.
        restore();
        let server = serve_by(&database, &redis);
        handed_over(&server, "was_there").await;
        ended(&server).await;
        server.stop();
        assert_eq!(fleet.jobs(2).len(), 2, "each ran once");
    }
}
