//! `punctual demo`: alive at once, nothing left at the end.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Process, Server, punctual};

/// A demo whose temporary files are in a folder of the test's own.
fn demo(folder: &Path) -> Server {
    let mut command: Command = punctual(folder);
    command.args(["demo", "--listen", "127.0.0.1:0"]).env("PUNCTUAL_LOG", "info").env("TMPDIR", folder);
    // What configures a service of somebody's own is none of the demo's business.
    command.envs([("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing"), ("PUNCTUAL_PLUGINS", "no-such-plugin")]);
    Server::listening(Process::start(&mut command))
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

#[tokio::test]
async fn the_demo_has_something_of_everything() {
    let folder = TempDir::new().unwrap();
    let server = demo(folder.path());
    // The last thing that is told before only customers and workers go on.
    let expired = "/api/v1/schedules?name=certificateExpiry";
    let id = server.wait_for(expired, |found| !items(found).is_empty()).await["items"][0]["id"].clone();
    let executions = format!("/api/v1/schedules/{}/executions?limit=40", id.as_str().unwrap());
    let past = server.wait_for(&executions, |past| items(past).len() >= 29).await;
    assert!(items(&past).iter().all(|execution| execution["kind"] == "backfill"), "{past}");

    let schedules = server.get("/api/v1/schedules?limit=100").await.json();
    let schedules = items(&schedules);
    let zones: std::collections::BTreeSet<_> = schedules.iter().map(|one| one["timezone"].as_str().unwrap()).collect();
    assert!(zones.len() >= 10, "{zones:?}");
    assert!(schedules.iter().any(|one| one["pauseNote"].is_string() && one["enabled"] == false));
    assert!(schedules.iter().any(|one| one["excludeCalendars"][0] == "office-closed"));

    server.wait_for("/api/v1/tasks?status=failed&limit=100", |failed| causes(failed) >= 4).await;
    server.wait_for("/api/v1/tasks?status=completed&topic=shop.pulse", |done| !items(done).is_empty()).await;
    server.wait_for("/api/v1/tasks?status=completed&topic=partners.notify", |done| !items(done).is_empty()).await;
    server.wait_for("/api/v1/tasks?status=pending&topic=pictures.resize", |waiting| !items(waiting).is_empty()).await;
    for plugin in ["signup", "clearpath"] {
        let path = format!("/api/v1/plugins/{plugin}/sessions");
        server.wait_for(&path, |sessions| !items(sessions).is_empty()).await;
    }
    server.wait_for("/api/v1/plugins/operations/events", |events| !items(events).is_empty()).await;
    let has = |outbox: &Value, status: &str| items(outbox).iter().any(|message| message["status"] == status);
    server.wait_for("/api/v1/outbox?limit=100", |outbox| has(outbox, "sent") && has(outbox, "failed")).await;
}

/// How many different errors tasks have failed with.
fn causes(failed: &Value) -> usize {
    let errors = items(failed).iter().map(|task| task["error"].as_str().unwrap());
    errors.collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn ctrl_c_ends_the_demo_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let mut server = demo(folder.path());
    assert!(!is_empty(folder.path()));
    server.process.signal("INT");
    assert_eq!(server.process.wait().code(), Some(0));
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn a_second_signal_ends_the_demo_at_once_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let mut server = demo(folder.path());
    let long = r#"{"topic": "shop.long", "payload": {"takesMs": [600000, 600000]}}"#;
    let id = server.make_task(long).await["id"].as_str().unwrap().to_owned();
    server.wait_for(&format!("/api/v1/tasks/{id}"), |task| task["status"] == "running").await;
    server.process.signal("INT");
    server.process.wait_for_log("service stopping");
    server.process.signal("INT");
    server.process.wait();
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn the_demo_refuses_to_be_open_to_everybody() {
    let folder = TempDir::new().unwrap();
    let mut command = punctual(folder.path());
    command.args(["demo", "--listen", "0.0.0.0:0"]).env("TMPDIR", folder.path());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("would let anybody in"), "{said}");
    assert!(is_empty(folder.path()));
}
