//! Schedules over HTTP: replaced, patched, deleted; by version, and never retroactively.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::schedules::{PATH, YEARLY, make, path_of};
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    what_a_replacement_leaves_out_returns_to_its_default,
    a_patch_merges_and_null_resets,
    a_patch_merges_payload_and_metadata_member_by_member,
    a_patch_changes_the_kind_of_rhythm,
    bad_edits_are_refused_and_change_nothing,
    an_edit_asks_for_the_version_it_knows,
    the_version_changes_with_edits_alone,
    enabled_false_is_a_pause,
    of_racing_edits_with_a_version_one_is_made,
    racing_edits_without_a_version_are_all_made,
    a_deleted_schedule_cancels_what_waits_and_keeps_its_executions,
);

async fn send(server: &Server, method: Method, path: &str, body: impl Into<String>) -> Answer {
    Answer::to(server.request(method, path).header("content-type", "application/json").body(body.into())).await
}

async fn patch(server: &Server, schedule: &Value, body: &str) -> Value {
    let request = server.request(Method::PATCH, &path_of(schedule, ""));
    let answer = Answer::to(request.header("content-type", "application/merge-patch+json").body(body.to_owned())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("etag"), format!("\"{}\"", answer.json()["version"]));
    answer.json()
}

async fn what_a_replacement_leaves_out_returns_to_its_default(database: Database) {
    let server = Server::start(&database);
    let body =
        YEARLY.replace('}', r#","payload":[1],"priority":5,"maxRetries":7,"description":"d","clientRequestId":"c"}"#);
    let made = make(&server, body).await;
    let answer = send(&server, Method::PUT, &path_of(&made, ""), YEARLY.replace("yearly", "renamed")).await;
    assert_eq!((answer.status.as_u16(), answer.header("etag")), (200, "\"2\""), "{answer:?}");
    let replaced = answer.json();
    assert_eq!((&replaced["id"], &replaced["name"]), (&made["id"], &json!("renamed")));
    assert_eq!(
        (&replaced["payload"], &replaced["priority"], &replaced["maxRetries"]),
        (&json!({}), &json!(0), &json!(3))
    );
    assert_eq!((&replaced["description"], &replaced["clientRequestId"]), (&Value::Null, &json!("c")));
    assert_eq!((&replaced["createdAt"], &replaced["version"]), (&made["createdAt"], &json!(2)));
    let mut shown = server.get(&path_of(&made, "")).await.json();
    shown["warnings"] = replaced["warnings"].clone();
    assert_eq!(shown, replaced);
    server.stop();
}

async fn a_patch_merges_and_null_resets(database: Database) {
    let server = Server::start(&database);
    let body =
        YEARLY.replace('}', r#","priority":5,"description":"d","maxRetries":7,"startAt":"2040-01-01T00:00:00Z"}"#);
    let made = make(&server, body).await;
    let patched =
        patch(&server, &made, r#"{"description":null,"maxRetries":null,"jitterSeconds":9,"jobType":"other"}"#).await;
    assert_eq!((&patched["description"], &patched["maxRetries"]), (&Value::Null, &json!(3)));
    assert_eq!(
        (&patched["jitterSeconds"], &patched["topic"], &patched["priority"]),
        (&json!(9), &json!("other"), &json!(5))
    );
    assert_eq!(patched["nextFireAt"], "2040-01-01T06:00:00.000Z");
    let patched = patch(&server, &made, r#"{"retry":{"backoff":{"delay":10}},"startAt":null}"#).await;
    assert_eq!(
        patched["retry"]["backoff"],
        json!({"type": "exponential", "delay": 10, "maxDelay": 3_600_000, "jitter": 0.2})
    );
    let patched = patch(&server, &made, r#"{"retry":{"backoff":{"type":"fixed"}}}"#).await;
    assert_eq!(
        (&patched["retry"]["backoff"]["type"], &patched["retry"]["backoff"]["delay"]),
        (&json!("fixed"), &json!(10))
    );
    assert!(patched["nextFireAt"].as_str().unwrap() < "2040", "{patched}");
    let unchanged = send(&server, Method::PATCH, &path_of(&made, ""), "{}").await;
    assert_eq!(unchanged.json()["version"], patched["version"], "nothing changed");
    server.stop();
}

async fn a_patch_merges_payload_and_metadata_member_by_member(database: Database) {
    let server = Server::start(&database);
    let made =
        make(&server, YEARLY.replace('}', r#","payload":{"a":1.50,"b":{"c":1,"d":2}},"metadata":{"x":"1","y":"2"}}"#))
            .await;
    let body = r#"{"jobPayload":{"b":{"c":null,"e":3}},"metadata":{"x":null,"z":"3"}}"#;
    let answer = send(&server, Method::PATCH, &path_of(&made, ""), body).await;
    assert!(answer.text.contains(r#""payload":{"a":1.50,"b":{"d":2,"e":3}}"#), "{}", answer.text);
    assert_eq!(answer.json()["metadata"], json!({"y": "2", "z": "3"}));
    assert_eq!(patch(&server, &made, r#"{"payload":[1]}"#).await["payload"], json!([1]));
    assert_eq!(patch(&server, &made, r#"{"payload":null}"#).await["payload"], json!({}));
    server.stop();
}

async fn a_patch_changes_the_kind_of_rhythm(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let every = patch(&server, &made, r#"{"everyMs":3600000}"#).await;
    assert_eq!((&every["everyMs"], &every["cronExpression"]), (&json!(3_600_000), &Value::Null));
    let cron = patch(&server, &made, r#"{"cronExpression":"@daily","everyMs":null}"#).await;
    assert_eq!((&cron["everyMs"], &cron["cronExpression"]), (&Value::Null, &json!("@daily")));
    server.stop();
}

async fn bad_edits_are_refused_and_change_nothing(database: Database) {
    let server = Server::start(&database);
    make(&server, YEARLY.replace("yearly", "taken")).await;
    let made = make(&server, YEARLY.replace('}', r#","clientRequestId":"c"}"#)).await;
    let path = path_of(&made, "");
    for (body, status, code, fields) in [
        (r#"{"name":"taken"}"#, 409, "NAME_TAKEN", vec![]),
        (r#"{"timezone":"CST"}"#, 400, "INVALID_TIMEZONE", vec!["timezone"]),
        (r#"{"cronExpression":"0 0 30 2 *"}"#, 400, "NEVER_FIRES", vec!["cronExpression"]),
        (r#"{"cronExpression":null}"#, 400, "INVALID", vec!["cronExpression"]),
        (r#"{"cronExpression":"@daily","everyMs":1000}"#, 400, "INVALID", vec!["everyMs"]),
        (r#"{"topic":null}"#, 400, "INVALID", vec!["topic"]),
        (r#"{"topic":"a","jobType":"a"}"#, 400, "INVALID", vec!["jobType"]),
        (r#"{"colour":null,"version":7,"id":"x"}"#, 400, "INVALID", vec!["version", "id", "colour"]),
        (r#"{"retry":{"attempts":1}}"#, 400, "INVALID", vec!["retry.attempts"]),
        (r#"{"payload":{"a":1,"a":2}}"#, 400, "INVALID", vec!["payload"]),
        (r#"{"metadata":{"a":"1","a":"2"}}"#, 400, "INVALID", vec!["metadata.a"]),
        (r#"{"priority":1,"priority":2}"#, 400, "INVALID", vec!["priority"]),
        (r#"{"excludeCalendars":["none"]}"#, 400, "INVALID", vec!["excludeCalendars"]),
        (r#"{"clientRequestId":"d"}"#, 400, "INVALID", vec!["clientRequestId"]),
        (r#"{"startAt":"2040-01-01T00:00:00Z","endAt":"2039-01-01T00:00:00Z"}"#, 400, "INVALID", vec!["endAt"]),
        ("[]", 400, "INVALID", vec![]),
    ] {
        let mut named = send(&server, Method::PATCH, &path, body).await.problem(status, code);
        let mut fields: Vec<_> = fields.into_iter().map(str::to_owned).collect();
        named.sort();
        fields.sort();
        assert_eq!(named, fields, "{body}");
    }
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1024 * 1024));
    assert_eq!(send(&server, Method::PATCH, &path, large).await.problem(413, "TOO_LARGE"), ["payload"]);
    let text = server.request(Method::PATCH, &path).header("content-type", "text/plain").body("{}");
    Answer::to(text).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let merge_patch = server.request(Method::PUT, &path).header("content-type", "application/merge-patch+json");
    Answer::to(merge_patch.body(YEARLY)).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(send(&server, Method::PUT, &path, "{}").await.problem(400, "INVALID").len(), 4);
    assert_eq!(send(&server, Method::PUT, &format!("{path}?x=1"), YEARLY).await.problem(400, "INVALID"), ["x"]);
    let mut shown = server.get(&path).await.json();
    shown["warnings"] = json!([]);
    assert_eq!(shown, made);
    server.stop();
}

async fn an_edit_asks_for_the_version_it_knows(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let with = |method: Method, rest: &str, tag: &str, body: &'static str| {
        let request = server.request(method, &path_of(&made, rest)).header("content-type", "application/json");
        Answer::to(request.header("if-match", tag).body(body))
    };
    for tag in ["\"2\"", "W/\"1\"", "\"0\", \"2\"", "nonsense"] {
        with(Method::PATCH, "", tag, r#"{"priority":1}"#).await.problem(412, "VERSION_MISMATCH");
        with(Method::PUT, "", tag, YEARLY).await.problem(412, "VERSION_MISMATCH");
        with(Method::POST, "/pause", tag, "").await.problem(412, "VERSION_MISMATCH");
        with(Method::DELETE, "", tag, "").await.problem(412, "VERSION_MISMATCH");
    }
    assert_eq!(with(Method::PATCH, "", "\"1\"", r#"{"priority":1}"#).await.status, 200);
    assert_eq!(with(Method::PATCH, "", "*", r#"{"priority":2}"#).await.status, 200);
    assert_eq!(with(Method::PATCH, "", "\"9\", \"3\"", r#"{"priority":3}"#).await.json()["version"], 4);
    assert_eq!(with(Method::POST, "/pause", "\"4\"", "").await.json()["version"], 5);
    assert_eq!(with(Method::DELETE, "", "\"5\"", "").await.status, 204);
    with(Method::DELETE, "", "\"5\"", "").await.problem(404, "NOT_FOUND");
    server.stop();
}

async fn the_version_changes_with_edits_alone(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    assert_eq!(server.post(&path_of(&made, "/trigger"), "").await.status, 201);
    let shown = server.get(&path_of(&made, "")).await.json();
    assert_eq!((&shown["version"], &shown["updatedAt"]), (&json!(1), &made["updatedAt"]));
    assert!(shown["lastFiredAt"].is_string());
    assert_eq!(shown["nextFireAt"], made["nextFireAt"]);
    server.stop();
}

async fn enabled_false_is_a_pause(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let paused = patch(&server, &made, r#"{"enabled":false}"#).await;
    assert_eq!((&paused["enabled"], &paused["nextFireAt"]), (&json!(false), &Value::Null));
    let edited = patch(&server, &made, r#"{"priority":1}"#).await;
    assert_eq!((&edited["enabled"], &edited["nextFireAt"]), (&json!(false), &Value::Null), "it stays paused");
    let noted = server.post(&path_of(&made, "/pause"), r#"{"note":"why","until":"2040-01-01T00:00:00Z"}"#).await.json();
    assert_eq!((&noted["pauseNote"], &noted["pausedUntil"]), (&json!("why"), &json!("2040-01-01T00:00:00.000Z")));
    let edited = patch(&server, &made, r#"{"priority":2}"#).await;
    assert_eq!(edited["pauseNote"], "why");
    let resumed = patch(&server, &made, r#"{"enabled":true}"#).await;
    assert_eq!((&resumed["enabled"], &resumed["nextFireAt"]), (&json!(true), &made["nextFireAt"]));
    assert_eq!((&resumed["pauseNote"], &resumed["pausedUntil"]), (&Value::Null, &Value::Null));
    patch(&server, &made, r#"{"enabled":false}"#).await;
    let replaced = send(&server, Method::PUT, &path_of(&made, ""), YEARLY).await.json();
    assert_eq!(replaced["enabled"], true, "what is left out returns to its default");
    server.stop();
}

async fn of_racing_edits_with_a_version_one_is_made(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let edits = (0..8).map(|n| {
        let request = server.request(Method::PATCH, &path_of(&made, "")).header("content-type", "application/json");
        Answer::to(request.header("if-match", "\"1\"").body(format!(r#"{{"priority":{}}}"#, n + 1)))
    });
    let mut statuses: Vec<_> =
        futures::future::join_all(edits).await.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    server.stop();
}

async fn racing_edits_without_a_version_are_all_made(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    let path = path_of(&made, "");
    let edits = (0..8).map(|n| send(&server, Method::PATCH, &path, format!(r#"{{"metadata":{{"k{n}":"v"}}}}"#)));
    let answers = futures::future::join_all(edits).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    let shown = server.get(&path_of(&made, "")).await.json();
    assert_eq!((shown["metadata"].as_object().unwrap().len(), &shown["version"]), (8, &json!(9)));
    server.stop();
}

async fn a_deleted_schedule_cancels_what_waits_and_keeps_its_executions(database: Database) {
    // Nothing claims: what is triggered waits.
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let made = make(&server, YEARLY).await;
    let task = server.post(&path_of(&made, "/trigger"), "").await.json();
    let executions = path_of(&made, "/executions");
    assert_eq!(server.get(&executions).await.json()["items"][0]["status"], "pending");
    let deleted = send(&server, Method::DELETE, &path_of(&made, ""), "").await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    server.get(&path_of(&made, "")).await.problem(404, "NOT_FOUND");
    server.post(&path_of(&made, "/trigger"), "").await.problem(404, "NOT_FOUND");
    let shown = server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
    assert_eq!(shown["status"], "cancelled");
    let kept = server.get(&executions).await.json();
    assert_eq!((&kept["items"][0]["taskId"], &kept["items"][0]["status"]), (&task["id"], &json!("cancelled")));
    assert_eq!(server.get(&format!("{executions}?status=failed")).await.json()["items"], json!([]));
    assert_eq!(server.get(PATH).await.json()["items"], json!([]));

    // One that never fired has an empty list, and is not unheard of.
    let idle = make(&server, YEARLY).await;
    assert_eq!(send(&server, Method::DELETE, &path_of(&idle, ""), "").await.status, 204);
    let listed = server.get(&path_of(&idle, "/executions")).await;
    assert_eq!((listed.status.as_u16(), listed.json()), (200, json!({"items": [], "nextCursor": null})));
    let unknown = "/api/v1/schedules/01a1ef87-0000-7000-8000-000000000000/executions";
    server.get(unknown).await.problem(404, "NOT_FOUND");
    server.stop();
}
