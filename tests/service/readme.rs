//! The README's first minute, as it is written.

use std::process::Command;

use crate::support::{Database, Server};

#[test]
fn the_first_command_of_all_runs_the_service() {
    let readme = include_str!("../../README.md");
    let first = readme.split("```").nth(1).unwrap().trim_start_matches("sh\n").lines().next().unwrap();
    assert_eq!(first, "cargo run --release -- serve");

    // Of the programs in this workspace, the one that it means is the service.
    let question = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let asked = Command::new(env!("CARGO")).args(question).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let workspace: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    let runs: Vec<_> =
        workspace["packages"].as_array().unwrap().iter().map(|package| &package["default_run"]).collect();
    let named: Vec<_> = runs.into_iter().filter(|run| !run.is_null()).collect();
    assert_eq!(named, ["punctual"]);
}

#[tokio::test]
async fn the_first_minute_works_as_written() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let here = server.url.trim_start_matches("http://");
    let readme = include_str!("../../README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("The first minute")).unwrap();
    let blocks: Vec<_> = section.split("```").skip(1).step_by(2).filter(|block| block.contains("curl ")).collect();
    assert_eq!(blocks.len(), 2);

    let run = |block: &str| {
        let script = block.trim_start_matches("sh\n").replace("localhost:7878", here).replace("curl ", "curl -sS ");
        let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let answers = run(blocks[0]);
    assert!(answers.contains("HTTP/1.1 201") && answers.contains(r#""status":"ready""#), "{answers}");
    assert!(answers.contains("2036-12-01T21:37:00.000Z") && !answers.contains("urn:punctual:problem"), "{answers}");
    let refusal = run(blocks[1]);
    for field in ["topic", "timezone", "retry.backoff.type"] {
        assert!(refusal.contains(&format!(r#""field":"{field}""#)), "{refusal}");
    }
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len(), 3);
    server.stop();
}
