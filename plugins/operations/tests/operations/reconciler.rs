//! What did not work out is tried again every five minutes.

use punctual_testing::{Punctual, TestDatabase, on_both_databases};
use serde_json::{Value, json};

use crate::{EVENT, HOUR, MINUTE, instant, rule, rules, start, told};

const NINE: &str = "2026-01-02T09:00:00.000Z";

async fn a_failed_rule_is_scheduled_within_five_minutes(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("operations.event.start")).await;
    let id = EVENT.made(&punctual, Some(NINE), None).await;
    punctual.advance(MINUTE * 5).await;
    let still = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(still["syncStatus"], "failed");
    punctual.refuse_tasks(None).await;
    punctual.advance(MINUTE * 5).await;
    let healed = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!(
        (&healed["id"], &healed["syncStatus"], &healed["syncError"]),
        (&still["id"], &json!("synced"), &json!(null))
    );
    let [task] = EVENT.live(&punctual, "start").await.try_into().unwrap();
    assert_eq!((task.run_at, json!(task.id)), (instant(NINE), healed["scheduleId"].clone()));
    let result = punctual.tasks("operations.reconcile").await.pop().unwrap().result;
    assert_eq!(result, json!({"scanned": 1, "healed": 1, "dropped": 0, "failed": 0}));
}

async fn a_rule_left_pending_by_a_crash_is_scheduled(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), None).await;
    // As if the node had died between the two saves.
    let lost = "UPDATE operations_notification_rules SET sync_status = 'pending', schedule_id = NULL";
    punctual.execute(lost, lost).await;
    punctual.advance(MINUTE * 5).await;
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["syncStatus"], "synced");
}

async fn a_rule_whose_instant_is_past_is_dropped(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("operations.event.start")).await;
    let id = EVENT.made(&punctual, Some("2026-01-01T00:04:00Z"), None).await;
    let before = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    punctual.advance(MINUTE * 5).await;
    assert!(EVENT.automatic(&punctual, &id, "start").await.is_none());
    let dropped = rule(&punctual, &before["id"]).await;
    assert_eq!(
        (dropped["active"].clone(), dropped["deletedAt"].clone()),
        (json!(false), json!("2026-01-01T00:05:00.000Z"))
    );
    assert_eq!(punctual.messages().await, []);
}

/// The rules of an event that starts in a minute are dropped, its own and one that somebody added, because nobody could
/// schedule them in time; answers the event and both.
async fn dropped(punctual: &Punctual) -> (String, [Value; 2]) {
    punctual.refuse_tasks(Some("operations.event.start")).await;
    let id = EVENT.made(punctual, Some("2026-01-01T00:04:00Z"), None).await;
    let added = json!({
        "subjectType": "event", "subjectId": id, "channels": ["webhook"], "active": false,
        "rule": {"type": "relative", "anchor": "start", "offset": "-PT1M"},
    });
    let added = punctual.post("/rules", added).await.body["id"].clone();
    let own = EVENT.automatic(punctual, &id, "start").await.unwrap()["id"].clone();
    punctual.refuse_tasks(None).await;
    punctual.advance(MINUTE * 5).await;
    assert!(rules(punctual, &id).await.is_empty());
    (id, [own, added])
}

async fn a_dropped_rule_is_back_when_its_date_moves_to_the_future(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, [own, added]) = dropped(&punctual).await;
    // Another date that is past brings nothing back.
    EVENT.patch(&punctual, &id, json!({"startDate": "2026-01-01T00:03:00Z"})).await;
    assert!(rules(&punctual, &id).await.is_empty());
    EVENT.patch(&punctual, &id, json!({"startDate": NINE})).await;
    let back = rule(&punctual, &own).await;
    assert_eq!(
        (&back["syncStatus"], &back["syncError"], &back["active"], &back["deletedAt"]),
        (&json!("synced"), &json!(null), &json!(true), &json!(null))
    );
    // As somebody left it: by another channel, and not at work.
    let back = rule(&punctual, &added).await;
    assert_eq!(
        (&back["syncStatus"], &back["channels"], &back["active"], &back["deletedAt"]),
        (&json!("synced"), &json!(["webhook"]), &json!(false), &json!(null))
    );
    let mut due: Vec<_> = EVENT.live(&punctual, "start").await.iter().map(|task| task.run_at).collect();
    due.sort();
    assert_eq!(due, [instant("2026-01-02T08:59:00Z"), instant(NINE)]);
    punctual.advance(HOUR * 34).await;
    assert_eq!(told(&punctual.messages().await), [("email", "ada@example.com"), ("email", "bob@example.com")]);
}

async fn a_dropped_rule_stays_away_when_its_date_was_removed(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, [own, added]) = dropped(&punctual).await;
    EVENT.patch(&punctual, &id, json!({"startDate": null})).await;
    EVENT.patch(&punctual, &id, json!({"startDate": NINE})).await;
    let [fresh] = rules(&punctual, &id).await.try_into().unwrap();
    assert_ne!(fresh["id"], own);
    for gone in [own, added] {
        assert!(rule(&punctual, &gone).await["deletedAt"].is_string());
    }
}

async fn a_dropped_rule_stays_away_when_somebody_made_it_again(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, [own, added]) = dropped(&punctual).await;
    // Twice, so that the first of the new ones is dropped as well.
    for _ in 0..2 {
        let again =
            json!({"subjectType": "event", "subjectId": id, "rule": {"type": "at_subject_date", "anchor": "start"}});
        assert_eq!(punctual.post("/rules", again).await.status, 201);
        punctual.advance(MINUTE * 5).await;
    }
    EVENT.patch(&punctual, &id, json!({"startDate": NINE})).await;
    let newest = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    assert_eq!((&newest["syncStatus"], rules(&punctual, &id).await.len()), (&json!("synced"), 2));
    assert!(newest["id"] != own && rule(&punctual, &own).await["deletedAt"].is_string());
    assert_eq!(rule(&punctual, &added).await["deletedAt"], json!(null));
}

async fn synced_and_deleted_rules_are_left_alone(database: TestDatabase) {
    let punctual = start(database).await;
    let id = EVENT.made(&punctual, Some(NINE), Some(NINE)).await;
    let end = EVENT.automatic(&punctual, &id, "end").await.unwrap();
    punctual.delete(&format!("/rules/{}", end["id"].as_str().unwrap())).await;
    let start = EVENT.automatic(&punctual, &id, "start").await.unwrap();
    punctual.advance(HOUR).await;
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap(), start);
    assert_eq!(EVENT.live(&punctual, "end").await.len(), 0);
    let results = punctual.tasks("operations.reconcile").await;
    assert!(results.len() == 12 && results.iter().all(|task| task.result["scanned"] == 0), "{results:?}");
}

async fn it_fires_by_a_schedule_that_belongs_to_the_operator(database: TestDatabase) {
    let punctual = start(database).await;
    let schedule = punctual.schedule("operationsReconcile").await;
    assert_eq!(schedule.next_fire_at, Some(instant("2026-01-01T00:05:00Z")));
    assert_eq!(schedule.definition.timezone, "UTC");
}

on_both_databases![
    a_failed_rule_is_scheduled_within_five_minutes,
    a_rule_left_pending_by_a_crash_is_scheduled,
    a_rule_whose_instant_is_past_is_dropped,
    a_dropped_rule_is_back_when_its_date_moves_to_the_future,
    a_dropped_rule_stays_away_when_its_date_was_removed,
    a_dropped_rule_stays_away_when_somebody_made_it_again,
    synced_and_deleted_rules_are_left_alone,
    it_fires_by_a_schedule_that_belongs_to_the_operator,
];
