//! Cancelling, rescheduling and retrying one task.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Past, Server};

on_each_database_and_pooler!(
    a_task_is_cancelled_and_stays_so,
    a_running_task_is_cancelled_at_once,
    an_ended_task_is_answered_as_it_stands,
    a_cancelled_task_frees_its_dedupe_key_and_its_place_in_line,
    a_rescheduled_task_is_a_new_one_in_its_place,
    what_is_left_out_of_a_reschedule_is_copied,
    a_rescheduled_task_runs_when_it_is_due,
    the_dedupe_key_moves_with_a_reschedule,
    a_running_task_can_be_rescheduled,
    an_ended_task_is_not_rescheduled,
    a_refused_reschedule_leaves_the_task_alone,
    a_failed_task_is_retried_by_a_new_one,
    only_failed_tasks_are_retried,
    a_retry_whose_dedupe_key_lives_is_the_living_task,
    every_move_can_be_repeated_under_its_key,
    a_key_belongs_to_one_move_of_one_task,
);

const LATER: &str = r#"{"topic":"echo","delayMs":3600000}"#;

async fn post(server: &Server, id: &Value, action: &str, body: &str) -> Answer {
    server.post(&format!("/api/v1/tasks/{}/{action}", id.as_str().unwrap()), body).await
}

async fn show(server: &Server, id: &Value) -> Value {
    server.get(&format!("/api/v1/tasks/{}", id.as_str().unwrap())).await.json()
}

async fn a_task_is_cancelled_and_stays_so(database: Database) {
    let server = Server::start(&database);
    let task = server.make_task(LATER).await;
    // Without any body, as `curl -X POST` sends it.
    let path = format!("/api/v1/tasks/{}/cancel", task["id"].as_str().unwrap());
    let first = Answer::to(server.request(Method::POST, &path)).await;
    assert_eq!((first.status.as_u16(), first.header("content-type")), (200, "application/json"), "{first:?}");
    let cancelled = first.json();
    assert_eq!((&cancelled["id"], &cancelled["status"]), (&task["id"], &json!("cancelled")));
    assert!(cancelled["completedAt"].is_string());
    for body in ["", "{}", " \n"] {
        let again = server.post(&path, body).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, cancelled.clone()), "{body:?}");
    }
    let form = server.request(Method::POST, &path).header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(Answer::to(form).await.status, 200, "nothing is nothing, whatever its type");
    assert_eq!(show(&server, &task["id"]).await["attempts"], json!([]));
    server.stop();
}

async fn a_running_task_is_cancelled_at_once(database: Database) {
    let past = Past::of(&database).await;
    let running = past.running("echo").await;
    past.close().await;
    let server = Server::start(&database);
    let id = json!(running.id.to_string());
    assert_eq!(show(&server, &id).await["status"], "running");
    let cancelled = post(&server, &id, "cancel", "").await;
    assert_eq!((cancelled.status.as_u16(), &cancelled.json()["status"]), (200, &json!("cancelled")));
    let attempts = show(&server, &id).await["attempts"].clone();
    assert_eq!(attempts.as_array().unwrap().len(), 1);
    assert_eq!((&attempts[0]["number"], &attempts[0]["outcome"]), (&json!(1), &json!("cancelled")));
    assert!(attempts[0]["endedAt"].is_string());
    server.stop();
}

async fn an_ended_task_is_answered_as_it_stands(database: Database) {
    let past = Past::of(&database).await;
    let failed = json!(past.failed("echo").await.to_string());
    past.close().await;
    let server = Server::start(&database);
    let made = server.make_task(r#"{"topic":"echo"}"#).await;
    let completed = server.ended_task(made["id"].as_str().unwrap()).await;
    for (id, status) in [(&completed["id"], "completed"), (&failed, "failed")] {
        let before = show(&server, id).await;
        let answer = post(&server, id, "cancel", "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!(status)));
        assert_eq!(show(&server, id).await, before);
    }
    server.stop();
}

async fn a_cancelled_task_frees_its_dedupe_key_and_its_place_in_line(database: Database) {
    let server = Server::start(&database);
    let first = server
        .make_task(
            r#"{"topic":"echo","serialKey":"s","dedupeKey":"k","runAt":"2036-01-01T00:00:00Z","timezone":"UTC"}"#,
        )
        .await;
    post(&server, &first["id"], "cancel", "").await;
    let next = server.make_task(r#"{"topic":"echo","serialKey":"s","dedupeKey":"k"}"#).await;
    assert_eq!(server.ended_task(next["id"].as_str().unwrap()).await["status"], "completed");
    server.stop();
}

async fn a_rescheduled_task_is_a_new_one_in_its_place(database: Database) {
    let server = Server::start(&database);
    let old = server.make_task(r#"{"topic":"echo","delayMs":3600000,"clientRequestId":"c"}"#).await;
    let body = r#"{"runAt":"2036-11-16T08:30:00-06:00","timezone":"America/Edmonton"}"#;
    let answer = post(&server, &old["id"], "reschedule", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let new = answer.json();
    assert_ne!(new["id"], old["id"]);
    assert_eq!(answer.header("location"), format!("/api/v1/tasks/{}", new["id"].as_str().unwrap()));
    assert_eq!((&new["rescheduledFrom"], &new["status"]), (&old["id"], &json!("pending")));
    assert_eq!((&new["runAt"], &new["timezone"]), (&json!("2036-11-16T14:30:00.000Z"), &json!("America/Edmonton")));
    assert_eq!(new["clientRequestId"], Value::Null);
    assert_eq!(show(&server, &old["id"]).await["status"], "cancelled");
    let found = server.get("/api/v1/tasks?clientRequestId=c").await.json();
    assert_eq!(found["items"][0]["id"], old["id"], "the id still names the task that used it");
    server.stop();
}

async fn what_is_left_out_of_a_reschedule_is_copied(database: Database) {
    let server = Server::start(&database);
    let old = server
        .make_task(
            r#"{"topic":"echo","runAt":"2036-11-16T08:30:00Z","timezone":"Europe/Paris","payload":{"z":1.50,"a":[]},
            "metadata":{"ownerId":"me"},"clientRequestId":"c","dedupeKey":"d","serialKey":"s","priority":-7,
            "timeoutSeconds":9,"retry":{"attempts":4,"backoff":{"type":"fixed","delay":10,"maxDelay":20,"jitter":0}}}"#,
        )
        .await;
    let mut new = post(&server, &old["id"], "reschedule", "{}").await.json();
    let mut expected = old.clone();
    for (field, value) in [("id", &new["id"]), ("createdAt", &new["createdAt"]), ("rescheduledFrom", &old["id"])] {
        expected[field] = value.clone();
    }
    expected["clientRequestId"] = Value::Null;
    assert_eq!(new, expected);

    let body = r#"{"payload":null,"metadata":{"tenantId":"t"},"priority":3,"retry":{"attempts":2},"topic":"echo.two",
        "clientRequestId":"e","serialKey":null}"#;
    new = post(&server, &new["id"], "reschedule", body).await.json();
    assert_eq!((&new["payload"], &new["metadata"]), (&Value::Null, &json!({"tenantId": "t"})));
    assert_eq!(
        (&new["priority"], &new["topic"], &new["clientRequestId"]),
        (&json!(3), &json!("echo.two"), &json!("e"))
    );
    assert_eq!(new["retry"]["attempts"], 2);
    assert_eq!(new["retry"]["backoff"], expected["retry"]["backoff"]);
    assert_eq!((&new["serialKey"], &new["runAt"]), (&json!("s"), &old["runAt"]), "null is left out");
    assert_eq!(new["warnings"].as_array().unwrap().len(), 1, "nobody serves echo.two");
    server.stop();
}

async fn a_rescheduled_task_runs_when_it_is_due(database: Database) {
    let server = Server::start(&database);
    let old = server.make_task(r#"{"topic":"echo","delayMs":3600000,"payload":"now"}"#).await;
    let new = post(&server, &old["id"], "reschedule", r#"{"delayMs":0}"#).await.json();
    let ended = server.ended_task(new["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!("now")));
    server.stop();
}

async fn the_dedupe_key_moves_with_a_reschedule(database: Database) {
    let server = Server::start(&database);
    let old = server.make_task(r#"{"topic":"echo","delayMs":3600000,"dedupeKey":"k"}"#).await;
    let new = post(&server, &old["id"], "reschedule", r#"{"delayMs":7200000}"#).await.json();
    assert_eq!(new["dedupeKey"], "k");
    let second = server.post("/api/v1/tasks", r#"{"topic":"echo","dedupeKey":"k"}"#).await;
    assert_eq!((second.status.as_u16(), &second.json()["id"]), (200, &new["id"]));
    let other = server.make_task(LATER).await;
    post(&server, &other["id"], "reschedule", r#"{"dedupeKey":"k"}"#).await.problem(409, "DEDUPE_KEY_IN_USE");
    assert_eq!(show(&server, &other["id"]).await["status"], "pending");
    server.stop();
}

async fn a_running_task_can_be_rescheduled(database: Database) {
    let past = Past::of(&database).await;
    let running = past.running("echo").await;
    past.close().await;
    let server = Server::start(&database);
    let id = json!(running.id.to_string());
    let new = post(&server, &id, "reschedule", "{}").await.json();
    assert_eq!(server.ended_task(new["id"].as_str().unwrap()).await["status"], "completed");
    let old = show(&server, &id).await;
    assert_eq!((&old["status"], &old["attempts"][0]["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    server.stop();
}

async fn an_ended_task_is_not_rescheduled(database: Database) {
    let past = Past::of(&database).await;
    let failed = json!(past.failed("echo").await.to_string());
    past.close().await;
    let server = Server::start(&database);
    let completed = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(completed["id"].as_str().unwrap()).await;
    let cancelled = server.make_task(LATER).await;
    post(&server, &cancelled["id"], "cancel", "").await;
    for id in [&failed, &completed["id"], &cancelled["id"]] {
        post(&server, id, "reschedule", r#"{"delayMs":1}"#).await.problem(409, "ALREADY_ENDED");
    }
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len(), 3);
    server.stop();
}

async fn a_refused_reschedule_leaves_the_task_alone(database: Database) {
    let server = Server::start(&database);
    let old = server.make_task(r#"{"topic":"echo","delayMs":3600000,"clientRequestId":"c"}"#).await;
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1024 * 1024));
    for (body, status, code, fields) in [
        ("", 400, "INVALID", vec![]),
        ("[]", 400, "INVALID", vec![]),
        ("nope", 400, "INVALID", vec![]),
        (r#"{"runAt":"2020-01-01T00:00:00Z"}"#, 400, "RUN_AT_IN_PAST", vec!["runAt"]),
        (r#"{"runAt":"2036-01-01T00:00:00"}"#, 400, "INVALID", vec!["runAt"]),
        (r#"{"timezone":"EST"}"#, 400, "INVALID_TIMEZONE", vec!["timezone"]),
        (r#"{"topic":"a b"}"#, 400, "INVALID", vec!["topic"]),
        (r#"{"delayMs":1,"runAt":"2036-01-01T00:00:00Z"}"#, 400, "INVALID", vec!["delayMs"]),
        (r#"{"id":"x"}"#, 400, "INVALID", vec!["id"]),
        (r#"{"rescheduledFrom":null}"#, 400, "INVALID", vec!["rescheduledFrom"]),
        (r#"{"colour":"red"}"#, 400, "INVALID", vec!["colour"]),
        (r#"{"payload":{"a":1,"a":2}}"#, 400, "INVALID", vec!["payload"]),
        (&large, 413, "TOO_LARGE", vec!["payload"]),
        (r#"{"clientRequestId":"c"}"#, 409, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE", vec![]),
    ] {
        let answer = post(&server, &old["id"], "reschedule", body).await;
        assert_eq!(answer.problem(status, code), fields, "{}", &body[..body.len().min(80)]);
    }
    let listed = server.get("/api/v1/tasks").await.json();
    assert_eq!(listed["items"], json!([old]));
    server.stop();
}

async fn a_failed_task_is_retried_by_a_new_one(database: Database) {
    let server = Server::start(&database);
    // A result has at most 64 KiB: an echo of more fails.
    let body = format!(
        r#"{{"topic":"echo","payload":"{}","clientRequestId":"c","metadata":{{"ownerId":"me"}},"priority":5}}"#,
        "x".repeat(65 * 1024)
    );
    let made = server.make_task(&body).await;
    let failed = server.ended_task(made["id"].as_str().unwrap()).await;
    assert_eq!((&failed["status"], &failed["attempts"][0]["outcome"]), (&json!("failed"), &json!("failed")));
    let answer = post(&server, &failed["id"], "retry", "").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let again = answer.json();
    assert_eq!(answer.header("location"), format!("/api/v1/tasks/{}", again["id"].as_str().unwrap()));
    assert_eq!((&again["retryOf"], &again["clientRequestId"]), (&failed["id"], &Value::Null));
    for field in ["topic", "payload", "metadata", "priority", "retry", "timezone"] {
        assert_eq!(again[field], failed[field], "{field}");
    }
    let ended = server.ended_task(again["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["attempt"]), (&json!("failed"), &json!(1)));
    assert_eq!(show(&server, &failed["id"]).await, failed, "the first one stays as it ended");

    assert_eq!(again["warnings"], json!([]));
    let third = post(&server, &failed["id"], "retry", "").await.json();
    assert_ne!(third["id"], again["id"]);
    let said = third["warnings"][0].as_str().unwrap();
    let before = format!("was retried before, by {} (failed); this is another one", again["id"].as_str().unwrap());
    assert!(said.contains(&before), "{said}");
    server.stop();
}

async fn only_failed_tasks_are_retried(database: Database) {
    let past = Past::of(&database).await;
    let running = json!(past.running("echo").await.id.to_string());
    past.close().await;
    let server = Server::start(&database);
    let pending = server.make_task(LATER).await;
    let completed = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(completed["id"].as_str().unwrap()).await;
    let cancelled = server.make_task(LATER).await;
    post(&server, &cancelled["id"], "cancel", "").await;
    for id in [&running, &pending["id"], &completed["id"], &cancelled["id"]] {
        post(&server, id, "retry", "").await.problem(409, "NOT_FAILED");
    }
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len(), 4);
    server.stop();
}

async fn a_retry_whose_dedupe_key_lives_is_the_living_task(database: Database) {
    let server = Server::start(&database);
    let body = format!(r#"{{"topic":"echo","payload":"{}","dedupeKey":"k"}}"#, "x".repeat(65 * 1024));
    let failed = server.make_task(&body).await;
    server.ended_task(failed["id"].as_str().unwrap()).await;
    let living = server.make_task(r#"{"topic":"echo","dedupeKey":"k","delayMs":3600000}"#).await;
    let answer = post(&server, &failed["id"], "retry", "").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["id"]), (200, &living["id"]));
    assert_eq!(answer.json()["deduplicated"], true);
    server.stop();
}

async fn post_with_key(server: &Server, key: &str, path: &str, body: &str) -> Answer {
    let request = server.request(Method::POST, path).header("content-type", "application/json");
    Answer::to(request.header("Idempotency-Key", key).body(body.to_owned())).await
}

async fn every_move_can_be_repeated_under_its_key(database: Database) {
    let past = Past::of(&database).await;
    let failed = past.failed("echo").await;
    past.close().await;
    let server = Server::start(&database);
    let task = server.make_task(LATER).await;
    let other = server.make_task(LATER).await;
    let at = |id: &Value, action: &str| format!("/api/v1/tasks/{}/{action}", id.as_str().unwrap());
    let filter = r#"{"filter":{"topic":"nobody"}}"#;
    for (key, path, body, same) in [
        ("retry", at(&json!(failed.to_string()), "retry"), "", "{}"),
        (
            "reschedule",
            at(&task["id"], "reschedule"),
            r#"{"delayMs":7200000,"priority":1}"#,
            r#"{ "priority": 1, "delayMs": 7200000 }"#,
        ),
        ("cancel", at(&other["id"], "cancel"), "{}", ""),
        ("bulk cancel", "/api/v1/tasks/cancel".into(), filter, filter),
        ("bulk retry", "/api/v1/tasks/retry".into(), filter, filter),
    ] {
        let first = post_with_key(&server, key, &path, body).await;
        assert!(first.status.is_success(), "{key}: {first:?}");
        let count = server.get("/api/v1/tasks?limit=1000").await.json()["items"].as_array().unwrap().len();
        let again = post_with_key(&server, key, &path, same).await;
        assert_eq!((again.status, &again.text), (first.status, &first.text), "{key}");
        assert_eq!(again.header("location"), first.header("location"), "{key}");
        assert_eq!(server.get("/api/v1/tasks?limit=1000").await.json()["items"].as_array().unwrap().len(), count);
    }
    server.stop();
}

async fn a_key_belongs_to_one_move_of_one_task(database: Database) {
    let server = Server::start(&database);
    let (one, two) = (server.make_task(LATER).await, server.make_task(LATER).await);
    let at = |id: &Value, action: &str| format!("/api/v1/tasks/{}/{action}", id.as_str().unwrap());
    assert_eq!(post_with_key(&server, "k", &at(&one["id"], "cancel"), "").await.status, 200);
    for (path, body) in [
        (at(&two["id"], "cancel"), ""),
        (at(&two["id"], "reschedule"), "{}"),
        ("/api/v1/tasks".into(), LATER),
        ("/api/v1/tasks/batch".into(), r#"{"tasks":[{"topic":"echo"}]}"#),
        ("/api/v1/tasks/cancel".into(), r#"{"filter":{"topic":"echo"}}"#),
    ] {
        post_with_key(&server, "k", &path, body).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    }
    assert_eq!(show(&server, &two["id"]).await["status"], "pending");
    // What was refused is not remembered.
    let unknown = "/api/v1/tasks/018f0000-0000-7000-8000-000000000000/cancel";
    post_with_key(&server, "j", unknown, "").await.problem(404, "NOT_FOUND");
    assert_eq!(post_with_key(&server, "j", &at(&two["id"], "cancel"), "").await.status, 200);
    server.stop();
}
