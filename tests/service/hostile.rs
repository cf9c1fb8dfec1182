//! Input that is meant to hurt: each is refused with a sentence, memory stays flat, and the service lives.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use reqwest::{Body, Method};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Contract, Database, Operation, Server};

on_each_database_and_pooler!(
    hostile_bodies_are_refused_on_every_route,
    hostile_values_are_refused_by_name,
    slow_connections_are_cut_and_hurt_nobody,
);

/// How much more memory the service may have afterwards than before.
const TOLERATED_KIB: u64 = 96 * 1024;
const MEGABYTE: usize = 1_000_000;
/// How many open files are enough.
const ENOUGH: usize = 2_048;

/// Bodies that no route takes.
fn hostile_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000)).into_bytes();
    let mut many_keys = b"{".to_vec();
    (0..100_000).for_each(|n| many_keys.extend(format!("\"k{n}\":1,").bytes()));
    many_keys.extend(b"\"z\":1}");
    vec![
        ("10 MB of nothing", vec![b' '; 10 * MEGABYTE]),
        ("10 MB of a text", [&b"{\"topic\":\""[..], &vec![b'x'; 10 * MEGABYTE], b"\"}"].concat()),
        ("arrays 100,000 deep", deep("[", "]")),
        ("objects 100,000 deep", deep("{\"a\":", "}")),
        ("a payload 100,000 deep", [&b"{\"topic\":\"a\",\"payload\":"[..], &deep("[", "]"), b"}"].concat()),
        ("100,000 keys", many_keys),
        ("arrays without an end", vec![b'['; MEGABYTE]),
        ("bytes that are no UTF-8", b"{\"topic\":\"\xff\xfe\"}".to_vec()),
        ("half a character", b"{\"topic\":\"\\ud800\"}".to_vec()),
        ("U+0000 as it is", b"{\"topic\":\"a\0b\"}".to_vec()),
        ("U+0000 escaped", br#"{"topic":"a\u0000b","name":"\u0000"}"#.to_vec()),
        ("the same key twice", br#"{"topic":"a","topic":"b","name":"a","name":"a"}"#.to_vec()),
        ("a number without an end", [b"{\"delayMs\":1".to_vec(), vec![b'0'; MEGABYTE], b"}".to_vec()].concat()),
        ("no JSON", b"<script>alert(1)</script>".to_vec()),
    ]
}

fn takes_body(operation: &Operation<'_>) -> bool {
    operation.told.get("requestBody").is_some()
}

async fn hostile_bodies_are_refused_on_every_route(database: Database) {
    let server = Server::start_with_plugins(&database);
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    let before = server.process.resident_kib();
    let bodies = hostile_bodies();
    for operation in Contract::of_binary().operations().filter(takes_body) {
        let id = task["id"].as_str().unwrap();
        let path = operation.route.replace("{id}", id).replace("{name}", "echo");
        for (what, body) in &bodies {
            // Blanks are no body where none is needed.
            if *what == "10 MB of nothing" && operation.told["requestBody"]["required"] == false {
                continue;
            }
            let request = server.request(operation.method.clone(), &path).header("content-type", "application/json");
            let answer = Answer::to(request.body(Body::from(body.clone()))).await;
            assert!(answer.status.is_client_error(), "{} {path}, {what}: {answer:?}", operation.method);
        }
    }
    check_is_well(&server, before).await;
    let stored = server.get("/api/v1/tasks?limit=1000").await.json();
    // Schedules of plugins fire every few minutes.
    let is_ours = |task: &&serde_json::Value| task["scheduleId"].is_null();
    let kept = stored["items"].as_array().unwrap().iter().filter(is_ours).count();
    assert_eq!(kept, 2, "nothing of it was kept: {stored}");
    server.stop();
}

async fn hostile_values_are_refused_by_name(database: Database) {
    let server = Server::start_with_plugins(&database);
    for (path, body, field) in [
        ("tasks", r#"{"topic":"a","runAt":"9999-12-31T23:59:59Z","timezone":"UTC"}"#, "runAt"),
        ("tasks", r#"{"topic":"a","runAt":"9999-12-31T23:59:59-23:59","timezone":"UTC"}"#, "runAt"),
        ("tasks", r#"{"topic":"a","delayMs":9223372036854775807}"#, "delayMs"),
        ("tasks", r#"{"topic":"a","priority":-9223372036854775809}"#, "priority"),
        ("tasks", r#"{"topic":"a","retry":{"backoff":{"jitter":1e999}}}"#, "retry.backoff.jitter"),
        ("tasks", r#"{"topic":"a","metadata":{"k":"\u0000"}}"#, "metadata"),
        ("tasks", r#"{"topic":"a","dedupeKey":"\u0000"}"#, "dedupeKey"),
        ("tasks/cancel", r#"{"filter":{"ownerId":"\u0000"}}"#, "filter.ownerId"),
        ("tasks/cancel", r#"{"filter":{"from":"9999-12-31T23:59:59-01:00"}}"#, "filter.from"),
        ("schedules", r#"{"name":"\u0000","everyMs":1000,"timezone":"UTC","topic":"a"}"#, "name"),
        ("schedules/preview", r#"{"everyMs":1000,"timezone":"UTC","startAt":"9999-12-31T23:59:59-01:00"}"#, "startAt"),
        ("schedules/preview", r#"{"cronExpression":"* * * * *","timezone":"UTC","count":-1}"#, "count"),
        ("claims", r#"{"topics":["a"],"max":-1}"#, "max"),
        ("calendars", r#"{"name":"c","dates":["9999-99-99"]}"#, "dates[0]"),
    ] {
        let answer = server.post(&format!("/api/v1/{path}"), body).await;
        assert_eq!(answer.problem(400, "INVALID"), [field], "{body}");
    }
    for operation in Contract::of_binary().operations() {
        let parameters = operation.told["parameters"].as_array().unwrap();
        let takes = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
        let path = operation.route.replace("{id}", "018f0000-0000-7000-8000-000000000000");
        for limit in ["-1", "0", "1001", "1e3", "99999999999999999999", "%00", "%ff", "1;drop"] {
            if takes("limit") {
                assert_eq!(server.get(&format!("{path}?limit={limit}")).await.problem(400, "INVALID"), ["limit"]);
            }
        }
        for cursor in ["-1", "AAAA", "..%2F..", "%00", "%F0%9F%92%A3"] {
            if takes("cursor") {
                assert_eq!(server.get(&format!("{path}?cursor={cursor}")).await.problem(400, "INVALID"), ["cursor"]);
            }
        }
        for strange in ["%ff", "%C3%28", "%00"] {
            if operation.route.contains('{') {
                let path = operation.route.replace("{id}", strange).replace("{name}", strange);
                let body = server.request(operation.method.clone(), &path).header("content-type", "application/json");
                let answer = Answer::to(body.body("{}")).await;
                assert!(answer.status.is_client_error(), "{} {path}: {answer:?}", operation.method);
            }
        }
    }
    // A cursor that was given, and then tampered with.
    for _ in 0..3 {
        server.make_task(r#"{"topic":"echo"}"#).await;
    }
    let cursor = server.get("/api/v1/tasks?limit=1").await.json()["nextCursor"].as_str().unwrap().to_owned();
    for position in 0..cursor.len() {
        let mut tampered = cursor.clone();
        let other = if tampered.as_bytes()[position] == b'A' { "B" } else { "A" };
        tampered.replace_range(position..=position, other);
        let answer = server.get(&format!("/api/v1/tasks?cursor={tampered}")).await;
        assert_eq!(answer.problem(400, "INVALID"), ["cursor"], "{tampered}");
    }
    let header = server.request(Method::POST, "/api/v1/tasks").header("content-type", "application/json");
    let answer = Answer::to(header.header("idempotency-key", &b"\xff\xfe"[..]).body(r#"{"topic":"echo"}"#)).await;
    assert_eq!(answer.problem(400, "INVALID"), ["Idempotency-Key"]);
    server.stop();
}

async fn slow_connections_are_cut_and_hurt_nobody(database: Database) {
    let count = connections();
    let server = Server::start(&database);
    server.get("/api/v1/tasks").await;
    let before = server.process.resident_kib();
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut slow = Vec::new();
    for n in 0..count {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let begun = ["", "G", "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nX-Slow: "][n % 3];
        stream.write_all(begun.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // These have said all but what they want.
    let mut slow_bodies = Vec::new();
    for (method, path) in [("POST", "/api/v1/tasks"), ("PUT", "/api/v1/topics/slow"), ("POST", "/api/v1/claims")] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        slow_bodies.push(stream);
    }
    // Others are served as ever, with all of them there.
    for _ in 0..20 {
        let task = server.make_task(r#"{"topic":"echo"}"#).await;
        assert_eq!(server.ended_task(task["id"].as_str().unwrap()).await["status"], "completed");
    }
    check_is_well(&server, before).await;
    // A byte now and then keeps none of them alive.
    let (cut, answered) = futures::future::join(
        futures::future::join_all(slow.into_iter().map(trickle)),
        futures::future::join_all(slow_bodies.into_iter().map(trickle)),
    )
    .await;
    assert!(cut.iter().all(Option::is_some), "{} of {}", cut.iter().flatten().count(), cut.len());
    for answer in answered {
        let answer = answer.expect("it is cut too");
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("REQUEST_TIMEOUT"), "{answer}");
        assert!(answer.contains("the body did not arrive within 30s"), "{answer}");
    }
    check_is_well(&server, before).await;
    server.stop();
}

/// A thousand, or as many as this process and the service, its child, may have.
fn connections() -> usize {
    let [soft, hard] = open_files().unwrap_or([400, 400]);
    if soft < hard && soft < ENOUGH {
        let raised = Command::new("prlimit")
            .args(["--pid", &std::process::id().to_string(), &format!("--nofile={}:", hard.min(ENOUGH))])
            .status();
        if !raised.is_ok_and(|status| status.success()) {
            println!("the limit of {soft} open files was not raised");
        }
    }
    let files = open_files().map_or(soft, |[soft, _]| soft);
    let count = files.saturating_sub(200).min(1_000);
    if count < 1_000 {
        println!("{count} slow connections instead of 1,000: this process may have {files} files open");
    }
    count
}

/// How many files this process may have open, and how many more it may ask for, where the system tells.
fn open_files() -> Option<[usize; 2]> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut limits = line.split_whitespace().map(|limit| limit.parse().unwrap_or(usize::MAX));
    Some([limits.next()?, limits.next()?])
}

/// Goes on trickling; what the service answers until it ends the connection, if it does.
async fn trickle(mut stream: TcpStream) -> Option<String> {
    let mut answer = Vec::new();
    let trickling = async {
        let mut read = [0; 1024];
        loop {
            match timeout(Duration::from_secs(1), stream.read(&mut read)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(count)) => answer.extend_from_slice(&read[..count]),
                Err(_) => match stream.write_all(b"x").await {
                    Err(error) if error.kind() != ErrorKind::Interrupted => return,
                    _ => {}
                },
            }
        }
    };
    timeout(Duration::from_secs(60), trickling).await.ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// That it works, and has about as much memory as before.
async fn check_is_well(server: &Server, before: Option<u64>) {
    assert_eq!(server.get("/readyz").await.json()["status"], "ready");
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    assert_eq!(task["status"], Value::from("pending"));
    if let (Some(before), Some(now)) = (before, server.process.resident_kib()) {
        assert!(now < before + TOLERATED_KIB, "{before} KiB became {now}");
    }
}
