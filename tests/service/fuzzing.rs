//! The API called in every way that its description allows and forbids, by schemathesis: nothing is answered that is not
//! described, what is valid is accepted, what is not is refused, and nothing breaks. `make fuzz-api` does it at length.

use std::process::Command;

use reqwest::Method;
use serde_json::Value;

use crate::on_each_database;
use crate::support::{ALL_PLUGINS, Answer, Database, Server, punctual};

on_each_database!(what_is_answered_is_as_described_whatever_is_asked);

/// How much is asked.
struct Effort {
    seeds: &'static [&'static str],
    phases: &'static str,
    /// Of each route, beside what covers its description.
    examples: &'static str,
    /// What is asked at the least, in all.
    calls: u64,
}

const ALL: &str = "examples,coverage,fuzzing,stateful";
const SHORT: Effort = Effort { seeds: &["1"], phases: ALL, examples: "2", calls: 2_000 };
/// The same without what covers every rule of the description: that asks for no more of the store.
const SHORTER: Effort = Effort { phases: "examples,fuzzing,stateful", examples: "4", calls: 200, ..SHORT };
const LONG: Effort = Effort { seeds: &["1", "2", "3"], phases: ALL, examples: "100", calls: 10_000 };

async fn what_is_answered_is_as_described_whatever_is_asked(database: Database) {
    let Ok(schemathesis) = std::env::var("TEST_SCHEMATHESIS") else {
        assert!(std::env::var_os("CI").is_none(), "TEST_SCHEMATHESIS is not set, and CI skips nothing");
        return eprintln!("skipped: TEST_SCHEMATHESIS is not set");
    };
    let effort = match std::env::var_os("PUNCTUAL_SOAK") {
        Some(_) => LONG,
        None if database.url.starts_with("sqlite:") => SHORT,
        None => SHORTER,
    };
    let made = punctual(database.folder.path())
        .args(["key", "create", "--name", "fuzz", "--role", "admin", "--json", "--database", &database.url])
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (key, key_id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let mut server = Server::start_with(&database, |command| {
        command.envs([("PUNCTUAL_RATE_LIMIT", "1000000"), ("PUNCTUAL_PLUGINS", ALL_PLUGINS)])
    });
    let pulled = server.request(Method::PUT, "/api/v1/topics/fuzz.pulled").bearer_auth(key);
    let pulled = pulled.header("content-type", "application/json").body(r#"{"route":{"type":"pull"}}"#);
    assert_eq!(Answer::to(pulled).await.status, 201);

    let mut calls = 0;
    for seed in effort.seeds {
        let output = Command::new(&schemathesis)
            .current_dir(database.folder.path())
            .env("FUZZ_KEY_ID", key_id)
            .env("SCHEMATHESIS_HOOKS", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/hooks.py"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/schemathesis.toml"), "run"])
            .arg(format!("{}/api/v1/openapi.json", server.url))
            .args(["--header", &format!("Authorization: Bearer {key}"), "--no-color", "--checks", "all"])
            .args(["--phases", effort.phases])
            // A stream has no end.
            .args(["--exclude-path", "/api/v1/events", "--seed", seed, "--max-examples", effort.examples])
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        println!("{report}");
        assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
        let generated = report.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse::<u64>().ok());
        calls += generated.expect("how many calls were made");
        assert_eq!(server.process.ended(), None);
    }
    assert!(calls >= effort.calls, "{calls} calls");
    // What a caller asks of a date that is over is written down as that, and answered.
    let is_broken = |line: &&String| line.contains("\"ERROR\"") && !line.contains("the instant of the rule is past");
    let broken: Vec<_> = server.process.log().iter().filter(is_broken).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    server.stop();
}
