//! Nodes that die, and nodes that stall: what they held is done by the others, and what they say too late does not count.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bed::{
    LEASE, node, outcomes, queue, scaled, scaled_seconds, tasks, until_all_ended, until_ended, until_running,
};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(a_node_that_is_killed_and_started_again_repeats_only_what_it_held);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_wakes_up_after_its_leases_ended_changes_nothing() {
    let Some(database) = Database::postgres().await else { return };
    queue(&database, "bed.sleep", json!({"ms": 3_000, "againMs": 1}), 20).await;
    queue(&database, "bed.stall", json!({"ms": 500}), 1).await;
    // With one thread, the outcome of what stalled it is out before it can see that its leases have ended.
    let mut stalled = node(&database, &[("TOKIO_WORKER_THREADS", "1")]);
    until_running(&database, 21).await;
    let claimed_at = Instant::now();
    let other = node(&database, &[]);
    until_all_ended(&database).await;
    tokio::time::sleep((3 * LEASE).saturating_sub(claimed_at.elapsed())).await;
    let before = show(&other).await;
    assert_eq!(before.len(), 21);
    for task in &before {
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!(2)), "{task}");
        assert_eq!(outcomes(task), ["lost", "completed"], "{task}");
    }

    stalled.process.signal("CONT");
    stalled.process.wait_for_log("lease lost");
    // It is well again, and whatever else it has to say is said when it has stopped.
    assert_eq!(stalled.get("/readyz").await.status, 200);
    stalled.process.signal("TERM");
    assert_eq!(stalled.process.wait().code(), Some(0));
    let refused = stalled.process.log().iter().filter(|line| line.contains("lease lost")).count();
    println!("{refused} of 21 late settles refused, the other attempts were stopped before");
    assert_eq!(show(&other).await, before);
    other.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_node_held_is_done_by_the_other_and_nothing_else_is_done_twice() {
    let Some(database) = Database::postgres().await else { return };
    let count = scaled(10_000, 100_000);
    queue(&database, "bed.count", json!({"ms": 5}), count).await;
    let other = node(&database, &[]);
    let mut killed = node(&database, &[]);
    let node_id = node_id(&killed.process.wait_for_log("service started"));
    until_ended(&database, count / 2).await;
    killed.process.signal("KILL");
    assert_eq!(killed.process.wait().code(), None, "it was killed");
    let held = database.number(&format!("SELECT count(*) FROM punctual_tasks WHERE lease_owner = '{node_id}'")).await;
    // By the database's clock, in microseconds.
    let killed_at = database.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
    until_all_ended(&database).await;

    let number = async |statement: &str| database.number(statement).await;
    assert_eq!(number("SELECT count(*) FROM punctual_task_history WHERE status = 'completed'").await, count as i64);
    assert_eq!(number("SELECT count(*) FROM bed_counts").await, count as i64);
    let again = number("SELECT coalesce(sum(again), 0)::bigint FROM bed_counts").await;
    assert!(again <= held, "{again} were run again, and the killed node held {held}");
    let by = async |owner: &str| {
        number(&format!("SELECT count(*) FROM punctual_task_history WHERE last_node_id {owner} '{node_id}'")).await
    };
    println!(
        "of {count} tasks the killed node ended {}, the other {}; it held {held}, of which {again} had run before",
        by("=").await,
        by("<>").await
    );
    let last = |of: &str| {
        format!(
            "SELECT coalesce((extract(epoch FROM max({of})) * 1000000)::bigint, {killed_at}) - {killed_at}
             FROM punctual_attempts WHERE outcome = 'lost' AND node_id = '{node_id}'"
        )
    };
    let freed = Duration::from_micros(number(&last("ended_at")).await.max(0) as u64);
    println!("all were free again {freed:?} after the kill, with leases of {LEASE:?}");
    assert!(freed < LEASE + scaled_seconds(30, 1), "they were free again only after {freed:?}");
    other.stop();
}

async fn a_node_that_is_killed_and_started_again_repeats_only_what_it_held(mut database: Database) {
    let count = scaled(2_000, 20_000);
    queue(&database, "bed.count", json!({"ms": 5}), count).await;
    let mut killed = node(&database, &[]);
    until_ended(&database, count / 2).await;
    killed.process.signal("KILL");
    assert_eq!(killed.process.wait().code(), None, "it was killed");
    let held = database.number("SELECT count(*) FROM punctual_tasks WHERE status = 'running'").await;
    let server = node(&database, &[]);
    until_all_ended(&database).await;
    let completed = database.number("SELECT count(*) FROM punctual_task_history WHERE status = 'completed'").await;
    assert_eq!(completed, count as i64);
    server.stop();

    // On SQLite the counts are in a file beside the service's.
    database.url = database.url.replace("/punctual.db", "/bed.db");
    assert_eq!(database.number("SELECT count(*) FROM bed_counts").await, count as i64);
    let again = database.number("SELECT cast(coalesce(sum(again), 0) AS bigint) FROM bed_counts").await;
    println!("the killed node held {held} of {count}, of which {again} had run before");
    assert!(again <= held, "{again} were run again, and the killed node held {held}");
}

/// The node's id out of the line in which it says that it started.
fn node_id(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    line["node_id"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned()
}

/// Every task, with its attempts.
async fn show(server: &Server) -> Vec<Value> {
    let mut shown = Vec::new();
    for task in tasks(server, "").await {
        shown.push(server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json());
    }
    shown
}
