//! The workers of `docs/workers.md`, as they are written.

use std::process::{Command, Output};

use serde_json::json;

use crate::support::{Database, Server};

/// The blocks of a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let all = include_str!("../../docs/workers.md").split("```").skip(1).step_by(2);
    all.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

fn check(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_worker_of_the_page_works_as_written() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let here = server.url.trim_start_matches("http://");
    let script = blocks("sh").join("\n").replace("localhost:7878", here).replace("curl ", "curl -sS ");
    check(&Command::new("sh").args(["-ec", &script]).output().unwrap());
    let worker = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("PUNCTUAL_URL", &server.url).env("ROUNDS", "1");
        check(&command.output().unwrap());
    };
    worker("python3", &["-c", blocks("python")[0]]);
    worker("node", &["--input-type=module", "-e", blocks("js")[0]]);

    let list = server.get("/api/v1/tasks?topic=resize").await.json();
    let mut by: Vec<_> = list["items"].as_array().unwrap().iter().map(|task| task["result"]["by"].clone()).collect();
    by.sort_by_key(|by| by.to_string());
    assert_eq!(json!(by), json!(["curl", "node", "python"]), "{list:#}");
    server.stop();
}
