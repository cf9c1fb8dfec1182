//! The `Idempotency-Key`: the same call twice is answered the same, and made once.

use reqwest::Method;

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    the_same_key_and_body_get_the_first_answer_again,
    the_same_key_with_another_body_is_refused,
    calls_at_the_same_moment_make_one_task,
    refusals_are_not_remembered,
);

async fn post_with_key(server: &Server, key: &str, body: &str) -> Answer {
    let request = server
        .request(Method::POST, "/api/v1/tasks")
        .header("content-type", "application/json")
        .header("Idempotency-Key", key)
        .body(body.to_owned());
    Answer::to(request).await
}

async fn count(server: &Server) -> usize {
    server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len()
}

async fn the_same_key_and_body_get_the_first_answer_again(database: Database) {
    let server = Server::start(&database);
    let first = post_with_key(&server, "k", r#"{"topic":"echo","payload":{"a":1,"b":[2.50]}}"#).await;
    let again = post_with_key(&server, "k", "{ \"payload\": {\"b\":[2.5], \"a\":1.0}, \"topic\":\"echo\" }").await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201));
    assert_eq!(first.text, again.text);
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!(count(&server).await, 1);
    server.stop();
}

async fn the_same_key_with_another_body_is_refused(database: Database) {
    let server = Server::start(&database);
    post_with_key(&server, "k", r#"{"topic":"echo","payload":12345678901234567890123}"#).await;
    let other = post_with_key(&server, "k", r#"{"topic":"echo","payload":12345678901234567890124}"#).await;
    other.problem(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(count(&server).await, 1);
    server.stop();
}

async fn calls_at_the_same_moment_make_one_task(database: Database) {
    let server = Server::start(&database);
    let calls = (0..20).map(|_| post_with_key(&server, "k", r#"{"topic":"echo"}"#));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.text == answers[0].text), "{answers:?}");
    assert_eq!(count(&server).await, 1);
    server.stop();
}

async fn refusals_are_not_remembered(database: Database) {
    let server = Server::start(&database);
    post_with_key(&server, "k", r#"{"topic":"no topic"}"#).await.problem(400, "INVALID");
    assert_eq!(post_with_key(&server, "k", r#"{"topic":"echo"}"#).await.status, 201);
    assert_eq!(post_with_key(&server, "", r#"{"topic":"echo"}"#).await.problem(400, "INVALID"), ["Idempotency-Key"]);
    server.stop();
}
