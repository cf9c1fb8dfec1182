//! Making and showing tasks.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_task_is_answered_with_every_field_and_can_be_read_again,
    a_due_task_completes_with_its_one_attempt,
    what_is_given_is_kept_digit_by_digit,
    tasks_survive_a_restart,
    a_topic_that_nobody_serves_is_warned_about,
    an_ended_task_is_not_said_to_be_completed_unless_it_is,
    a_second_task_with_the_same_dedupe_key_is_the_living_one,
    a_client_request_id_is_used_once,
    times_are_utc_with_milliseconds,
);

async fn a_task_is_answered_with_every_field_and_can_be_read_again(database: Database) {
    let server = Server::start(&database);
    let made = server.post("/api/v1/tasks", r#"{"topic":"echo","delayMs":3600000}"#).await;
    assert_eq!((made.status.as_u16(), made.header("content-type")), (201, "application/json"));
    let task = made.json();
    let id = task["id"].as_str().unwrap();
    assert_eq!(made.header("location"), format!("/api/v1/tasks/{id}"));
    let expected = json!({
        "id": id, "topic": "echo", "status": "pending", "runAt": task["runAt"], "timezone": "UTC", "payload": {},
        "metadata": {}, "clientRequestId": null, "dedupeKey": null, "serialKey": null, "priority": 0,
        "timeoutSeconds": 3600,
        "retry": {"attempts": 1, "backoff": {"type": "exponential", "delay": 5000, "maxDelay": 3600000, "jitter": 0.2}},
        "attempt": 0, "result": null, "error": null, "scheduleId": null, "scheduledAt": null, "retryOf": null,
        "rescheduledFrom": null, "createdAt": task["createdAt"], "startedAt": null, "completedAt": null, "warnings": [],
    });
    assert_eq!(task, expected);

    let shown = server.get(made.header("location")).await;
    assert_eq!(shown.status, 200);
    let mut with_attempts = expected.clone();
    with_attempts["attempts"] = json!([]);
    assert_eq!(shown.json(), with_attempts);
    assert_eq!(server.get("/api/v1/tasks").await.json(), json!({"items": [expected], "nextCursor": null}));
    server.stop();
}

async fn a_due_task_completes_with_its_one_attempt(database: Database) {
    let server = Server::start(&database);
    let made = server.make_task(r#"{"topic":"echo","payload":{"hello":["world",1.50]}}"#).await;
    let task = server.ended_task(made["id"].as_str().unwrap()).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &made["payload"]), "{task}");
    assert_eq!((&task["attempt"], &task["error"]), (&json!(1), &Value::Null), "{task}");
    let attempts = task["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{task}");
    let attempt = &attempts[0];
    assert_eq!((&attempt["number"], &attempt["outcome"]), (&json!(1), &json!("completed")), "{task}");
    assert_eq!(attempt["error"], Value::Null, "{task}");
    assert_eq!((&attempt["startedAt"], &attempt["endedAt"]), (&task["startedAt"], &task["completedAt"]), "{task}");
    server.stop();
}

async fn what_is_given_is_kept_digit_by_digit(database: Database) {
    let server = Server::start(&database);
    let payload = r#"{"z":1.50,"a":12345678901234567890123,"ü":["\u00e9",{"n":null}]}"#;
    let body = format!(
        r#"{{"topic":"a.b","delayMs":60000,"timezone":"America/Edmonton","payload":{payload},"metadata":{{"ownerId":"o-1","x":"y"}},
        "clientRequestId":"c-1","dedupeKey":"d-1","serialKey":"s-1","priority":-7,"timeoutSeconds":12,
        "retry":{{"attempts":4,"backoff":{{"type":"fixed","delay":100}}}}}}"#
    );
    let made = server.post("/api/v1/tasks", body).await;
    assert!(made.text.contains(payload), "{}", made.text);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let shown = server.get(&format!("/api/v1/tasks/{id}")).await;
    assert!(shown.text.contains(payload), "{}", shown.text);
    let task = shown.json();
    assert_eq!(task["timezone"], "America/Edmonton");
    assert_eq!(task["metadata"], json!({"ownerId": "o-1", "x": "y"}));
    assert_eq!((&task["priority"], &task["timeoutSeconds"]), (&json!(-7), &json!(12)));
    let backoff = json!({"type": "fixed", "delay": 100, "maxDelay": 3600000, "jitter": 0.2});
    assert_eq!(task["retry"], json!({"attempts": 4, "backoff": backoff}));
    server.stop();
}

async fn tasks_survive_a_restart(database: Database) {
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo","payload":[1]}"#).await;
    server.stop();
    let server = Server::start(&database);
    let again = server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
    assert_eq!((&again["payload"], &again["createdAt"]), (&task["payload"], &task["createdAt"]));
    server.stop();
}

async fn a_topic_that_nobody_serves_is_warned_about(database: Database) {
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"nobody.home"}"#).await;
    let warnings = task["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains("nobody.home"), "{task}");
    // Also once it has run, when nothing else tells it from work that somebody did.
    let ended = server.ended_task(task["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["warnings"]), (&json!("completed"), &task["warnings"]));
    let served = server.make_task(r#"{"topic":"echo"}"#).await;
    assert_eq!(served["warnings"], json!([]));
    assert_eq!(server.ended_task(served["id"].as_str().unwrap()).await["warnings"], json!([]));
    server.put_topic("meant.so", r#"{"route":{"type":"event"}}"#).await;
    let meant = server.make_task(r#"{"topic":"meant.so"}"#).await;
    assert_eq!(server.ended_task(meant["id"].as_str().unwrap()).await["warnings"], json!([]), "somebody wants it so");
    server.stop();
}

async fn an_ended_task_is_not_said_to_be_completed_unless_it_is(database: Database) {
    let server = Server::start(&database);
    server.put_topic("resize", r#"{"route":{"type":"pull"}}"#).await;
    let failed = server.make_task(r#"{"topic":"resize"}"#).await["id"].as_str().unwrap().to_owned();
    let claimed = server.post("/api/v1/claims", r#"{"topics":["resize"]}"#).await.json();
    let fail = json!({ "epoch": claimed["tasks"][0]["epoch"], "error": "broken", "final": true });
    assert_eq!(server.post(&format!("/api/v1/tasks/{failed}/fail"), fail.to_string()).await.status, 200);
    let waiting = r#"{"topic":"resize","delayMs":3600000}"#;
    let cancelled = server.make_task(waiting).await["id"].as_str().unwrap().to_owned();
    server.post(&format!("/api/v1/tasks/{cancelled}/cancel"), "").await;
    let pending = server.make_task(waiting).await["id"].as_str().unwrap().to_owned();
    assert_eq!(Answer::to(server.request(Method::DELETE, "/api/v1/topics/resize")).await.status, 204);
    for (id, status, warnings) in [(failed, "failed", 0), (cancelled, "cancelled", 0), (pending, "pending", 1)] {
        let task = server.get(&format!("/api/v1/tasks/{id}")).await.json();
        assert_eq!(
            (task["status"].as_str(), task["warnings"].as_array().unwrap().len()),
            (Some(status), warnings),
            "{task}"
        );
    }
    server.stop();
}

async fn a_second_task_with_the_same_dedupe_key_is_the_living_one(database: Database) {
    let server = Server::start(&database);
    // Due later: a task that has ended holds its key no longer.
    let first = server.make_task(r#"{"topic":"echo","dedupeKey":"k","payload":1,"delayMs":3600000}"#).await;
    assert_eq!(first.get("deduplicated"), None);
    let second = server.post("/api/v1/tasks", r#"{"topic":"echo","dedupeKey":"k","payload":2}"#).await;
    assert_eq!(second.status, 200);
    let second = second.json();
    assert_eq!((&second["id"], &second["payload"]), (&first["id"], &json!(1)));
    assert_eq!(second["deduplicated"], true);
    let elsewhere = server.make_task(r#"{"topic":"echo.two","dedupeKey":"k"}"#).await;
    assert_ne!(elsewhere["id"], first["id"]);
    server.stop();
}

async fn a_client_request_id_is_used_once(database: Database) {
    let server = Server::start(&database);
    server.make_task(r#"{"topic":"echo","clientRequestId":"c"}"#).await;
    let again = server.post("/api/v1/tasks", r#"{"topic":"echo","clientRequestId":"c"}"#).await;
    again.problem(409, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE");
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"].as_array().unwrap().len(), 1);
    server.stop();
}

async fn times_are_utc_with_milliseconds(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"topic":"echo","runAt":"2036-11-16T08:30:00.1239-06:00","timezone":"America/Edmonton"}"#;
    let task = server.make_task(body).await;
    assert_eq!(task["runAt"], "2036-11-16T14:30:00.123Z");
    let created_at = task["createdAt"].as_str().unwrap();
    assert!(created_at.len() == 24 && created_at.ends_with('Z'), "{created_at}");
    let due_now = server.make_task(r#"{"topic":"echo"}"#).await;
    assert_eq!(due_now["runAt"], due_now["createdAt"]);
    let later = server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    let at = |value: &Value| chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    assert_eq!((at(&later["runAt"]) - at(&later["createdAt"])).num_milliseconds(), 3_600_000);
    server.stop();
}
