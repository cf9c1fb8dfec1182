//! `punctual schedule …` and `punctual calendar …` against a running service.

use serde_json::{Value, json};

use crate::client_commands::Desk;

/// Adds a schedule that does not fire while a test runs.
fn add_yearly(desk: &Desk) -> Value {
    let when = ["--cron", "30 2 1 1 *", "--tz", "America/New_York"];
    let what = ["--topic", "echo", "--payload", r#"{"hello": "world"}"#, "--description", "once a year"];
    desk.json(&[&["schedule", "add", "yearly"][..], &when, &what].concat())
}

#[tokio::test]
async fn a_schedule_is_shown_edited_and_renamed() {
    let desk = Desk::open();
    let made = add_yearly(&desk);
    let shown = desk.ok(&["schedule", "show", "yearly"]);
    for part in
        ["30 2 1 1 * (America/New_York)", "once a year", r#"{"hello":"world"}"#, "enabled", "-01-01 02:30:00 -05:00"]
    {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    let by_id = desk.json(&["schedule", "show", made["id"].as_str().unwrap()]);
    for field in ["name", "cronExpression", "payload", "nextFireAt", "version"] {
        assert_eq!(by_id[field], made[field], "{field}");
    }

    let edited =
        desk.json(&["schedule", "edit", "yearly", "--cron", "45 2 1 1 *", "--priority", "7", "--max-fires", "3"]);
    assert_eq!((&edited["cronExpression"], &edited["priority"]), (&json!("45 2 1 1 *"), &json!(7)));
    assert_eq!((&edited["maxFires"], &edited["version"]), (&json!(3), &json!(2)));
    assert_eq!(edited["payload"], made["payload"], "what is not named stays");
    let renamed = desk.ok(&["schedule", "edit", "yearly", "--rename", "new-year", "--clear", "maxFires"]);
    assert!(
        renamed.contains("new-year") && renamed.contains("45 2 1 1 *") && !renamed.contains("max fires"),
        "{renamed}"
    );
    assert!(desk.refused(&["schedule", "show", "yearly"]).contains("yearly"));
    assert!(desk.refused(&["schedule", "edit", "new-year"]).contains("nothing to change"));
    let error = desk.refused(&["schedule", "edit", "new-year", "--cron", "0 0 30 2 *"]);
    assert!(error.contains("--cron"), "{error}");
    assert_eq!(desk.json(&["schedule", "show", "new-year"])["cronExpression"], "45 2 1 1 *");
    desk.server.stop();
}

#[tokio::test]
async fn a_schedule_is_paused_and_resumed() {
    let desk = Desk::open();
    let made = add_yearly(&desk);
    let pause =
        ["schedule", "pause", "yearly", "--note", "migration", "--until", "2040-01-01 09:00", "--tz", "Asia/Tokyo"];
    let paused = desk.json(&pause);
    assert_eq!((&paused["enabled"], &paused["nextFireAt"]), (&json!(false), &Value::Null));
    assert_eq!(
        (&paused["pauseNote"], &paused["pausedUntil"]),
        (&json!("migration"), &json!("2040-01-01T00:00:00.000Z"))
    );
    let shown = desk.ok(&["schedule", "show", "yearly"]);
    assert!(
        shown.contains("paused") && shown.contains("migration") && shown.contains("2039-12-31 19:00:00 -05:00"),
        "{shown}"
    );
    assert!(desk.ok(&["schedule", "list", "--enabled", "false"]).contains("yearly"));
    let next = desk.ok(&["schedule", "next", "yearly", "--count", "1"]);
    assert!(next.contains("2040-01-01T02:30:00") && next.contains("fires again from pausedUntil on"), "{next}");
    // Without a zone that is said, its own counts.
    let paused = desk.json(&["schedule", "pause", "yearly", "--until", "2040-01-01 09:00"]);
    assert_eq!(paused["pausedUntil"], "2040-01-01T14:00:00.000Z");
    let resumed = desk.json(&["schedule", "resume", "yearly"]);
    assert_eq!((&resumed["enabled"], &resumed["nextFireAt"]), (&json!(true), &made["nextFireAt"]));
    assert!(!desk.ok(&["schedule", "list", "--enabled", "false"]).contains("yearly"));
    desk.server.stop();
}

#[tokio::test]
async fn the_next_instants_are_shown_by_the_schedules_own_clock() {
    let desk = Desk::open();
    let made = add_yearly(&desk);
    let next = desk.json(&["schedule", "next", "yearly", "--count", "3"]);
    let instants = next["next"].as_array().unwrap();
    assert_eq!((instants.len(), &instants[0]["at"]), (3, &made["nextFireAt"]));
    let table = desk.ok(&["schedule", "next", "yearly", "--count", "2"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("LOCAL"), "{table}");
    for (line, next) in lines[1..].iter().zip(instants) {
        let (local, at) = (next["local"].as_str().unwrap(), next["at"].as_str().unwrap());
        assert!(line.starts_with(local) && line.contains("-05:00") && line.contains(at), "{line}");
    }
    desk.server.stop();
}

#[tokio::test]
async fn a_triggered_schedule_shows_its_execution_and_a_deleted_one_is_gone() {
    let desk = Desk::open();
    add_yearly(&desk);
    assert_eq!(desk.ok(&["schedule", "executions", "yearly"]).trim(), "no executions");
    let task = desk.json(&["schedule", "trigger", "yearly"]);
    let id = task["id"].as_str().unwrap();
    assert_eq!((&task["topic"], &task["payload"]), (&json!("echo"), &json!({"hello": "world"})));
    assert_eq!(desk.server.ended_task(id).await["status"], "completed");
    let told = desk.ok(&["schedule", "executions", "yearly"]);
    let lines: Vec<_> = told.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("SCHEDULED AT"), "{told}");
    assert!(["manual", "completed", id].iter().all(|part| lines[1].contains(part)), "{told}");
    let listed =
        desk.json(&["schedule", "executions", "yearly", "--status", "completed", "--from", "-1h", "--limit", "5"]);
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["taskId"]), (1, &json!(id)));
    assert_eq!(desk.ok(&["schedule", "executions", "yearly", "--status", "skipped"]).trim(), "no executions");

    assert_eq!(desk.ok(&["schedule", "delete", "yearly"]).trim(), "deleted yearly");
    for command in ["show", "pause", "resume", "trigger", "delete", "executions", "next"] {
        let error = desk.refused(&["schedule", command, "yearly"]);
        assert!(error.contains("there is no schedule"), "{command}: {error}");
    }
    assert!(desk.ok(&["schedule", "list"]).contains("no schedules"));
    desk.server.stop();
}

#[tokio::test]
async fn a_calendar_is_written_shown_listed_named_and_deleted() {
    let desk = Desk::open();
    assert_eq!(desk.ok(&["calendar", "list"]).trim(), "no calendars");
    let dates = ["--date", "2036-12-26", "--date", "2036-12-25", "--weekday", "sun"];
    let put = desk.json(&[&["calendar", "put", "holidays"][..], &dates].concat());
    assert_eq!(put, json!({"name": "holidays", "dates": ["2036-12-25", "2036-12-26"], "weekdays": ["sun"]}));
    assert_eq!(desk.json(&["calendar", "show", "holidays"]), put);
    let shown = desk.ok(&["calendar", "show", "holidays"]);
    assert!(shown.contains("2036-12-25, 2036-12-26") && shown.contains("sun"), "{shown}");
    let listed = desk.ok(&["calendar", "list"]);
    let words: Vec<_> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words, ["holidays", "sun", "2"]);

    add_yearly(&desk);
    let edited = desk.ok(&["schedule", "edit", "yearly", "--exclude-calendar", "holidays"]);
    assert!(edited.contains("not on") && edited.contains("holidays"), "{edited}");
    let error = desk.refused(&["calendar", "delete", "holidays"]);
    assert!(error.contains("yearly"), "{error}");
    desk.ok(&["schedule", "edit", "yearly", "--clear", "excludeCalendars"]);
    let replaced = desk.ok(&["calendar", "put", "holidays", "--weekday", "sat"]);
    assert!(replaced.contains("sat") && !replaced.contains("2036"), "{replaced}");
    assert_eq!(desk.ok(&["calendar", "delete", "holidays"]).trim(), "deleted holidays");
    assert!(desk.refused(&["calendar", "show", "holidays"]).contains("holidays"));
    let error = desk.refused(&["calendar", "put", "holidays", "--weekday", "someday"]);
    assert!(error.contains("weekdays[0]"), "{error}");
    desk.server.stop();
}
