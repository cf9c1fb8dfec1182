//! The calls in `docs/api.md`, as they are written, and its table of all that there are.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Contract, Database, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_api_page_works_as_written() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let here = server.url.trim_start_matches("http://");
    let blocks: Vec<_> = include_str!("../../docs/api.md").split("```").skip(1).step_by(2).collect();
    let script = blocks.iter().map(|block| block.trim_start_matches("sh\n")).collect::<Vec<_>>().join("\n");
    let script = script.replace("localhost:7878", here).replace("curl ", "curl -sS -w '\\n' ");
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!answers.contains("urn:punctual:problem"), "{answers}");
    for part in [
        "HTTP/1.1 201",
        r#"{"ids":["#,
        r#""attempts":[]"#,
        r#""runAt":"2036-12-01T21:37:00.000Z""#,
        r#""status":"cancelled""#,
        r#""status":"failed""#,
        r#""error":"no paper""#,
        r#""retryOf":""#,
    ] {
        assert!(answers.contains(part), "{part}: {answers}");
    }
    assert_eq!(answers.matches(r#"{"count":1}"#).count(), 2, "one failed, and its retry waits: {answers}");
    server.stop();
}

/// The calls of a row's first cell, such as ``POST /api/v1/pause`, `/resume``: what follows a path takes the place of its end.
fn calls(cell: &str) -> Vec<String> {
    let (mut calls, mut methods, mut path) = (Vec::new(), Vec::new(), String::new());
    for said in cell.split('`').skip(1).step_by(2) {
        let (method, place) =
            said.split_once(' ').unwrap_or(if said.starts_with('/') { ("", said) } else { (said, "") });
        if !method.is_empty() {
            // A method behind a path begins anew.
            if !path.is_empty() {
                (methods, path) = (Vec::new(), String::new());
            }
            methods.push(method);
        }
        if !place.is_empty() {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            path = if place.starts_with("/api/") { place.to_owned() } else { format!("{folder}{place}") };
            calls.extend(methods.iter().map(|method| format!("{method} {path}")));
        }
    }
    calls
}

#[test]
fn the_table_of_the_page_has_every_call_with_its_role() {
    let rows = include_str!("../../docs/api.md").lines().filter(|line| line.starts_with("| `"));
    let mut told = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        for call in calls(cells[1]) {
            assert!(told.insert(call.clone()), "{call} stands twice");
            let (method, route) = call.split_once(' ').unwrap();
            let needed = Contract::of_binary().document["paths"][route][method.to_lowercase()]["security"][0]["apiKey"]
                .as_array()
                .unwrap_or_else(|| panic!("there is no {call}"));
            assert!(cells[2].contains(&format!("`{}`", needed[0].as_str().unwrap())), "{call}: {needed:?}");
        }
    }
    for operation in Contract::of_binary().operations() {
        let is_of_page = operation.route.starts_with("/api/v1/") && !operation.route.starts_with("/api/v1/plugins/");
        let call = format!("{} {}", operation.method, operation.route);
        assert!(!is_of_page || told.contains(&call), "the page does not tell of {call}");
    }
}
