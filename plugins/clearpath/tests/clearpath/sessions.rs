//! Sessions over HTTP, and the job `sessionExpiry`.

use punctual_sdk::Method;
use punctual_testing::{Punctual, TestDatabase, logged, on_both_databases};
use serde_json::json;

use crate::{emails, execute, field, freeze, items, run, session, start, statuses};

/// 91 days before the 16th of November, and 90.
const OVER: &str = "2026-08-17";
const GRACE: &str = "2026-08-18";

async fn expected(punctual: &Punctual, date: &str) -> String {
    session(punctual, json!({"activatedAt": "2026-05-20T00:00:00Z", "expectedCompletionDate": date})).await
}

async fn status(punctual: &Punctual, id: &str) -> String {
    field(punctual, &format!("/sessions/{id}"), "status").await.as_str().unwrap().to_owned()
}

async fn a_session_expires_after_ninety_days_of_grace(database: TestDatabase) {
    let punctual = start(database).await;
    let (over, grace) = (expected(&punctual, OVER).await, expected(&punctual, GRACE).await);
    assert_eq!(run(&punctual, "sessionExpiry").await["processed"], 1);
    assert_eq!((status(&punctual, &over).await, status(&punctual, &grace).await), ("expired".into(), "active".into()));
    assert_eq!(field(&punctual, &format!("/sessions/{over}"), "expiredAt").await, "2026-11-16T18:00:00.000Z");
    assert_eq!(logged("sessions expired", json!({"expired": 1}))[0]["level"], "INFO");
}

async fn only_open_sessions_expire(database: TestDatabase) {
    let punctual = start(database).await;
    for (from, to) in [
        ("pending", "pending"),
        ("active", "expired"),
        ("retrieval_due", "expired"),
        ("mailed", "expired"),
        ("results_pending", "expired"),
        ("complete", "complete"),
        ("cancelled", "cancelled"),
    ] {
        let id = expected(&punctual, OVER).await;
        execute(&punctual, &format!("UPDATE clearpath_sessions SET status = '{from}' WHERE status = 'active'")).await;
        run(&punctual, "sessionExpiry").await;
        assert_eq!(status(&punctual, &id).await, to, "{from}");
    }
}

async fn a_session_with_a_result_does_not_expire(database: TestDatabase) {
    let punctual = start(database).await;
    let id = expected(&punctual, OVER).await;
    punctual.post(&format!("/sessions/{id}/result"), json!({"radonLevel": 100})).await;
    execute(&punctual, "UPDATE clearpath_sessions SET status = 'results_pending'").await;
    assert_eq!(run(&punctual, "sessionExpiry").await["processed"], 0);
    assert_eq!(status(&punctual, &id).await, "results_pending");
}

async fn an_expired_session_has_its_emails_cancelled(database: TestDatabase) {
    let punctual = start(database).await;
    let id = expected(&punctual, OVER).await;
    for (kind, set) in [
        ("day_30", "status = 'sent'"),
        ("day_60", "status = 'failed', retry_count = 1"),
        ("day_80", "status = 'abandoned', retry_count = 3"),
    ] {
        execute(&punctual, &format!("UPDATE clearpath_email_log SET {set} WHERE email_type = '{kind}'")).await;
    }
    run(&punctual, "sessionExpiry").await;
    assert_eq!(
        statuses(&punctual, &id).await,
        ["day_30: sent", "day_60: cancelled", "day_80: abandoned", "day_88: cancelled", "results_prompt: cancelled"]
    );
}

async fn running_it_twice_expires_nothing_more(database: TestDatabase) {
    let punctual = start(database).await;
    let id = expected(&punctual, OVER).await;
    run(&punctual, "sessionExpiry").await;
    let first = punctual.get(&format!("/sessions/{id}")).await;
    punctual.advance(crate::MINUTE).await;
    assert_eq!(run(&punctual, "sessionExpiry").await["processed"], 0);
    assert_eq!(punctual.get(&format!("/sessions/{id}")).await, first);
}

async fn one_bad_session_never_stops_the_batch(database: TestDatabase) {
    let punctual = start(database).await;
    let bad = session(
        &punctual,
        json!({"userId": "bad", "activatedAt": "2026-05-20T00:00:00Z", "expectedCompletionDate": OVER}),
    )
    .await;
    let good = expected(&punctual, OVER).await;
    freeze(&punctual, "clearpath_sessions", "user_id", "bad").await;
    assert_eq!(run(&punctual, "sessionExpiry").await, json!({"processed": 2, "sent": 0, "skipped": 0, "failed": 1}));
    assert_eq!((status(&punctual, &bad).await, status(&punctual, &good).await), ("active".into(), "expired".into()));
    assert_eq!(emails(&punctual, &bad).await[0]["status"], "queued");
    assert_eq!(logged("Record failed", json!({"job": "sessionExpiry", "recordId": bad}))[0]["level"], "WARN");
}

async fn a_result_is_entered_once_and_completes_the_session(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({})).await;
    let path = format!("/sessions/{id}/result");
    assert_eq!(punctual.get(&path).await.status, 404);
    let entered = punctual.post(&path, json!({"radonLevel": 120.5})).await;
    assert_eq!((entered.status, entered.text("source"), &entered.body["radonLevel"]), (201, "user", &json!(120.5)));
    assert_eq!(punctual.get(&path).await.body, entered.body);
    assert_eq!(punctual.post(&path, json!({"radonLevel": 1})).await.status, 409);
    assert_eq!(status(&punctual, &id).await, "complete");
    assert_eq!(punctual.patch(&format!("/sessions/{id}"), json!({"status": "active"})).await.status, 409);
}

async fn sessions_are_listed_and_refused_by_field(database: TestDatabase) {
    let punctual = start(database).await;
    let id = session(&punctual, json!({"clearpathOrderId": "CP-17"})).await;
    session(&punctual, json!({"status": "pending"})).await;
    let listed = items(&punctual, "/sessions?status=active").await;
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &json!(id)));
    for (body, fields) in [
        (json!({}), vec!["name", "email"]),
        (json!({"name": "Ada", "email": "a..b@example.com"}), vec!["email"]),
        (json!({"name": "Ada", "email": "a@b.c", "status": "expired"}), vec!["status"]),
        (
            json!({"name": "Ada", "email": "a@b.c", "activatedAt": "now", "expectedCompletionDate": "2026-02-30"}),
            vec!["activatedAt", "expectedCompletionDate"],
        ),
        (json!({"name": "Ada", "email": "a@b.c", "expiredAt": null, "x": 1}), vec!["expiredAt", "x"]),
    ] {
        assert_eq!(punctual.post("/sessions", body.clone()).await.bad_fields(), fields, "{body}");
    }
    let taken = json!({"name": "Ada", "email": "a@b.c", "clearpathOrderId": "CP-17"});
    assert_eq!(punctual.post("/sessions", taken).await.status, 409);
    for bad in [json!({}), json!({"radonLevel": -1}), json!({"radonLevel": "high"})] {
        assert_eq!(punctual.post(&format!("/sessions/{id}/result"), bad).await.bad_fields(), ["radonLevel"]);
    }
}

async fn null_takes_a_field_of_a_session_away(database: TestDatabase) {
    let punctual = start(database).await;
    let said = json!({
        "clearpathOrderId": "CP-17", "kitSerialNumber": "K-17", "userId": "ada", "activatedAt": "2026-11-01T00:00:00.123456Z",
        "expectedCompletionDate": "2027-03-01",
    });
    let id = session(&punctual, said).await;
    let path = format!("/sessions/{id}");
    let before = punctual.get(&path).await;
    // What is left out stays as it is, to the last digit.
    let emails_before = emails(&punctual, &id).await;
    assert_eq!(punctual.patch(&path, json!({})).await.body, before.body);
    assert_eq!(emails(&punctual, &id).await, emails_before);
    let changed =
        punctual.patch(&path, json!({"clearpathOrderId": null, "kitSerialNumber": null, "userId": null})).await;
    assert_eq!(
        (&changed.body["clearpathOrderId"], &changed.body["kitSerialNumber"], &changed.body["userId"]),
        (&json!(null), &json!(null), &json!(id))
    );
    assert_eq!(
        session(&punctual, json!({"clearpathOrderId": "CP-17", "kitSerialNumber": "K-17"})).await.len(),
        id.len()
    );
    // Dates of a test that is under way return to what they are where nobody says them.
    let changed = punctual.patch(&path, json!({"expectedCompletionDate": null})).await;
    assert_eq!(
        (changed.text("activatedAt"), changed.text("expectedCompletionDate")),
        ("2026-11-01T00:00:00.123Z", "2027-01-29")
    );
    let changed = punctual.patch(&path, json!({"activatedAt": null})).await;
    assert_eq!(
        (changed.text("activatedAt"), changed.text("expectedCompletionDate")),
        ("2026-11-16T18:00:00.000Z", "2027-02-14")
    );
    assert_eq!(emails(&punctual, &id).await[0]["scheduledAt"], "2026-12-16T18:00:00.000Z");
    // One that has not begun needs none.
    let pending = session(&punctual, json!({"status": "pending", "activatedAt": "2026-12-01T00:00:00Z"})).await;
    let changed = punctual.patch(&format!("/sessions/{pending}"), json!({"activatedAt": null})).await;
    assert_eq!((&changed.body["activatedAt"], &changed.body["expectedCompletionDate"]), (&json!(null), &json!(null)));
    // There is always a status.
    assert_eq!(punctual.patch(&path, json!({"status": null})).await.bad_fields(), ["status"]);
    assert_eq!(status(&punctual, &id).await, "active");
}

async fn the_same_call_under_one_idempotency_key_makes_one_session(database: TestDatabase) {
    let punctual = start(database).await;
    let body = json!({"name": "Ada", "email": "ada@example.com"});
    let first = punctual.call(Method::Post, "/sessions", body.clone(), Some("k")).await;
    let second = punctual.call(Method::Post, "/sessions", body, Some("k")).await;
    assert_eq!((first.status, first.body), (201, second.body));
    assert_eq!((items(&punctual, "/sessions").await.len(), items(&punctual, "/emails").await.len()), (1, 5));
}

/// Nodes of two versions work side by side while one after the other is upgraded.
async fn a_column_that_a_newer_version_adds_changes_nothing(database: TestDatabase) {
    /// More often than there are connections, of which each prepares its statements by itself.
    const MANY: usize = 20;
    let punctual = start(database).await;
    let session = format!("/sessions/{}", expected(&punctual, GRACE).await);
    let result = format!("{session}/result");
    punctual.post(&result, json!({"radonLevel": 100})).await;
    let of_session = json!({"sessionId": session.trim_start_matches("/sessions/")});
    assert_eq!(punctual.post("/certificates", of_session).await.status, 201);
    punctual.post("/contractors", json!({"name": "Radon Ltd."})).await;
    let read = async || {
        let mut read = Vec::new();
        for path in [&session, &result, "/sessions", "/emails", "/certificates", "/contractors"] {
            read.push(punctual.get(path).await.body);
        }
        read
    };
    let before = read().await;
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
    for table in ["sessions", "results", "certificates", "contractors", "email_log"] {
        execute(&punctual, &format!("ALTER TABLE clearpath_{table} ADD COLUMN newer TEXT")).await;
    }
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
}

on_both_databases![
    a_session_expires_after_ninety_days_of_grace,
    only_open_sessions_expire,
    a_session_with_a_result_does_not_expire,
    an_expired_session_has_its_emails_cancelled,
    running_it_twice_expires_nothing_more,
    one_bad_session_never_stops_the_batch,
    a_result_is_entered_once_and_completes_the_session,
    sessions_are_listed_and_refused_by_field,
    null_takes_a_field_of_a_session_away,
    the_same_call_under_one_idempotency_key_makes_one_session,
    a_column_that_a_newer_version_adds_changes_nothing,
];
