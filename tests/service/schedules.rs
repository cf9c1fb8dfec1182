//! Schedules over HTTP: made, shown, listed, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_schedule_is_answered_with_every_field_and_can_be_read_again,
    every_field_that_is_given_is_kept,
    the_aliases_of_topic_and_payload_are_read,
    bad_schedules_are_refused_with_their_code,
    every_bad_field_is_named_at_once,
    sizes_are_bounded,
    a_name_and_a_client_request_id_are_used_once,
    a_creation_that_comes_again_gets_its_first_answer,
    a_disabled_schedule_has_no_next_fire,
    a_list_is_filtered_and_paged,
    unknown_ids_and_methods_are_problems_too,
    what_a_schedule_leaves_open_its_topic_says,
);

pub(crate) const PATH: &str = "/api/v1/schedules";

/// A schedule that fires on new year's day, so not while a test runs.
pub(crate) const YEARLY: &str =
    r#"{"name":"yearly","cronExpression":"0 0 1 1 *","timezone":"America/Edmonton","topic":"echo"}"#;

pub(crate) async fn make(server: &Server, body: impl Into<String>) -> Value {
    let answer = server.post(PATH, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

pub(crate) fn path_of(schedule: &Value, rest: &str) -> String {
    format!("{PATH}/{}{rest}", schedule["id"].as_str().unwrap())
}

async fn a_schedule_is_answered_with_every_field_and_can_be_read_again(database: Database) {
    let server = Server::start(&database);
    let answer = server.post(PATH, YEARLY).await;
    assert_eq!((answer.status.as_u16(), answer.header("etag")), (201, "\"1\""), "{answer:?}");
    let mut schedule = answer.json();
    assert_eq!(answer.header("location"), path_of(&schedule, ""));
    assert_eq!(schedule["nextFireAt"].as_str().map(|at| &at[4..]), Some("-01-01T06:00:00.000Z"), "no winter time");
    assert_eq!(schedule["createdAt"], schedule["updatedAt"]);
    assert_eq!(schedule["createdAt"].as_str().unwrap().len(), "2026-11-16T12:00:00.000Z".len());
    assert_eq!(schedule["warnings"], json!([]));
    let shown = server.get(&path_of(&schedule, "")).await;
    schedule.as_object_mut().unwrap().remove("warnings");
    assert_eq!((shown.header("etag"), shown.json()), ("\"1\"", schedule.clone()));
    for volatile in ["id", "nextFireAt", "createdAt", "updatedAt"] {
        schedule.as_object_mut().unwrap().remove(volatile);
    }
    let expected = json!({
        "name": "yearly", "description": null, "cronExpression": "0 0 1 1 *", "everyMs": null,
        "timezone": "America/Edmonton", "topic": "echo", "payload": {}, "enabled": true, "maxRetries": 3,
        "retry": {"backoff": {"type": "exponential", "delay": 5000, "maxDelay": 3_600_000, "jitter": 0.2}},
        "timeoutSeconds": 3600, "priority": 0, "overlapPolicy": "skip", "misfirePolicy": "fire_once",
        "misfireWindowSeconds": 86_400, "jitterSeconds": 0, "startAt": null, "endAt": null, "maxFires": null,
        "dstGap": null, "dstFold": null, "excludeCalendars": [], "metadata": {}, "clientRequestId": null,
        "createdBy": null, "lastFiredAt": null, "pauseNote": null, "pausedUntil": null, "version": 1,
    });
    assert_eq!(schedule, expected);
    server.stop();
}

async fn every_field_that_is_given_is_kept(database: Database) {
    let server = Server::start(&database);
    assert_eq!(server.post("/api/v1/calendars", r#"{"name":"closed","weekdays":["sun"]}"#).await.status, 201);
    let given = json!({
        "name": "täglich 🎉", "description": "zeile\nzwei", "everyMs": 90_000, "timezone": "Europe/Berlin",
        "topic": "echo", "payload": {"n": 1.5}, "enabled": false, "maxRetries": 0,
        "retry": {"backoff": {"type": "fixed", "delay": 10, "maxDelay": 20, "jitter": 0.0}},
        "timeoutSeconds": 7, "priority": -100, "overlapPolicy": "cancel_previous", "misfirePolicy": "fire_all",
        "misfireWindowSeconds": 60, "jitterSeconds": 5, "startAt": "2040-01-01T00:00:00.000Z",
        "endAt": "2041-01-01T00:00:00.000Z", "maxFires": 12, "dstGap": "skip", "dstFold": "both",
        "excludeCalendars": ["closed"], "metadata": {"ownerId": "o"}, "clientRequestId": "c", "createdBy": "somebody",
    });
    let made = make(&server, given.to_string()).await;
    for (name, value) in given.as_object().unwrap() {
        assert_eq!(made[name], *value, "{name}");
    }
    assert_eq!((&made["cronExpression"], &made["nextFireAt"]), (&Value::Null, &Value::Null));
    let digits = make(&server, YEARLY.replace('}', r#","payload":{"b":1.50,"a":12345678901234567890}}"#)).await;
    let text = server.get(&path_of(&digits, "")).await.text;
    assert!(text.contains(r#""payload":{"b":1.50,"a":12345678901234567890}"#), "{text}");
    server.stop();
}

async fn the_aliases_of_topic_and_payload_are_read(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"name":"a","cronExpression":"0 0 1 1 *","timezone":"UTC","jobType":"echo","jobPayload":[1]}"#;
    let made = make(&server, body).await;
    assert_eq!((&made["topic"], &made["payload"]), (&json!("echo"), &json!([1])));
    assert!(made.get("jobType").is_none());
    let both = body.replace(r#""jobType""#, r#""topic":"echo","payload":1,"jobType""#);
    let mut fields = server.post(PATH, both).await.problem(400, "INVALID");
    fields.sort();
    assert_eq!(fields, ["jobPayload", "jobType"]);
    let listed = server.get(&format!("{PATH}?jobType=echo")).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let both = server.get(&format!("{PATH}?jobType=echo&topic=echo")).await;
    assert_eq!(both.problem(400, "INVALID"), ["jobType"]);
    server.stop();
}

async fn bad_schedules_are_refused_with_their_code(database: Database) {
    let server = Server::start(&database);
    let with = |rest: &str| format!(r#"{{"name":"a","topic":"echo",{rest}}}"#);
    let daily = r#""cronExpression":"0 0 * * *""#;
    let utc = r#""timezone":"UTC""#;
    for (body, code, fields) in [
        (with(&format!(r#""cronExpression":"0 0 30 2 *",{utc}"#)), "NEVER_FIRES", vec!["cronExpression"]),
        (with(&format!(r#""cronExpression":"61 * * * *",{utc}"#)), "INVALID_CRON", vec!["cronExpression"]),
        (with(&format!(r#""cronExpression":"@reboot",{utc}"#)), "INVALID_CRON", vec!["cronExpression"]),
        (with(&format!(r#""cronExpression":"",{utc}"#)), "INVALID_CRON", vec!["cronExpression"]),
        (with(&format!(r#"{daily},"timezone":"CST""#)), "INVALID_TIMEZONE", vec!["timezone"]),
        (with(&format!(r#"{daily},"timezone":"Mars/Base""#)), "INVALID_TIMEZONE", vec!["timezone"]),
        (with(daily), "INVALID", vec!["timezone"]),
        (with(utc), "INVALID", vec!["cronExpression"]),
        (with(&format!(r#"{daily},{utc},"everyMs":1000"#)), "INVALID", vec!["everyMs"]),
        (with(&format!(r#""everyMs":999,{utc}"#)), "INVALID", vec!["everyMs"]),
        (with(&format!(r#""everyMs":1e300,{utc}"#)), "INVALID", vec!["everyMs"]),
        (
            with(&format!(r#"{daily},{utc},"startAt":"2040-01-02T00:00:00Z","endAt":"2040-01-01T00:00:00Z""#)),
            "INVALID",
            vec!["endAt"],
        ),
        (with(&format!(r#"{daily},{utc},"endAt":"2020-01-01T00:00:00Z""#)), "NEVER_FIRES", vec!["endAt"]),
        (
            with(&format!(r#"{daily},{utc},"startAt":"2040-01-01T00:00:01Z","endAt":"2040-01-02T00:00:00Z""#)),
            "NEVER_FIRES",
            vec!["endAt"],
        ),
        (with(&format!(r#"{daily},{utc},"startAt":"9999-06-01T00:00:00Z""#)), "NEVER_FIRES", vec!["startAt"]),
        (
            with(&format!(r#""cronExpression":"0 0 29 2 *",{utc},"startAt":"9997-01-01T00:00:00Z","dstGap":"skip""#)),
            "NEVER_FIRES",
            vec!["startAt"],
        ),
        (
            with(r#""cronExpression":"30 2 8-14 3 */7","timezone":"America/New_York","dstGap":"skip""#),
            "NEVER_FIRES",
            vec!["dstGap"],
        ),
        (with(&format!(r#"{daily},{utc},"startAt":"2040-01-01T00:00:00""#)), "INVALID", vec!["startAt"]),
        (with(&format!(r#"{daily},{utc},"excludeCalendars":["none"]"#)), "INVALID", vec!["excludeCalendars"]),
        (with(&format!(r#"{daily},{utc},"retry":{{"attempts":3}}"#)), "INVALID", vec!["retry.attempts"]),
        (with(&format!(r#"{daily},{utc},"payload":"\u0000""#)), "INVALID", vec!["payload"]),
        (with(&format!(r#"{daily},{utc},"payload":{{"x":1,"x":1}}"#)), "INVALID", vec!["payload"]),
        (with(&format!(r#"{daily},{utc},"description":"\u0000""#)), "INVALID", vec!["description"]),
        (with(&format!(r#"{daily},{utc},"clientRequestId":"""#)), "INVALID", vec!["clientRequestId"]),
        (with(&format!(r#"{daily},{utc},"name":"b""#)), "INVALID", vec!["name"]),
        ("{}".into(), "INVALID", vec!["cronExpression", "timezone", "name", "topic"]),
        ("[]".into(), "INVALID", vec![]),
        ("".into(), "INVALID", vec![]),
    ] {
        assert_eq!(server.post(PATH, body.clone()).await.problem(400, code), fields, "{body}");
    }
    let text = server.post(PATH, with(&format!(r#"{daily},"timezone":"EST""#))).await.text;
    assert!(text.contains("America/New_York"), "{text}");
    assert_eq!(server.get(PATH).await.json(), json!({"items": [], "nextCursor": null}));
    server.stop();
}

async fn every_bad_field_is_named_at_once(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"name":"","cronExpression":"nope","timezone":"EST","topic":"a b","enabled":"yes","maxRetries":-1,
        "timeoutSeconds":0,"priority":101,"overlapPolicy":"maybe","misfirePolicy":"maybe","misfireWindowSeconds":-1,
        "jitterSeconds":-1,"maxFires":0,"dstGap":"x","dstFold":"y","metadata":{"k":1},"createdBy":"",
        "retry":{"backoff":{"type":"linear"},"x":1},"id":"x","nextFireAt":null,"version":1,"colour":"red"}"#;
    let mut fields = server.post(PATH, body).await.problem(400, "INVALID");
    fields.sort();
    let expected = [
        "colour",
        "createdBy",
        "cronExpression",
        "dstFold",
        "dstGap",
        "enabled",
        "id",
        "jitterSeconds",
        "maxFires",
        "maxRetries",
        "metadata.k",
        "misfirePolicy",
        "misfireWindowSeconds",
        "name",
        "nextFireAt",
        "overlapPolicy",
        "priority",
        "retry.backoff.type",
        "retry.x",
        "timeoutSeconds",
        "timezone",
        "topic",
        "version",
    ];
    assert_eq!(fields, expected);
    server.stop();
}

async fn sizes_are_bounded(database: Database) {
    let server = Server::start(&database);
    let body = |bytes: usize| YEARLY.replace('}', &format!(r#","payload":"{}"}}"#, "x".repeat(bytes)));
    let too_large = server.post(PATH, body(1024 * 1024 - 1)).await;
    assert_eq!(too_large.problem(413, "TOO_LARGE"), ["payload"]);
    assert_eq!(server.post(PATH, body(1024 * 1024 - 2)).await.status, 201);
    let long = YEARLY.replace("0 0 1 1 *", &format!("{} 0 1 1 *", "0,".repeat(400_000)));
    assert_eq!(server.post(PATH, long).await.problem(400, "INVALID_CRON"), ["cronExpression"]);
    let long_name = YEARLY.replace("yearly", &"ü".repeat(201));
    assert_eq!(server.post(PATH, long_name).await.problem(400, "INVALID"), ["name"]);
    assert_eq!(server.post(PATH, YEARLY.replace("yearly", &"ü".repeat(200))).await.status, 201);
    server.stop();
}

async fn a_name_and_a_client_request_id_are_used_once(database: Database) {
    let server = Server::start(&database);
    let first = make(&server, YEARLY.replace('}', r#","clientRequestId":"c"}"#)).await;
    server.post(PATH, YEARLY).await.problem(409, "NAME_TAKEN");
    let other = YEARLY.replace("yearly", "other").replace('}', r#","clientRequestId":"c"}"#);
    server.post(PATH, other).await.problem(409, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE");
    let task = server.post("/api/v1/tasks", r#"{"topic":"echo","clientRequestId":"c"}"#).await;
    task.problem(409, "SCHEDULE_CLIENT_REQUEST_ID_IN_USE");
    assert_eq!(server.get(PATH).await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(Answer::to(server.request(Method::DELETE, &path_of(&first, ""))).await.status, 204);
    make(&server, YEARLY).await;
    server.stop();
}

async fn a_creation_that_comes_again_gets_its_first_answer(database: Database) {
    let server = Server::start(&database);
    let post = |key: &'static str, body: String| {
        let request = server.request(Method::POST, PATH).header("content-type", "application/json");
        Answer::to(request.header("idempotency-key", key).body(body))
    };
    let first = post("k", YEARLY.into()).await;
    let again = post("k", format!(" {} ", YEARLY.replace(':', " : "))).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16(), &again.text), (201, 201, &first.text));
    assert_eq!((again.header("etag"), again.header("location")), (first.header("etag"), first.header("location")));
    post("k", YEARLY.replace("yearly", "other")).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    post("l", YEARLY.into()).await.problem(409, "NAME_TAKEN");
    assert_eq!(post("l", YEARLY.replace("yearly", "third")).await.status, 201, "a refusal is not remembered");
    assert_eq!(post("", YEARLY.into()).await.problem(400, "INVALID"), ["Idempotency-Key"]);
    server.stop();
}

async fn a_disabled_schedule_has_no_next_fire(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY.replace('}', r#","enabled":false}"#)).await;
    assert_eq!((&made["enabled"], &made["nextFireAt"]), (&json!(false), &Value::Null));
    server.stop();
}

async fn a_list_is_filtered_and_paged(database: Database) {
    let server = Server::start(&database);
    for n in 0..5 {
        let body = format!(
            r#"{{"name":"s{n}","cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"{}","enabled":{},
               "metadata":{{"ownerId":"o{}"}}}}"#,
            if n < 3 { "a.b" } else { "c" },
            n % 2 == 0,
            n % 3,
        );
        make(&server, body).await;
    }
    let names = |answer: &Value| -> Vec<String> {
        answer["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    for (query, expected) in [
        ("", vec!["s4", "s3", "s2", "s1", "s0"]),
        ("enabled=true", vec!["s4", "s2", "s0"]),
        ("enabled=false&topic=a.b", vec!["s1"]),
        ("topic=c", vec!["s4", "s3"]),
        ("name=s3", vec!["s3"]),
        ("ownerId=o1", vec!["s4", "s1"]),
        ("name=nobody", vec![]),
    ] {
        let answer = server.get(&format!("{PATH}?{query}")).await.json();
        assert_eq!(
            (names(&answer), &answer["nextCursor"]),
            (expected.iter().map(|s| s.to_string()).collect(), &Value::Null),
            "{query}"
        );
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("{PATH}?limit=2&cursor={cursor}")).await.json();
        seen.extend(names(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["s4", "s3", "s2", "s1", "s0"]);
    for (query, field) in [
        ("enabled=1", "enabled"),
        ("limit=0", "limit"),
        ("cursor=x", "cursor"),
        ("colour=red", "colour"),
        ("topic=a%20b", "topic"),
    ] {
        assert_eq!(server.get(&format!("{PATH}?{query}")).await.problem(400, "INVALID"), [field], "{query}");
    }
    server.stop();
}

async fn unknown_ids_and_methods_are_problems_too(database: Database) {
    let server = Server::start(&database);
    for id in ["018f0000-0000-7000-8000-000000000000", "nonsense", "%00", "yearly"] {
        for rest in ["", "/executions", "/next"] {
            server.get(&format!("{PATH}/{id}{rest}")).await.problem(404, "NOT_FOUND");
        }
        for rest in ["/pause", "/resume", "/trigger"] {
            server.post(&format!("{PATH}/{id}{rest}"), "").await.problem(404, "NOT_FOUND");
            server.get(&format!("{PATH}/{id}{rest}")).await.problem(405, "METHOD_NOT_ALLOWED");
        }
        let stretch = r#"{"from":"2020-01-01T00:00:00Z","to":"2020-01-02T00:00:00Z"}"#;
        server.post(&format!("{PATH}/{id}/backfill"), stretch).await.problem(404, "NOT_FOUND");
        for (method, body) in [(Method::PUT, YEARLY), (Method::PATCH, "{}"), (Method::DELETE, "")] {
            let request = server.request(method, &format!("{PATH}/{id}")).header("content-type", "application/json");
            Answer::to(request.body(body)).await.problem(404, "NOT_FOUND");
        }
    }
    server.post(&format!("{PATH}/x"), "{}").await.problem(405, "METHOD_NOT_ALLOWED");
    let answer = Answer::to(server.request(Method::DELETE, PATH)).await;
    answer.problem(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("allow"), "GET,HEAD,POST");
    server.stop();
}

async fn what_a_schedule_leaves_open_its_topic_says(database: Database) {
    let store = punctual_store::connect(&database.url, punctual_store::Options::default()).await.unwrap();
    let mut definition =
        punctual_domain::topic::TopicDefinition::new("mail.*".parse().unwrap(), punctual_domain::topic::Route::Event);
    definition.timeout_seconds = Some(11);
    definition.retry = Some(punctual_domain::retry::RetryPolicy { attempts: 9, ..Default::default() });
    store.put_topic(&definition).await.unwrap();
    drop(store);
    let server = Server::start(&database);
    let body = YEARLY.replace("\"echo\"", "\"mail.out\"");
    let open = make(&server, body.clone()).await;
    assert_eq!((&open["maxRetries"], &open["timeoutSeconds"]), (&json!(9), &json!(11)));
    let task = server.post(&path_of(&open, "/trigger"), "").await.json();
    assert_eq!((&task["retry"]["attempts"], &task["timeoutSeconds"]), (&json!(9), &json!(11)));
    let said = body.replace("yearly", "said").replace('}', r#","maxRetries":0,"timeoutSeconds":5}"#);
    let said = make(&server, said).await;
    assert_eq!((&said["maxRetries"], &said["timeoutSeconds"]), (&json!(0), &json!(5)));
    let task = server.post(&path_of(&said, "/trigger"), "").await.json();
    assert_eq!((&task["retry"]["attempts"], &task["timeoutSeconds"]), (&json!(1), &json!(5)), "0 means 1");
    server.stop();
}
