//! Backups made while a service works, and what becomes of them elsewhere.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::process::Command;

use serde_json::Value;

use crate::support::{Database, Server, punctual};

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The ids of a schedule's executions, all of them.
async fn executions(server: &Server, schedule: &str) -> HashSet<String> {
    let page = server.get(&format!("/api/v1/schedules/{schedule}/executions?limit=1000")).await.json();
    assert_eq!(page["nextCursor"], Value::Null);
    page["items"].as_array().unwrap().iter().map(|fire| fire["id"].as_str().unwrap().to_owned()).collect()
}

async fn fires_every_second(server: &Server) -> String {
    let schedule = r#"{"name":"busy","everyMs":1000,"timezone":"UTC","topic":"echo","overlapPolicy":"allow"}"#;
    let made = server.post("/api/v1/schedules", schedule).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

/// Waits until a schedule has fired so often.
async fn fired(server: &Server, schedule: &str, times: usize) -> HashSet<String> {
    loop {
        let seen = executions(server, schedule).await;
        if seen.len() >= times {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_holds_everything_of_its_moment_and_fires_nothing_again() {
    let (here, elsewhere) = (Database::sqlite(), Database::sqlite());
    let server = Server::start(&here);
    let schedule = fires_every_second(&server).await;
    let (made, is_enough) = (RefCell::new(Vec::new()), Cell::new(false));
    let (server_ref, made_ref, enough_ref) = (&server, &made, &is_enough);
    let load = ["", r#","delayMs":3600000"#, "", r#","delayMs":1000"#].map(|due| async move {
        while !enough_ref.get() {
            let task = server_ref.make_task(&format!(r#"{{"topic":"echo"{due}}}"#)).await;
            made_ref.borrow_mut().push(task["id"].as_str().unwrap().to_owned());
        }
    });
    let file = here.folder.path().join("backup.db");
    let backup = async {
        let fires = fired(&server, &schedule, 3).await;
        let answered = made.borrow().clone();
        let mut backup = punctual(here.folder.path());
        backup.arg("backup").arg(&file).env("DATABASE_URL", &here.url);
        let (code, out, error) = tokio::task::spawn_blocking(move || run(&mut backup)).await.unwrap();
        assert!(code == Some(0) && out.contains("backup.db has "), "{out}{error}");
        let late = server.make_task(r#"{"topic":"echo"}"#).await;
        is_enough.set(true);
        (fires, answered, late)
    };
    let (_, (fires, answered, late)) = futures::future::join(futures::future::join_all(load), backup).await;
    assert!(answered.len() > 50, "{} tasks", answered.len());

    let restore = |file: &std::path::Path| {
        run(punctual(elsewhere.folder.path()).arg("restore").arg(file).env("DATABASE_URL", &elsewhere.url))
    };
    let (code, out, error) = restore(&file);
    assert!(code == Some(0) && out.contains("serve --paused"), "{out}{error}");
    let restored = Server::start_with(&elsewhere, |command| command.arg("--paused"));
    for id in &answered {
        assert_eq!(restored.get(&format!("/api/v1/tasks/{id}")).await.status, 200, "{id} was answered before");
    }
    let late = format!("/api/v1/tasks/{}", late["id"].as_str().unwrap());
    restored.get(&late).await.problem(404, "NOT_FOUND");
    let kept = executions(&restored, &schedule).await;
    assert!(fires.is_subset(&kept), "{fires:?} {kept:?}");

    // The one goes on, the other stands still.
    let completed = restored.get("/api/v1/tasks?status=completed&limit=1000").await.text;
    fired(&server, &schedule, kept.len() + 3).await;
    assert_eq!(executions(&restored, &schedule).await, kept);
    assert_eq!(restored.get("/api/v1/tasks?status=completed&limit=1000").await.text, completed);
    assert_eq!(restored.get("/readyz").await.json()["status"], "paused");
    // Until it is told to go on; what fired before does not fire again.
    assert_eq!(restored.post("/api/v1/resume", "").await.status, 200);
    fired(&restored, &schedule, kept.len() + 2).await;
    let proof = restored.get("/api/v1/prove?schedule=busy&from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z").await;
    let proof = &proof.json()["schedules"][0];
    assert_eq!((&proof["double"], &proof["missing"]), (&serde_json::json!([]), &serde_json::json!([])), "{proof:#}");
    restored.stop();
    server.stop();
}

#[test]
fn nothing_is_overwritten_and_nothing_else_is_taken_for_a_backup() {
    let database = Database::sqlite();
    let folder = database.folder.path();
    let of = |arguments: &[&str]| run(punctual(folder).args(arguments).env("DATABASE_URL", &database.url));
    let (code, _, error) = of(&["backup", "a.db"]);
    assert!(code == Some(1) && error.contains("there is no database at"), "{error}");
    assert_eq!(of(&["migrate"]).0, Some(0));
    assert_eq!(of(&["backup", "a.db"]).0, Some(0));
    std::fs::write(folder.join("text"), "once upon a time").unwrap();
    let other = ["--database", "sqlite://other.db"];
    for (arguments, part) in [
        (&["backup", "a.db"][..], "a.db is there already"),
        (&["backup", "nowhere/a.db"], "nowhere/a.db"),
        (&["restore", "a.db"], "is there already: move it away"),
        (&["restore", "missing.db", other[0], other[1]], "there is no backup at missing.db"),
        (&["restore", "text", other[0], other[1]], "is not a SQLite database"),
    ] {
        let (code, out, error) = of(arguments);
        assert!(code == Some(1) && out.is_empty() && error.contains(part), "{arguments:?}: {error}");
    }
    let server = Server::start(&database);
    let (code, _, error) = of(&["restore", "a.db"]);
    assert!(code == Some(1) && error.contains("in use by another punctual process"), "{error}");
    server.stop();
    assert_eq!(of(&["restore", "a.db", other[0], other[1]]).0, Some(0));
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!files.iter().any(|name| name.to_string_lossy().contains(".part")), "{files:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_postgresql_the_commands_that_are_named_do_it() {
    let (Some(here), Some(elsewhere)) = (Database::postgres().await, Database::postgres().await) else { return };
    let server = Server::start(&here);
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    let schedule = fires_every_second(&server).await;
    let fires = fired(&server, &schedule, 2).await;
    for (database, command) in [(&here, "backup"), (&elsewhere, "restore")] {
        let folder = here.folder.path();
        let (code, _, error) =
            run(punctual(folder).args([command, "punctual.dump"]).env("DATABASE_URL", &database.url));
        assert_eq!(code, Some(1), "nothing was done yet: {error}");
        let named = error.lines().last().unwrap();
        assert!(named.trim().starts_with("pg_") && !error.contains("***@"), "{error}");
        // What only we understand of the URL is not for PostgreSQL's own tools.
        let (url, _) = database.url.split_once('?').unwrap_or((&database.url, ""));
        let mut shell = Command::new("sh");
        let (code, out, error) = run(shell.args(["-ec", named]).current_dir(folder).env("DATABASE_URL", url));
        assert_eq!(code, Some(0), "{named}: {out}{error}");
    }
    let restored = Server::start_with(&elsewhere, |command| command.arg("--paused"));
    let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(restored.get(&path).await.json()["status"], "pending");
    assert!(fires.is_subset(&executions(&restored, &schedule).await));
    restored.stop();
    server.stop();
}
