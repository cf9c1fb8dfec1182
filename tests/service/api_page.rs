//! The calls in `docs/api.md`, as they are written.

use std::process::Command;

use crate::support::{Database, Server};

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
