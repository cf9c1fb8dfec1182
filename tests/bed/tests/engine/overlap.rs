//! Fires that come before the last one's task has ended.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bed::{node, outcomes, scaled, tasks};
use crate::cluster::{Clock, Cluster, Terms};
use crate::on_each_database;
use crate::support::{Database, Server, punctual};

on_each_database!(
    cancel_previous_stops_the_attempt_that_runs_and_starts_the_next,
    skip_leaves_the_attempt_alone_and_says_why_there_was_no_other,
);

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

async fn make_schedule(server: &Server, policy: &str, every_ms: u64, ms: u64) -> String {
    let schedule = json!({
        "name": policy, "everyMs": every_ms, "timezone": "UTC", "topic": "bed.sleep", "overlapPolicy": policy,
        "payload": {"ms": ms},
    });
    let answer = server.post("/api/v1/schedules", schedule.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Waits for executions that will do, and answers them, the oldest first.
async fn executions(server: &Server, schedule: &str, will_do: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let asked_at = Instant::now();
    loop {
        let mut found = server.get(&format!("/api/v1/schedules/{schedule}/executions?limit=100")).await.json();
        let Value::Array(mut found) = found["items"].take() else { panic!("{found}") };
        found.reverse();
        if will_do(&found) {
            return found;
        }
        assert!(asked_at.elapsed() < PATIENCE, "{found:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_keeps_the_order_on_three_nodes_whose_leader_is_killed() {
    let clocks = vec![Clock::Right, Clock::Right, Clock::Right];
    let Some(mut cluster) = Cluster::start(Terms::scaled(), clocks).await else { return };
    // Each takes longer than it is until the next.
    let schedule = make_schedule(&cluster.nodes[0], "queue", 1_000, 1_200).await;
    let query = format!("scheduleId={schedule}&status=completed");
    let count = scaled(10, 40);
    let mut kills = 0;
    loop {
        let completed = tasks(&cluster.nodes[0], &query).await.len();
        if completed >= count {
            break;
        }
        if completed > (kills + 1) * count / 3 {
            cluster.kill_leader().await;
            kills += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut completed = tasks(&cluster.nodes[0], &query).await;
    completed.sort_by_key(|task| task["scheduledAt"].as_str().unwrap().to_owned());
    let mut nodes = std::collections::BTreeSet::new();
    let mut ended_at = String::new();
    for task in completed {
        let task = cluster.nodes[0].get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
        let attempts = task["attempts"].as_array().unwrap();
        let (last, before) = attempts.split_last().unwrap();
        assert!(
            before.iter().all(|attempt| attempt["outcome"] == "lost") && last["outcome"] == "completed",
            "{task:#}"
        );
        assert!(*attempts[0]["startedAt"].as_str().unwrap() >= *ended_at, "it began before {ended_at}: {task:#}");
        task["completedAt"].as_str().unwrap().clone_into(&mut ended_at);
        nodes.extend(attempts.iter().map(|attempt| attempt["nodeId"].as_str().unwrap().to_owned()));
    }
    println!("{count} in order, by {} nodes, with {kills} leaders killed", nodes.len());
    cluster.stop();
}

async fn cancel_previous_stops_the_attempt_that_runs_and_starts_the_next(database: Database) {
    let server = node(&database, &[("PUNCTUAL_DRAIN_SECONDS", "0")]);
    // With one slot, the next can start only when the last has really stopped.
    server.put_topic("bed.sleep", r#"{"route":{"type":"handler"},"concurrency":1}"#).await;
    let schedule = make_schedule(&server, "cancel_previous", 2_000, 60_000).await;
    let will_do = |found: &[Value]| found.iter().filter(|execution| !execution["startedAt"].is_null()).count() >= 3;
    let found = executions(&server, &schedule, will_do).await;
    for execution in &found[..2] {
        assert_eq!(execution["status"], "cancelled", "{found:#?}");
        let id = execution["taskId"].as_str().unwrap();
        assert_eq!(outcomes(&server.get(&format!("/api/v1/tasks/{id}")).await.json()), ["cancelled"]);
    }
    server.stop();
}

async fn skip_leaves_the_attempt_alone_and_says_why_there_was_no_other(database: Database) {
    let server = node(&database, &[("PUNCTUAL_DRAIN_SECONDS", "0")]);
    let schedule = make_schedule(&server, "skip", 1_000, 60_000).await;
    let found = executions(&server, &schedule, |found| found.len() >= 3).await;
    assert_eq!((&found[0]["status"], &found[0]["reason"]), (&json!("running"), &Value::Null), "{found:#?}");
    for execution in &found[1..] {
        let shown = (&execution["status"], &execution["reason"], &execution["taskId"]);
        assert_eq!(shown, (&json!("skipped"), &json!("overlap"), &Value::Null), "{found:#?}");
    }
    let mut why = punctual(database.folder.path());
    let output = why.args(["why", found[1]["id"].as_str().unwrap()]).env("PUNCTUAL_URL", &server.url).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("a task of an earlier fire had not ended, and its overlapPolicy is skip"), "{text}");
    server.stop();
}
