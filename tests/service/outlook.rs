//! What lies ahead of a schedule, over HTTP: next and preview.

use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::schedules::{YEARLY, make, path_of};
use crate::support::{Database, Server};

on_each_database_and_pooler!(
    a_preview_needs_neither_name_nor_topic_and_keeps_nothing,
    clock_changes_are_noted,
    how_an_expression_is_read_is_said_where_it_matters,
    next_shows_what_a_schedule_will_do,
    bad_previews_are_refused,
    a_look_ahead_is_bounded,
);

const PREVIEW: &str = "/api/v1/schedules/preview";

async fn preview(server: &Server, body: &str) -> Value {
    let answer = server.post(PREVIEW, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn a_preview_needs_neither_name_nor_topic_and_keeps_nothing(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"cronExpression":"30 8 * * *","timezone":"America/Edmonton","startAt":"2026-11-16T00:00:00-06:00","count":2}"#;
    let body = body.replace("2026", "2046");
    let next = |day: &str| json!({"at": format!("2046-11-{day}T14:30:00.000Z"), "local": format!("2046-11-{day}T08:30:00"), "offset": "-06:00", "note": null});
    let shown = preview(&server, &body).await;
    assert_eq!(shown["next"], json!([next("16"), next("17")]));
    assert!(shown["warnings"][0].as_str().unwrap().contains("more than a year"), "{shown}");
    let every = preview(&server, r#"{"everyMs":60000,"timezone":"Asia/Kolkata"}"#).await;
    assert_eq!((every["next"].as_array().unwrap().len(), &every["next"][0]["offset"]), (10, &json!("+05:30")));
    assert_eq!(every["warnings"], json!([]));
    let whole = preview(&server, &YEARLY.replace('}', r#","enabled":false,"count":1}"#)).await;
    assert_eq!(whole["next"].as_array().unwrap().len(), 1);
    let unserved = preview(&server, &YEARLY.replace("echo", "nobody.home")).await;
    assert!(unserved["warnings"][0].as_str().unwrap().contains("nobody.home"), "{unserved}");
    let either = preview(&server, r#"{"cronExpression":"0 0 13 * 5","timezone":"UTC"}"#).await;
    assert!(either["warnings"][0].as_str().unwrap().contains("either"), "{either}");
    assert_eq!(server.get("/api/v1/schedules").await.json()["items"], json!([]));
    server.stop();
}

async fn clock_changes_are_noted(database: Database) {
    let server = Server::start(&database);
    let body = |cron: &str, start: &str| {
        format!(r#"{{"cronExpression":"{cron}","timezone":"America/New_York","startAt":"{start}","count":1}}"#)
    };
    let gap = preview(&server, &body("30 2 * * *", "2030-03-10T00:00:00-05:00")).await;
    let expected =
        json!({"at": "2030-03-10T07:00:00.000Z", "local": "2030-03-10T03:00:00", "offset": "-04:00", "note": "gap"});
    assert_eq!(gap["next"][0], expected);
    let fold = preview(&server, &body("30 1 * * *", "2030-11-03T00:00:00-04:00")).await;
    let expected =
        json!({"at": "2030-11-03T05:30:00.000Z", "local": "2030-11-03T01:30:00", "offset": "-04:00", "note": "fold"});
    assert_eq!(fold["next"][0], expected);
    server.stop();
}

async fn how_an_expression_is_read_is_said_where_it_matters(database: Database) {
    let server = Server::start(&database);
    let warnings = async |path: &str, cron: &str, zone: &str| {
        let body = json!({"name": cron, "cronExpression": cron, "timezone": zone, "topic": "echo", "enabled": false});
        let answer = server.post(path, body.to_string()).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()["warnings"].clone()
    };
    for path in [PREVIEW, "/api/v1/schedules"] {
        for (cron, said) in [("*/30 1 * * *", "it follows elapsed time:"), ("0,30 1 * * *", "it follows the clock:")] {
            let warnings = warnings(path, cron, "America/New_York").await;
            assert_eq!(warnings.as_array().unwrap().len(), 1, "{path} {cron}: {warnings}");
            assert!(warnings[0].as_str().unwrap().contains(said), "{path} {cron}: {warnings}");
        }
    }
    for (cron, zone) in [("*/30 * * * *", "America/New_York"), ("0 9 * * *", "Europe/Berlin"), ("*/30 1 * * *", "UTC")]
    {
        assert_eq!(warnings(PREVIEW, cron, zone).await, json!([]), "{cron} {zone}");
    }
    server.stop();
}

async fn next_shows_what_a_schedule_will_do(database: Database) {
    let server = Server::start(&database);
    server.post("/api/v1/calendars", r#"{"name":"closed","weekdays":["mon","tue","wed","thu","fri","sat"]}"#).await;
    let body = r#"{"name":"sundays","cronExpression":"0 12 * * *","timezone":"Europe/Berlin","topic":"echo","excludeCalendars":["closed"]}"#;
    let made = make(&server, body).await;
    let next = server.get(&path_of(&made, "/next?count=3")).await.json();
    let dates: Vec<chrono::NaiveDate> = next["next"]
        .as_array()
        .unwrap()
        .iter()
        .map(|next| next["local"].as_str().unwrap()[..10].parse().unwrap())
        .collect();
    assert_eq!(dates.len(), 3);
    assert!(dates.iter().all(|date| chrono::Datelike::weekday(date) == chrono::Weekday::Sun), "{dates:?}");
    let plain = make(&server, YEARLY).await;
    let next = server.get(&path_of(&plain, "/next")).await.json();
    assert_eq!((next["next"].as_array().unwrap().len(), &next["next"][0]["at"]), (10, &plain["nextFireAt"]));
    server.post(&path_of(&plain, "/pause"), r#"{"until":"2050-06-01T00:00:00Z"}"#).await;
    let paused = server.get(&path_of(&plain, "/next?count=1")).await.json();
    assert_eq!(paused["next"][0]["at"], "2051-01-01T06:00:00.000Z");
    assert!(paused["warnings"].to_string().contains("paused"), "{paused}");
    for query in ["count=0", "count=1001", "count=x"] {
        assert_eq!(server.get(&path_of(&plain, &format!("/next?{query}"))).await.problem(400, "INVALID"), ["count"]);
    }
    assert_eq!(server.get(&path_of(&plain, "/next?x=1")).await.problem(400, "INVALID"), ["x"]);
    server.stop();
}

async fn bad_previews_are_refused(database: Database) {
    let server = Server::start(&database);
    for (body, code, fields) in [
        (r#"{"cronExpression":"0 0 30 2 *","timezone":"UTC"}"#, "NEVER_FIRES", vec!["cronExpression"]),
        (r#"{"cronExpression":"@daily","timezone":"CST"}"#, "INVALID_TIMEZONE", vec!["timezone"]),
        (r#"{"cronExpression":"nope","timezone":"UTC"}"#, "INVALID_CRON", vec!["cronExpression"]),
        (r#"{"cronExpression":"@daily","timezone":"UTC","count":1001}"#, "INVALID", vec!["count"]),
        (r#"{"cronExpression":"@daily","timezone":"UTC","colour":1}"#, "INVALID", vec!["colour"]),
        (
            r#"{"cronExpression":"30 2 10 3 *","timezone":"America/New_York","dstGap":"skip","endAt":"2020-01-01T00:00:00Z"}"#,
            "NEVER_FIRES",
            vec!["endAt"],
        ),
        ("{}", "INVALID", vec!["cronExpression", "timezone"]),
    ] {
        assert_eq!(server.post(PREVIEW, body).await.problem(400, code), fields, "{body}");
    }
    server.stop();
}

async fn a_look_ahead_is_bounded(database: Database) {
    let server = Server::start(&database);
    let all = r#"{"name":"all","weekdays":["mon","tue","wed","thu","fri","sat","sun"]}"#;
    server.post("/api/v1/calendars", all).await;
    let never = preview(
        &server,
        r#"{"cronExpression":"* * * * * *","timezone":"Europe/Berlin","excludeCalendars":["all"],"count":1000}"#,
    )
    .await;
    assert_eq!(never["next"], json!([]));
    assert!(never["warnings"][0].as_str().unwrap().contains("calendars"), "{never}");
    let rare = preview(
        &server,
        r#"{"cronExpression":"0 0 29 2 1#5","timezone":"America/New_York","dstGap":"skip","count":1000}"#,
    )
    .await;
    assert!(!rare["next"].as_array().unwrap().is_empty());
    server.stop();
}
