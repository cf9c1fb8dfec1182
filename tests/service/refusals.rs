//! Refusals: every problem code, each with a sentence, and nothing written.

use reqwest::Method;

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    bad_bodies_are_refused_with_their_code,
    every_bad_field_is_named_at_once,
    unknown_ids_routes_and_methods_are_problems_too,
    sizes_are_bounded,
    bad_queries_are_refused_by_name,
    web_pages_of_other_origins_cannot_write,
);

async fn bad_bodies_are_refused_with_their_code(database: Database) {
    let server = Server::start(&database);
    let deep = format!(r#"{{"topic":"a","payload":{}{}}}"#, "[".repeat(129), "]".repeat(129));
    let very_deep = format!(r#"{{"topic":"a","payload":{}}}"#, "[".repeat(500_000));
    for (body, code, fields) in [
        ("", "INVALID", vec![]),
        ("{", "INVALID", vec![]),
        ("[]", "INVALID", vec![]),
        ("{}", "INVALID", vec!["topic"]),
        (r#"{"topic":"a","topic":"b"}"#, "INVALID", vec!["topic"]),
        (r#"{"topic":"a","payload":"\u0000"}"#, "INVALID", vec!["payload"]),
        (r#"{"topic":"a","payload":{"x":1,"x":1}}"#, "INVALID", vec!["payload"]),
        (&deep, "INVALID", vec!["payload"]),
        (&very_deep, "INVALID", vec![]),
        (r#"{"topic":"a","runAt":"2020-01-01T00:00:00Z","timezone":"UTC"}"#, "RUN_AT_IN_PAST", vec!["runAt"]),
        (r#"{"topic":"a","runAt":"2036-01-01T00:00:00Z"}"#, "INVALID", vec!["timezone"]),
        (r#"{"topic":"a","runAt":"2036-01-01T00:00:00","timezone":"UTC"}"#, "INVALID", vec!["runAt"]),
        (r#"{"topic":"a","runAt":"2036-01-01T00:00:00Z","timezone":"UTC","delayMs":1}"#, "INVALID", vec!["delayMs"]),
        (r#"{"topic":"a","timezone":"EST"}"#, "INVALID_TIMEZONE", vec!["timezone"]),
    ] {
        let answer = server.post("/api/v1/tasks", body).await;
        assert_eq!(answer.problem(400, code), fields, "{}", &body[..body.len().min(80)]);
    }
    let suggestion = server.post("/api/v1/tasks", r#"{"topic":"a","timezone":"EST"}"#).await;
    assert!(suggestion.text.contains("America/New_York"), "{}", suggestion.text);
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len(), 0);
    server.stop();
}

async fn every_bad_field_is_named_at_once(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"topic":"a b","retry":{"backoff":{"type":"linear"}},"priority":500,"status":"running","colour":1,
        "metadata":{"ownerId":5},"dedupeKey":""}"#;
    let mut fields = server.post("/api/v1/tasks", body).await.problem(400, "INVALID");
    fields.sort();
    let expected = ["colour", "dedupeKey", "metadata.ownerId", "priority", "retry.backoff.type", "status", "topic"];
    assert_eq!(fields, expected);
    server.stop();
}

async fn unknown_ids_routes_and_methods_are_problems_too(database: Database) {
    let server = Server::start(&database);
    for path in ["/api/v1/tasks/018f0000-0000-7000-8000-000000000000", "/api/v1/tasks/nonsense", "/nowhere", "/api/v2"]
    {
        server.get(path).await.problem(404, "NOT_FOUND");
    }
    for id in ["018f0000-0000-7000-8000-000000000000", "nonsense", "1", "%00", "018f000000007000800000000000000z"] {
        for action in ["cancel", "reschedule", "retry"] {
            let path = format!("/api/v1/tasks/{id}/{action}");
            server.post(&path, "{}").await.problem(404, "NOT_FOUND");
            server.get(&path).await.problem(405, "METHOD_NOT_ALLOWED");
        }
        server.post(&format!("/api/v1/tasks/{id}/explode"), "{}").await.problem(404, "NOT_FOUND");
    }
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    for action in ["cancel", "retry"] {
        let path = format!("/api/v1/tasks/{}/{action}", task["id"].as_str().unwrap());
        assert_eq!(server.post(&path, r#"{"reason":"because"}"#).await.problem(400, "INVALID"), ["reason"]);
        assert_eq!(server.post(&path, r#"{"status":"cancelled"}"#).await.problem(400, "INVALID"), ["status"]);
        assert_eq!(server.post(&format!("{path}?force=1"), "").await.problem(400, "INVALID"), ["force"]);
        for body in ["[]", "null", "\"x\"", "{", "{}{}"] {
            assert!(server.post(&path, body).await.problem(400, "INVALID").is_empty(), "{body}");
        }
        let text = server.request(Method::POST, &path).header("content-type", "text/plain").body("{}");
        Answer::to(text).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let shown = server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["status"], "pending");
    assert_eq!(server.post("/api/v1/tasks?x=1", r#"{"topic":"echo"}"#).await.problem(400, "INVALID"), ["x"]);
    let answer = Answer::to(server.request(Method::DELETE, "/api/v1/tasks")).await;
    answer.problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), "GET,HEAD,POST");
    Answer::to(server.request(Method::POST, "/livez")).await.problem(405, "METHOD_NOT_ALLOWED");
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = server.request(Method::POST, "/api/v1/tasks").header("content-type", content_type).body("{}");
        Answer::to(request).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let with_charset = server
        .request(Method::POST, "/api/v1/tasks")
        .header("content-type", "Application/JSON; charset=utf-8")
        .body(r#"{"topic":"echo"}"#);
    assert_eq!(Answer::to(with_charset).await.status, 201);
    server.stop();
}

async fn sizes_are_bounded(database: Database) {
    let server = Server::start(&database);
    let body = |bytes: usize| format!(r#"{{"topic":"a","payload":"{}"}}"#, "x".repeat(bytes));
    assert_eq!(server.post("/api/v1/tasks", body(1024 * 1024 - 2)).await.status, 201);
    let fields = server.post("/api/v1/tasks", body(1024 * 1024 - 1)).await.problem(413, "TOO_LARGE");
    assert_eq!(fields, ["payload"]);
    server.post("/api/v1/tasks", body(3 * 1024 * 1024)).await.problem(413, "TOO_LARGE");
    server.get(&format!("/api/v1/tasks?ownerId={}", "x".repeat(9_000))).await.problem(414, "TOO_LARGE");
    let large_header = server.request(Method::GET, "/api/v1/tasks").header("x-large", "x".repeat(40_000));
    Answer::to(large_header).await.problem(431, "TOO_LARGE");
    server.stop();
}

async fn bad_queries_are_refused_by_name(database: Database) {
    let server = Server::start(&database);
    for (query, field) in [
        ("colour=red", "colour"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=nonsense", "cursor"),
        ("status=done", "status"),
        ("topic=a%20b", "topic"),
        ("from=yesterday", "from"),
        ("ownerId=%00", "ownerId"),
        ("topic=a&topic=b", "topic"),
    ] {
        let answer = server.get(&format!("/api/v1/tasks?{query}")).await;
        assert_eq!(answer.problem(400, "INVALID"), [field], "{query}");
    }
    server.stop();
}

async fn web_pages_of_other_origins_cannot_write(database: Database) {
    let server = Server::start(&database);
    let post = |name: &'static str, value: String| {
        let request = server.request(Method::POST, "/api/v1/tasks").header("content-type", "application/json");
        Answer::to(request.header(name, value).body(r#"{"topic":"echo"}"#))
    };
    post("sec-fetch-site", "cross-site".into()).await.problem(403, "FORBIDDEN");
    post("origin", "https://evil.example".into()).await.problem(403, "FORBIDDEN");
    post("host", "evil.example".into()).await.problem(403, "FORBIDDEN");
    assert_eq!(post("origin", server.url.clone()).await.status, 201);
    assert_eq!(post("host", "localhost:1234".into()).await.status, 201);
    let read = server.request(Method::GET, "/api/v1/tasks").header("host", "rebound.example");
    Answer::to(read).await.problem(403, "FORBIDDEN");
    let probe = server.request(Method::GET, "/livez").header("host", "10.0.0.7");
    assert_eq!(Answer::to(probe).await.status, 200);
    server.stop();
}
