//! The calls of `docs/notifications.md`, as they are written. Its handlers are run with the documentation's tests.

use std::process::Command;

use crate::support::{Database, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_page_works() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let here = server.url.trim_start_matches("http://");
    let page = include_str!("../../docs/notifications.md");
    let calls: Vec<_> = page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert_eq!(calls.len(), 2);
    for call in calls {
        let call = call.replace("localhost:7878", here).replace("curl ", "curl -sSf ");
        let output = Command::new("sh").args(["-ec", &call]).output().unwrap();
        assert!(output.status.success(), "{call}\n{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), r#"{"items":[],"nextCursor":null}"#, "{call}");
    }
    server.stop();
}
