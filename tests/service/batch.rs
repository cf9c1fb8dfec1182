//! Many tasks in one call: all of them, or none.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    the_ids_come_in_the_order_of_the_tasks,
    ten_thousand_tasks_are_written_at_once,
    one_bad_task_keeps_all_from_being_written,
    a_used_client_request_id_keeps_all_from_being_written,
    a_dedupe_key_in_a_batch_stands_for_its_living_task,
    a_batch_that_comes_again_is_written_once,
    batches_without_tasks_or_with_too_many_are_refused,
    a_batch_may_be_large_but_not_larger,
    hostile_batches_are_refused,
);

const PATH: &str = "/api/v1/tasks/batch";

async fn count(server: &Server) -> usize {
    server.get("/api/v1/tasks?limit=1000").await.json()["items"].as_array().unwrap().len()
}

/// A batch of these tasks.
fn batch(tasks: impl IntoIterator<Item = Value>) -> String {
    json!({"tasks": tasks.into_iter().collect::<Vec<_>>()}).to_string()
}

async fn the_ids_come_in_the_order_of_the_tasks(database: Database) {
    let server = Server::start(&database);
    let answer = server.post(PATH, batch((0..5).map(|n| json!({"topic": "echo", "payload": n})))).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (201, "application/json"), "{answer:?}");
    let body = answer.json();
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["ids"]);
    for (n, id) in body["ids"].as_array().unwrap().iter().enumerate() {
        let ended = server.ended_task(id.as_str().unwrap()).await;
        assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!(n)));
    }
    server.stop();
}

async fn ten_thousand_tasks_are_written_at_once(database: Database) {
    let server = Server::start(&database);
    let answer = server
        .post(PATH, batch((0..10_000).map(|n| json!({"topic": "echo", "delayMs": 3_600_000, "payload": {"n": n}}))))
        .await;
    assert_eq!(answer.status, 201);
    let ids = answer.json()["ids"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 10_000);
    for n in [0, 1, 4_999, 9_999] {
        let task = server.get(&format!("/api/v1/tasks/{}", ids[n].as_str().unwrap())).await.json();
        assert_eq!(task["payload"]["n"], n);
    }
    let cancelled = server.post("/api/v1/tasks/cancel", r#"{"filter":{"topic":"echo"}}"#).await;
    assert_eq!(cancelled.json(), json!({"count": 10_000}));
    server.stop();
}

async fn one_bad_task_keeps_all_from_being_written(database: Database) {
    let server = Server::start(&database);
    let mut tasks = vec![json!({"topic": "echo"}); 8];
    tasks[3]["priority"] = json!(500);
    tasks[5] = json!({"topic": "a b", "retry": {"backoff": {"type": "linear"}}, "id": "x", "metadata": {"k": 1}});
    tasks[6] = json!("echo");
    let mut fields = server.post(PATH, batch(tasks)).await.problem(400, "INVALID");
    fields.sort();
    let expected = [
        "tasks[3].priority",
        "tasks[5].id",
        "tasks[5].metadata.k",
        "tasks[5].retry.backoff.type",
        "tasks[5].topic",
        "tasks[6]",
    ];
    assert_eq!(fields, expected);

    let past = json!({"topic": "echo", "runAt": "2020-01-01T00:00:00Z", "timezone": "UTC"});
    let answer = server.post(PATH, batch([json!({"topic": "echo"}), past])).await;
    assert_eq!(answer.problem(400, "RUN_AT_IN_PAST"), ["tasks[1].runAt"]);
    let zone = json!({"topic": "echo", "timezone": "EST"});
    assert_eq!(server.post(PATH, batch([zone])).await.problem(400, "INVALID_TIMEZONE"), ["tasks[0].timezone"]);
    let large = json!({"topic": "echo", "payload": "x".repeat(1024 * 1024)});
    let answer = server.post(PATH, batch([json!({"topic": "echo"}), large])).await;
    assert_eq!(answer.problem(413, "TOO_LARGE"), ["tasks[1].payload"]);
    assert_eq!(count(&server).await, 0);
    server.stop();
}

async fn a_used_client_request_id_keeps_all_from_being_written(database: Database) {
    let server = Server::start(&database);
    server.make_task(r#"{"topic":"echo","clientRequestId":"used"}"#).await;
    let task = |id: &str| json!({"topic": "echo", "clientRequestId": id});
    for (tasks, field) in [
        ([task("a"), task("b"), task("used")], "tasks[2].clientRequestId"),
        ([task("a"), task("b"), task("a")], "tasks[2].clientRequestId"),
    ] {
        let answer = server.post(PATH, batch(tasks)).await;
        assert_eq!(answer.problem(409, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE"), [field]);
    }
    assert_eq!(count(&server).await, 1);
    assert_eq!(server.post(PATH, batch([task("a"), task("b")])).await.status, 201, "none of them was used up");
    server.stop();
}

async fn a_dedupe_key_in_a_batch_stands_for_its_living_task(database: Database) {
    let server = Server::start(&database);
    let living = server.make_task(r#"{"topic":"echo","dedupeKey":"k","delayMs":3600000}"#).await;
    let later = |key: &str, n: u32| json!({"topic": "echo", "dedupeKey": key, "delayMs": 3_600_000, "payload": n});
    let answer = server.post(PATH, batch([later("j", 1), later("k", 2), later("j", 3)])).await;
    assert_eq!(answer.status, 201);
    let ids = answer.json()["ids"].clone();
    assert_eq!((&ids[1], &ids[2]), (&living["id"], &ids[0]), "also the key that stands in the batch twice");
    let first = server.get(&format!("/api/v1/tasks/{}", ids[0].as_str().unwrap())).await.json();
    assert_eq!(first["payload"], 1);
    assert_eq!(count(&server).await, 2);
    server.stop();
}

async fn a_batch_that_comes_again_is_written_once(database: Database) {
    let server = Server::start(&database);
    let post = |body: String| {
        let request = server.request(Method::POST, PATH).header("content-type", "application/json");
        Answer::to(request.header("Idempotency-Key", "k").body(body))
    };
    let body = || batch((0..100).map(|n| json!({"topic": "echo", "payload": n, "clientRequestId": n.to_string()})));
    let first = post(body()).await;
    assert_eq!(first.status, 201);
    let again = post(body()).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    assert_eq!(count(&server).await, 100);
    post(batch([json!({"topic": "echo"})])).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    server.stop();
}

async fn batches_without_tasks_or_with_too_many_are_refused(database: Database) {
    let server = Server::start(&database);
    let too_many = batch((0..10_001).map(|_| json!({"topic": "echo"})));
    for (body, fields) in [
        ("", vec![]),
        ("[]", vec![]),
        (r#"{"tasks":[{"topic":"echo"}"#, vec![]),
        ("{}", vec!["tasks"]),
        (r#"{"tasks":null}"#, vec!["tasks"]),
        (r#"{"tasks":[]}"#, vec!["tasks"]),
        (r#"{"tasks":{}}"#, vec!["tasks"]),
        (r#"{"tasks":"echo"}"#, vec!["tasks"]),
        (r#"{"tasks":[{}]}"#, vec!["tasks[0].topic"]),
        (r#"{"tasks":[{"topic":"a"},null]}"#, vec!["tasks[1]"]),
        (r#"{"tasks":[{"topic":"a"}],"topic":"b"}"#, vec!["topic"]),
        (r#"{"tasks":[{"topic":"a"}],"tasks":[]}"#, vec!["tasks"]),
        (r#"{"tasks":[{"topic":"a","topic":"b"}]}"#, vec!["tasks[0].topic"]),
        (r#"{"tasks":[{"topic":"a","payload":"\u0000"}]}"#, vec!["tasks[0].payload"]),
        (&too_many, vec!["tasks"]),
    ] {
        let answer = server.post(PATH, body).await;
        assert_eq!(answer.problem(400, "INVALID"), fields, "{}", &body[..body.len().min(80)]);
    }
    assert_eq!(
        server.post(&format!("{PATH}?x=1"), batch([json!({"topic": "a"})])).await.problem(400, "INVALID"),
        ["x"]
    );
    server.get(PATH).await.problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(count(&server).await, 0);
    server.stop();
}

async fn a_batch_may_be_large_but_not_larger(database: Database) {
    let server = Server::start(&database);
    let payload = "x".repeat(1024 * 1024 - 2);
    let large =
        |tasks: usize| batch((0..tasks).map(|_| json!({"topic": "a", "delayMs": 3_600_000, "payload": payload})));
    let answer = server.post(PATH, large(63)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let ids = answer.json()["ids"].clone();
    let last = server.get(&format!("/api/v1/tasks/{}", ids[62].as_str().unwrap())).await.json();
    assert_eq!(last["payload"].as_str().map(str::len), Some(payload.len()));
    server.post(PATH, large(65)).await.problem(413, "TOO_LARGE");
    assert_eq!(server.get("/readyz").await.status, 200);
    server.stop();
}

async fn hostile_batches_are_refused(database: Database) {
    let server = Server::start(&database);
    let deep = format!(r#"{{"tasks":[{{"topic":"a","payload":{}{}}}]}}"#, "[".repeat(200_000), "]".repeat(200_000));
    let field = |n: usize| format!(r#""f{n}":0"#);
    let wide = format!(r#"{{"tasks":[{{{}}}]}}"#, (0..200_000).map(field).collect::<Vec<_>>().join(","));
    let many = format!(r#"{{"tasks":[{}0]}}"#, "0,".repeat(2_000_000));
    let all_bad = batch((0..10_000).map(|_| json!({"x": 1, "y": 2, "z": 3})));
    for body in [deep, wide, many, all_bad] {
        let request = server.request(Method::POST, PATH).header("content-type", "application/json");
        let answer = Answer::to(request.header("Idempotency-Key", "k").body(body)).await;
        let fields = answer.problem(400, "INVALID");
        assert!((1..=100).contains(&fields.len()), "{fields:?}");
    }
    assert_eq!(count(&server).await, 0);
    server.stop();
}
