//! The eight steps when a rule's task is due.

use punctual_sdk::NewTask;
use punctual_testing::{Punctual, TaskStatus, TestDatabase, logged, on_both_databases};
use serde_json::{Value, json};

use crate::{EVENT, HOUR, MINUTE, Names, TASK, has_completed, start, told};

const ONE: &str = "2026-01-01T01:00:00.000Z";
const NOBODY: &str = "018f0000-0000-7000-8000-000000000000";

/// An event that starts in an hour, and its rule.
async fn soon(punctual: &Punctual) -> (String, Value) {
    let id = EVENT.made(punctual, Some(ONE), None).await;
    let rule = EVENT.automatic(punctual, &id, "start").await.unwrap();
    (id, rule)
}

fn payload(names: Names, id: &str, rule: &Value) -> Value {
    json!({"subjectType": names.name, "subjectId": id, "notificationRuleId": rule, "kind": "start"})
}

/// Runs the task of a rule, which must complete, and answers the one line that says why nobody was told.
async fn skipped(punctual: &Punctual, payload: Value) -> Value {
    let task = punctual.run("operations.event.start", payload.clone()).await;
    assert_eq!((task.status, task.outcomes.len()), (TaskStatus::Completed, 1), "{task:?}");
    let of_rule = json!({"notificationRuleId": payload["notificationRuleId"]});
    logged("notifications.operations.skipped", of_rule).pop().unwrap()
}

async fn people_are_told_when_it_starts_and_when_it_ends(database: TestDatabase) {
    let punctual = start(database).await;
    for names in [EVENT, TASK] {
        names.made(&punctual, Some("2026-01-01T01:00:00Z"), Some("2026-01-01T02:00:00Z")).await;
    }
    punctual.advance(HOUR - MINUTE).await;
    assert_eq!(punctual.messages().await, []);
    punctual.advance(MINUTE).await;
    assert_eq!(punctual.messages().await.len(), 4);
    punctual.advance(HOUR).await;
    let messages = punctual.messages().await;
    let mut slugs: Vec<_> = messages.iter().map(|message| message.template_slug.clone().unwrap()).collect();
    slugs.sort();
    slugs.dedup();
    assert_eq!(
        slugs,
        ["operations-event-end", "operations-event-start", "operations-task-end", "operations-task-start"]
    );
    assert!(has_completed(&EVENT.tasks(&punctual, "end").await) && has_completed(&TASK.tasks(&punctual, "end").await));
}

async fn a_message_says_what_and_when(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    EVENT.patch(&punctual, &id, json!({"title": "All hands", "timezone": "America/Edmonton"})).await;
    punctual.advance(HOUR).await;
    let message = &punctual.messages().await[0];
    assert_eq!((message.recipient.as_str(), message.subject.as_str()), ("ada@example.com", "Event starts: All hands"));
    assert!(
        message.text.contains("Hello Ada") && message.text.contains("2025-12-31 18:00 (America/Edmonton)"),
        "{}",
        message.text
    );
    let key = format!("{}__email__ada@example.com__{ONE}", rule["id"].as_str().unwrap());
    assert_eq!(message.dedupe_key, key);
}

async fn what_was_sent_is_logged_and_marked(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    punctual.advance(HOUR).await;
    let [sent] = logged("notifications.operations.sent", json!({"notificationRuleId": rule["id"]})).try_into().unwrap();
    assert_eq!((&sent["level"], &sent["recipientCount"]), (&json!("INFO"), &json!(2)));
    assert_eq!(
        (&sent["subjectType"], &sent["subjectId"], &sent["kind"]),
        (&json!("event"), &json!(id), &json!("start"))
    );
    let each = logged(
        "notifications.sender.sent",
        json!({"templateKey": "operations-event-start", "recipient": "bob@example.com"}),
    );
    assert_eq!(each[0]["level"], "INFO");
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["lastSentAt"], ONE);
}

async fn tasks_of_other_topics_are_not_listened_to(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    // As if the task of the rule had never come.
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR * 2).await;
    punctual.fail_messages(None);
    let of_rule = json!({"notificationRuleId": rule["id"]});
    let lines = || punctual_testing::logs().into_iter().filter(|line| line["notificationRuleId"] == rule["id"]).count();
    let before = lines();
    let payload = payload(EVENT, &id, &rule["id"]);
    for topic in ["operations", "operation.event.start", "operationsx.event.start", "other.operations.event.start"] {
        let task = NewTask::new(topic).payload(&payload);
        let task = punctual.context().database().enqueue(task).await.unwrap();
        assert_eq!(punctual.task(task).await.status, TaskStatus::Completed, "{topic}");
    }
    assert_eq!((punctual.messages().await, lines()), (vec![], before));
    // The same under a topic of ours.
    assert_eq!(punctual.run("operations.event.start", payload).await.status, TaskStatus::Completed);
    assert_eq!(punctual.messages().await.len(), 2);
    assert_eq!(logged("notifications.operations.sent", of_rule).len(), 1);
}

async fn invalid_payload_is_skipped_with_a_warning(database: TestDatabase) {
    let punctual = start(database).await;
    for bad in [
        json!({}),
        json!([]),
        json!({"subjectType": "meeting", "subjectId": NOBODY, "notificationRuleId": NOBODY, "kind": "start"}),
        json!({"subjectType": "event", "subjectId": "7", "notificationRuleId": NOBODY, "kind": "start"}),
        json!({"subjectType": "event", "subjectId": NOBODY, "notificationRuleId": NOBODY, "kind": "middle"}),
    ] {
        let id = punctual.enqueue(NewTask::new("operations.event.start").payload(&bad)).await;
        let task = punctual.task(id).await;
        assert_eq!((task.status, task.outcomes.len()), (TaskStatus::Completed, 1), "{bad}");
        let skipped = logged("notifications.operations.skipped", json!({"reason": "invalid-payload", "task_id": id}));
        assert_eq!(skipped[0]["level"], "WARN", "{bad}");
    }
}

async fn rule_missing_is_skipped_with_a_warning(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, _) = soon(&punctual).await;
    let skipped = skipped(&punctual, payload(EVENT, &id, &json!(NOBODY))).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("rule-missing"), &json!("WARN")));
}

async fn rule_canceled_is_skipped_gracefully(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    punctual.delete(&format!("/rules/{}", rule["id"].as_str().unwrap())).await;
    let skipped = skipped(&punctual, payload(EVENT, &id, &rule["id"])).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("rule-canceled"), &json!("INFO")));
    assert_eq!(punctual.messages().await, []);
}

async fn rule_inactive_is_skipped(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    let path = format!("/rules/{}", rule["id"].as_str().unwrap());
    assert_eq!(punctual.patch(&path, json!({"active": false})).await.body["active"], false);
    let skipped = skipped(&punctual, payload(EVENT, &id, &rule["id"])).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("rule-inactive"), &json!("INFO")));
}

async fn already_delivered_is_skipped(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    punctual.advance(HOUR).await;
    assert_eq!(punctual.messages().await.len(), 2);
    let skipped = skipped(&punctual, payload(EVENT, &id, &rule["id"])).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("already-delivered"), &json!("INFO")));
    assert_eq!(punctual.messages().await.len(), 2);
}

async fn subject_missing_is_skipped_with_a_warning(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    let delete = "DELETE FROM operations_subjects";
    punctual.execute(delete, delete).await;
    let skipped = skipped(&punctual, payload(EVENT, &id, &rule["id"])).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("subject-missing"), &json!("WARN")));
}

async fn no_recipients_is_skipped_with_a_warning(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    EVENT.patch(&punctual, &id, json!({"creator": {"email": null}, "participants": [{"name": "Bob"}]})).await;
    let skipped = skipped(&punctual, payload(EVENT, &id, &rule["id"])).await;
    assert_eq!((&skipped["reason"], &skipped["level"]), (&json!("no-recipients"), &json!("WARN")));
}

async fn each_address_is_told_once_however_it_is_written(database: TestDatabase) {
    let punctual = start(database).await;
    for names in [EVENT, TASK] {
        let mut body = names.body(Some(ONE), None);
        body[names.people] = json!([
            {"name": "Ada again", "email": "ADA@example.com"}, {"name": "Nobody"}, {"name": "Bob", "email": "Bob@Example.com"},
            {"name": "Bob again", "email": "bob@example.com"},
        ]);
        names.make(&punctual, body).await;
    }
    punctual.advance(HOUR).await;
    let messages = punctual.messages().await;
    assert_eq!(messages.len(), 4);
    let mut keys: Vec<_> = messages.iter().map(|message| message.dedupe_key.split("__").nth(2).unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys, ["ada@example.com", "bob@example.com"]);
}

async fn who_is_told_is_decided_when_it_is_due(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, _) = soon(&punctual).await;
    EVENT.patch(&punctual, &id, json!({"participants": [{"name": "Eve", "email": "eve@example.com"}]})).await;
    punctual.advance(HOUR).await;
    assert_eq!(told(&punctual.messages().await), [("email", "ada@example.com"), ("email", "eve@example.com")]);
}

async fn a_failure_is_logged_and_tried_again(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR).await;
    let [task] = EVENT.tasks(&punctual, "start").await.try_into().unwrap();
    assert_eq!(task.status, TaskStatus::Pending);
    let [failed] =
        logged("notifications.operations.failed", json!({"notificationRuleId": rule["id"]})).try_into().unwrap();
    assert_eq!((&failed["level"], &failed["errorName"]), (&json!("ERROR"), &json!("NotificationError")));
    assert_eq!(failed["errorMessage"], "the mail server is down");
    let sender = logged("notifications.sender.failed", json!({"recipient": "ada@example.com", "provider": "email"}));
    assert_eq!((&sender[0]["level"], &sender[0]["templateKey"]), (&json!("ERROR"), &json!("operations-event-start")));
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["lastSentAt"], json!(null));
    punctual.fail_messages(None);
    punctual.advance(MINUTE).await;
    assert_eq!(punctual.messages().await.len(), 2);
    assert!(has_completed(&EVENT.tasks(&punctual, "start").await));
}

async fn what_is_stored_and_makes_no_sense_is_logged_as_such(database: TestDatabase) {
    let punctual = start(database).await;
    let (_, rule) = soon(&punctual).await;
    let channels = async |channels: &str| {
        let set = format!("UPDATE operations_notification_rules SET channels = '{channels}'");
        punctual.execute(set.clone(), set).await;
    };
    channels("nonsense").await;
    punctual.advance(HOUR).await;
    let [failed] =
        logged("notifications.operations.failed", json!({"notificationRuleId": rule["id"]})).try_into().unwrap();
    assert_eq!((&failed["level"], &failed["errorName"]), (&json!("ERROR"), &json!("DataError")));
    // Once it is mended, it tells.
    channels("[\"email\"]").await;
    punctual.advance(MINUTE).await;
    assert_eq!(told(&punctual.messages().await), [("email", "ada@example.com"), ("email", "bob@example.com")]);
}

async fn after_five_attempts_it_has_failed(database: TestDatabase) {
    let punctual = start(database).await;
    soon(&punctual).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR * 2).await;
    let [task] = EVENT.tasks(&punctual, "start").await.try_into().unwrap();
    assert_eq!((task.status, punctual.task(task.id).await.outcomes.len()), (TaskStatus::Failed, 5));
}

async fn a_task_that_failed_and_is_retried_tells_what_it_could_not(database: TestDatabase) {
    let punctual = start(database).await;
    soon(&punctual).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR * 2).await;
    punctual.fail_messages(None);
    let [failed] = EVENT.tasks(&punctual, "start").await.try_into().unwrap();
    assert_eq!(punctual.retry(failed.id).await.status, TaskStatus::Completed);
    assert_eq!(told(&punctual.messages().await), [("email", "ada@example.com"), ("email", "bob@example.com")]);
}

async fn a_task_of_a_date_that_no_longer_holds_is_skipped(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR * 2).await;
    punctual.fail_messages(None);
    let [failed] = EVENT.tasks(&punctual, "start").await.try_into().unwrap();
    assert_eq!(failed.status, TaskStatus::Failed);
    EVENT.patch(&punctual, &id, json!({"startDate": "2026-01-01T09:00:00Z"})).await;
    assert_eq!(punctual.retry(failed.id).await.status, TaskStatus::Completed);
    let of_rule = json!({"notificationRuleId": rule["id"], "reason": "rule-canceled"});
    assert_eq!(logged("notifications.operations.skipped", of_rule)[0]["level"], "INFO");
    assert_eq!(punctual.messages().await, []);
    // What the new date tells is not used up.
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["lastSentAt"], json!(null));
    punctual.advance(HOUR * 7).await;
    assert_eq!(told(&punctual.messages().await), [("email", "ada@example.com"), ("email", "bob@example.com")]);
}

async fn after_a_partial_success_only_the_rest_is_sent(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    // The first of both, so that it is seen that the second is told all the same.
    punctual.fail_messages_to("ada@example.com", "her mailbox is full");
    punctual.advance(HOUR).await;
    assert_eq!(told(&punctual.messages().await), [("email", "bob@example.com")]);
    assert_eq!(EVENT.tasks(&punctual, "start").await[0].status, TaskStatus::Pending);
    assert_eq!(EVENT.automatic(&punctual, &id, "start").await.unwrap()["lastSentAt"], json!(null));
    punctual.fail_messages(None);
    punctual.advance(MINUTE).await;
    assert_eq!(told(&punctual.messages().await), [("email", "bob@example.com"), ("email", "ada@example.com")]);
    let sent = logged("notifications.operations.sent", json!({"notificationRuleId": rule["id"]}));
    assert_eq!((sent.len(), &sent[0]["recipientCount"]), (1, &json!(2)));
}

async fn what_is_out_and_could_not_be_noted_is_not_sent_again(database: TestDatabase) {
    let punctual = start(database).await;
    let (id, rule) = soon(&punctual).await;
    // All are out, but that cannot be noted: the attempt fails.
    punctual
        .execute(
            "CREATE TRIGGER unmarked BEFORE UPDATE OF last_sent_at ON operations_notification_rules
             WHEN NEW.last_sent_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'not now'); END",
            "CREATE FUNCTION unmarked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
             CREATE TRIGGER unmarked BEFORE UPDATE ON operations_notification_rules FOR EACH ROW
             WHEN (NEW.last_sent_at IS NOT NULL) EXECUTE FUNCTION unmarked()",
        )
        .await;
    punctual.advance(HOUR).await;
    assert_eq!(punctual.messages().await.len(), 2);
    let [task] = EVENT.tasks(&punctual, "start").await.try_into().unwrap();
    assert_eq!(task.status, TaskStatus::Pending);
    let of_rule = || json!({"notificationRuleId": rule["id"]});
    let [failed] = logged("notifications.operations.failed", of_rule()).try_into().unwrap();
    assert_eq!((&failed["level"], &failed["errorName"]), (&json!("ERROR"), &json!("DatabaseError")));
    assert!(failed["errorMessage"].as_str().unwrap().contains("not now"), "{failed}");
    assert_eq!(punctual.task(task.id).await.error.as_deref(), failed["errorMessage"].as_str());
    assert!(logged("notifications.operations.sent", of_rule()).is_empty());
    punctual.execute("DROP TRIGGER unmarked", "DROP TRIGGER unmarked ON operations_notification_rules").await;
    // Somebody came in between: they are told, the others are not told again.
    let more = json!([{"name": "Bob", "email": "bob@example.com"}, {"name": "Eve", "email": "eve@example.com"}]);
    EVENT.patch(&punctual, &id, json!({ "participants": more })).await;
    punctual.advance(MINUTE).await;
    let messages = punctual.messages().await;
    assert_eq!(told(&messages)[2..], [("email", "eve@example.com")]);
    let sent = logged("notifications.operations.sent", of_rule());
    assert_eq!((sent.len(), &sent[0]["recipientCount"]), (1, &json!(3)));
}

async fn several_channels_tell_everybody_through_each(database: TestDatabase) {
    let punctual = start(database).await;
    let (_, rule) = soon(&punctual).await;
    let path = format!("/rules/{}", rule["id"].as_str().unwrap());
    punctual.patch(&path, json!({"channels": ["email", "webhook", "queue"]})).await;
    punctual.advance(HOUR).await;
    let messages = punctual.messages().await;
    let mut channels: Vec<_> = told(&messages);
    channels.sort_unstable();
    assert_eq!(
        channels,
        [
            ("email", "ada@example.com"),
            ("email", "bob@example.com"),
            ("queue", "ada@example.com"),
            ("queue", "bob@example.com"),
            ("webhook", "ada@example.com"),
            ("webhook", "bob@example.com"),
        ]
    );
    let keys: std::collections::BTreeSet<_> = messages.iter().map(|message| &message.dedupe_key).collect();
    assert_eq!(keys.len(), 6);
}

on_both_databases![
    people_are_told_when_it_starts_and_when_it_ends,
    a_message_says_what_and_when,
    what_was_sent_is_logged_and_marked,
    tasks_of_other_topics_are_not_listened_to,
    invalid_payload_is_skipped_with_a_warning,
    rule_missing_is_skipped_with_a_warning,
    rule_canceled_is_skipped_gracefully,
    rule_inactive_is_skipped,
    already_delivered_is_skipped,
    subject_missing_is_skipped_with_a_warning,
    no_recipients_is_skipped_with_a_warning,
    each_address_is_told_once_however_it_is_written,
    who_is_told_is_decided_when_it_is_due,
    a_failure_is_logged_and_tried_again,
    what_is_stored_and_makes_no_sense_is_logged_as_such,
    after_five_attempts_it_has_failed,
    a_task_that_failed_and_is_retried_tells_what_it_could_not,
    a_task_of_a_date_that_no_longer_holds_is_skipped,
    after_a_partial_success_only_the_rest_is_sent,
    what_is_out_and_could_not_be_noted_is_not_sent_again,
    several_channels_tell_everybody_through_each,
];
