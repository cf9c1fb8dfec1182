//! Schedules that fire, seen over HTTP, on a clock that the test moves.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};

use crate::in_process::InProcess;
use crate::on_each_database_and_pooler;
use crate::schedules::{PATH, path_of};
use crate::support::Database;

on_each_database_and_pooler!(
    a_schedule_fires_at_its_instants_and_its_executions_tell,
    an_edit_or_a_resume_never_fires_retroactively,
    a_pause_ends_at_its_instant,
    a_calendar_leaves_a_date_out_and_a_backfill_does_too,
    what_is_deleted_fires_no_more,
    what_is_due_is_decided_before_its_schedule_is_deleted,
    a_day_of_every_second_is_no_obstacle_to_a_deletion,
    a_backfill_leaves_what_is_due_to_the_schedule,
);

const NOON: &str = "2040-01-02T12:00:00Z";

impl InProcess {
    /// Moves the clock to a time of that day.
    fn at(&self, time: &str) {
        self.clock.advance_to(format!("2040-01-02T{time}Z").parse::<DateTime<Utc>>().unwrap());
    }

    async fn make(&self, rest: &str) -> Value {
        let body = format!(r#"{{"name":"s","timezone":"UTC","topic":"echo",{rest}}}"#);
        let answer = self.send(Method::POST, PATH, &body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    async fn call(&self, method: Method, schedule: &Value, rest: &str, body: &str) -> Value {
        let answer = self.send(method, &path_of(schedule, rest), body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        if answer.text.is_empty() { Value::Null } else { answer.json() }
    }

    /// Waits until there are so many executions that have ended, and answers them, newest first.
    async fn executions(&self, schedule: &Value, count: usize) -> Vec<Value> {
        let asked_at = Instant::now();
        loop {
            let found = self.call(Method::GET, schedule, "/executions", "").await["items"].as_array().unwrap().clone();
            let ended = found.iter().filter(|item| matches!(item["status"].as_str(), Some("completed" | "skipped")));
            if ended.count() >= count {
                assert_eq!(found.len(), count, "{found:#?}");
                return found;
            }
            assert!(asked_at.elapsed() < Duration::from_secs(60), "{found:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn a_schedule_fires_at_its_instants_and_its_executions_tell(database: Database) {
    let service = InProcess::start(&database, NOON).await;
    let made = service.make(r#""cronExpression":"*/10 * * * *","payload":[7]"#).await;
    assert_eq!(made["nextFireAt"], "2040-01-02T12:10:00.000Z");
    service.at("12:10:00");
    let first = service.executions(&made, 1).await;
    assert_eq!((&first[0]["kind"], &first[0]["scheduledAt"]), (&json!("schedule"), &json!("2040-01-02T12:10:00.000Z")));
    assert_eq!((&first[0]["status"], &first[0]["lagMs"]), (&json!("completed"), &json!(0)));
    let shown = service.call(Method::GET, &made, "", "").await;
    assert_eq!((&shown["nextFireAt"], &shown["version"]), (&json!("2040-01-02T12:20:00.000Z"), &json!(1)));
    assert_eq!(shown["lastFiredAt"], first[0]["firedAt"]);

    // Nobody looked for half an hour: the latest instant fires for all.
    service.at("12:45:00");
    let found = service.executions(&made, 3).await;
    let run = found.iter().find(|item| item["status"] == "skipped").unwrap();
    assert_eq!((&run["reason"], &run["count"]), (&json!("coalesced"), &json!(2)));
    assert_eq!(
        (&run["scheduledAt"], &run["until"]),
        (&json!("2040-01-02T12:20:00.000Z"), &json!("2040-01-02T12:30:00.000Z"))
    );
    let fired = found.iter().find(|item| item["scheduledAt"] == "2040-01-02T12:40:00.000Z").unwrap();
    assert_eq!(fired["lagMs"], 300_000);
    let skipped = service.call(Method::GET, &made, "/executions?status=skipped&from=2040-01-02T12:25:00Z", "").await;
    assert_eq!(skipped["items"].as_array().unwrap().len(), 1);
    let stretch = r#"{"from":"2040-01-02T12:00:00Z","to":"2040-01-02T12:45:00Z"}"#;
    let filled = service.call(Method::POST, &made, "/backfill", stretch).await;
    assert_eq!(filled, json!({"made": 3, "alreadyFired": 2, "skipped": 0}), "12:00, and what was skipped");
    service.stop().await;
}

async fn an_edit_or_a_resume_never_fires_retroactively(database: Database) {
    let service = InProcess::start(&database, NOON).await;
    let made = service.make(r#""cronExpression":"0 * * * *""#).await;
    service.at("12:30:00");
    let edited = service.call(Method::PATCH, &made, "", r#"{"cronExpression":"15 * * * *"}"#).await;
    assert_eq!(edited["nextFireAt"], "2040-01-02T13:15:00.000Z");
    service.call(Method::POST, &made, "/pause", "").await;
    service.at("14:00:00");
    let resumed = service.call(Method::POST, &made, "/resume", "").await;
    assert_eq!(resumed["nextFireAt"], "2040-01-02T14:15:00.000Z");
    service.at("14:15:01");
    let found = service.executions(&made, 1).await;
    assert_eq!(found[0]["scheduledAt"], "2040-01-02T14:15:00.000Z");
    service.stop().await;
}

async fn a_pause_ends_at_its_instant(database: Database) {
    let service = InProcess::start(&database, NOON).await;
    let made = service.make(r#""cronExpression":"*/10 * * * *""#).await;
    service.call(Method::POST, &made, "/pause", r#"{"note":"lunch","until":"2040-01-02T13:00:00Z"}"#).await;
    let next = service.call(Method::GET, &made, "/next?count=1", "").await;
    assert_eq!(next["next"][0]["at"], "2040-01-02T13:00:00.000Z");
    service.at("12:59:59");
    assert_eq!(service.call(Method::GET, &made, "", "").await["nextFireAt"], Value::Null);
    service.at("13:00:00");
    let found = service.executions(&made, 1).await;
    assert_eq!(found[0]["scheduledAt"], "2040-01-02T13:00:00.000Z");
    let shown = service.call(Method::GET, &made, "", "").await;
    assert_eq!(
        (&shown["enabled"], &shown["pauseNote"], &shown["pausedUntil"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    assert_eq!((&shown["nextFireAt"], &shown["version"]), (&json!("2040-01-02T13:10:00.000Z"), &json!(3)));
    service.stop().await;
}

async fn a_calendar_leaves_a_date_out_and_a_backfill_does_too(database: Database) {
    let service = InProcess::start(&database, NOON).await;
    let closed = r#"{"name":"closed","dates":["2040-01-02"]}"#;
    assert_eq!(service.send(Method::POST, "/api/v1/calendars", closed).await.status, 201);
    let made = service.make(r#""cronExpression":"0 * * * *","excludeCalendars":["closed"]"#).await;
    service.at("13:00:05");
    let found = service.executions(&made, 1).await;
    assert_eq!((&found[0]["status"], &found[0]["reason"]), (&json!("skipped"), &json!("calendar")));
    let stretch = r#"{"from":"2040-01-02T13:00:00Z","to":"2040-01-02T13:00:05Z"}"#;
    let filled = service.call(Method::POST, &made, "/backfill", stretch).await;
    assert_eq!(filled, json!({"made": 0, "alreadyFired": 0, "skipped": 1}));
    service.stop().await;
}

async fn what_is_due_is_decided_before_its_schedule_is_deleted(database: Database) {
    // Nobody ticks, as when the leader is away.
    let service = InProcess::start_paused(&database, NOON).await;
    let mut behind = Vec::new();
    for misfire in ["fire_once", "fire_all", "skip"] {
        for overlap in ["skip", "queue", "allow", "cancel_previous"] {
            let body = format!(
                r#"{{"name":"{misfire} {overlap}","timezone":"UTC","topic":"echo","cronExpression":"* * * * *",
                    "misfirePolicy":"{misfire}","overlapPolicy":"{overlap}"}}"#
            );
            let answer = service.send(Method::POST, PATH, &body).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            behind.push(answer.json());
        }
    }
    let paused = service.make(r#""cronExpression":"* * * * *","enabled":false"#).await;
    service.clock.advance(TimeDelta::days(1) + TimeDelta::seconds(10));
    for schedule in &behind {
        let deleted = service.send_with(Method::DELETE, &path_of(schedule, ""), "", &[("if-match", "\"1\"")]).await;
        assert_eq!(deleted.status, 204, "{}: {deleted:?}", schedule["name"]);
        let executions = service.call(Method::GET, schedule, "/executions", "").await;
        let instants = executions["items"].as_array().unwrap().iter().map(|item| item["count"].as_u64().unwrap());
        assert_eq!(instants.sum::<u64>(), 1_440, "{}: {executions}", schedule["name"]);
    }
    assert_eq!(service.send(Method::DELETE, &path_of(&paused, ""), "").await.status, 204);
    let executions = service.call(Method::GET, &paused, "/executions", "").await;
    assert_eq!(executions["items"], json!([]), "nothing was due");

    let proof = service.send(Method::GET, "/api/v1/prove?from=2040-01-02T12:00:00Z&to=2040-01-04T12:00:00Z", "").await;
    let proof = proof.json();
    assert_eq!((&proof["holds"], proof["schedules"].as_array().unwrap().len()), (&json!(true), 13), "{proof}");
    for proven in proof["schedules"].as_array().unwrap() {
        let expected = if proven["name"] == "s" { 0 } else { 1_440 };
        assert_eq!((&proven["expected"], &proven["overtaken"]), (&json!(expected), &json!(0)), "{proven}");
    }
    let live = service.send(Method::GET, "/api/v1/tasks?status=pending,running", "").await.json();
    assert_eq!(live["items"], json!([]));
    service.stop().await;
}

async fn a_day_of_every_second_is_no_obstacle_to_a_deletion(database: Database) {
    let service = InProcess::start_paused(&database, NOON).await;
    let rest = r#""everyMs":1000,"misfirePolicy":"fire_all","overlapPolicy":"cancel_previous""#;
    let made = service.make(rest).await;
    service.clock.advance(TimeDelta::days(1));
    assert_eq!(service.send(Method::DELETE, &path_of(&made, ""), "").await.status, 204);
    let executions = service.call(Method::GET, &made, "/executions", "").await;
    let instants = executions["items"].as_array().unwrap().iter().map(|item| item["count"].as_u64().unwrap());
    assert_eq!(instants.sum::<u64>(), 86_400, "{executions}");
    service.stop().await;
}

async fn a_backfill_leaves_what_is_due_to_the_schedule(database: Database) {
    let service = InProcess::start_paused(&database, NOON).await;
    let made = service.make(r#""cronExpression":"* * * * *""#).await;
    service.at("12:10:05");
    let stretch = |more: &str| format!(r#"{{"from":"2040-01-02T11:59:00Z","to":"2040-01-02T12:10:05Z"{more}}}"#);
    let counted = service.call(Method::POST, &made, "/backfill", &stretch(r#","dryRun":true"#)).await;
    assert_eq!(counted, json!({"made": 2, "alreadyFired": 0, "skipped": 10}), "ten are not decided yet");
    assert_eq!(
        service.call(Method::GET, &made, "/executions", "").await["items"],
        json!([]),
        "a dry run writes nothing"
    );

    // The schedule fires the last one that it missed, and has a task by then when the next comes.
    let filled = service.call(Method::POST, &made, "/backfill", &stretch("")).await;
    assert_eq!(filled, json!({"made": 11, "alreadyFired": 1, "skipped": 0}));
    let again = service.call(Method::POST, &made, "/backfill", &stretch("")).await;
    assert_eq!(again, json!({"made": 0, "alreadyFired": 12, "skipped": 0}));
    assert_eq!(service.send(Method::POST, "/api/v1/resume", "").await.status, 200);
    service.at("12:11:00");
    let path = path_of(&made, "/executions?status=completed");
    let asked_at = Instant::now();
    // Those that were filled in, the one that was made up for, and 12:11, which may overlap with them.
    while service.send(Method::GET, &path, "").await.json()["items"].as_array().unwrap().len() < 12 {
        assert!(asked_at.elapsed() < Duration::from_secs(60), "they do not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let proof = service.send(Method::GET, "/api/v1/prove?from=2040-01-02T11:00:00Z&to=2040-01-02T12:10:30Z", "").await;
    let proof = proof.json();
    let proven = &proof["schedules"][0];
    assert_eq!(
        (&proof["holds"], &proven["double"], &proven["missing"]),
        (&json!(true), &json!([]), &json!([])),
        "{proof}"
    );
    assert_eq!(proven["backfilled"], 11);

    // While it is paused for good, all of it may be filled in.
    service.call(Method::POST, &made, "/pause", "").await;
    service.at("12:20:00");
    let paused = r#"{"from":"2040-01-02T12:15:00Z","to":"2040-01-02T12:20:00Z"}"#;
    let filled = service.call(Method::POST, &made, "/backfill", paused).await;
    assert_eq!(filled, json!({"made": 5, "alreadyFired": 0, "skipped": 0}));
    service.stop().await;
}

async fn what_is_deleted_fires_no_more(database: Database) {
    let service = InProcess::start(&database, NOON).await;
    let made = service.make(r#""cronExpression":"*/10 * * * *""#).await;
    service.at("12:10:00");
    service.executions(&made, 1).await;
    service.call(Method::DELETE, &made, "", "").await;
    service.at("12:30:00");
    let other = service.make(r#""cronExpression":"*/10 * * * *""#).await;
    service.at("12:40:00");
    service.executions(&other, 1).await;
    assert_eq!(service.executions(&made, 1).await.len(), 1, "its executions still answer");
    service.stop().await;
}
