//! The command line: what it prints, where, and with which exit code.

use std::process::{Command, Output};

use crate::on_each_database;
use crate::support::{Database, Server, punctual};

on_each_database!(migrations_are_listed_then_applied, a_healthy_database_pleases_the_doctor);

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

async fn migrations_are_listed_then_applied(database: Database) {
    let migrate = |more: &[&str]| {
        let mut command = punctual(database.folder.path());
        run(command.arg("migrate").args(more).env("DATABASE_URL", &database.url))
    };
    for _ in 0..2 {
        let (code, out, error) = migrate(&["--dry-run"]);
        assert!(code == Some(0) && out.contains("would apply 0001_tasks"), "{out}{error}");
    }
    let mut serve = punctual(database.folder.path());
    serve.args(["serve", "--no-migrate", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", &database.url);
    let (code, _, error) = run(&mut serve);
    assert!(code == Some(1) && error.contains("punctual migrate"), "{error}");
    let (code, out, _) = migrate(&[]);
    assert!(code == Some(0) && out.contains("applied 0001_tasks"), "{out}");
    let (code, out, _) = migrate(&[]);
    assert!(code == Some(0) && out.contains("nothing to do"), "{out}");
}

async fn a_healthy_database_pleases_the_doctor(database: Database) {
    let doctor = |more: &[&str]| {
        let mut command = punctual(database.folder.path());
        run(command.arg("doctor").args(more).env("DATABASE_URL", &database.url))
    };
    let (code, out, _) = doctor(&[]);
    assert!(code == Some(0) && out.contains("punctual migrate"), "{out}");
    Server::start(&database).stop();
    let (code, out, error) = doctor(&["--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    assert!(code == Some(0) && report["ok"] == true, "{report:#}");
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["state"] == "ok"), "{report:#}");

    let server = Server::start(&database);
    server.put_topic("queued", r#"{"route": {"type": "bullmq", "queue": "jobs"}}"#).await;
    let missed = "note    redis          not configured, and needed by topics with the route bullmq: queued";
    let (code, out, _) = doctor(&[]);
    assert!(code == Some(0) && out.contains(missed), "beside a service: {out}");
    server.stop();
    let (code, out, _) = doctor(&[]);
    assert!(code == Some(0) && out.contains(missed), "{out}");

    let (code, out, _) = doctor(&["--redis", "redis://:swordfish@127.0.0.1:1"]);
    assert!(code == Some(1) && out.contains("FAILED  redis") && !out.contains("swordfish"), "{out}");
}

#[test]
fn without_a_command_it_helps() {
    let folder = tempfile::tempdir().unwrap();
    let (code, out, error) = run(&mut punctual(folder.path()));
    assert!(code == Some(0) && out.contains("Usage: punctual") && error.is_empty(), "{out}{error}");
    for arguments in [vec!["--help"], vec!["serve", "--help"], vec!["config", "--help"], vec!["--version"]] {
        let (code, out, _) = run(punctual(folder.path()).args(&arguments));
        assert!(code == Some(0) && !out.is_empty(), "{arguments:?}");
    }
    for arguments in [vec!["nonsense"], vec!["serve", "--nonsense"], vec!["serve", "--listen"]] {
        let (code, out, error) = run(punctual(folder.path()).args(&arguments));
        assert!(code == Some(2) && out.is_empty() && error.contains("--help"), "{arguments:?}: {error}");
    }
}

#[test]
fn all_errors_of_a_configuration_come_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = [("PUNCTUAL_LISTEN", "nonsense"), ("POLL_INTERVAL_MS", "-1")];
    for arguments in [vec!["config", "check"], vec!["config", "show"], vec!["serve"], vec!["doctor"]] {
        let (code, out, error) = run(punctual(folder.path()).args(&arguments).envs(wrong));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(
            error.contains("PUNCTUAL_LISTEN is \"nonsense\"") && error.contains("POLL_INTERVAL_MS is \"-1\""),
            "{error}"
        );
    }
    for (name, url) in
        [("REDIS_URL", "redis://:swordfish@cache:99999"), ("DATABASE_URL", "postgres://me:swordfish@db:0/app")]
    {
        let (code, _, error) = run(punctual(folder.path()).args(["config", "check"]).env(name, url));
        assert!(code == Some(1) && error.contains(name) && error.contains("1 to 65535"), "{error}");
        assert!(!error.contains("swordfish"), "{error}");
    }
    let (code, shown, error) = run(punctual(folder.path()).args(["config", "show"]).env("RESEND_API_KEY", "swordfish"));
    assert_eq!(code, Some(0), "{error}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("notify.webhook_secrets").contains("(none)"), "nobody set it: {shown}");
    assert!(line("notify.resend_api_key").contains("***") && !shown.contains("swordfish"), "{shown}");
    let (code, _, error) = run(punctual(folder.path()).args(["config", "check", "--config", "missing.toml"]));
    assert!(code == Some(1) && error.contains("missing.toml cannot be read"), "{error}");
}

#[test]
fn a_configuration_is_shown_with_its_sources_and_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("config")).unwrap();
    std::fs::write(folder.path().join("config/punctual.toml"), "lease_seconds = \"1m\"\n").unwrap();
    let mut command = punctual(folder.path());
    let secrets = [("DATABASE_URL", "postgres://me:swordfish@db/app"), ("SMTP_URL", "smtp://me:swordfish@mail")];
    let (code, out, error) = run(command.args(["config", "show"]).envs(secrets).env("PUNCTUAL_LISTN", "x"));
    assert_eq!(code, Some(0), "{error}");
    let line = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("lease_seconds").contains("1m") && line("lease_seconds").contains("config/punctual.toml"), "{out}");
    assert!(line("database.url").contains("postgres://me:***@db/app") && line("database.url").contains("DATABASE_URL"));
    assert!(line("listen").ends_with("default") && !out.contains("swordfish"), "{out}");
    assert!(error.contains("PUNCTUAL_LISTN"), "{error}");
}

#[test]
fn a_service_that_cannot_start_says_why() {
    let database = Database::sqlite();
    let serve = |arguments: &[&str]| {
        run(punctual(database.folder.path()).arg("serve").args(arguments).env("DATABASE_URL", &database.url))
    };
    for (arguments, why) in [
        (&["--listen", "0.0.0.0:0"][..], "no API keys"),
        (&["--listen", "127.0.0.1:0", "--database", "sqlite:///nowhere/at/all.db"], "/nowhere/at"),
        (&["--listen", "127.0.0.1:0", "--database", "postgres://me:swordfish@127.0.0.1:1/x"], "me:***@127.0.0.1:1"),
    ] {
        let (code, out, error) = serve(arguments);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{error}");
        assert!(error.contains(why) && !error.contains("swordfish"), "{why}: {error}");
    }
    assert!(!database.folder.path().join("punctual.db").exists(), "what cannot start leaves no database behind");
}

#[test]
fn a_doctor_who_finds_no_file_says_so_and_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    for (url, code, parts) in [
        ("sqlite://my%20tasks.db", 0, ["note    database", "/my tasks.db yet", "`punctual serve` creates it"]),
        ("sqlite://none/punctual.db", 1, ["FAILED  database", "the folder ", "create it"]),
    ] {
        let (found, out, _) = run(punctual(folder.path()).arg("doctor").env("DATABASE_URL", url));
        assert!(found == Some(code) && !out.contains("schema "), "{out}");
        for part in parts {
            assert!(out.contains(part), "{part}: {out}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{url}");
    }
}

#[tokio::test]
async fn a_doctor_does_not_wait_for_a_database_twice() {
    let folder = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://me@{}/app", listener.local_addr().unwrap());
    let mut command = punctual(folder.path());
    command.arg("doctor").env("DATABASE_URL", url);
    let mut doctor = tokio::task::spawn_blocking(move || run(&mut command));
    // Whoever connects is hung up on.
    let mut callers = 0;
    let (code, out, _) = loop {
        tokio::select! {
            told = &mut doctor => break told.unwrap(),
            _ = listener.accept() => callers += 1,
        }
    };
    assert!(code == Some(1) && out.contains("FAILED  database"), "{out}");
    assert!(out.contains("not configured; only topics with the route bullmq need it"), "{out}");
    assert_eq!(callers, 1, "{out}");
}

#[tokio::test]
async fn a_second_service_on_one_sqlite_file_is_refused() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let mut command = punctual(database.folder.path());
    let (code, _, error) = run(command.args(["serve", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", &database.url));
    assert!(code == Some(1) && error.contains("in use"), "{error}");
    let (code, out, _) = run(punctual(database.folder.path()).arg("doctor").env("DATABASE_URL", &database.url));
    assert!(
        code == Some(0) && out.contains("in use by a punctual that runs") && out.contains("nothing to do"),
        "{out}"
    );
    assert!(!out.contains("FAILED") && !out.contains("PostgreSQL"), "nothing is wrong: {out}");
    server.stop();
}

#[test]
fn the_next_instants_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["next", "30 8 * * *", "--tz", "America/Edmonton", "--after", "2026-11-16T00:00:00Z", "--count", "1"];
    let (code, out, _) = run(punctual(folder.path()).args(arguments));
    assert_eq!((code, out.trim()), (Some(0), "2026-11-16T14:30:00Z"));
    let (code, _, error) = run(punctual(folder.path()).args(["next", "0 0 30 2 *", "--tz", "UTC"]));
    assert!(code == Some(1) && !error.is_empty());
}
