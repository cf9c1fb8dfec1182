//! The four rows of date changes, for events and tasks, starts and ends.

use punctual_testing::{Punctual, TaskStatus, TestDatabase, on_both_databases};
use serde_json::json;

use crate::{DAY, EVENT, HOUR, MINUTE, Names, TASK, allow_rules, instant, refuse_rules, rule, start, told};

const NINE: &str = "2026-01-02T09:00:00.000Z";
const NOON: &str = "2026-01-02T12:00:00.000Z";

/// Each kind of subject with each of its dates.
async fn each(punctual: &Punctual, at: Option<&str>) -> Vec<(Names, &'static str, &'static str, String)> {
    let mut made = Vec::new();
    for names in [EVENT, TASK] {
        for (kind, field) in [("start", names.start), ("end", names.end)] {
            let mut body = names.body(None, None);
            body[field] = json!(at);
            made.push((names, kind, field, names.make(punctual, body).await));
        }
    }
    made
}

async fn a_removed_date_cancels_the_task_and_soft_deletes_the_rule(database: TestDatabase) {
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, Some(NINE)).await {
        let before = names.automatic(&punctual, &id, kind).await.unwrap();
        names.patch(&punctual, &id, json!({ field: null })).await;
        assert!(names.automatic(&punctual, &id, kind).await.is_none(), "{} {kind}", names.name);
        let gone = rule(&punctual, &before["id"]).await;
        assert_eq!((gone["active"].clone(), gone["deletedAt"].is_string()), (json!(false), true));
        let task = punctual.task(serde_json::from_value(before["scheduleId"].clone()).unwrap()).await;
        assert_eq!(task.status, TaskStatus::Cancelled, "{} {kind}", names.name);
    }
}

async fn an_added_date_makes_a_rule(database: TestDatabase) {
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, None).await {
        assert!(names.automatic(&punctual, &id, kind).await.is_none());
        names.patch(&punctual, &id, json!({ field: NINE })).await;
        let rule = names.automatic(&punctual, &id, kind).await.unwrap();
        assert_eq!(rule["syncStatus"], "synced", "{} {kind}", names.name);
        assert_eq!(names.live(&punctual, kind).await.pop().unwrap().run_at, instant(NINE));
    }
}

async fn a_changed_date_moves_the_task(database: TestDatabase) {
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, Some(NINE)).await {
        let before = names.automatic(&punctual, &id, kind).await.unwrap();
        names.patch(&punctual, &id, json!({ field: NOON })).await;
        let after = names.automatic(&punctual, &id, kind).await.unwrap();
        assert_eq!((&after["id"], &after["syncStatus"]), (&before["id"], &json!("synced")), "{} {kind}", names.name);
        assert_ne!(after["scheduleId"], before["scheduleId"]);
        let [task] = names.live(&punctual, kind).await.try_into().unwrap();
        assert_eq!((task.run_at, json!(task.id)), (instant(NOON), after["scheduleId"].clone()));
    }
}

async fn an_unchanged_date_changes_nothing(database: TestDatabase) {
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, Some(NINE)).await {
        let before = names.automatic(&punctual, &id, kind).await.unwrap();
        // Written otherwise, the same instant.
        names.patch(&punctual, &id, json!({"title": "Renamed", field: "2026-01-02T10:00:00+01:00"})).await;
        assert_eq!(names.automatic(&punctual, &id, kind).await.unwrap(), before, "{} {kind}", names.name);
        assert_eq!(names.tasks(&punctual, kind).await.len(), 1);
    }
}

async fn a_date_that_is_finer_than_it_is_shown_stays_as_it_is(database: TestDatabase) {
    const FINE: &str = "2026-01-02T09:00:00.123456789Z";
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, Some(FINE)).await {
        let before = names.automatic(&punctual, &id, kind).await.unwrap();
        names.patch(&punctual, &id, json!({"title": "Renamed"})).await;
        let mut same = names.body(None, None);
        same[field] = json!(FINE);
        assert_eq!(punctual.put(&format!("{}/{id}", names.path), same).await.status, 200);
        assert_eq!(names.automatic(&punctual, &id, kind).await.unwrap(), before, "{} {kind}", names.name);
        assert_eq!(names.tasks(&punctual, kind).await.len(), 1);
    }
}

async fn a_leap_second_is_the_second_after_it(database: TestDatabase) {
    let punctual = start(database).await;
    for (names, kind, field, id) in each(&punctual, Some("2026-01-02T23:59:60.25Z")).await {
        let shown = punctual.get(&format!("{}/{id}", names.path)).await.body[field].clone();
        assert_eq!(shown, "2026-01-03T00:00:00.250Z", "{} {kind}", names.name);
        assert_eq!(names.live(&punctual, kind).await.pop().unwrap().run_at, instant("2026-01-03T00:00:00.250Z"));
    }
}

async fn changing_one_date_leaves_the_other_alone(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(NOON)).await;
    let end = EVENT.automatic(&punctual, &id, "end").await.unwrap();
    EVENT.patch(&punctual, &id, json!({"startDate": "2026-01-02T08:00:00Z"})).await;
    assert_eq!(EVENT.automatic(&punctual, &id, "end").await.unwrap(), end);
}

async fn a_rule_that_was_never_scheduled_gets_a_fresh_task(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("operations.event.start")).await;
    let id = EVENT.made(&punctual, Some(NINE), None).await;
    let failed = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!((&failed["syncStatus"], &failed["scheduleId"]), (&json!("failed"), &json!(null)));
    punctual.refuse_tasks(None).await;
    EVENT.patch(&punctual, &id, json!({"startDate": NOON})).await;
    let synced = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(
        (&synced["id"], &synced["syncStatus"], &synced["syncError"]),
        (&failed["id"], &json!("synced"), &json!(null))
    );
    assert_eq!(EVENT.live(&punctual, "start").await[0].run_at, instant(NOON));
}

async fn a_reschedule_that_fails_leaves_no_task_of_the_old_date(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), None).await;
    punctual.refuse_tasks(Some("operations.event.start")).await;
    EVENT.patch(&punctual, &id, json!({"startDate": NOON})).await;
    let failed = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!((&failed["syncStatus"], &failed["scheduleId"]), (&json!("failed"), &json!(null)));
    assert!(EVENT.live(&punctual, "start").await.is_empty());
    punctual.advance(HOUR * 34).await;
    assert_eq!(punctual.messages().await, []);
}

async fn a_date_whose_rule_cannot_be_written_leaves_no_task_of_the_old_one(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(NOON)).await;
    let end = EVENT.automatic(&punctual, &id, "end").await.unwrap();
    refuse_rules(&punctual, "UPDATE", "start").await;
    EVENT.patch(&punctual, &id, json!({"startDate": "2026-01-02T10:00:00Z"})).await;
    assert_eq!(punctual.get(&format!("/events/{id}")).await.text("startDate"), "2026-01-02T10:00:00.000Z");
    assert!(EVENT.live(&punctual, "start").await.is_empty());
    allow_rules(&punctual, "UPDATE").await;
    punctual.advance(MINUTE * 5).await;
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["syncStatus"], "synced");
    let [task] = EVENT.live(&punctual, "start").await.try_into().unwrap();
    assert_eq!(task.run_at, instant("2026-01-02T10:00:00Z"));
    assert_eq!(EVENT.automatic(&punctual, &id, "end").await.unwrap(), end);
}

async fn a_rule_that_somebody_deleted_does_not_come_back_with_a_change(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), None).await;
    let rule = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(punctual.delete(&format!("/rules/{}", rule["id"].as_str().unwrap())).await.status, 204);
    EVENT.patch(&punctual, &id, json!({"startDate": NOON})).await;
    assert!(EVENT.automatic(&punctual, &id, "start").await.is_none());
    // But with a date that is new.
    EVENT.patch(&punctual, &id, json!({"startDate": null})).await;
    EVENT.patch(&punctual, &id, json!({"startDate": NINE})).await;
    assert!(EVENT.automatic(&punctual, &id, "start").await.is_some());
}

async fn an_event_that_was_told_of_and_is_moved_is_told_of_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some("2026-01-01T01:00:00Z"), None).await;
    punctual.advance(HOUR).await;
    assert_eq!(punctual.messages().await.len(), 2);
    let rule = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(rule["lastSentAt"], "2026-01-01T01:00:00.000Z");
    EVENT.patch(&punctual, &id, json!({"startDate": NINE})).await;
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["lastSentAt"], json!(null));
    punctual.advance(DAY * 2).await;
    let messages = punctual.messages().await;
    assert_eq!(told(&messages[2..]), [("email", "ada@example.com"), ("email", "bob@example.com")]);
}

on_both_databases![
    a_removed_date_cancels_the_task_and_soft_deletes_the_rule,
    an_added_date_makes_a_rule,
    a_changed_date_moves_the_task,
    an_unchanged_date_changes_nothing,
    a_date_that_is_finer_than_it_is_shown_stays_as_it_is,
    a_leap_second_is_the_second_after_it,
    changing_one_date_leaves_the_other_alone,
    a_rule_that_was_never_scheduled_gets_a_fresh_task,
    a_reschedule_that_fails_leaves_no_task_of_the_old_date,
    a_date_whose_rule_cannot_be_written_leaves_no_task_of_the_old_one,
    a_rule_that_somebody_deleted_does_not_come_back_with_a_change,
    an_event_that_was_told_of_and_is_moved_is_told_of_again,
];
