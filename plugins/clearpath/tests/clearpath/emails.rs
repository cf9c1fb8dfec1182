//! The job `emailQueue`.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_clearpath::Clearpath;
use punctual_sdk::Plugin;
use punctual_testing::{Punctual, TestDatabase, logged, on_both_databases};
use serde_json::json;

use crate::{MINUTE, at_work, emails, execute, field, items, run, session, start, statuses};

/// Thirty days before now.
const A_MONTH_AGO: &str = "2026-10-17T18:00:00Z";

async fn activating_a_session_writes_its_five_emails(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": "2026-11-16T18:00:00Z", "expectedCompletionDate": "2027-02-20"}))
        .await;
    let found = emails(&punctual, &id).await;
    let due: Vec<_> = found
        .iter()
        .map(|email| (email["emailType"].as_str().unwrap(), email["scheduledAt"].as_str().unwrap()))
        .collect();
    assert_eq!(
        due,
        [
            ("day_30", "2026-12-16T18:00:00.000Z"),
            ("day_60", "2027-01-15T18:00:00.000Z"),
            ("day_80", "2027-02-04T18:00:00.000Z"),
            ("day_88", "2027-02-12T18:00:00.000Z"),
            // The date begins in Alberta.
            ("results_prompt", "2027-02-20T06:00:00.000Z"),
        ]
    );
    assert!(found.iter().all(|email| email["status"] == "queued" && email["retryCount"] == 0));
}

async fn a_pending_session_gets_its_emails_when_it_becomes_active_and_once(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"status": "pending"})).await;
    assert!(emails(&punctual, &id).await.is_empty());
    for status in ["active", "retrieval_due", "active"] {
        assert_eq!(punctual.patch(&format!("/sessions/{id}"), json!({ "status": status })).await.status, 200);
    }
    assert_eq!(emails(&punctual, &id).await.len(), 5);
    assert_eq!(field(&punctual, &format!("/sessions/{id}"), "expectedCompletionDate").await, "2027-02-14");
}

/// When the e-mails of a session are due, by their kinds.
async fn due(punctual: &Punctual, id: &str) -> Vec<String> {
    let found = emails(punctual, id).await;
    found
        .iter()
        .map(|email| format!("{} {}", email["emailType"].as_str().unwrap(), email["scheduledAt"].as_str().unwrap()))
        .collect()
}

async fn a_session_that_is_begun_with_any_status_has_its_dates_and_emails(database: TestDatabase) {
    let punctual = start(database).await;
    for status in ["active", "retrieval_due", "mailed", "results_pending"] {
        let made = session(&punctual, json!({ "status": status })).await;
        let moved = session(&punctual, json!({"status": "pending"})).await;
        punctual.patch(&format!("/sessions/{moved}"), json!({ "status": status })).await;
        for id in [made, moved] {
            let shown = punctual.get(&format!("/sessions/{id}")).await;
            assert_eq!(
                (shown.text("status"), shown.text("activatedAt"), shown.text("expectedCompletionDate")),
                (status, "2026-11-16T18:00:00.000Z", "2027-02-14")
            );
            assert_eq!(emails(&punctual, &id).await.len(), 5, "{status}");
        }
    }
}

async fn emails_that_wait_follow_the_dates_of_their_session(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": "2026-09-17T18:00:00Z"})).await;
    let path = format!("/sessions/{id}");
    punctual.fail_messages(Some("Resend is down"));
    execute(&punctual, "UPDATE clearpath_email_log SET status = 'sent' WHERE email_type = 'day_30'").await;
    run(&punctual, "emailQueue").await;
    assert_eq!(statuses(&punctual, &id).await[..2], ["day_30: sent", "day_60: failed"]);
    // Three days later than somebody thought; nobody said when it would be complete, so that follows.
    punctual.patch(&path, json!({"activatedAt": "2026-09-20T18:00:00Z"})).await;
    assert_eq!(field(&punctual, &path, "expectedCompletionDate").await, "2026-12-19");
    assert_eq!(
        due(&punctual, &id).await,
        [
            // What is out stays as it was; what failed is tried again when it is due.
            "day_30 2026-10-17T18:00:00.000Z",
            "day_60 2026-11-19T18:00:00.000Z",
            "day_80 2026-12-09T18:00:00.000Z",
            "day_88 2026-12-17T18:00:00.000Z",
            "results_prompt 2026-12-19T06:00:00.000Z",
        ]
    );
    punctual.fail_messages(None);
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
    // What somebody says stays said.
    punctual.patch(&path, json!({"expectedCompletionDate": "2026-12-24"})).await;
    assert_eq!(due(&punctual, &id).await[4], "results_prompt 2026-12-24T06:00:00.000Z");
    punctual.patch(&path, json!({"activatedAt": "2026-09-21T18:00:00Z", "status": "mailed"})).await;
    assert_eq!(
        due(&punctual, &id).await[3..],
        ["day_88 2026-12-18T18:00:00.000Z", "results_prompt 2026-12-24T06:00:00.000Z"]
    );
}

async fn day_30_goes_out_within_a_quarter_of_an_hour(database: TestDatabase) {
    let punctual = at_work(database).at("2026-11-16T18:01:00Z").start().await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO, "clearpathOrderId": "CP-17"})).await;
    punctual.advance(MINUTE * 14).await;
    let [message] = punctual.messages().await.try_into().unwrap();
    assert_eq!(
        (message.recipient.as_str(), message.template_slug.as_deref()),
        ("ada@example.com", Some("clearpath-day-30"))
    );
    assert!(message.text.contains("Hello Ada") && message.text.contains("CP-17"), "{}", message.text);
    let sent = emails(&punctual, &id).await.remove(0);
    assert_eq!((&sent["status"], &sent["sentAt"]), (&json!("sent"), &json!("2026-11-16T18:15:00.000Z")));
    assert_eq!(sent["providerMessageId"], "message-1");
}

async fn all_five_come_by_and_by_as_text_and_as_html(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"name": "Ada & <Bob>", "clearpathOrderId": "CP-17"})).await;
    let kinds = [
        ("clearpath-day-30", "Day 30 of your radon test", "day 30"),
        ("clearpath-day-60", "Day 60 of your radon test", "day 60"),
        ("clearpath-day-80", "Your radon test is almost complete", "day 80"),
        ("clearpath-day-88", "Time to mail your detector", "day 88"),
        ("clearpath-results-prompt", "Your radon test should be complete", "complete"),
    ];
    let planned = emails(&punctual, &id).await;
    assert_eq!(planned.len(), kinds.len());
    for (n, (email, (slug, subject, says))) in planned.iter().zip(kinds).enumerate() {
        let due_at: DateTime<Utc> = email["scheduledAt"].as_str().unwrap().parse().unwrap();
        punctual.oversleep((due_at - punctual.now() - TimeDelta::seconds(1)).to_std().unwrap()).await;
        assert_eq!(punctual.messages().await.len(), n, "{slug} comes too early");
        punctual.advance(MINUTE * 15).await;
        let message = punctual.messages().await.remove(n);
        assert_eq!(
            (message.template_slug.as_deref(), message.subject.as_str(), message.recipient.as_str()),
            (Some(slug), subject, "ada@example.com")
        );
        let html = message.html.unwrap();
        for (said, name) in [(&message.text, "Ada & <Bob>"), (&html, "Ada &amp; &lt;Bob&gt;")] {
            assert!([name, says, "CP-17"].iter().all(|part| said.contains(part)), "{slug}: {said}");
        }
    }
    assert_eq!(
        statuses(&punctual, &id).await,
        ["day_30: sent", "day_60: sent", "day_80: sent", "day_88: sent", "results_prompt: sent"]
    );
}

async fn an_email_is_not_sent_before_it_is_due(database: TestDatabase) {
    let punctual = start(database).await;
    session(&punctual, json!({"activatedAt": "2026-10-17T18:00:01Z"})).await;
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
    punctual.advance(Duration::from_secs(1)).await;
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
}

async fn emails_go_out_in_order_and_fifty_at_a_time(database: TestDatabase) {
    let punctual = start(database).await;
    for minute in (0..55).rev() {
        session(
            &punctual,
            json!({"activatedAt": format!("2026-10-17T17:{minute:02}:00Z"), "email": format!("u{minute}@example.com")}),
        )
        .await;
    }
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 50);
    let sent: Vec<_> = punctual.messages().await.into_iter().map(|message| message.recipient).collect();
    assert_eq!(sent, (0..50).map(|minute| format!("u{minute}@example.com")).collect::<Vec<_>>());
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 5);
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
}

async fn emails_of_a_cancelled_session_are_cancelled(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    punctual.patch(&format!("/sessions/{id}"), json!({"status": "cancelled"})).await;
    assert_eq!(run(&punctual, "emailQueue").await, json!({"processed": 1, "sent": 0, "skipped": 1, "failed": 0}));
    assert_eq!(statuses(&punctual, &id).await[0], "day_30: cancelled");
    assert_eq!(punctual.messages().await, []);
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
}

async fn emails_of_an_expired_session_are_cancelled(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    execute(&punctual, "UPDATE clearpath_sessions SET status = 'expired'").await;
    run(&punctual, "emailQueue").await;
    assert_eq!(statuses(&punctual, &id).await[0], "day_30: cancelled");
}

async fn an_email_that_went_out_before_is_a_duplicate(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    run(&punctual, "emailQueue").await;
    // The same user, session and kind once more.
    execute(
        &punctual,
        "UPDATE clearpath_email_log SET email_type = 'day_30', scheduled_at = created_at WHERE email_type = 'day_60'",
    )
    .await;
    assert_eq!(run(&punctual, "emailQueue").await, json!({"processed": 1, "sent": 0, "skipped": 1, "failed": 0}));
    let found = emails(&punctual, &id).await;
    let mut kinds: Vec<_> = found
        .iter()
        .filter(|email| email["emailType"] == "day_30")
        .map(|email| email["status"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    assert_eq!((kinds, punctual.messages().await.len()), (vec!["duplicate", "sent"], 1));
    let skipped = logged("Record skipped", json!({"job": "emailQueue", "reason": "duplicate"}));
    assert_eq!(skipped[0]["level"], "DEBUG");
}

async fn the_same_kind_of_another_session_is_no_duplicate(database: TestDatabase) {
    let punctual = start(database).await;
    for _ in 0..2 {
        session(&punctual, json!({"activatedAt": A_MONTH_AGO, "userId": "ada"})).await;
    }
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 2);
}

async fn what_fails_is_tried_again_by_the_next_run(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    punctual.fail_messages(Some("Resend is down"));
    assert_eq!(run(&punctual, "emailQueue").await, json!({"processed": 1, "sent": 0, "skipped": 0, "failed": 1}));
    let failed = emails(&punctual, &id).await.remove(0);
    assert_eq!(
        (&failed["status"], &failed["retryCount"], &failed["lastError"]),
        (&json!("failed"), &json!(1), &json!("Resend is down"))
    );
    let warned = logged("Record failed", json!({"job": "emailQueue", "recordId": failed["id"]}));
    assert_eq!((&warned[0]["level"], &warned[0]["err"]), (&json!("WARN"), &json!("Resend is down")));
    punctual.fail_messages(None);
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
    assert_eq!(statuses(&punctual, &id).await[0], "day_30: sent");
}

async fn the_third_failure_abandons_it(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    punctual.fail_messages(Some("Resend is down"));
    for expected in ["failed", "failed", "abandoned"] {
        run(&punctual, "emailQueue").await;
        assert_eq!(emails(&punctual, &id).await[0]["status"], expected);
    }
    punctual.fail_messages(None);
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
    // Somebody looks after it.
    let email = items(&punctual, "/emails?status=abandoned").await.remove(0);
    let path = format!("/emails/{}", email["id"].as_str().unwrap());
    assert_eq!(punctual.post(&format!("{path}/retry"), json!({})).await.body["status"], "queued");
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
    assert_eq!(punctual.post(&format!("{path}/retry"), json!({})).await.status, 409);
}

/// What somebody is told who looks for e-mails that are stuck, so long from now.
async fn trouble(punctual: &Punctual, after: Duration) -> Option<String> {
    let [(_, check)] = Clearpath::default().health_checks().try_into().ok().unwrap();
    let trouble = check.look(punctual.context(), punctual.now() + after).await.unwrap();
    trouble.map(|trouble| trouble.subject)
}

async fn an_email_that_is_queued_again_waits_from_then_on(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    execute(
        &punctual,
        "UPDATE clearpath_email_log SET status = 'abandoned', retry_count = 3 WHERE email_type IN ('day_30', 'day_60')",
    )
    .await;
    punctual.advance(MINUTE * 60).await;
    for (n, at) in ["2026-11-16T19:00:00.000Z", "2026-12-16T18:00:00.000Z"].into_iter().enumerate() {
        let retry = format!("/emails/{}/retry", emails(&punctual, &id).await[n]["id"].as_str().unwrap());
        // One that is not due yet stays so.
        assert_eq!(punctual.post(&retry, json!({})).await.text("scheduledAt"), at);
    }
    assert_eq!(trouble(&punctual, MINUTE * 29).await, None);
    assert_eq!(trouble(&punctual, MINUTE * 30).await.as_deref(), Some("1 e-mail waits in the email_log"));
}

async fn an_email_that_is_moved_into_the_past_waits_from_then_on(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({})).await;
    punctual.advance(MINUTE * 60).await;
    punctual.patch(&format!("/sessions/{id}"), json!({"activatedAt": A_MONTH_AGO})).await;
    assert_eq!(due(&punctual, &id).await[0], "day_30 2026-11-16T19:00:00.000Z");
    assert_eq!(trouble(&punctual, MINUTE * 29).await, None);
    assert_eq!(trouble(&punctual, MINUTE * 30).await.as_deref(), Some("1 e-mail waits in the email_log"));
    // What waits does not begin anew when another date changes.
    execute(&punctual, "UPDATE clearpath_email_log SET scheduled_at = created_at WHERE email_type = 'day_30'").await;
    punctual.patch(&format!("/sessions/{id}"), json!({"expectedCompletionDate": "2027-02-20"})).await;
    assert_eq!(due(&punctual, &id).await[0], "day_30 2026-11-16T18:00:00.000Z");
}

async fn an_email_that_is_out_is_sent_though_its_session_expired_meanwhile(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    // As if sessionExpiry came between sending and noting it.
    let cancel = "UPDATE clearpath_email_log SET status = 'cancelled' WHERE status = 'queued'";
    punctual
        .execute(
            format!(
                "CREATE TRIGGER expiry AFTER UPDATE ON punctual_outbox WHEN NEW.status = 'sent' BEGIN {cancel}; END"
            ),
            format!(
                "CREATE FUNCTION expiry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {cancel}; RETURN NULL; END $$;
                 CREATE TRIGGER expiry AFTER UPDATE ON punctual_outbox FOR EACH ROW
                 WHEN (NEW.status = 'sent') EXECUTE FUNCTION expiry()"
            ),
        )
        .await;
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
    assert_eq!(statuses(&punctual, &id).await[..2], ["day_30: sent", "day_60: cancelled"]);
    assert_eq!(emails(&punctual, &id).await[0]["providerMessageId"], "message-1");
}

async fn a_template_error_is_never_tried_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    execute(&punctual, "UPDATE clearpath_email_log SET email_type = 'day_31' WHERE email_type = 'day_30'").await;
    assert_eq!(run(&punctual, "emailQueue").await["failed"], 1);
    let failed = emails(&punctual, &id).await.remove(0);
    assert_eq!(
        (&failed["status"], &failed["lastError"]),
        (&json!("failed"), &json!("there is no template clearpath-day-31"))
    );
    assert_eq!(logged("template error", json!({"recordId": failed["id"]}))[0]["level"], "ERROR");
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
}

async fn an_email_without_a_session_is_sent(database: TestDatabase) {
    let punctual = start(database).await;
    session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    execute(&punctual, "UPDATE clearpath_email_log SET test_session_id = NULL").await;
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
}

async fn a_run_that_is_repeated_sends_nothing_twice(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"activatedAt": A_MONTH_AGO})).await;
    run(&punctual, "emailQueue").await;
    assert_eq!(run(&punctual, "emailQueue").await["processed"], 0);
    // As if the node had died after sending and before noting it.
    execute(&punctual, "UPDATE clearpath_email_log SET status = 'queued', sent_at = NULL, provider_message_id = NULL WHERE status = 'sent'").await;
    assert_eq!(run(&punctual, "emailQueue").await["sent"], 1);
    assert_eq!(punctual.messages().await.len(), 1);
    assert_eq!(emails(&punctual, &id).await[0]["providerMessageId"], "message-1");
}

async fn one_bad_email_never_stops_the_others(database: TestDatabase) {
    let punctual = start(database).await;
    for name in ["bad@example.com", "good@example.com"] {
        session(&punctual, json!({"activatedAt": A_MONTH_AGO, "email": name})).await;
    }
    crate::freeze(&punctual, "clearpath_email_log", "recipient", "bad@example.com").await;
    assert_eq!(run(&punctual, "emailQueue").await, json!({"processed": 2, "sent": 1, "skipped": 0, "failed": 1}));
}

on_both_databases![
    activating_a_session_writes_its_five_emails,
    a_pending_session_gets_its_emails_when_it_becomes_active_and_once,
    a_session_that_is_begun_with_any_status_has_its_dates_and_emails,
    emails_that_wait_follow_the_dates_of_their_session,
    day_30_goes_out_within_a_quarter_of_an_hour,
    all_five_come_by_and_by_as_text_and_as_html,
    an_email_is_not_sent_before_it_is_due,
    emails_go_out_in_order_and_fifty_at_a_time,
    emails_of_a_cancelled_session_are_cancelled,
    emails_of_an_expired_session_are_cancelled,
    an_email_that_went_out_before_is_a_duplicate,
    the_same_kind_of_another_session_is_no_duplicate,
    what_fails_is_tried_again_by_the_next_run,
    the_third_failure_abandons_it,
    an_email_that_is_queued_again_waits_from_then_on,
    an_email_that_is_moved_into_the_past_waits_from_then_on,
    an_email_that_is_out_is_sent_though_its_session_expired_meanwhile,
    a_template_error_is_never_tried_again,
    an_email_without_a_session_is_sent,
    a_run_that_is_repeated_sends_nothing_twice,
    one_bad_email_never_stops_the_others,
];
