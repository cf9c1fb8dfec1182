//! The five schedules, and what every run logs.

use punctual_testing::{TaskStatus, TestDatabase, logged, on_both_databases};
use serde_json::json;

use crate::{at_work, execute, run, session, start, try_to_run};

/// The jobs of the night.
const NIGHT: [&str; 3] = ["sessionExpiry", "certificateExpiry", "cnrppAlert"];

async fn five_schedules_fire_in_alberta(database: TestDatabase) {
    let punctual = at_work(database).at("2026-11-15T12:00:00Z").start().await;
    for (name, next) in [
        ("emailQueue", "2026-11-15T12:15:00Z"),
        // Alberta changes its clocks no more: 02:00 there is 08:00 UTC also in November.
        ("sessionExpiry", "2026-11-16T08:00:00Z"),
        ("certificateExpiry", "2026-11-16T08:00:00Z"),
        ("cnrppAlert", "2026-11-16T08:00:00Z"),
        ("labResultPoll", "2026-11-16T12:00:00Z"),
    ] {
        let schedule = punctual.schedule(name).await;
        assert_eq!(schedule.definition.timezone, "America/Edmonton");
        assert_eq!(schedule.next_fire_at, Some(next.parse().unwrap()), "{name}");
        assert_eq!(json!(schedule.definition.misfire_policy), "fire_once", "{name}");
    }
}

async fn in_january_the_night_jobs_fire_at_nine_utc(database: TestDatabase) {
    let nine = "2026-01-16T09:00:00Z".parse().unwrap();
    let punctual = at_work(database).at("2026-01-16T07:59:00Z").start().await;
    for name in NIGHT {
        assert_eq!(punctual.schedule(name).await.next_fire_at, Some(nine), "{name}");
    }
    // Not at 08:00, as in November.
    punctual.advance(crate::MINUTE * 60).await;
    for job in NIGHT {
        assert!(punctual.tasks(&format!("clearpath.{job}")).await.is_empty(), "{job}");
    }
    punctual.advance(crate::MINUTE * 2).await;
    for job in NIGHT {
        let [task] = punctual.tasks(&format!("clearpath.{job}")).await.try_into().unwrap();
        assert_eq!((task.status, task.run_at), (TaskStatus::Completed, nine), "{job}");
    }
}

async fn a_night_brings_all_jobs_once(database: TestDatabase) {
    let punctual = at_work(database).at("2026-11-16T07:59:00Z").start().await;
    punctual.advance(crate::MINUTE * 2).await;
    for job in ["emailQueue", "sessionExpiry", "certificateExpiry", "cnrppAlert"] {
        let tasks = punctual.tasks(&format!("clearpath.{job}")).await;
        assert_eq!((tasks.len(), tasks[0].status), (1, TaskStatus::Completed), "{job}");
    }
    assert!(punctual.tasks("clearpath.labResultPoll").await.is_empty());
}

async fn the_day_of_a_job_is_that_of_its_fire(database: TestDatabase) {
    // It is still the 16th in Alberta, and the 17th in UTC already.
    let punctual = at_work(database).at("2026-11-17T05:00:00Z").start().await;
    let until = async |date: &str| {
        let dates = json!({"activatedAt": "2026-05-20T00:00:00Z", "expectedCompletionDate": date});
        format!("/sessions/{}", session(&punctual, dates).await)
    };
    let status = async |path: &str| crate::field(&punctual, path, "status").await;
    let [first, second, third] = [until("2026-08-17").await, until("2026-08-18").await, until("2026-08-19").await];
    run(&punctual, "sessionExpiry").await;
    assert_eq!([status(&first).await, status(&second).await], ["expired", "active"]);
    // The fire at 02:00 on the 17th is made up for half an hour into the 18th, and is one of the 17th.
    punctual.oversleep(crate::MINUTE * 60 * 25 + crate::MINUTE * 30).await;
    assert_eq!(punctual.now().to_rfc3339(), "2026-11-18T06:30:00+00:00");
    assert_eq!([status(&second).await, status(&third).await], ["expired", "active"]);
}

async fn a_run_logs_how_it_went(database: TestDatabase) {
    let punctual = start(database).await;
    session(&punctual, json!({"activatedAt": "2026-10-17T00:00:00Z"})).await;
    assert_eq!(run(&punctual, "emailQueue").await, json!({"processed": 1, "sent": 1, "skipped": 0, "failed": 0}));
    let started = logged("Job started", json!({"job": "emailQueue"}));
    assert_eq!(started[0]["level"], "INFO");
    let completed =
        logged("Job completed", json!({"job": "emailQueue", "processed": 1, "sent": 1, "skipped": 0, "failed": 0}));
    assert!(completed[0]["durationMs"].is_u64(), "{completed:?}");
}

async fn a_run_that_fails_says_so_and_the_next_goes_on(database: TestDatabase) {
    let punctual = start(database).await;
    session(&punctual, json!({"activatedAt": "2026-10-17T00:00:00Z"})).await;
    execute(&punctual, "ALTER TABLE clearpath_email_log RENAME TO elsewhere").await;
    let failed = try_to_run(&punctual, "emailQueue").await;
    assert_eq!((failed.status, failed.outcomes.len()), (TaskStatus::Failed, 1));
    let lines = logged("Job failed", json!({"job": "emailQueue"}));
    assert!(
        lines[0]["level"] == "ERROR" && lines[0]["err"].is_string() && lines[0]["durationMs"].is_u64(),
        "{lines:?}"
    );
    execute(&punctual, "ALTER TABLE elsewhere RENAME TO clearpath_email_log").await;
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
}

on_both_databases![
    five_schedules_fire_in_alberta,
    in_january_the_night_jobs_fire_at_nine_utc,
    a_night_brings_all_jobs_once,
    the_day_of_a_job_is_that_of_its_fire,
    a_run_logs_how_it_went,
    a_run_that_fails_says_so_and_the_next_goes_on,
];
