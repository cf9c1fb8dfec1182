//! Stopping with more under way than can be finished.

use std::time::Instant;

use serde_json::json;

use crate::bed::{make_tasks, node, outcomes, paused_node, scaled_seconds, tasks, until_running};
use crate::on_each_database;
use crate::support::Database;

on_each_database!(what_a_stopping_node_cannot_finish_is_handed_back_as_if_it_had_not_begun);

/// Half of the attempts stop when they are told, half of them do not.
async fn what_a_stopping_node_cannot_finish_is_handed_back_as_if_it_had_not_begun(database: Database) {
    let mut server = node(&database, &[("PUNCTUAL_DRAIN_SECONDS", "5")]);
    let mut ids = make_tasks(&server, "bed.sleep", json!({"ms": 60_000}), 50).await;
    ids.extend(make_tasks(&server, "bed.hang", json!({}), 50).await);
    until_running(&database, 100).await;

    let told_at = Instant::now();
    server.process.signal("TERM");
    server.process.wait_for_log("service stopping");
    let ready = server.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["status"], "draining");
    assert_eq!(server.get("/livez").await.status, 200);
    assert_eq!(server.process.wait().code(), Some(0), "{:#?}", server.process.log());
    let stopped_after = told_at.elapsed();
    println!(
        "stopped {:.1} s after SIGTERM, with 100 attempts under way and 5 s to drain",
        stopped_after.as_secs_f64()
    );
    assert!(stopped_after < scaled_seconds(60, 7), "it stopped only after {stopped_after:?}");

    let server = paused_node(&database);
    assert_eq!(tasks(&server, "status=pending").await.len(), 100);
    for id in &ids {
        let task = server.get(&format!("/api/v1/tasks/{id}")).await.json();
        assert_eq!((&task["status"], &task["attempt"]), (&json!("pending"), &json!(0)), "{task}");
        assert_eq!(outcomes(&task), ["handed_back"], "{task}");
    }
    assert_eq!(database.number("SELECT count(*) FROM punctual_tasks WHERE lost > 0").await, 0);
    server.stop();
}
