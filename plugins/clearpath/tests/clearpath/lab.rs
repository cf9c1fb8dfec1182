//! The job `labResultPoll`, against a lab that misbehaves.

use std::time::Duration;

use punctual_clearpath::Clearpath;
use punctual_sdk::StateCell;
use punctual_testing::{Punctual, Setup, TaskStatus, TestDatabase, logged, on_both_databases, setup};
use serde_json::{Value, json};

use crate::lab_server::{Lab, Mood};
use crate::{NOW, at_work, items, run, session, try_to_run};

async fn start(database: TestDatabase) -> (Punctual, Lab) {
    let lab = Lab::start();
    (polling(at_work(database), &lab).start().await, lab)
}

fn polling(setup: Setup, lab: &Lab) -> Setup {
    let setup = setup.setting("LAB_INTEGRATION_MODEL", "api").setting("LAB_API_URL", &lab.url);
    setup.setting("LAB_API_KEY", "secret-7")
}

/// What the job remembers.
fn state(punctual: &Punctual) -> StateCell<Value> {
    punctual.context().state_cell("labResultPoll")
}

/// As if the last poll that succeeded had been on the day before, at noon in UTC.
async fn polled_yesterday(punctual: &Punctual) {
    let yesterday = "2026-11-15T12:00:00Z";
    state(punctual).set(&json!({"last_run_at": yesterday, "last_poll_timestamp": yesterday})).await.unwrap();
}

const SINCE_YESTERDAY: &str = "/api/results?since=2026-11-15T12%3A00%3A00.000Z";

/// A session whose detector is at the lab.
async fn mailed(punctual: &Punctual, order: &str) -> String {
    let id = session(punctual, json!({"clearpathOrderId": order, "kitSerialNumber": format!("kit-{order}")})).await;
    assert_eq!(punctual.patch(&format!("/sessions/{id}"), json!({"status": "mailed"})).await.status, 200);
    id
}

fn record(order: &str, level: f64) -> Value {
    json!({"clearpath_order_id": order, "radon_level": level, "analyst": "Marie"})
}

async fn result(punctual: &Punctual, session: &str) -> Option<Value> {
    let found = punctual.get(&format!("/sessions/{session}/result")).await;
    (found.status == 200).then_some(found.body)
}

/// What the n-th request asked for.
fn target(lab: &Lab, n: usize) -> String {
    path(&lab.asked()[n])
}

fn path(asked: &str) -> String {
    asked.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
}

async fn without_the_api_model_nobody_is_asked(database: TestDatabase) {
    for (model, named) in [(None, "none"), (Some("manual"), "manual")] {
        let setup = at_work(database.clone());
        let setup = if let Some(model) = model { setup.setting("LAB_INTEGRATION_MODEL", model) } else { setup };
        let punctual = setup.start().await;
        assert_eq!(run(&punctual, "labResultPoll").await["processed"], 0);
        let line = format!("lab polling skipped (model: {named})");
        assert_eq!(logged(&line, json!({"job": "labResultPoll"}))[0]["level"], "INFO");
        punctual.stop().await;
    }
}

async fn results_are_stored_by_order_or_by_kit(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let (first, second) = (mailed(&punctual, "CP-1").await, mailed(&punctual, "CP-2").await);
    lab.set(Mood::Records(vec![record("CP-1", 99.5), json!({"kit_serial_number": "kit-CP-2", "radon_level": 200})]));
    assert_eq!(run(&punctual, "labResultPoll").await["processed"], 2);
    let stored = result(&punctual, &first).await.unwrap();
    assert_eq!((&stored["radonLevel"], &stored["source"]), (&json!(99.5), &json!("lab")));
    assert_eq!(result(&punctual, &second).await.unwrap()["radonLevel"], json!(200.0));
    assert_eq!(logged("lab results ingested", json!({"ingested": 2}))[0]["level"], "INFO");
    // Their certificates are made by themselves.
    punctual.advance(std::time::Duration::ZERO).await;
    assert_eq!(items(&punctual, "/certificates").await.len(), 2);
}

async fn a_poll_asks_for_what_is_new_since_the_last_that_succeeded(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    run(&punctual, "labResultPoll").await;
    assert_eq!(target(&lab, 0), "/api/results");
    assert!(lab.asked()[0].to_lowercase().contains("authorization: bearer secret-7"), "{}", lab.asked()[0]);
    punctual.advance(crate::MINUTE).await;
    run(&punctual, "labResultPoll").await;
    assert_eq!(target(&lab, 1), "/api/results?since=2026-11-16T18%3A00%3A00.000Z");
    punctual.advance(crate::MINUTE).await;
    run(&punctual, "labResultPoll").await;
    assert_eq!(target(&lab, 2), "/api/results?since=2026-11-16T18%3A01%3A00.000Z");
}

async fn what_is_remembered_has_the_names_of_jobs_state_and_is_shown(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let shown = |run_at: Option<&str>, polled_at: Option<&str>| json!({"model": "api", "lastRunAt": run_at, "lastPollTimestamp": polled_at});
    assert_eq!(punctual.get("/lab").await.body, shown(None, None));
    run(&punctual, "labResultPoll").await;
    let first = "2026-11-16T18:00:00";
    let stored = json!({"last_run_at": format!("{first}Z"), "last_poll_timestamp": format!("{first}Z")});
    assert_eq!(state(&punctual).get().await.unwrap(), Some(stored));
    let first = format!("{first}.000Z");
    assert_eq!(punctual.get("/lab").await.body, shown(Some(&first), Some(&first)));
    // A poll that fails is one that was begun.
    punctual.advance(crate::MINUTE).await;
    lab.set(Mood::Status(503));
    try_to_run(&punctual, "labResultPoll").await;
    assert_eq!(punctual.get("/lab").await.body, shown(Some("2026-11-16T18:01:00.000Z"), Some(&first)));
}

/// The poll fails with this error, and says so.
async fn fails(punctual: &Punctual, error: &str) {
    let lines = || logged("lab API not read", json!({"job": "labResultPoll"}));
    let before = lines().len();
    let failed = try_to_run(punctual, "labResultPoll").await;
    assert_eq!((failed.status, failed.outcomes.len()), (TaskStatus::Failed, 1));
    assert!(failed.error.as_ref().unwrap().contains(error), "{failed:?}");
    let line = lines().split_off(before).pop().unwrap();
    assert!(line["level"] == "ERROR" && line["err"].as_str().unwrap().contains(error), "{line}");
}

/// The poll fails with this error, and the next one asks from the same point.
async fn misbehaves(database: TestDatabase, mood: Mood, error: &str) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    run(&punctual, "labResultPoll").await;
    punctual.advance(crate::MINUTE).await;
    lab.set(mood);
    fails(&punctual, error).await;
    lab.set(Mood::Records(vec![record("CP-1", 50.0)]));
    punctual.advance(crate::MINUTE).await;
    run(&punctual, "labResultPoll").await;
    assert_eq!(target(&lab, 2), "/api/results?since=2026-11-16T18%3A00%3A00.000Z");
    assert!(result(&punctual, &id).await.is_some());
}

async fn a_lab_that_fails_is_asked_again_from_the_same_point(database: TestDatabase) {
    misbehaves(database, Mood::Status(503), "HTTP status 503").await;
}

async fn a_lab_that_refuses_us_is_asked_again_from_the_same_point(database: TestDatabase) {
    misbehaves(database, Mood::Status(401), "HTTP status 401").await;
}

async fn a_lab_that_leads_elsewhere_is_not_followed(database: TestDatabase) {
    misbehaves(database, Mood::Status(302), "HTTP status 302").await;
}

async fn an_answer_that_is_no_json_is_logged_in_part(database: TestDatabase) {
    misbehaves(database, Mood::Text("<html>maintenance</html>".to_owned()), "unexpected format: <html>maintenance")
        .await;
}

async fn an_answer_without_results_is_logged_in_part(database: TestDatabase) {
    misbehaves(database, Mood::Text(r#"{"data": []}"#.to_owned()), r#"unexpected format: {"data": []}"#).await;
}

async fn a_lab_that_hangs_up_is_asked_again_from_the_same_point(database: TestDatabase) {
    misbehaves(database, Mood::HangsUp, "lab API broke off").await;
}

async fn a_lab_that_is_not_there_is_asked_again_later(database: TestDatabase) {
    let (lab, door) = Lab::closed();
    let punctual = polling(at_work(database), &lab).start().await;
    let id = mailed(&punctual, "CP-1").await;
    polled_yesterday(&punctual).await;
    fails(&punctual, "lab API unreachable").await;
    let stored = state(&punctual).get().await.unwrap().unwrap();
    assert_eq!(stored, json!({"last_run_at": NOW, "last_poll_timestamp": "2026-11-15T12:00:00Z"}));
    lab.open(door);
    lab.set(Mood::Records(vec![record("CP-1", 50.0)]));
    punctual.advance(crate::MINUTE).await;
    assert_eq!(run(&punctual, "labResultPoll").await["processed"], 1);
    assert_eq!((lab.asked().len(), target(&lab, 0)), (1, SINCE_YESTERDAY.to_owned()));
    assert!(result(&punctual, &id).await.is_some());
    assert_eq!(state(&punctual).get().await.unwrap().unwrap()["last_poll_timestamp"], "2026-11-16T18:01:00Z");
}

async fn a_lab_that_hangs_is_asked_again_from_the_same_point(database: TestDatabase) {
    assert_eq!(Clearpath::default().lab_patience, Duration::from_secs(30));
    let (database, lab) = (database.that_lasts(), Lab::start());
    // Nothing has to be in time here.
    let hasty = setup(Clearpath { lab_patience: Duration::from_millis(100) }).database(database.clone()).at(NOW);
    let punctual = polling(hasty, &lab).start().await;
    let id = mailed(&punctual, "CP-1").await;
    polled_yesterday(&punctual).await;
    for mood in [Mood::SaysNothing, Mood::StopsHalfway] {
        lab.set(mood);
        fails(&punctual, "timed out").await;
    }
    punctual.stop().await;
    lab.set(Mood::Records(vec![record("CP-1", 50.0)]));
    let punctual = polling(at_work(database), &lab).start().await;
    assert_eq!(run(&punctual, "labResultPoll").await["processed"], 1);
    assert_eq!(path(lab.asked().last().unwrap()), SINCE_YESTERDAY);
    assert!(result(&punctual, &id).await.is_some());
}

async fn a_lab_that_answers_too_much_is_asked_again_from_the_same_point(database: TestDatabase) {
    const MOST: usize = 16 * 1024 * 1024;
    let answer = |length: usize| Mood::Text(format!("{}[]", " ".repeat(length - 2)));
    let (punctual, lab) = start(database.clone()).await;
    lab.set(answer(MOST));
    assert_eq!(run(&punctual, "labResultPoll").await["processed"], 0);
    punctual.stop().await;
    misbehaves(database, answer(MOST + 1), "lab API answered more than 16777216 bytes").await;
}

async fn a_certificate_that_fails_leaves_the_result_of_the_lab(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    crate::execute(&punctual, "ALTER TABLE clearpath_certificates RENAME TO elsewhere").await;
    lab.set(Mood::Records(vec![record("CP-1", 50.0)]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 1, "sent": 0, "skipped": 0, "failed": 0}));
    punctual.advance(crate::MINUTE * 2).await;
    let [task] = punctual.tasks("clearpath.certificate").await.try_into().unwrap();
    assert_eq!((task.status, punctual.task(task.id).await.outcomes.len()), (TaskStatus::Failed, 3));
    assert_eq!(logged("certificate not made", json!({"session_id": id, "level": "ERROR"})).len(), 3);
    crate::execute(&punctual, "ALTER TABLE elsewhere RENAME TO clearpath_certificates").await;
    // The result stays, and the lab is not asked for it again.
    let kept = result(&punctual, &id).await.unwrap();
    assert_eq!((&kept["radonLevel"], &kept["source"]), (&json!(50.0), &json!("lab")));
    lab.set(Mood::Records(Vec::new()));
    run(&punctual, "labResultPoll").await;
    assert_eq!(target(&lab, 1), "/api/results?since=2026-11-16T18%3A00%3A00.000Z");
    // Somebody looks after it.
    let made = punctual.post("/certificates", json!({"sessionId": id})).await;
    assert_eq!((made.status, made.text("testSessionId")), (201, id.as_str()));
}

async fn without_an_address_the_poll_fails(database: TestDatabase) {
    let punctual = at_work(database).setting("LAB_INTEGRATION_MODEL", "api").start().await;
    let failed = try_to_run(&punctual, "labResultPoll").await;
    assert_eq!(failed.error.as_deref(), Some("LAB_API_URL is not set"));
}

async fn a_malformed_record_is_logged_and_the_others_are_stored(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    let long = "x".repeat(1000);
    lab.set(Mood::Records(vec![
        json!("nonsense"),
        json!({"radon_level": 1}),
        json!({"clearpath_order_id": "CP-1"}),
        json!({"clearpath_order_id": "CP-1", "radon_level": "high"}),
        json!({"clearpath_order_id": 7, "radon_level": 1}),
        json!({"clearpath_order_id": "CP-1", "radon_level": -5}),
        json!({"clearpath_order_id": long, "radon_level": "x"}),
        record("CP-1", 75.0),
    ]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 8, "sent": 0, "skipped": 7, "failed": 0}));
    assert_eq!(result(&punctual, &id).await.unwrap()["radonLevel"], json!(75.0));
    let lines = logged("lab result malformed", json!({"job": "labResultPoll"}));
    assert!(lines.iter().all(|line| line["level"] == "WARN" && line["excerpt"].as_str().unwrap().len() <= 200));
    assert!(lines.iter().any(|line| line["excerpt"] == "\"nonsense\""), "{lines:?}");
}

async fn an_id_that_is_empty_is_one_that_the_lab_does_not_have(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    lab.set(Mood::Records(vec![
        json!({"clearpath_order_id": "", "kit_serial_number": "", "radon_level": 1}),
        json!({"clearpath_order_id": "", "kit_serial_number": "kit-CP-1", "radon_level": 75}),
    ]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 2, "sent": 0, "skipped": 1, "failed": 0}));
    assert_eq!(result(&punctual, &id).await.unwrap()["radonLevel"], json!(75.0));
}

async fn an_id_that_no_database_holds_is_malformed(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    lab.set(Mood::Records(vec![record("CP-\0", 1.0), record("CP-1", 75.0)]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 2, "sent": 0, "skipped": 1, "failed": 0}));
    assert!(result(&punctual, &id).await.is_some());
}

async fn a_result_is_stored_once(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let id = mailed(&punctual, "CP-1").await;
    lab.set(Mood::Records(vec![record("CP-1", 10.0), record("CP-1", 20.0)]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 2, "sent": 0, "skipped": 1, "failed": 0}));
    assert_eq!(run(&punctual, "labResultPoll").await["skipped"], 2);
    assert_eq!(result(&punctual, &id).await.unwrap()["radonLevel"], json!(10.0));
    let skipped = logged("Record skipped", json!({"job": "labResultPoll", "recordId": id, "reason": "duplicate"}));
    assert_eq!((skipped.len(), &skipped[0]["level"]), (3, &json!("DEBUG")));
    punctual.advance(std::time::Duration::ZERO).await;
    assert_eq!(punctual.tasks("clearpath.certificate").await.len(), 1);
}

async fn only_sessions_that_wait_for_a_result_get_one(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let active = session(&punctual, json!({"clearpathOrderId": "CP-active"})).await;
    let waiting = mailed(&punctual, "CP-waiting").await;
    punctual.patch(&format!("/sessions/{waiting}"), json!({"status": "results_pending"})).await;
    lab.set(Mood::Records(vec![record("CP-active", 1.0), record("CP-waiting", 2.0), record("CP-unknown", 3.0)]));
    assert_eq!(run(&punctual, "labResultPoll").await, json!({"processed": 3, "sent": 0, "skipped": 2, "failed": 0}));
    assert!(result(&punctual, &active).await.is_none() && result(&punctual, &waiting).await.is_some());
    // The lab does not tell of them again, so somebody has to know.
    let lost = logged("lab result not stored", json!({"job": "labResultPoll", "recordId": active}));
    assert_eq!(
        (&lost[0]["level"], &lost[0]["err"]),
        (&json!("WARN"), &json!("the session is active, and waits for no result"))
    );
    let lost = logged("lab result not stored", json!({"job": "labResultPoll", "clearpath_order_id": "CP-unknown"}));
    assert_eq!((&lost[0]["level"], &lost[0]["recordId"]), (&json!("WARN"), &json!(2)));
}

async fn what_cannot_be_stored_is_asked_for_again(database: TestDatabase) {
    let (punctual, lab) = start(database).await;
    let (bad, good) = (mailed(&punctual, "CP-bad").await, mailed(&punctual, "CP-good").await);
    crate::freeze(&punctual, "clearpath_sessions", "clearpath_order_id", "CP-bad").await;
    lab.set(Mood::Records(vec![record("CP-bad", 1.0), record("CP-good", 2.0)]));
    let failed = try_to_run(&punctual, "labResultPoll").await;
    assert_eq!(failed.error.as_deref(), Some("1 results could not be stored"));
    assert!(result(&punctual, &bad).await.is_none() && result(&punctual, &good).await.is_some());
    punctual.execute("DROP TRIGGER frozen", "DROP TRIGGER frozen ON clearpath_sessions").await;
    assert_eq!(run(&punctual, "labResultPoll").await["processed"], 2);
    assert_eq!(target(&lab, 1), "/api/results");
    assert!(result(&punctual, &bad).await.is_some());
}

on_both_databases![
    without_the_api_model_nobody_is_asked,
    results_are_stored_by_order_or_by_kit,
    a_poll_asks_for_what_is_new_since_the_last_that_succeeded,
    what_is_remembered_has_the_names_of_jobs_state_and_is_shown,
    a_lab_that_fails_is_asked_again_from_the_same_point,
    a_lab_that_refuses_us_is_asked_again_from_the_same_point,
    a_lab_that_leads_elsewhere_is_not_followed,
    an_answer_that_is_no_json_is_logged_in_part,
    an_answer_without_results_is_logged_in_part,
    a_lab_that_hangs_up_is_asked_again_from_the_same_point,
    a_lab_that_is_not_there_is_asked_again_later,
    a_lab_that_hangs_is_asked_again_from_the_same_point,
    a_lab_that_answers_too_much_is_asked_again_from_the_same_point,
    a_certificate_that_fails_leaves_the_result_of_the_lab,
    without_an_address_the_poll_fails,
    a_malformed_record_is_logged_and_the_others_are_stored,
    an_id_that_is_empty_is_one_that_the_lab_does_not_have,
    an_id_that_no_database_holds_is_malformed,
    a_result_is_stored_once,
    only_sessions_that_wait_for_a_result_get_one,
    what_cannot_be_stored_is_asked_for_again,
];
