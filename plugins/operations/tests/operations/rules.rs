//! Rules over HTTP: those that come with dates, and those that people add.

use punctual_testing::{Response, TaskStatus, TestDatabase, on_both_databases};
use serde_json::{Value, json};

use crate::{DAY, EVENT, HOUR, TASK, instant, rule, rules, start, told};

const THIRD: &str = "2026-01-03T09:00:00.000Z";

fn relative(subject: &str, offset: &str) -> Value {
    json!({"subjectType": "event", "subjectId": subject, "rule": {"type": "relative", "anchor": "start", "offset": offset}})
}

fn path(rule: &Response) -> String {
    format!("/rules/{}", rule.text("id"))
}

async fn a_relative_rule_tells_so_long_before_and_after(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    for (offset, at) in [("-PT24H", "2026-01-02T09:00:00Z"), ("PT30M", "2026-01-03T09:30:00Z")] {
        let made = punctual.post("/rules", relative(&id, offset)).await;
        assert_eq!((made.status, made.text("syncStatus"), made.text("kind")), (201, "synced", "start"), "{made:?}");
        let task = punctual.task(made.text("scheduleId").parse().unwrap()).await;
        assert_eq!((task.run_at, task.topic.as_str()), (instant(at), "operations.event.start"));
    }
    punctual.advance(DAY + HOUR * 9).await;
    assert_eq!(punctual.messages().await.len(), 2);
    punctual.advance(DAY).await;
    assert_eq!(punctual.messages().await.len(), 4);
    punctual.advance(HOUR).await;
    assert_eq!(punctual.messages().await.len(), 6);
}

async fn a_relative_rule_follows_its_date(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let made = punctual.post("/rules", relative(&id, "-PT24H")).await;
    EVENT.patch(&punctual, &id, json!({"startDate": "2026-01-05T09:00:00Z"})).await;
    let moved = punctual.get(&path(&made)).await;
    assert_eq!(moved.text("syncStatus"), "synced");
    let task = punctual.task(moved.text("scheduleId").parse().unwrap()).await;
    assert_eq!(task.run_at, instant("2026-01-04T09:00:00Z"));
    EVENT.patch(&punctual, &id, json!({"startDate": null})).await;
    assert!(punctual.get(&path(&made)).await.body["deletedAt"].is_string());
    assert!(EVENT.live(&punctual, "start").await.is_empty());
}

async fn a_subject_has_each_rule_once(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    assert_eq!(punctual.post("/rules", relative(&id, "-PT24H")).await.status, 201);
    // The same, written otherwise.
    assert_eq!(punctual.post("/rules", relative(&id, "-P1D")).await.status, 409);
    let automatic =
        json!({"subjectType": "event", "subjectId": id, "rule": {"type": "at_subject_date", "anchor": "start"}});
    assert_eq!(punctual.post("/rules", automatic).await.status, 409);
    assert_eq!(rules(&punctual, &id).await.len(), 2);
}

async fn a_rule_is_made_for_the_date_as_it_is_by_then(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let taken_away = "UPDATE operations_subjects SET start_at = NULL";
    let refused = punctual.meanwhile(taken_away, punctual.post("/rules", relative(&id, "-PT24H"))).await;
    assert_eq!((refused.status, refused.bad_fields()), (400, vec!["rule.anchor"]));
}

async fn a_deleted_rule_can_be_made_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let first = punctual.post("/rules", relative(&id, "-PT24H")).await;
    assert_eq!(punctual.delete(&path(&first)).await.status, 204);
    let task = punctual.task(first.text("scheduleId").parse().unwrap()).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!(punctual.delete(&path(&first)).await.status, 404);
    assert_eq!(punctual.patch(&path(&first), json!({"active": true})).await.status, 404);
    assert!(rule(&punctual, &first.body["id"]).await["deletedAt"].is_string());
    assert_eq!(punctual.post("/rules", relative(&id, "-PT24H")).await.status, 201);
}

async fn a_rule_is_changed_in_place(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let made = punctual.post("/rules", relative(&id, "-PT24H")).await;
    let offset = json!({"rule": {"type": "relative", "anchor": "start", "offset": "-PT1H"}, "channels": ["webhook"]});
    let changed = punctual.patch(&path(&made), offset).await;
    assert_eq!((changed.status, changed.text("id"), changed.text("syncStatus")), (200, made.text("id"), "synced"));
    assert_eq!((&changed.body["rule"]["offset"], &changed.body["channels"]), (&json!("-PT1H"), &json!(["webhook"])));
    let task = punctual.task(changed.text("scheduleId").parse().unwrap()).await;
    assert_eq!(task.run_at, instant("2026-01-03T08:00:00Z"));
    assert_eq!(punctual.task(made.text("scheduleId").parse().unwrap()).await.status, TaskStatus::Cancelled);
    punctual.advance(DAY * 2 + HOUR * 8).await;
    assert_eq!(told(&punctual.messages().await), [("webhook", "ada@example.com"), ("webhook", "bob@example.com")]);
}

async fn a_rule_that_has_told_and_is_changed_tells_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let made = punctual.post("/rules", relative(&id, "-PT24H")).await;
    punctual.advance(DAY + HOUR * 9).await;
    assert_eq!(punctual.messages().await.len(), 2);
    let sooner = json!({"rule": {"type": "relative", "anchor": "start", "offset": "-PT1H"}});
    assert_eq!(punctual.patch(&path(&made), sooner).await.body["lastSentAt"], json!(null));
    punctual.advance(HOUR * 23).await;
    let messages = punctual.messages().await;
    assert_eq!(told(&messages[2..]), [("email", "ada@example.com"), ("email", "bob@example.com")]);
    // The instant in the key is the one at which the rule tells.
    let keys: Vec<_> = messages.iter().map(|message| message.dedupe_key.as_str()).collect();
    let key = |email: &str, at: &str| format!("{}__email__{email}__{at}", made.text("id"));
    assert_eq!(
        keys,
        [
            key("ada@example.com", "2026-01-02T09:00:00.000Z"),
            key("bob@example.com", "2026-01-02T09:00:00.000Z"),
            key("ada@example.com", "2026-01-03T08:00:00.000Z"),
            key("bob@example.com", "2026-01-03T08:00:00.000Z"),
        ]
    );
}

async fn rules_are_listed_by_what_they_are(database: TestDatabase) {
    let punctual = start(database).await;
    let event = EVENT.made(&punctual, Some(THIRD), Some(THIRD)).await;
    let task = TASK.made(&punctual, Some(THIRD), None).await;
    let count =
        async |query: &str| punctual.get(&format!("/rules{query}")).await.body["items"].as_array().unwrap().len();
    assert_eq!(count("").await, 3);
    assert_eq!(count("?subjectType=task").await, 1);
    assert_eq!(count(&format!("?subjectId={event}")).await, 2);
    assert_eq!(count("?syncStatus=failed").await, 0);
    punctual.delete(&format!("/tasks/{task}")).await;
    assert_eq!((count("").await, count("?deleted=true").await), (2, 3));
    let page = punctual.get("/rules?limit=1").await.body;
    let next = page["nextCursor"].as_str().unwrap();
    let rest = punctual.get(&format!("/rules?limit=1&cursor={next}")).await.body;
    assert_ne!(rest["items"][0]["id"], page["items"][0]["id"]);
    assert_eq!(rest["nextCursor"], json!(null));
    for (query, field) in
        [("?subjectType=x", "subjectType"), ("?syncStatus=x", "syncStatus"), ("?colour=red", "colour")]
    {
        assert_eq!(punctual.get(&format!("/rules{query}")).await.bad_fields(), [field]);
    }
}

async fn bad_rules_are_refused_by_field(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(THIRD), None).await;
    let with = |change: Value| {
        let mut body = relative(&id, "-PT24H");
        change.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    for (body, fields) in [
        (json!({}), vec!["subjectType", "subjectId", "rule"]),
        (with(json!({"rule": {"type": "relative", "anchor": "start", "offset": "1 day"}})), vec!["rule.offset"]),
        (with(json!({"rule": {"type": "relative", "anchor": "start"}})), vec!["rule.offset"]),
        (with(json!({"rule": {"type": "often", "anchor": "start"}})), vec!["rule.type"]),
        (with(json!({"rule": {"type": "at_subject_date", "anchor": "end"}})), vec!["rule.anchor"]),
        (with(json!({"channels": ["pigeon"]})), vec!["channels"]),
        (with(json!({"channels": []})), vec!["channels"]),
        (with(json!({"subjectType": "task"})), vec!["subjectId"]),
        (with(json!({"subjectId": "018f0000-0000-7000-8000-000000000000"})), vec!["subjectId"]),
        (with(json!({"syncStatus": "synced"})), vec!["syncStatus"]),
    ] {
        let refused = punctual.post("/rules", body.clone()).await;
        assert_eq!((refused.status, refused.bad_fields()), (400, fields), "{body}");
    }
}

on_both_databases![
    a_relative_rule_tells_so_long_before_and_after,
    a_relative_rule_follows_its_date,
    a_subject_has_each_rule_once,
    a_rule_is_made_for_the_date_as_it_is_by_then,
    a_deleted_rule_can_be_made_again,
    a_rule_is_changed_in_place,
    a_rule_that_has_told_and_is_changed_tells_again,
    rules_are_listed_by_what_they_are,
    bad_rules_are_refused_by_field,
];
