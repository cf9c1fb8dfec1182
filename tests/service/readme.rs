//! The README's first minute, as it is written.

use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::json;

use crate::support::{Database, Server, punctual};

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
    let schedules = server.get("/api/v1/schedules?name=morning%20report").await.json();
    assert_eq!((&schedules["items"][0]["enabled"], schedules["items"].as_array().unwrap().len()), (&json!(false), 1));
    server.stop();
}

/// What goes on until it is stopped, or takes a while; other tests run each of them.
const LEFT_OUT: [&str; 4] = ["punctual serve", "punctual demo", "punctual bench", "punctual events"];

#[tokio::test]
async fn the_other_commands_work_as_written() {
    let readme = include_str!("../../README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with("Other commands")).unwrap();
    let blocks: Vec<_> = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let [alone, beside_a_service, on_its_database] = blocks[..] else { panic!("{blocks:#?}") };
    let (of_its_own, served) = (Database::sqlite(), Database::sqlite());
    let server = Server::start(&served);
    let mut left_out = Vec::new();
    for (block, database) in [(alone, &of_its_own), (beside_a_service, &served), (on_its_database, &served)] {
        let binary = punctual(database.folder.path()).get_program().to_owned();
        let folder = tempfile::tempdir().unwrap();
        symlink(binary, folder.path().join("punctual")).unwrap();
        let path = std::env::join_paths(
            [folder.path().to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        for line in block.lines() {
            let command =
                line.split(" #").next().unwrap().trim_end().replace("--database URL", "--database \"$DATABASE_URL\"");
            assert!(command.starts_with("punctual "), "{line}");
            if let Some(name) = LEFT_OUT.iter().find(|name| command.starts_with(**name)) {
                left_out.push(*name);
                continue;
            }
            let output = Command::new("sh")
                .args(["-ec", &command])
                .current_dir(database.folder.path())
                .env("PATH", path.as_ref().unwrap())
                .envs([("DATABASE_URL", &database.url), ("PUNCTUAL_URL", &server.url)])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success() && !said.is_empty(), "{line}: {said}");
        }
    }
    left_out.sort_unstable();
    let mut expected = LEFT_OUT;
    expected.sort_unstable();
    assert_eq!(left_out, expected, "nothing else is left out");
    assert_eq!(server.get("/readyz").await.json()["status"], "paused", "by the command `pause`");
    assert!(of_its_own.folder.path().join("monday.db").exists(), "by the command `backup`");
    server.stop();
}
