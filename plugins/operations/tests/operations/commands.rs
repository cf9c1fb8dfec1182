//! What each command means for the rules.

use punctual_sdk::Method;
use punctual_testing::{TaskStatus, TestDatabase, logged, on_both_databases};
use serde_json::json;

use crate::{EVENT, HOUR, MINUTE, Names, TASK, allow_rules, instant, refuse_rules, rule, rules, start};

const NINE: &str = "2026-01-02T09:00:00.000Z";
const TEN: &str = "2026-01-02T10:00:00.000Z";

async fn both_dates_make_two_synced_rules(database: TestDatabase, names: Names) {
    let punctual = start(database).await;
    let id = names.made(&punctual, Some(NINE), Some(TEN)).await;
    assert_eq!(rules(&punctual, &id).await.len(), 2);
    for (kind, at) in [("start", NINE), ("end", TEN)] {
        let rule = names.automatic(&punctual, &id, kind).await.unwrap();
        assert_eq!(
            (&rule["syncStatus"], &rule["syncError"], &rule["active"]),
            (&json!("synced"), &json!(null), &json!(true))
        );
        assert_eq!(
            (&rule["kind"], &rule["channels"], &rule["lastSentAt"]),
            (&json!(kind), &json!(["email"]), &json!(null))
        );
        assert_eq!((&rule["subjectType"], &rule["subjectId"]), (&json!(names.name), &json!(id)));
        let [task] = names.tasks(&punctual, kind).await.try_into().unwrap();
        assert_eq!((task.run_at, json!(task.id)), (instant(at), rule["scheduleId"].clone()));
        let payload: serde_json::Value = serde_json::from_str(task.stored.payload.as_str()).unwrap();
        let ids = json!({"subjectType": names.name, "subjectId": id, "notificationRuleId": rule["id"], "kind": kind});
        assert_eq!(payload, ids);
        assert_eq!(
            (task.stored.timezone.as_str(), task.stored.retry.attempts, task.stored.retry.backoff.delay),
            ("UTC", 5, 5000)
        );
    }
}

async fn an_event_with_both_dates_makes_two_synced_rules(database: TestDatabase) {
    both_dates_make_two_synced_rules(database, EVENT).await;
}

async fn a_task_with_both_dates_makes_two_synced_rules(database: TestDatabase) {
    both_dates_make_two_synced_rules(database, TASK).await;
}

async fn a_task_without_dates_makes_no_rules(database: TestDatabase) {
    let punctual = start(database).await;
    let id = TASK.made(&punctual, None, None).await;
    assert!(rules(&punctual, &id).await.is_empty());
}

async fn an_event_with_one_date_makes_one_rule(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, None, Some(TEN)).await;
    let [only] = rules(&punctual, &id).await.try_into().unwrap();
    assert_eq!(only["kind"], "end");
    assert!(EVENT.tasks(&punctual, "start").await.is_empty());
}

async fn a_subject_is_shown_listed_replaced_and_gone(database: TestDatabase) {
    let punctual = start(database).await;
    for names in [EVENT, TASK] {
        let id = names.made(&punctual, Some(NINE), None).await;
        let path = format!("{}/{id}", names.path);
        let shown = punctual.get(&path).await.body;
        assert_eq!(
            (&shown["title"], &shown[names.start], &shown[names.end]),
            (&json!("Stand-up"), &json!(NINE), &json!(null))
        );
        assert_eq!(shown[names.people], json!([{"name": "Bob", "email": "bob@example.com"}]));
        assert_eq!(punctual.get(names.path).await.body["items"], json!([shown]));
        let replaced = punctual.put(&path, json!({"title": "Other", "creator": {"name": "Eve"}})).await.body;
        assert_eq!(
            (&replaced["title"], &replaced[names.start], &replaced[names.people]),
            (&json!("Other"), &json!(null), &json!([]))
        );
        assert_eq!(punctual.delete(&path).await.status, 204);
        assert_eq!((punctual.get(&path).await.status, punctual.delete(&path).await.status), (404, 404));
        assert_eq!(punctual.patch(&path, json!({"title": "x"})).await.status, 404);
    }
}

async fn an_event_is_not_a_task(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, None, None).await;
    assert_eq!(punctual.get(&format!("/tasks/{id}")).await.status, 404);
    assert_eq!(punctual.delete(&format!("/tasks/{id}")).await.status, 404);
}

async fn bad_subjects_are_refused_by_field(database: TestDatabase) {
    let punctual = start(database).await;
    for (body, fields) in [
        (json!({}), vec!["title", "creator"]),
        (json!({"title": "x", "creator": {"email": "a@b.c"}}), vec!["creator.name"]),
        (json!({"title": "x", "creator": {"name": "x", "email": "nobody"}}), vec!["creator.email"]),
        (
            json!({"title": "x", "creator": {"name": "x"}, "participants": [{"name": "y", "email": "a..b@example.com"}]}),
            vec!["participants[0].email"],
        ),
        (json!({"title": "x", "creator": {"name": "x"}, "startDate": "tomorrow"}), vec!["startDate"]),
        (json!({"title": "x", "creator": {"name": "x"}, "startDate": TEN, "endDate": NINE}), vec!["endDate"]),
        (json!({"title": "x", "creator": {"name": "x"}, "timezone": "EST"}), vec!["timezone"]),
        (json!({"title": "x", "creator": {"name": "x"}, "participants": [{"name": ""}]}), vec!["participants[0].name"]),
        (json!({"title": "x", "creator": {"name": "x"}, "id": 7, "startedAt": NINE}), vec!["id", "startedAt"]),
    ] {
        let refused = punctual.post("/events", body.clone()).await;
        assert_eq!((refused.status, refused.bad_fields()), (400, fields), "{body}");
    }
    assert_eq!(punctual.get("/events").await.body["items"], json!([]));
}

async fn the_same_call_under_one_idempotency_key_makes_one_event(database: TestDatabase) {
    let punctual = start(database).await;
    let body = EVENT.body(Some(NINE), None);
    let first = punctual.call(Method::Post, "/events", body.clone(), Some("k")).await;
    let second = punctual.call(Method::Post, "/events", body, Some("k")).await;
    assert_eq!((first.status, first.body), (201, second.body));
    assert_eq!(punctual.get("/events").await.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(EVENT.tasks(&punctual, "start").await.len(), 1);
}

async fn deleting_cancels_and_soft_deletes_all_rules(database: TestDatabase) {
    let punctual = start(database).await;
    for names in [EVENT, TASK] {
        let id = names.made(&punctual, Some(NINE), Some(TEN)).await;
        let relative = json!({"type": "relative", "anchor": "start", "offset": "-PT1H"});
        let more = json!({"subjectType": names.name, "subjectId": id, "rule": relative});
        assert_eq!(punctual.post("/rules", more).await.status, 201);
        let before = rules(&punctual, &id).await;
        assert_eq!(before.len(), 3);
        assert_eq!(punctual.delete(&format!("{}/{id}", names.path)).await.status, 204);
        assert!(rules(&punctual, &id).await.is_empty());
        for known in before {
            let gone = rule(&punctual, &known["id"]).await;
            assert_eq!((gone["active"].clone(), gone["deletedAt"].is_string()), (json!(false), true));
            let task = punctual.task(serde_json::from_value(known["scheduleId"].clone()).unwrap()).await;
            assert_eq!(task.status, TaskStatus::Cancelled);
        }
    }
    punctual.advance(HOUR * 48).await;
    assert_eq!(punctual.messages().await, []);
}

async fn a_scheduling_failure_is_logged_and_undoes_nothing(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("operations.event.start")).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(TEN)).await;
    assert_eq!(punctual.get(&format!("/events/{id}")).await.status, 200);
    let failed = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!((&failed["syncStatus"], &failed["scheduleId"]), (&json!("failed"), &json!(null)));
    assert!(failed["syncError"].as_str().unwrap().contains("refused by the test"), "{failed}");
    let errors: Vec<_> = logged("notification rules not scheduled", json!({}))
        .into_iter()
        .filter(|line| line["scheduler_errors"].as_str().unwrap().contains(failed["id"].as_str().unwrap()))
        .collect();
    assert_eq!((errors.len(), errors[0]["level"].as_str()), (1, Some("ERROR")));
}

/// What was logged under `scheduler_errors` of a subject.
fn scheduler_errors(subject: &str) -> Vec<serde_json::Value> {
    let lines = logged("notification rules not scheduled", json!({"level": "ERROR"}));
    let errors = lines.iter().map(|line| serde_json::from_str(line["scheduler_errors"].as_str().unwrap()).unwrap());
    let errors = errors.flat_map(|errors: Vec<serde_json::Value>| errors);
    errors.filter(|error| error["subjectId"] == subject).collect()
}

async fn a_rule_that_cannot_be_written_undoes_no_command(database: TestDatabase) {
    let punctual = start(database).await;
    refuse_rules(&punctual, "INSERT", "start").await;
    let made = EVENT.made(&punctual, Some(NINE), Some(TEN)).await;
    assert!(EVENT.automatic(&punctual, &made, "start").await.is_none());
    assert_eq!(EVENT.automatic(&punctual, &made, "end").await.unwrap()["syncStatus"], "synced");
    let [error] = scheduler_errors(&made).try_into().unwrap();
    assert_eq!(error["kind"], "start");
    assert!(error["error"].as_str().unwrap().contains("no rules now"), "{error}");
    // Neither does it come back by itself as long as that is so.
    punctual.advance(MINUTE * 5).await;
    assert!(EVENT.automatic(&punctual, &made, "start").await.is_none());
    allow_rules(&punctual, "INSERT").await;
    punctual.advance(MINUTE * 5).await;
    assert_eq!(EVENT.automatic(&punctual, &made, "start").await.unwrap()["syncStatus"], "synced");
    assert_eq!(EVENT.live(&punctual, "start").await[0].run_at, instant(NINE));
    // And once.
    punctual.advance(MINUTE * 10).await;
    assert_eq!((rules(&punctual, &made).await.len(), EVENT.tasks(&punctual, "start").await.len()), (2, 1));
}

async fn a_rule_that_cannot_be_taken_back_undoes_no_deletion(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(TEN)).await;
    refuse_rules(&punctual, "UPDATE", "start").await;
    assert_eq!(punctual.delete(&format!("/events/{id}")).await.status, 204);
    assert_eq!(punctual.get(&format!("/events/{id}")).await.status, 404);
    assert_eq!(scheduler_errors(&id).len(), 1);
    assert!(EVENT.live(&punctual, "start").await.is_empty() && EVENT.live(&punctual, "end").await.is_empty());
    assert!(EVENT.automatic(&punctual, &id, "end").await.is_none());
}

async fn one_rule_that_fails_does_not_stop_the_others(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("operations.task.start")).await;
    let id = TASK.made(&punctual, Some(NINE), Some(TEN)).await;
    assert_eq!(TASK.automatic(&punctual, &id, "start").await.unwrap()["syncStatus"], "failed");
    assert_eq!(TASK.automatic(&punctual, &id, "end").await.unwrap()["syncStatus"], "synced");
    assert_eq!(TASK.live(&punctual, "end").await.len(), 1);
}

async fn a_date_that_is_past_makes_a_failed_rule(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some("2025-12-31T23:59:59Z"), None).await;
    let rule = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(
        (&rule["syncStatus"], &rule["syncError"]),
        (&json!("failed"), &json!("the instant of the rule is past"))
    );
    assert!(EVENT.tasks(&punctual, "start").await.is_empty());
}

/// Nodes of two versions work side by side while one after the other is upgraded.
async fn a_column_that_a_newer_version_adds_changes_nothing(database: TestDatabase) {
    /// More often than there are connections, of which each prepares its statements by itself.
    const MANY: usize = 20;
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(TEN)).await;
    let event = format!("/events/{id}");
    let rule = format!("/rules/{}", EVENT.automatic(&punctual, &id, "start").await.unwrap()["id"].as_str().unwrap());
    let read = async || {
        let mut read = Vec::new();
        for path in ["/events", &event, "/rules", &rule] {
            read.push(punctual.get(path).await.body);
        }
        read
    };
    let before = read().await;
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
    for table in ["operations_subjects", "operations_notification_rules"] {
        let add = format!("ALTER TABLE {table} ADD COLUMN newer TEXT");
        punctual.execute(&add, &add).await;
    }
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
    let moved = punctual.patch(&event, json!({"startDate": "2026-01-02T09:30:00Z"})).await;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(EVENT.live(&punctual, "start").await[0].run_at, instant("2026-01-02T09:30:00Z"));
}

on_both_databases![
    an_event_with_both_dates_makes_two_synced_rules,
    a_task_with_both_dates_makes_two_synced_rules,
    a_task_without_dates_makes_no_rules,
    an_event_with_one_date_makes_one_rule,
    a_subject_is_shown_listed_replaced_and_gone,
    an_event_is_not_a_task,
    bad_subjects_are_refused_by_field,
    the_same_call_under_one_idempotency_key_makes_one_event,
    deleting_cancels_and_soft_deletes_all_rules,
    a_scheduling_failure_is_logged_and_undoes_nothing,
    a_rule_that_cannot_be_written_undoes_no_command,
    a_rule_that_cannot_be_taken_back_undoes_no_deletion,
    one_rule_that_fails_does_not_stop_the_others,
    a_date_that_is_past_makes_a_failed_rule,
    a_column_that_a_newer_version_adds_changes_nothing,
];
