//! The job `cnrppAlert`.

use punctual_testing::{Punctual, Response, Setup, TestDatabase, logged, on_both_databases};
use serde_json::json;

use crate::{at_work, items, run};

fn told(database: TestDatabase) -> Setup {
    at_work(database).setting("ADMIN_ALERT_EMAIL", "admin@example.com")
}

/// A contractor whose certification holds until this date.
async fn until(punctual: &Punctual, date: &str) -> String {
    let made = punctual.post("/contractors", json!({"name": format!("Until {date}"), "cnrppExpiryDate": date})).await;
    assert_eq!((made.status, made.text("status")), (201, "active"));
    format!("/contractors/{}", made.text("id"))
}

fn stamp(contractor: &Response) -> &serde_json::Value {
    &contractor.body["lastCnrppAlertSentAt"]
}

async fn an_alert_goes_out_sixty_days_before(database: TestDatabase) {
    let punctual = told(database).start().await;
    let in_60 = until(&punctual, "2027-01-15").await;
    let in_61 = until(&punctual, "2027-01-16").await;
    assert_eq!(run(&punctual, "cnrppAlert").await, json!({"processed": 1, "sent": 1, "skipped": 0, "failed": 0}));
    let [message] = punctual.messages().await.try_into().unwrap();
    assert_eq!(
        (message.recipient.as_str(), message.subject.as_str()),
        ("admin@example.com", "C-NRPP certification of Until 2027-01-15")
    );
    assert!(message.text.contains("expires on 2027-01-15"), "{}", message.text);
    assert_eq!(stamp(&punctual.get(&in_60).await), "2026-11-16T18:00:00.000Z");
    assert_eq!(stamp(&punctual.get(&in_61).await), &json!(null));
}

async fn a_second_run_on_the_same_day_sends_no_second_alert(database: TestDatabase) {
    let punctual = told(database).start().await;
    until(&punctual, "2026-12-16").await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 1);
    assert_eq!(run(&punctual, "cnrppAlert").await["processed"], 0);
    assert_eq!(punctual.messages().await.len(), 1);
}

async fn the_next_calendar_month_brings_another(database: TestDatabase) {
    // The last minutes of November in Alberta, which are December in UTC already.
    let punctual = told(database).at("2026-12-01T05:58:00Z").start().await;
    until(&punctual, "2026-12-31").await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 1);
    punctual.advance(crate::MINUTE).await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 0);
    punctual.advance(crate::MINUTE).await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 1);
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 0);
    assert_eq!(punctual.messages().await.len(), 2);
}

async fn a_fire_that_comes_late_counts_for_its_own_month(database: TestDatabase) {
    let punctual = told(database).at("2026-11-30T07:00:00Z").start().await;
    let path = until(&punctual, "2026-12-31").await;
    // Nobody was there at 02:00 on 30 November in Alberta. Half an hour into December that fire is made up for.
    punctual.oversleep(crate::MINUTE * 60 * 23 + crate::MINUTE * 30).await;
    assert_eq!(punctual.messages().await.len(), 1);
    assert_eq!(stamp(&punctual.get(&path).await), "2026-11-30T08:00:00.000Z");
    punctual.advance(crate::MINUTE * 100).await;
    assert_eq!(punctual.messages().await.len(), 2);
    assert_eq!(stamp(&punctual.get(&path).await), "2026-12-01T08:00:00.000Z");
}

async fn an_expired_contractor_becomes_inactive_after_the_alert(database: TestDatabase) {
    let punctual = told(database).start().await;
    let today = until(&punctual, "2026-11-16").await;
    let yesterday = until(&punctual, "2026-11-15").await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 2);
    assert_eq!(punctual.get(&today).await.text("status"), "active");
    let expired = punctual.get(&yesterday).await;
    assert_eq!((expired.text("status"), stamp(&expired)), ("inactive", &json!("2026-11-16T18:00:00.000Z")));
    let id = json!({"recordId": expired.text("id")});
    assert_eq!(logged("contractor deactivated, certification expired", id)[0]["level"], "INFO");
    let message = punctual.messages().await.into_iter().find(|message| message.text.contains("expired on 2026-11-15"));
    assert!(message.is_some());
}

async fn an_alert_that_cannot_be_sent_is_tried_by_the_next_run(database: TestDatabase) {
    let punctual = told(database).start().await;
    let expired = until(&punctual, "2026-11-15").await;
    punctual.fail_messages(Some("Resend is down"));
    assert_eq!(run(&punctual, "cnrppAlert").await, json!({"processed": 1, "sent": 0, "skipped": 0, "failed": 1}));
    let untold = punctual.get(&expired).await;
    assert_eq!((untold.text("status"), stamp(&untold)), ("active", &json!(null)));
    assert_eq!(
        logged("Record failed", json!({"job": "cnrppAlert", "recordId": untold.text("id")}))[0]["err"],
        "Resend is down"
    );
    punctual.fail_messages(None);
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 1);
    assert_eq!(punctual.get(&expired).await.text("status"), "inactive");
}

async fn a_contractor_is_stamped_and_deactivated_at_once_or_not_at_all(database: TestDatabase) {
    let punctual = told(database).start().await;
    let expired = until(&punctual, "2026-11-15").await;
    punctual
        .execute(
            "CREATE TRIGGER kept BEFORE UPDATE ON clearpath_contractors WHEN NEW.status = 'inactive'
             BEGIN SELECT RAISE(ABORT, 'not now'); END",
            "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
             CREATE TRIGGER kept BEFORE UPDATE ON clearpath_contractors FOR EACH ROW
             WHEN (NEW.status = 'inactive') EXECUTE FUNCTION kept()",
        )
        .await;
    // The alert is out, and that could not be noted: the record has failed, and only that.
    assert_eq!(run(&punctual, "cnrppAlert").await, json!({"processed": 1, "sent": 0, "skipped": 0, "failed": 1}));
    let untold = punctual.get(&expired).await;
    assert_eq!((untold.text("status"), stamp(&untold)), ("active", &json!(null)));
    punctual.execute("DROP TRIGGER kept", "DROP TRIGGER kept ON clearpath_contractors").await;
    assert_eq!(run(&punctual, "cnrppAlert").await, json!({"processed": 1, "sent": 1, "skipped": 0, "failed": 0}));
    let noted = punctual.get(&expired).await;
    assert_eq!((noted.text("status"), stamp(&noted).is_string()), ("inactive", true));
    assert_eq!(punctual.messages().await.len(), 1);
}

async fn an_address_that_was_wrong_is_not_written_to_again(database: TestDatabase) {
    let database = database.that_lasts();
    let punctual = at_work(database.clone()).setting("ADMIN_ALERT_EMAIL", "admin@exmaple.com").start().await;
    let soon = until(&punctual, "2026-12-16").await;
    punctual.fail_messages(Some("no such domain"));
    assert_eq!(run(&punctual, "cnrppAlert").await["failed"], 1);
    punctual.stop().await;
    let punctual = told(database).start().await;
    assert_eq!(run(&punctual, "cnrppAlert").await["sent"], 1);
    let [message] = punctual.messages().await.try_into().unwrap();
    assert_eq!(message.recipient, "admin@example.com");
    assert!(stamp(&punctual.get(&soon).await).is_string());
}

async fn a_change_does_not_undo_what_the_job_writes(database: TestDatabase) {
    let punctual = told(database).start().await;
    let path = until(&punctual, "2026-11-15").await;
    let deactivated = "UPDATE clearpath_contractors SET status = 'inactive'";
    let changed = punctual.meanwhile(deactivated, punctual.patch(&path, json!({"email": "c@example.com"}))).await;
    assert_eq!((changed.status, changed.text("status"), changed.text("email")), (200, "inactive", "c@example.com"));
    assert_eq!(punctual.get(&path).await.text("status"), "inactive");
}

async fn without_an_address_it_warns_and_skips(database: TestDatabase) {
    let punctual = at_work(database).start().await;
    let soon = until(&punctual, "2026-12-16").await;
    let expired = until(&punctual, "2026-11-15").await;
    assert_eq!(run(&punctual, "cnrppAlert").await, json!({"processed": 2, "sent": 0, "skipped": 2, "failed": 0}));
    let warned = logged("ADMIN_ALERT_EMAIL is not set, alerts skipped", json!({"job": "cnrppAlert"}));
    assert_eq!(warned[0]["level"], "WARN");
    assert_eq!(stamp(&punctual.get(&soon).await), &json!(null));
    assert_eq!(punctual.get(&expired).await.text("status"), "inactive");
    assert_eq!(punctual.messages().await, []);
}

async fn inactive_contractors_and_those_without_a_date_are_left_alone(database: TestDatabase) {
    let punctual = told(database).start().await;
    punctual.post("/contractors", json!({"name": "No date"})).await;
    punctual
        .post("/contractors", json!({"name": "Inactive", "status": "inactive", "cnrppExpiryDate": "2026-11-15"}))
        .await;
    assert_eq!(run(&punctual, "cnrppAlert").await["processed"], 0);
}

async fn after_a_crash_in_between_nothing_is_sent_twice(database: TestDatabase) {
    let punctual = told(database).start().await;
    let soon = until(&punctual, "2026-12-16").await;
    run(&punctual, "cnrppAlert").await;
    // As if the node had died after sending and before noting it.
    crate::execute(&punctual, "UPDATE clearpath_contractors SET last_cnrpp_alert_sent_at = NULL").await;
    run(&punctual, "cnrppAlert").await;
    assert_eq!(punctual.messages().await.len(), 1);
    assert!(stamp(&punctual.get(&soon).await).is_string());
}

async fn contractors_are_changed_and_refused_by_field(database: TestDatabase) {
    let punctual = told(database).start().await;
    let path = until(&punctual, "2026-12-16").await;
    let changed = punctual.patch(&path, json!({"cnrppExpiryDate": "2028-12-16", "email": "c@example.com"})).await;
    assert_eq!(
        (changed.status, changed.text("cnrppExpiryDate"), changed.text("name")),
        (200, "2028-12-16", "Until 2026-12-16")
    );
    assert_eq!(run(&punctual, "cnrppAlert").await["processed"], 0);
    assert_eq!(punctual.patch(&path, json!({"cnrppExpiryDate": null})).await.body["cnrppExpiryDate"], json!(null));
    assert_eq!(items(&punctual, "/contractors").await.len(), 1);
    for (body, fields) in [
        (json!({}), vec!["name"]),
        (json!({"name": "x", "cnrppExpiryDate": "soon", "status": "gone"}), vec!["status", "cnrppExpiryDate"]),
        (json!({"name": "x", "email": "a@b..c"}), vec!["email"]),
        (json!({"name": "x", "lastCnrppAlertSentAt": null}), vec!["lastCnrppAlertSentAt"]),
    ] {
        assert_eq!(punctual.post("/contractors", body.clone()).await.bad_fields(), fields, "{body}");
    }
}

on_both_databases![
    an_alert_goes_out_sixty_days_before,
    a_second_run_on_the_same_day_sends_no_second_alert,
    the_next_calendar_month_brings_another,
    a_fire_that_comes_late_counts_for_its_own_month,
    an_expired_contractor_becomes_inactive_after_the_alert,
    an_alert_that_cannot_be_sent_is_tried_by_the_next_run,
    a_contractor_is_stamped_and_deactivated_at_once_or_not_at_all,
    an_address_that_was_wrong_is_not_written_to_again,
    a_change_does_not_undo_what_the_job_writes,
    without_an_address_it_warns_and_skips,
    inactive_contractors_and_those_without_a_date_are_left_alone,
    after_a_crash_in_between_nothing_is_sent_twice,
    contractors_are_changed_and_refused_by_field,
];
