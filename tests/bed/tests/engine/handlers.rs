//! Handlers that panic, hang, or take the process along.

use serde_json::json;

use crate::bed::{make_tasks, node, outcomes, paused_node, tasks, until_all_ended};
use crate::on_each_database;
use crate::support::Database;

on_each_database!(
    a_panic_fails_its_task_with_its_message_and_leaves_the_others_alone,
    a_hang_times_out_its_task_and_leaves_the_others_alone,
    a_task_that_kills_its_node_fails_after_three_losses_and_all_others_complete,
);

async fn a_panic_fails_its_task_with_its_message_and_leaves_the_others_alone(database: Database) {
    let server = node(&database, &[]);
    let slow = make_tasks(&server, "bed.sleep", json!({"ms": 300}), 20).await;
    let panicking = make_tasks(&server, "bed.panic", json!({"message": "out of cheese"}), 20).await;
    let retried =
        server.make_task(r#"{"topic":"bed.panic","retry":{"attempts":3,"backoff":{"type":"fixed","delay":1}}}"#).await;
    let quick = make_tasks(&server, "bed.quick", json!({}), 20).await;

    for id in &panicking {
        let task = server.ended_task(id).await;
        assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("panicked: out of cheese")), "{task}");
        assert_eq!(outcomes(&task), ["panicked"], "{task}");
    }
    let retried = server.ended_task(retried["id"].as_str().unwrap()).await;
    assert_eq!((&retried["status"], &retried["error"]), (&json!("failed"), &json!("panicked: boom")), "{retried}");
    assert_eq!(outcomes(&retried), ["panicked"; 3], "{retried}");
    for id in slow.iter().chain(&quick) {
        let task = server.ended_task(id).await;
        assert_eq!((&task["status"], outcomes(&task)), (&json!("completed"), vec!["completed"]), "{task}");
    }
    server.stop();
}

/// As many of them as the topic has slots, and more than that.
async fn a_hang_times_out_its_task_and_leaves_the_others_alone(database: Database) {
    let server = node(&database, &[]);
    let body = r#"{"topic":"bed.hang","timeoutSeconds":1}"#;
    let hanging = futures::future::join_all((0..60).map(|_| server.make_task(body))).await;
    let quick = make_tasks(&server, "bed.quick", json!({}), 20).await;
    for id in &quick {
        let task = server.ended_task(id).await;
        assert_eq!((&task["status"], outcomes(&task)), (&json!("completed"), vec!["completed"]), "{task}");
    }
    for task in hanging {
        let task = server.ended_task(task["id"].as_str().unwrap()).await;
        assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("timed out after 1 s")), "{task}");
        assert_eq!(outcomes(&task), ["timed_out"], "{task}");
    }
    server.stop();
}

/// All of them are running when the process dies for the first time; what restarts it is this test.
async fn a_task_that_kills_its_node_fails_after_three_losses_and_all_others_complete(database: Database) {
    let server = paused_node(&database);
    let good = make_tasks(&server, "bed.sleep", json!({"ms": 200}), 50).await;
    let aborting = make_tasks(&server, "bed.abort", json!({"ms": 100}), 1).await;
    server.stop();

    let mut deaths = 0;
    while database.number("SELECT count(*) FROM punctual_tasks").await > 0 {
        let mut server = node(&database, &[]);
        tokio::select! {
            () = until_all_ended(&database) => server.stop(),
            () = until_dead(&mut server) => deaths += 1,
        }
    }
    assert_eq!(deaths, 3);

    let server = paused_node(&database);
    let task = server.ended_task(&aborting[0]).await;
    assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("node died during attempt")), "{task}");
    assert_eq!(outcomes(&task), ["lost"; 3], "{task}");
    let mut lost = 0;
    for id in &good {
        let task = server.ended_task(id).await;
        let outcomes = outcomes(&task);
        assert_eq!((&task["status"], outcomes.last()), (&json!("completed"), Some(&"completed")), "{task}");
        assert!(outcomes.len() <= 2, "it was lost with the first death at the most: {task}");
        lost += outcomes.len() - 1;
    }
    println!("{lost} of 50 good tasks lost an attempt to the first death, none to the others");
    assert_eq!(tasks(&server, "status=completed").await.len(), good.len());
    server.stop();
}

/// Waits until a node has died by a signal of its own.
async fn until_dead(server: &mut crate::support::Server) {
    while server.process.ended().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(server.process.wait().code(), None, "it was aborted");
}
