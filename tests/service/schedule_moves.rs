//! Schedules over HTTP: paused, resumed, triggered and backfilled.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::schedules::{YEARLY, make, path_of};
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_schedule_is_paused_and_resumed,
    bad_pauses_are_refused,
    a_trigger_makes_a_task_that_runs,
    triggers_side_by_side_all_work,
    a_paused_schedule_can_be_triggered,
    a_backfill_makes_what_has_not_fired,
    a_backfill_leaves_out_what_calendars_exclude,
    a_backfill_keeps_to_the_schedules_own_bounds,
    bad_backfills_are_refused_and_make_nothing,
    calls_that_come_again_get_their_first_answer,
);

/// A schedule of every hour that does not fire while a test runs.
const HOURLY: &str =
    r#"{"name":"hourly","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo","enabled":false}"#;

async fn a_schedule_is_paused_and_resumed(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let answer =
        server.post(&path_of(&made, "/pause"), r#"{"note":"for now","until":"2040-01-01T01:00:00+01:00"}"#).await;
    assert_eq!((answer.status.as_u16(), answer.header("etag")), (200, "\"2\""), "{answer:?}");
    let paused = answer.json();
    assert_eq!((&paused["enabled"], &paused["nextFireAt"]), (&json!(false), &Value::Null));
    assert_eq!((&paused["pauseNote"], &paused["pausedUntil"]), (&json!("for now"), &json!("2040-01-01T00:00:00.000Z")));
    let again = server.post(&path_of(&made, "/pause"), "").await.json();
    let kept = (&json!("for now"), &Value::Null);
    assert_eq!((&again["pauseNote"], &again["pausedUntil"]), kept, "why is still known; until when is said anew");
    let same = server.post(&path_of(&made, "/pause"), "{}").await.json();
    assert_eq!(same["version"], again["version"]);
    let other = server.post(&path_of(&made, "/pause"), r#"{"note":"for good"}"#).await.json();
    assert_eq!(other["pauseNote"], "for good");
    let without = server.post(&path_of(&made, "/pause"), r#"{"note":null}"#).await.json();
    assert_eq!(without["pauseNote"], Value::Null, "taken back");
    server.post(&path_of(&made, "/pause"), r#"{"note":"for now"}"#).await;
    let resumed = server.post(&path_of(&made, "/resume"), "").await.json();
    assert_eq!((&resumed["enabled"], &resumed["nextFireAt"]), (&json!(true), &made["nextFireAt"]));
    assert_eq!(server.post(&path_of(&made, "/resume"), "{}").await.json()["version"], resumed["version"]);
    assert_eq!(server.get(&path_of(&made, "/executions")).await.json()["items"], json!([]), "no rows are written");
    server.stop();
}

async fn bad_pauses_are_refused(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(1001));
    for (body, field) in [
        (r#"{"until":"2020-01-01T00:00:00Z"}"#, "until"),
        (r#"{"until":"tomorrow"}"#, "until"),
        (r#"{"note":1}"#, "note"),
        (r#"{"note":"\u0000"}"#, "note"),
        (&long, "note"),
        (r#"{"colour":1}"#, "colour"),
    ] {
        assert_eq!(server.post(&path_of(&made, "/pause"), body).await.problem(400, "INVALID"), [field], "{body}");
    }
    for rest in ["/resume", "/trigger"] {
        assert_eq!(server.post(&path_of(&made, rest), r#"{"x":1}"#).await.problem(400, "INVALID"), ["x"]);
        assert_eq!(server.post(&path_of(&made, &format!("{rest}?x=1")), "").await.problem(400, "INVALID"), ["x"]);
    }
    assert_eq!(server.get(&path_of(&made, "")).await.json()["version"], 1);
    server.stop();
}

async fn a_trigger_makes_a_task_that_runs(database: Database) {
    let server = Server::start(&database);
    let body = YEARLY
        .replace('}', r#","payload":{"n":1},"metadata":{"ownerId":"o"},"jitterSeconds":3600,"overlapPolicy":"skip"}"#);
    let made = make(&server, body).await;
    let answer = server.post(&path_of(&made, "/trigger"), "").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let task = answer.json();
    assert_eq!(answer.header("location"), format!("/api/v1/tasks/{}", task["id"].as_str().unwrap()));
    assert_eq!(
        (&task["scheduleId"], &task["topic"], &task["payload"]),
        (&made["id"], &json!("echo"), &json!({"n": 1}))
    );
    assert_eq!((&task["timezone"], &task["metadata"]["ownerId"]), (&json!("America/Edmonton"), &json!("o")));
    let ended = server.ended_task(task["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!({"n": 1})));

    let executions = server.get(&path_of(&made, "/executions")).await.json();
    let execution = &executions["items"][0];
    assert_eq!(
        (&execution["kind"], &execution["status"], &execution["attempts"]),
        (&json!("manual"), &json!("completed"), &json!(1))
    );
    assert_eq!((&execution["taskId"], &execution["scheduledAt"]), (&task["id"], &task["scheduledAt"]));
    assert!(execution["durationMs"].as_i64().unwrap() >= 0 && execution["lagMs"].as_i64().unwrap() >= 0);
    let shown = server.get(&path_of(&made, "")).await.json();
    assert_eq!(shown["nextFireAt"], made["nextFireAt"]);
    assert_eq!(shown["lastFiredAt"], execution["firedAt"]);
    server.stop();
}

async fn triggers_side_by_side_all_work(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let path = path_of(&made, "/trigger");
    let answers = futures::future::join_all((0..20).map(|_| server.post(&path, ""))).await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    let instants: std::collections::BTreeSet<_> =
        answers.iter().map(|answer| answer.json()["scheduledAt"].as_str().unwrap().to_owned()).collect();
    assert_eq!(instants.len(), 20, "each has an instant of its own");
    assert_eq!(server.get(&path_of(&made, "/executions")).await.json()["items"].as_array().unwrap().len(), 20);
    server.stop();
}

async fn a_paused_schedule_can_be_triggered(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    server.post(&path_of(&made, "/pause"), "").await;
    assert_eq!(server.post(&path_of(&made, "/trigger"), "").await.status, 201);
    let shown = server.get(&path_of(&made, "")).await.json();
    assert_eq!((&shown["enabled"], &shown["nextFireAt"]), (&json!(false), &Value::Null));
    server.stop();
}

async fn a_backfill_makes_what_has_not_fired(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, HOURLY).await;
    let path = path_of(&made, "/backfill");
    let stretch = |from: &str, to: &str, rest: &str| {
        format!(r#"{{"from":"2026-01-01T{from}:00:00Z","to":"2026-01-01T{to}:00:00Z"{rest}}}"#)
    };
    let dry = server.post(&path, stretch("00", "06", r#","dryRun":true"#)).await;
    assert_eq!((dry.status.as_u16(), dry.json()), (200, json!({"made": 6, "alreadyFired": 0, "skipped": 0})));
    assert_eq!(server.get(&path_of(&made, "/executions")).await.json()["items"], json!([]));
    for rest in [r#","dryRun":true,"instants":true"#, r#","instants":false,"dryRun":true"#] {
        let told = server.post(&path, stretch("04", "06", rest)).await.json();
        let instants = json!(["2026-01-01T04:00:00.000Z", "2026-01-01T05:00:00.000Z"]);
        let expected = if rest.contains(r#""instants":true"#) { instants } else { Value::Null };
        assert_eq!((&told["made"], &told["instants"]), (&json!(2), &expected), "{told}");
    }
    let first = server.post(&path, stretch("01", "03", "")).await.json();
    assert_eq!(first, json!({"made": 2, "alreadyFired": 0, "skipped": 0}), "from is inclusive, to exclusive");
    let rest = server.post(&path, stretch("00", "06", "")).await.json();
    assert_eq!(rest, json!({"made": 4, "alreadyFired": 2, "skipped": 0}));
    assert_eq!(
        server.post(&path, stretch("00", "06", "")).await.json(),
        json!({"made": 0, "alreadyFired": 6, "skipped": 0})
    );

    let executions = server.get(&path_of(&made, "/executions")).await.json();
    let instants: Vec<_> = executions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["scheduledAt"].as_str().unwrap()[11..13].to_owned())
        .collect();
    assert_eq!(instants, ["05", "04", "03", "00", "02", "01"], "newest first is by creation");
    for item in executions["items"].as_array().unwrap() {
        assert_eq!((&item["kind"], &item["count"], &item["reason"]), (&json!("backfill"), &json!(1), &Value::Null));
        server.ended_task(item["taskId"].as_str().unwrap()).await;
    }
    let shown = server.get(&path_of(&made, "")).await.json();
    assert_eq!((&shown["enabled"], &shown["version"]), (&json!(false), &json!(1)));
    server.stop();
}

async fn a_backfill_leaves_out_what_calendars_exclude(database: Database) {
    let server = Server::start(&database);
    server.post("/api/v1/calendars", r#"{"name":"closed","dates":["2026-01-02"]}"#).await;
    let body = r#"{"name":"daily","cronExpression":"0 20 * * *","timezone":"America/New_York","topic":"echo",
        "enabled":false,"excludeCalendars":["closed"]}"#;
    let made = make(&server, body).await;
    let stretch = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-05T00:00:00Z"}"#;
    let done = server.post(&path_of(&made, "/backfill"), stretch).await.json();
    assert_eq!(done, json!({"made": 3, "alreadyFired": 0, "skipped": 1}), "20:00 in New York is tomorrow in UTC");
    server.stop();
}

async fn a_backfill_keeps_to_the_schedules_own_bounds(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"name":"bounded","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo","enabled":false,
        "startAt":"2026-01-01T02:00:00Z","endAt":"2040-01-01T00:00:00Z","maxFires":1}"#;
    let made = make(&server, body).await;
    let stretch = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T05:00:00Z"}"#;
    let done = server.post(&path_of(&made, "/backfill"), stretch).await.json();
    assert_eq!(done, json!({"made": 3, "alreadyFired": 0, "skipped": 0}), "maxFires counts what fires by itself");
    server.stop();
}

async fn bad_backfills_are_refused_and_make_nothing(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, HOURLY).await;
    let path = path_of(&made, "/backfill");
    let january = r#""from":"2026-01-01T00:00:00Z","to":"2026-02-01T00:00:00Z""#;
    for (body, mut fields) in [
        ("{}".to_owned(), vec!["from", "to"]),
        (r#"{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}"#.into(), vec!["from"]),
        (r#"{"from":"2026-01-01T00:00:00Z","to":"2040-01-01T00:00:00Z"}"#.into(), vec!["to"]),
        (r#"{"from":"2026-01-01","to":5}"#.into(), vec!["from", "to"]),
        (r#"{"from":"1990-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}"#.into(), vec!["to"]),
        (format!(r#"{{{january},"maxFires":743}}"#), vec!["maxFires"]),
        (format!(r#"{{{january},"maxFires":743,"dryRun":true}}"#), vec!["maxFires"]),
        (format!(r#"{{{january},"maxFires":0}}"#), vec!["maxFires"]),
        (format!(r#"{{{january},"dryRun":1,"made":1,"colour":1}}"#), vec!["colour", "dryRun", "made"]),
    ] {
        let mut named = server.post(&path, body.clone()).await.problem(400, "INVALID");
        named.sort();
        fields.sort_unstable();
        assert_eq!(named, fields, "{body}");
    }
    let two_months = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-03-01T00:00:00Z"}"#;
    assert_eq!(server.post(&path, two_months).await.problem(400, "INVALID"), ["maxFires"], "1000 by default");
    let large = HOURLY.replace("hourly", "large").replace('}', &format!(r#","payload":"{}"}}"#, "x".repeat(1_000_000)));
    let large = make(&server, large).await;
    server.post(&path_of(&large, "/backfill"), format!("{{{january}}}")).await.problem(413, "TOO_LARGE");
    assert_eq!(server.get("/api/v1/tasks").await.json()["items"], json!([]));
    assert_eq!(server.post(&path, format!(r#"{{{january},"maxFires":744,"dryRun":true}}"#)).await.json()["made"], 744);
    server.stop();
}

async fn calls_that_come_again_get_their_first_answer(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, HOURLY).await;
    let stretch = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T03:00:00Z"}"#;
    let dry = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T03:00:00Z","dryRun":true}"#;
    for (n, (rest, body)) in [
        ("/resume", "{}"),
        ("/resume", "{}"),
        ("/pause", r#"{"note":"x"}"#),
        ("/trigger", ""),
        ("/backfill", dry),
        ("/backfill", stretch),
    ]
    .into_iter()
    .enumerate()
    {
        let call = |body: &str| {
            let request =
                server.request(Method::POST, &path_of(&made, rest)).header("idempotency-key", format!("k{n}"));
            Answer::to(request.header("content-type", "application/json").body(body.to_owned()))
        };
        let first = call(body).await;
        assert!(first.status.is_success(), "{rest}: {first:?}");
        let again = call(body).await;
        assert_eq!((again.status, &again.text), (first.status, &first.text), "{rest}");
        assert_eq!((again.header("etag"), again.header("location")), (first.header("etag"), first.header("location")));
    }
    let request = server.request(Method::POST, &path_of(&made, "/pause")).header("idempotency-key", "k3");
    let other = Answer::to(request.header("content-type", "application/json").body("{}")).await;
    other.problem(409, "IDEMPOTENCY_KEY_REUSED");
    let tasks = server.get("/api/v1/tasks").await.json();
    assert_eq!(tasks["items"].as_array().unwrap().len(), 4, "one trigger, three backfilled");
    server.stop();
}
