//! `GET /api/v1/events`: what happens is told as it happens, to everybody who may know, and nothing is left out.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_domain::key::Role;
use punctual_domain::task::{AttemptOutcome, Settlement};
use reqwest::Method;
use serde_json::{Value, json};

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Frame, Past, Server, Stream};

on_each_database_and_pooler!(
    a_tasks_beginning_and_its_end_are_told,
    a_cancelled_task_is_told,
    only_what_was_asked_for_is_told,
    a_stream_that_comes_back_misses_nothing,
    the_past_is_read_back_to_any_event,
    every_one_of_many_events_is_told_once,
    a_key_for_some_topics_hears_of_no_others,
    a_stopping_service_ends_its_streams,
    what_cannot_be_asked_for_is_refused,
    who_does_not_keep_up_is_dropped,
);

async fn open(server: &Server, query: &str) -> Stream {
    Stream::open(server.request(Method::GET, &format!("/api/v1/events{query}"))).await
}

async fn open_after(server: &Server, last: &str) -> Stream {
    Stream::open(server.request(Method::GET, "/api/v1/events").header("last-event-id", last)).await
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

async fn a_tasks_beginning_and_its_end_are_told(database: Database) {
    let server = Server::start(&database);
    let before = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(before["id"].as_str().unwrap()).await;
    let mut stream = open(&server, "").await;
    // Over several lines: it stays one event.
    let body = "{\"topic\":\"echo\",\"timezone\":\"Europe/Paris\",\"metadata\":{\"ownerId\":\"o\"},\"payload\":{\n  \"a\":\r\n 1}}";
    let task = server.make_task(body).await;
    let frames = stream.take(2).await;
    assert_eq!(names(&frames), ["schedule.arrived", "task.completed"]);
    let ended = server.ended_task(task["id"].as_str().unwrap()).await;
    let (arrived, completed) = (frames[0].json(), frames[1].json());
    let expected = json!({
        "id": frames[0].id, "name": "schedule.arrived", "alias": "schedule.echo.arrived", "scheduledJobId": task["id"],
        "scheduleId": null, "topic": "echo", "timezone": "Europe/Paris", "userPayload": {"a": 1},
        "metadata": {"ownerId": "o"}, "scheduledAt": task["runAt"], "firedAt": ended["startedAt"], "attempt": 1,
    });
    assert_eq!(arrived, expected);
    assert_eq!((&completed["name"], &completed["alias"]), (&json!("task.completed"), &json!("task.echo.completed")));
    assert_eq!((&completed["status"], &completed["result"]), (&json!("completed"), &json!({"a": 1})));
    assert_eq!((&completed["completedAt"], &completed["error"]), (&ended["completedAt"], &Value::Null));
    assert_eq!(completed["firedAt"], ended["startedAt"]);
    server.stop();
}

async fn a_cancelled_task_is_told(database: Database) {
    let server = Server::start(&database);
    let mut stream = open(&server, "").await;
    let task = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    server.post(&format!("/api/v1/tasks/{}/cancel", task["id"].as_str().unwrap()), "").await;
    let frame = stream.next().await.unwrap();
    assert_eq!((frame.event.as_str(), &frame.json()["scheduledJobId"]), ("task.cancelled", &task["id"]));
    assert_eq!((&frame.json()["firedAt"], &frame.json()["attempt"]), (&Value::Null, &json!(0)));
    server.stop();
}

async fn only_what_was_asked_for_is_told(database: Database) {
    let server = Server::start(&database);
    let mut ends = open(&server, "?type=task.completed,task.failed&topic=echo,a.*").await;
    let mut some = open(&server, "?topic=a.b").await;
    for topic in ["b", "a.b", "ab", "a.c.d", "echo"] {
        let task = server.make_task(&format!(r#"{{"topic":"{topic}"}}"#)).await;
        server.ended_task(task["id"].as_str().unwrap()).await;
    }
    let frames = ends.take(3).await;
    assert_eq!(names(&frames), ["task.completed"; 3]);
    let topics: Vec<_> = frames.iter().map(|frame| frame.json()["topic"].clone()).collect();
    assert_eq!(topics, ["a.b", "a.c.d", "echo"]);
    let frames = some.take(2).await;
    assert!(frames.iter().all(|frame| frame.json()["topic"] == "a.b"), "{frames:?}");
    server.stop();
}

async fn a_stream_that_comes_back_misses_nothing(database: Database) {
    let server = Server::start(&database);
    let make = || async {
        let task = server.make_task(r#"{"topic":"echo"}"#).await;
        server.ended_task(task["id"].as_str().unwrap()).await;
        task["id"].as_str().unwrap().to_owned()
    };
    let mut expected = Vec::new();
    let mut stream = open(&server, "").await;
    expected.push(make().await);
    let mut last = stream.take(2).await.pop().unwrap();
    for round in 0..3 {
        drop(stream);
        for _ in 0..5 {
            expected.push(make().await);
        }
        stream = open_after(&server, &last.id).await;
        expected.push(make().await);
        // It may begin with what is known already, and then tells the rest.
        let mut missing: BTreeMap<_, _> = expected[1 + 6 * round..].iter().map(|id| (id.clone(), 2)).collect();
        while !missing.is_empty() {
            last = stream.next().await.unwrap();
            if let Some(count) = missing.get_mut(&last.task_id()) {
                *count -= 1;
                if *count == 0 {
                    missing.remove(&last.task_id());
                }
            }
        }
    }
    server.stop();
}

async fn the_past_is_read_back_to_any_event(database: Database) {
    let past = Past::of(&database).await;
    past.failed("mail").await;
    let retried =
        Settlement::Retried { outcome: AttemptOutcome::Failed, error: "not yet".into(), after: Duration::ZERO };
    past.settled("mail", [retried, Settlement::Completed { result: None }]).await;
    past.lost("mail").await;
    past.close().await;
    let server = Server::start(&database);
    let mut stream = open_after(&server, "0-00000000-0000-0000-0000-000000000000-end").await;
    let frames = stream.take(7).await;
    let (arrived, completed, failed) = ("schedule.arrived", "task.completed", "task.failed");
    assert_eq!(names(&frames), [arrived, failed, arrived, arrived, completed, arrived, failed]);
    assert_eq!(frames[1].json()["error"], "it broke");
    let attempts: Vec<_> = frames.iter().map(|frame| frame.json()["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 1, 1, 2, 2, 1, 1]);
    server.stop();
}

async fn every_one_of_many_events_is_told_once(database: Database) {
    let server = Server::start(&database);
    let mut stream = open(&server, "").await;
    let tasks: Vec<_> = (0..1000).map(|n| json!({"topic": format!("t{}", n % 7), "payload": n})).collect();
    let made = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await.json();
    let mut told: BTreeMap<(String, String), u32> = BTreeMap::new();
    for frame in stream.take(2000).await {
        *told.entry((frame.task_id(), frame.event)).or_default() += 1;
    }
    for id in made["ids"].as_array().unwrap() {
        for name in ["schedule.arrived", "task.completed"] {
            assert_eq!(told.get(&(id.as_str().unwrap().to_owned(), name.to_owned())), Some(&1), "{name} of {id}");
        }
    }
    server.stop();
}

async fn a_key_for_some_topics_hears_of_no_others(database: Database) {
    add_key(&database, "pk_all", Role::Admin, &[]).await;
    add_key(&database, "pk_some", Role::Submit, &["a.*"]).await;
    let server = Server::start(&database);
    let events =
        |key: &str, query: &str| server.request(Method::GET, &format!("/api/v1/events{query}")).bearer_auth(key);
    server.get("/api/v1/events").await.problem(401, "UNAUTHENTICATED");
    Answer::to(events("pk_some", "?topic=echo")).await.problem(403, "FORBIDDEN");
    let mut some = Stream::open(events("pk_some", "")).await;
    let mut all = Stream::open(events("pk_all", "")).await;
    for topic in ["b", "a.b"] {
        let post = server.request(Method::POST, "/api/v1/tasks").bearer_auth("pk_all");
        let body = format!(r#"{{"topic":"{topic}"}}"#);
        assert_eq!(Answer::to(post.header("content-type", "application/json").body(body)).await.status, 201);
    }
    assert!(some.take(2).await.iter().all(|frame| frame.json()["topic"] == "a.b"));
    all.take(4).await;
    database.execute("UPDATE punctual_api_keys SET revoked_at = created_at WHERE name = 'pk_some'").await;
    let post = server.request(Method::POST, "/api/v1/tasks").bearer_auth("pk_all");
    let body = r#"{"topic":"a.b"}"#;
    assert_eq!(Answer::to(post.header("content-type", "application/json").body(body)).await.status, 201);
    all.take(2).await;
    // Nothing of what happened after that, however soon.
    let last = some.next().await.unwrap();
    assert_eq!(last.event, "dropped");
    assert!(last.data.contains("revoked"), "{last:?}");
    assert_eq!(some.next().await, None);
    server.stop();
}

async fn a_stopping_service_ends_its_streams(database: Database) {
    let server = Server::start(&database);
    let mut stream = open(&server, "").await;
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    assert_eq!(stream.next().await, None);
    stopping.await.unwrap();
}

async fn what_cannot_be_asked_for_is_refused(database: Database) {
    let server = Server::start(&database);
    let bad = server.get("/api/v1/events?type=task.done&topic=a%20b&colour=red").await;
    let mut fields = bad.problem(400, "INVALID");
    fields.sort();
    assert_eq!(fields, ["colour", "topic", "type"]);
    for id in ["x", "1-2-3", "0-00000000-0000-0000-0000-000000000000"] {
        let request = server.request(Method::GET, "/api/v1/events").header("last-event-id", id);
        assert_eq!(Answer::to(request).await.problem(400, "INVALID"), ["Last-Event-ID"], "{id}");
    }
    server.stop();
}

async fn who_does_not_keep_up_is_dropped(database: Database) {
    let server = Server::start(&database);
    let mut slow = open(&server, "").await;
    let mut quick = open(&server, "?type=task.completed").await;
    // In all more than the ring and the sockets hold; each step less.
    let payload = "x".repeat(500_000);
    let tasks: Vec<_> = (0..10).map(|_| json!({"topic": "big", "payload": payload})).collect();
    let body = json!({"tasks": tasks}).to_string();
    for _ in 0..15 {
        assert_eq!(server.post("/api/v1/tasks/batch", body.clone()).await.status, 201);
        // Who reads is not disturbed.
        quick.take(10).await;
    }
    let mut last = Frame::default();
    while let Some(frame) = slow.next().await {
        last = frame;
    }
    assert_eq!(last.event, "dropped");
    let samples = server.samples(|_| true).await;
    assert_eq!(samples.value("punctual_event_streams_dropped_total"), Some(1.0));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_node_does_is_told_too() {
    let Some(database) = Database::postgres().await else { return };
    let listening = Server::start_with(&database, |command| command.arg("--paused"));
    let mut stream = open(&listening, "").await;
    let working = Server::start(&database);
    let task = working.make_task(r#"{"topic":"echo"}"#).await;
    let frames = stream.take(2).await;
    assert_eq!(names(&frames), ["schedule.arrived", "task.completed"]);
    assert!(frames.iter().all(|frame| frame.json()["scheduledJobId"] == task["id"]));
    working.stop();
    listening.stop();
}
