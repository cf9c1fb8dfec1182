//! Schedules that fire are counted, and one that does not is counted, logged and told.

use punctual_store::{Options, connect};
use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database;
use crate::schedules::{PATH, make};
use crate::support::{Database, Server, Stream};

on_each_database!(
    what_schedules_fire_and_skip_is_counted_with_how_late_it_was,
    an_instant_that_nobody_fires_is_counted_logged_and_told,
);

const EVERY_SECOND: &str = r#"{"name":"s","everyMs":1000,"timezone":"UTC","topic":"echo"}"#;

async fn what_schedules_fire_and_skip_is_counted_with_how_late_it_was(database: Database) {
    let server = Server::start(&database);
    make(&server, EVERY_SECOND).await;
    // Its task never ends, so that nothing fires after the first.
    server.put_topic("waits", r#"{"route":{"type":"pull"}}"#).await;
    make(&server, r#"{"name":"o","everyMs":1000,"timezone":"UTC","topic":"waits","overlapPolicy":"skip"}"#).await;
    let samples = server
        .samples(|samples| {
            let fires = |disposition| samples.value(&format!(r#"punctual_fires_total{{disposition="{disposition}"}}"#));
            // The two are not written at the same instant.
            let are_told = samples.value("punctual_schedule_lag_seconds_count") == fires("fired");
            fires("fired") >= Some(3.0) && fires("skipped") >= Some(2.0) && are_told
        })
        .await;
    let fired = samples.value(r#"punctual_fires_total{disposition="fired"}"#);
    assert!(samples.value("punctual_schedule_lag_seconds_sum") > Some(0.0), "none fires at its very instant");
    let fires = database.number("SELECT count(*) FROM punctual_fires WHERE task_id IS NOT NULL").await;
    assert!(fired <= Some(fires as f64), "{fired:?} of {fires}");
    assert_eq!(samples.value(r#"punctual_fires_missed_total{topic="echo"}"#), Some(0.0));
    server.stop();
}

async fn an_instant_that_nobody_fires_is_counted_logged_and_told(database: Database) {
    // A node with newer zone data was here: this one does not lead, and nobody fires anything.
    let store = connect(&database.url, Options::default()).await.unwrap();
    store.note_tz_version("2099a").await.unwrap();
    store.close().await.unwrap();
    // A SQLite file serves one at a time.
    drop(store);
    let mut server = Server::start_with(&database, |command| command.env("PUNCTUAL_RECONCILE_SECONDS", "1"));
    let events = server.request(Method::GET, "/api/v1/events?type=schedule.missed");
    let mut stream = Stream::open(events).await;
    let made = make(&server, EVERY_SECOND).await;

    let frame = stream.next().await.unwrap();
    assert_eq!(frame.event, "schedule.missed");
    let told = frame.json();
    assert_eq!((&told["scheduleId"], &told["scheduleName"]), (&made["id"], &json!("s")));
    assert_eq!((&told["topic"], &told["scheduledAt"]), (&json!("echo"), &made["nextFireAt"]));
    let line = server.process.wait_for_log("schedule did not fire in time");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["level"], &line["schedule_id"], &line["name"]), (&json!("WARN"), &made["id"], &json!("s")));
    // Noted once: nobody is told of the same instant again.
    let missed = r#"punctual_fires_missed_total{topic="echo"}"#;
    let samples = server.samples(|samples| samples.value(missed) >= Some(1.0)).await;
    assert_eq!(samples.value(missed), Some(1.0));
    assert_eq!(samples.value(r#"punctual_fires_total{disposition="fired"}"#), Some(0.0));
    let items = server.get(&format!("{PATH}/{}/executions", made["id"].as_str().unwrap())).await.json();
    assert_eq!(items["items"], json!([]));
    server.stop();
}
