//! Stopping: nothing that was begun is lost, and nobody waits for ever.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::on_each_database_and_pooler;
use crate::support::{Database, Server};

on_each_database_and_pooler!(
    a_request_under_way_is_finished_before_the_end,
    a_second_signal_ends_it_at_once,
    the_drain_deadline_ends_what_does_not_end_by_itself,
);

const BODY: &str = r#"{"topic":"echo"}"#;

/// Begins a request, and holds back its body.
fn begin(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 16\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The service asks for the body once its handler is at work.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&go_on));
    stream
}

async fn a_request_under_way_is_finished_before_the_end(database: Database) {
    let mut server = Server::start(&database);
    let mut stream = begin(&server);
    server.process.signal("TERM");
    server.process.wait_for_log("service stopping");
    stream.write_all(BODY.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(server.process.wait().code(), Some(0));
    assert!(server.process.log().iter().all(|line| line.starts_with('{')), "every line is JSON");
}

async fn a_second_signal_ends_it_at_once(database: Database) {
    let mut server = Server::start(&database);
    let _stream = begin(&server);
    server.process.signal("INT");
    server.process.wait_for_log("service stopping");
    server.process.signal("TERM");
    assert_eq!(server.process.wait().code(), Some(1));
}

async fn the_drain_deadline_ends_what_does_not_end_by_itself(database: Database) {
    let mut server = Server::start_with(&database, |command| command.env("PUNCTUAL_DRAIN_SECONDS", "100ms"));
    let _stream = begin(&server);
    server.process.signal("TERM");
    server.process.wait_for_log("drain deadline passed");
    assert_eq!(server.process.wait().code(), Some(0));
}
