//! What did not work out is tried again every five minutes.

use punctual_testing::{TestDatabase, on_both_databases};
use serde_json::json;

use crate::{EVENT, HOUR, MINUTE, instant, rule, start};

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
    synced_and_deleted_rules_are_left_alone,
    it_fires_by_a_schedule_that_belongs_to_the_operator,
];
