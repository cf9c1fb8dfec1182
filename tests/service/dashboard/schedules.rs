//! Schedules are made, edited, paused, triggered, filled in and deleted by forms.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::task::{AttemptOutcome, Settlement};
use punctual_domain::time::ZoneDatabase;
use serde_json::{Value, json};

use super::{Visit, YEARLY, api, make, section};
use crate::on_each_database;
use crate::support::{Database, Past, Server};

on_each_database!(
    a_schedule_is_made_edited_and_deleted,
    an_edit_keeps_what_the_form_does_not_show,
    a_name_is_kept_as_it_is_with_its_blanks,
    the_largest_payload_goes_through_the_form,
    line_ends_of_a_form_are_those_of_the_api,
    a_schedule_is_paused_resumed_and_triggered,
    a_paused_schedule_promises_no_fires,
    a_pause_has_a_note_that_can_be_changed,
    a_backfill_counts_first,
    a_preview_marks_gaps_and_folds,
    the_calendar_shows_what_fired_and_what_failed,
    the_list_draws_how_the_last_fires_went_and_how_long_they_took,
);

async fn a_schedule_is_made_edited_and_deleted(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = [
        ("name", "nightly report"),
        ("topic", "report.nightly"),
        ("rhythm", "cron"),
        ("cronExpression", "0 2 * * *"),
        ("timezone", "Europe/Paris"),
        ("payload", "{\"pages\": 3}"),
        ("enabled", "true"),
        ("maxRetries", "5"),
        ("overlapPolicy", "queue"),
    ];
    let (path, page) = visit.done("/schedules/new", &fields).await;
    assert!(page.contains("was made") && page.contains("nightly report"), "{page}");
    let made = api(&server, &format!("/api/v1{path}")).await;
    for (field, expected) in [
        ("name", json!("nightly report")),
        ("cronExpression", json!("0 2 * * *")),
        ("payload", json!({"pages": 3})),
        ("maxRetries", json!(5)),
        ("overlapPolicy", json!("queue")),
        ("enabled", json!(true)),
    ] {
        assert_eq!(made[field], expected, "{field}");
    }

    let again = visit.post("/schedules/new", &fields).await;
    assert_eq!(again.status, 409);
    assert!(again.text.contains("is taken"), "{again:?}");
    let wrong =
        [("name", "x"), ("topic", "a b"), ("cronExpression", "0 0 30 2 *"), ("timezone", "EST"), ("payload", "{")];
    assert!(visit.post("/schedules/new", &wrong).await.text.contains("is not JSON"));
    let refused = visit.post("/schedules/new", &wrong[..4]).await;
    assert_eq!(refused.status, 400);
    for part in ["America/New_York", "value=\"a b\"", "aria-invalid=\"true\""] {
        assert!(refused.text.contains(part), "{part}: {}", refused.text);
    }

    let edited = [
        ("version", "1"),
        ("name", "nightly report"),
        ("topic", "report.nightly"),
        ("rhythm", "every"),
        ("every", "90m"),
        ("timezone", "Europe/Paris"),
        ("payload", "[]"),
    ];
    let (_, page) = visit.done(&format!("{path}/edit"), &edited).await;
    assert!(page.contains("was changed") && page.contains("every 1h30m"), "{page}");
    let schedule = api(&server, &format!("/api/v1{path}")).await;
    assert_eq!((&schedule["everyMs"], &schedule["cronExpression"]), (&json!(5_400_000), &Value::Null));
    assert_eq!((&schedule["maxRetries"], &schedule["enabled"]), (&json!(3), &json!(true)), "emptied, and left alone");
    let stale = visit.post(&format!("{path}/edit"), &edited).await;
    assert_eq!(stale.status, 412, "somebody edited it in between: {stale:?}");

    assert!(visit.page(&format!("{path}/delete")).await.contains("Delete “nightly report”?"));
    let (location, page) = visit.done(&format!("{path}/delete"), &[("version", "2")]).await;
    assert!(location == "/schedules" && page.contains("was deleted"), "{page}");
    assert_eq!(visit.get(&path).await.status, 404);
    server.stop();
}

async fn an_edit_keeps_what_the_form_does_not_show(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let body = r#"{"name":"n","cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"echo","enabled":false,
        "payload":{"b":1.50,"a":null},"metadata":{"ownerId":"o"},"createdBy":"me","clientRequestId":"c",
        "retry":{"backoff":{"type":"fixed","delay":1000}}}"#;
    let id = make(&server, body).await;
    let path = format!("/schedules/{id}");
    let before = api(&server, &format!("/api/v1{path}")).await;
    let edit = async |version: &str, payload: &str| {
        let fields = [
            ("version", version),
            ("name", "n"),
            ("topic", "echo"),
            ("rhythm", "cron"),
            ("cronExpression", "0 0 2 1 *"),
            ("timezone", "UTC"),
            ("payload", payload),
        ];
        visit.done(&format!("{path}/edit"), &fields).await;
        let answer = server.get(&format!("/api/v1{path}")).await;
        (answer.json(), answer.text)
    };
    let nulls = r#"{"kept": null, "inside": {"also": null, "n": 12345678901234567890123.50}, "list": [null]}"#;
    let (edited, text) = edit("1", nulls).await;
    assert!(text.contains(nulls), "as it was entered: {text}");
    for field in ["metadata", "createdBy", "clientRequestId", "retry", "enabled"] {
        assert_eq!(edited[field], before[field], "{field}");
    }
    // Members that were taken out are gone, and what was not touched stays as it was written.
    let (edited, _) = edit("2", r#"{"kept": null}"#).await;
    assert_eq!(edited["payload"], json!({"kept": null}));
    let (_, text) = edit("3", "{\r\n  \"kept\": null\r\n}").await;
    assert!(text.contains(r#"{"kept": null}"#), "{text}");
    server.stop();
}

async fn a_name_is_kept_as_it_is_with_its_blanks(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let body = r#"{"name":" n ","description":" d ","cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"echo"}"#;
    let path = format!("/schedules/{}", make(&server, body).await);
    let form = visit.page(&format!("{path}/edit")).await;
    assert!(form.contains("value=\" n \"") && form.contains("\n d </textarea>"), "{form}");
    let edit = |version: &'static str, name: &'static str| {
        let when = [("topic", "echo"), ("rhythm", "cron"), ("cronExpression", "0 0 2 1 *"), ("timezone", "UTC")];
        [&[("version", version), ("name", name), ("description", " d ")][..], &when].concat()
    };
    visit.done(&format!("{path}/edit"), &edit("1", " n ")).await;
    let edited = api(&server, &format!("/api/v1{path}")).await;
    let told = ["name", "description", "cronExpression"].map(|field| edited[field].as_str().unwrap());
    assert_eq!(told, [" n ", " d ", "0 0 2 1 *"]);
    let refused = visit.post(&format!("{path}/edit"), &edit("2", "  ")).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("must not be blank"), "{refused:?}");
    server.stop();
}

async fn the_largest_payload_goes_through_the_form(database: Database) {
    const MOST: usize = 1024 * 1024;
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = |payload: &str| {
        let when = [("rhythm", "cron"), ("cronExpression", "0 0 1 1 *"), ("timezone", "UTC"), ("topic", "echo")];
        [("name", "large"), ("payload", payload)].into_iter().chain(when).map(owned).collect::<Vec<_>>()
    };
    let text = |bytes: usize| format!("\"{}\"", "é".repeat((bytes - 2) / 2));
    let (path, _) = visit.done("/schedules/new", &borrowed(&fields(&text(MOST)))).await;
    let stored = async || server.get(&format!("/api/v1{path}")).await.json()["payload"].clone();
    assert_eq!(stored().await.as_str().unwrap().len(), MOST - 2);
    // Each line end takes two bytes in a form, and six once they are encoded.
    let lines = format!("[{}]", "\r\n".repeat(MOST - 2));
    visit.done(&format!("{path}/edit"), &borrowed(&fields(&lines))).await;
    assert_eq!(stored().await, json!([]));
    // As deep as can be, in an answer that is deeper.
    visit.done(&format!("{path}/edit"), &borrowed(&fields(&("[".repeat(128) + &"]".repeat(128))))).await;
    visit.done(&format!("{path}/trigger"), &[]).await;
    let preview = visit.post("/schedules/preview", &borrowed(&fields(&text(MOST)))).await;
    assert_eq!(preview.status, 200);
    let refused = visit.post(&format!("{path}/edit"), &borrowed(&fields(&text(MOST + 2)))).await;
    assert_eq!(refused.status, 413);
    assert!(refused.text.contains("at most 1048576 (1 MiB) are allowed"), "the form says it beside the payload");
    let other = visit.post(&format!("{path}/pause"), &[("note", &"n".repeat(MOST))]).await;
    assert_eq!(other.status, 413, "forms without a payload are no larger than other bodies");
    server.stop();
}

fn owned((name, value): (&'static str, &str)) -> (&'static str, String) {
    (name, value.to_owned())
}

fn borrowed<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

async fn line_ends_of_a_form_are_those_of_the_api(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = |description: &'static str, payload: &'static str| {
        let when = [("rhythm", "cron"), ("cronExpression", "0 0 1 1 *"), ("timezone", "UTC"), ("topic", "echo")];
        [&[("name", "lines"), ("description", description), ("payload", payload)][..], &when].concat()
    };
    let sent = fields("one\r\ntwo\r\n\r\nfour", "{\r\n  \"a\": 1\r\n}");
    let (path, _) = visit.done("/schedules/new", &sent).await;
    let made = server.get(&format!("/api/v1{path}")).await;
    assert_eq!(made.json()["description"], "one\ntwo\n\nfour");
    assert!(made.text.contains("{\n  \"a\": 1\n}"), "{}", made.text);
    let form = visit.page(&format!("{path}/edit")).await;
    assert!(form.contains("one\ntwo\n\nfour</textarea>"), "a field that keeps lines: {form}");
    visit.done(&format!("{path}/edit"), &sent).await;
    assert_eq!(server.get(&format!("/api/v1{path}")).await.json(), made.json(), "sent again as it was shown");

    // What the API was given stays, too, while nobody changes it.
    let body = r#"{"name":"given","description":"one\r\ntwo","payload":{"a":1},
        "cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"echo"}"#;
    let path = format!("/schedules/{}", make(&server, body).await);
    let before = api(&server, &format!("/api/v1{path}")).await;
    let mut same = fields("one\r\ntwo", "{\r\n  \"a\": 1\r\n}");
    same[0].1 = "given";
    visit.done(&format!("{path}/edit"), &same).await;
    assert_eq!(api(&server, &format!("/api/v1{path}")).await, before);
    server.stop();
}

async fn a_paused_schedule_promises_no_fires(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let path = format!("/schedules/{id}");
    let ahead = async || {
        let page = visit.page(&path).await;
        let begin = page.find("id=\"ahead\"").unwrap();
        page[begin..begin + page[begin..].find("</section>").unwrap()].to_owned()
    };
    assert_eq!(ahead().await.matches("<tr>").count(), 11, "ten fires and a head");
    visit.done(&format!("{path}/pause"), &[("note", "holidays")]).await;
    let paused = ahead().await;
    assert!(paused.contains("fires nothing until somebody resumes it") && !paused.contains("<tr>"), "{paused}");
    let (_, page) = visit.done(&format!("{path}/pause"), &[("until", "2040-06-01T00:00")]).await;
    assert!(page.contains("holidays"), "why it is paused is still said: {page}");
    let paused = ahead().await;
    assert!(paused.contains("It is paused until") && paused.contains("01 Jan 2041"), "{paused}");
    assert!(!paused.contains("01 Jan 2040"), "nothing within the pause: {paused}");
    server.stop();
}

async fn a_pause_has_a_note_that_can_be_changed(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let (path, pause) = (format!("/schedules/{id}"), format!("/schedules/{id}/pause"));
    let (_, page) = visit.done(&pause, &[("note", ""), ("until", "")]).await;
    assert!(page.contains("Change the pause") && page.contains(r#"name="note""#), "{page}");
    let version = async || api(&server, &format!("/api/v1{path}")).await["version"].to_string();
    let seen = version().await;
    let until = "2040-11-01T08:30:15.250Z";
    let body = format!(r#"{{"note": "holidays", "until": "{until}"}}"#);
    assert_eq!(server.post(&format!("/api/v1{path}/pause"), body).await.status, 200);
    let (_, late) = visit.done(&pause, &[("version", &seen), ("note", "mine"), ("until", "")]).await;
    assert!(late.contains("holidays") && !late.contains("mine"), "what another wrote meanwhile stays: {late}");

    let stands = r#"value="2040-11-01T02:30:15""#;
    assert!(late.contains(stands) && late.contains(r#"value="holidays""#), "{late}");
    let fields = [("version", &*version().await), ("note", "audit"), ("until", "2040-11-01T02:30:15")];
    let (_, page) = visit.done(&pause, &fields).await;
    assert!(page.contains("The pause was changed.") && page.contains(r#"value="audit""#), "{page}");
    let changed = api(&server, &format!("/api/v1{path}")).await;
    assert_eq!((&changed["pauseNote"], &changed["pausedUntil"]), (&"audit".into(), &until.into()), "to the instant");
    visit.done(&pause, &[("version", &*version().await), ("note", ""), ("until", "")]).await;
    let changed = api(&server, &format!("/api/v1{path}")).await;
    assert!(changed["pauseNote"].is_null() && changed["pausedUntil"].is_null(), "{changed}");
    assert_eq!(changed["enabled"], false);
    server.stop();
}

async fn a_schedule_is_paused_resumed_and_triggered(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let path = format!("/schedules/{id}");
    let (_, page) = visit.done(&format!("{path}/pause"), &[("note", "holidays"), ("until", "2040-01-01T00:00")]).await;
    assert!(page.contains("is paused") && page.contains("holidays") && page.contains("Resume"), "{page}");
    let paused = api(&server, &format!("/api/v1{path}")).await;
    assert_eq!(paused["pausedUntil"], "2040-01-01T06:00:00.000Z", "read in the schedule's zone");
    let (_, refused) = visit.done(&format!("{path}/pause"), &[("until", "2001-01-01T00:00")]).await;
    assert!(refused.contains("must be in the future"), "{refused}");
    let (_, page) = visit.done(&format!("{path}/resume"), &[]).await;
    assert!(page.contains("fires again"), "{page}");
    let (task, page) = visit.done(&format!("{path}/trigger"), &[]).await;
    assert!(task.starts_with("/tasks/") && page.contains("yearly"), "{page}");
    server.ended_task(task.strip_prefix("/tasks/").unwrap()).await;
    let page = visit.page(&path).await;
    assert!(page.contains("manual") && page.contains("1 completed"), "{page}");
    server.stop();
}

async fn a_backfill_counts_first(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(
        &server,
        r#"{"name":"hourly","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo","enabled":false,
            "startAt":"2020-01-01T00:00:00Z"}"#,
    )
    .await;
    let path = format!("/schedules/{id}/backfill");
    assert!(visit.page(&path).await.contains("Count first"));
    let stretch = [("from", "2026-01-01T00:00"), ("to", "2026-01-01T03:00")];
    let counted = visit.post(&path, &stretch).await;
    assert!(counted.status == 200 && counted.text.contains("Make 3 fires"), "{counted:?}");
    assert_eq!(api(&server, &format!("/api/v1/schedules/{id}/executions")).await["items"], json!([]), "only counted");
    let refused = visit.post(&path, &[("from", "2026-01-01T03:00"), ("to", "2026-01-01T03:00")]).await;
    assert!(refused.text.contains("must be before to"), "{refused:?}");
    let confirmed = [stretch[0], stretch[1], ("confirmed", "true")];
    let (_, page) = visit.done(&path, &confirmed).await;
    assert!(page.contains("3 fires were made"), "{page}");
    let made = api(&server, &format!("/api/v1/schedules/{id}/executions")).await;
    assert_eq!(made["items"].as_array().unwrap().len(), 3);
    server.stop();
}

async fn a_preview_marks_gaps_and_folds(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = |cron: &'static str, start: &'static str| {
        [("rhythm", "cron"), ("cronExpression", cron), ("timezone", "Europe/Paris"), ("startAt", start)]
    };
    for (cron, start, part) in [
        ("30 2 * * *", "2027-03-27T00:00:00Z", "gap: clocks skip"),
        ("30 2 * * *", "2027-10-30T00:00:00Z", "fold: clocks show this time twice"),
        ("0 0 13 * fri", "2027-01-01T00:00:00Z", "either matches"),
        ("0 0 30 2 *", "2027-01-01T00:00:00Z", "class=\"wrong\""),
    ] {
        let seen = visit.post("/schedules/preview", &fields(cron, start)).await;
        let preview = &seen.text[seen.text.find("id=\"preview\"").unwrap()..];
        assert!(seen.status == 200 && preview.contains(part), "{cron}: {preview}");
    }
    assert_eq!(api(&server, "/api/v1/schedules").await["items"], json!([]), "nothing is kept");
    server.stop();
}

async fn the_calendar_shows_what_fired_and_what_failed(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    server.put_topic("pulled", r#"{"route":{"type":"pull"}}"#).await;
    let named = |name: &str, topic: &str| YEARLY.replace("yearly", name).replace("echo", topic);
    let (broken, sound) =
        (make(&server, &named("<broken>", "pulled")).await, make(&server, &named("sound", "echo")).await);
    for id in [&broken, &sound, &sound] {
        let task =
            server.post(&format!("/api/v1/schedules/{id}/trigger"), "").await.json()["id"].as_str().unwrap().to_owned();
        if *id == sound {
            server.ended_task(&task).await;
        }
    }
    let claim = server.post("/api/v1/claims", r#"{"topics": ["pulled"], "waitMs": 10000}"#).await.json();
    let task = &claim["tasks"][0];
    let fail = json!({"epoch": task["epoch"], "error": "no", "final": true}).to_string();
    assert_eq!(server.post(&format!("/api/v1/tasks/{}/fail", task["id"].as_str().unwrap()), fail).await.status, 200);
    // Alone, and so no fire.
    server.make_task(r#"{"topic": "echo"}"#).await;
    let page = visit.page("/schedules/calendar").await;
    let today = &page[page.find(" today\"").unwrap()..];
    let today = today.split("class=\"day").next().unwrap();
    for part in [
        "3 fired, <span class=\"bad\">1 failed</span>",
        "</time> &lt;broken&gt;</a>",
        "sound<span class=\"dim\"> ×2</span>",
    ] {
        assert!(today.contains(part), "{part}: {today}");
    }
    assert!(today.find("&lt;broken&gt;") < today.find("sound"), "what failed comes first: {today}");
    assert_eq!((page.matches("✗ ").count(), page.matches("✓ ").count()), (1, 1), "{page}");
    let before = visit.page("/schedules/calendar?month=2020-01").await;
    assert!(before.contains("Nothing fired in this month"), "{before}");
    server.stop();
}

async fn the_list_draws_how_the_last_fires_went_and_how_long_they_took(database: Database) {
    let clock = FakeClock::at(Utc::now() - TimeDelta::minutes(10));
    let past = Past::by(&database, Some(Arc::new(clock.clone()))).await;
    let definition = Definition::new("report", Rhythm::Cron("0 0 29 2 *".into()), "UTC", &"report".parse().unwrap());
    let schedule = Schedule::new(definition, clock.now(), &ZoneDatabase::bundled()).unwrap();
    let failed = Settlement::Failed { outcome: AttemptOutcome::Failed, error: "no paper\nin tray 2".into() };
    let done = || Settlement::Completed { result: None };
    for (seconds, settlement) in [(2, done()), (8, failed), (4, done())] {
        past.triggered(&schedule).await;
        past.attempt("report", settlement, || clock.advance(TimeDelta::seconds(seconds))).await;
    }
    past.close().await;

    let server = Server::start(&database);
    let page = Visit::of(&server).page("/schedules").await;
    let list = section(&page, "schedules");
    let strip = "aria-label=\"The last 3: 2 completed, 1 failed, 0 skipped\"";
    let durations = "aria-label=\"Durations: last 4 s, longest 8 s\"";
    // The newest is at the right: twice as long as the first, half as long as the one between.
    for part in [strip, durations, "points=\"0.0,15.5 45.0,2.0 90.0,11.0\""] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let (_, cells) = list.split_once(strip).unwrap();
    let cells: Vec<_> = cells.split("</span>").next().unwrap().split("<i class=\"").skip(1).collect();
    for (cell, (tone, said)) in
        cells.iter().zip([("good", " completed, 2 s\""), ("bad", " failed: no paper\""), ("good", " completed, 4 s\"")])
    {
        assert!(cell.starts_with(&format!("{tone}\"")) && cell.contains(said), "{cells:?}");
    }
    assert_eq!(cells.len(), 3);
    server.stop();
}
