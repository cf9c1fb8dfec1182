//! Every rule of the sign-up e-mails, on both databases, with a clock that the test moves.

use std::time::Duration;

use punctual_sdk::{Method, NewTask};
use punctual_signup::Signup;
use punctual_testing::{Message, Punctual, TaskStatus, TestDatabase, logged, on_both_databases, setup};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const TOPICS: [&str; 3] = ["signup.alert.internal", "signup.reminder.early", "signup.reminder.late"];

async fn start(database: TestDatabase) -> Punctual {
    setup(Signup)
        .database(database)
        .setting("SIGNUP_ALERT_EMAIL", "sales@example.com")
        .setting("DASHBOARD_URL", "https://app.example.com")
        .start()
        .await
}

/// Begins a sign-up, and answers its id.
async fn begin(punctual: &Punctual, email: &str) -> String {
    let begun = punctual.post("/sessions", json!({ "email": email })).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    begun.text("id").to_owned()
}

async fn messages(punctual: &Punctual, slug: &str) -> Vec<Message> {
    let sent = punctual.messages().await;
    sent.into_iter().filter(|message| message.template_slug.as_deref() == Some(slug)).collect()
}

async fn a_sign_up_is_a_session_and_three_tasks(database: TestDatabase) {
    let punctual = start(database).await;
    let begun = punctual.post("/sessions", json!({"email": "ada@example.com"})).await;
    assert_eq!((begun.status, begun.text("email"), begun.text("currentStage")), (201, "ada@example.com", "step_1"));
    let id = begun.text("id");
    let delays = [Duration::ZERO, HOUR, DAY];
    for (topic, delay) in TOPICS.into_iter().zip(delays) {
        let [task] = punctual.tasks(topic).await.try_into().unwrap();
        assert_eq!(task.run_at, punctual.now() + delay, "{topic}");
        assert_eq!(task.stored.metadata["tenantId"], id);
        assert_eq!(task.stored.retry.attempts, 1, "{topic}");
    }
    assert_eq!(punctual.get(&format!("/sessions/{id}")).await.body, begun.body);
    assert_eq!(punctual.get("/sessions").await.body, json!({"items": [begun.body], "nextCursor": null}));
}

async fn a_sign_up_that_cannot_be_planned_never_was(database: TestDatabase) {
    let punctual = start(database).await;
    punctual.refuse_tasks(Some("signup.reminder.late")).await;
    let refused = punctual.post("/sessions", json!({"email": "ada@example.com"})).await;
    assert!(refused.status >= 500, "{refused:?}");
    assert_eq!(punctual.get("/sessions").await.body["items"], json!([]));
    for topic in TOPICS {
        assert!(punctual.tasks(topic).await.is_empty(), "{topic}");
    }
    punctual.refuse_tasks(None).await;
    begin(&punctual, "ada@example.com").await;
}

async fn the_same_call_under_one_idempotency_key_begins_one(database: TestDatabase) {
    let punctual = start(database).await;
    let call = |email: &str| punctual.call(Method::Post, "/sessions", json!({ "email": email }), Some("order-17"));
    let (first, second) = (call("ada@example.com").await, call("ada@example.com").await);
    assert_eq!((first.status, &first.body), (201, &second.body));
    assert_eq!(punctual.get("/sessions").await.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(punctual.tasks("signup.reminder.late").await.len(), 1);
}

async fn bad_sessions_are_refused_by_field(database: TestDatabase) {
    let punctual = start(database).await;
    for (body, fields) in [
        (json!({}), vec!["email"]),
        (json!({"email": "nobody"}), vec!["email"]),
        (json!({"email": "a..b@example.com"}), vec!["email"]),
        (json!({"email": "a@example.com\r\nBcc: b@example.com"}), vec!["email"]),
        (json!({"email": "ada@example.com", "currentStage": "step_4"}), vec!["currentStage"]),
        (json!([]), vec!["body", "email"]),
    ] {
        let refused = punctual.post("/sessions", body.clone()).await;
        assert_eq!((refused.status, refused.bad_fields()), (400, fields), "{body}");
    }
    let id = begin(&punctual, "ada@example.com").await;
    let refused = punctual.patch(&format!("/sessions/{id}"), json!({"currentStage": "step_9"})).await;
    assert_eq!((refused.status, refused.bad_fields()), (400, vec!["currentStage"]));
    for path in ["/sessions/7", "/sessions/018f0000-0000-7000-8000-000000000000"] {
        assert_eq!(punctual.get(path).await.status, 404);
        assert_eq!(punctual.patch(path, json!({"currentStage": "step_2"})).await.status, 404);
        assert_eq!(punctual.delete(path).await.status, 404);
    }
}

async fn the_sales_hear_of_it_at_once(database: TestDatabase) {
    let punctual = start(database).await;
    let id = begin(&punctual, "ada@example.com").await;
    punctual.advance(Duration::ZERO).await;
    let [alert] = punctual.messages().await.try_into().unwrap();
    assert_eq!(
        (alert.recipient.as_str(), alert.subject.as_str()),
        ("sales@example.com", "New sign-up: ada@example.com")
    );
    assert_eq!(alert.dedupe_key, "signup-alert-internal__ada@example.com");
    assert_eq!(alert.template_slug.as_deref(), Some("signup-alert-internal"));
    assert_eq!(alert.data["tenantId"], Value::from(id));
    let html = alert.html.unwrap();
    assert!([&alert.text, &html].iter().all(|said| said.contains("ada@example.com")), "{html}");
}

async fn one_address_makes_one_alert(database: TestDatabase) {
    let punctual = start(database).await;
    for email in ["ada@example.com", "ada@example.com", "bob@example.com"] {
        begin(&punctual, email).await;
    }
    punctual.advance(Duration::from_secs(1)).await;
    assert_eq!(messages(&punctual, "signup-alert-internal").await.len(), 2);
    let tasks = punctual.tasks("signup.alert.internal").await;
    assert!(tasks.iter().all(|task| task.status == TaskStatus::Completed), "{tasks:?}");
}

async fn the_alert_goes_out_even_if_the_session_is_gone(database: TestDatabase) {
    let punctual = start(database).await;
    let payload = json!({"sessionId": "018f0000-0000-7000-8000-000000000000", "email": "eve@example.com"});
    let task = punctual.run("signup.alert.internal", payload).await;
    assert_eq!(task.status, TaskStatus::Completed);
    assert_eq!(messages(&punctual, "signup-alert-internal").await.len(), 1);
}

async fn without_an_address_the_alert_is_skipped_with_a_warning(database: TestDatabase) {
    let punctual = setup(Signup).database(database).start().await;
    let id = begin(&punctual, "ada@example.com").await;
    punctual.advance(Duration::from_secs(1)).await;
    let [task] = punctual.tasks("signup.alert.internal").await.try_into().unwrap();
    assert_eq!(task.status, TaskStatus::Completed);
    assert_eq!(punctual.messages().await, []);
    let warned = logged("SIGNUP_ALERT_EMAIL is not set, sign-up alert skipped", json!({"session_id": id}));
    assert_eq!(warned[0]["level"], "WARN");
}

async fn the_early_reminder_comes_after_an_hour_and_the_late_one_after_a_day(database: TestDatabase) {
    let punctual = start(database).await;
    begin(&punctual, "ada@example.com").await;
    punctual.advance(HOUR - Duration::from_secs(1)).await;
    assert_eq!(messages(&punctual, "signup-reminder-early").await.len(), 0);
    punctual.advance(Duration::from_secs(1)).await;
    assert_eq!(messages(&punctual, "signup-reminder-early").await.len(), 1);
    punctual.advance(DAY - HOUR - Duration::from_secs(1)).await;
    assert_eq!(messages(&punctual, "signup-reminder-late").await.len(), 0);
    punctual.advance(Duration::from_secs(1)).await;
    assert_eq!(messages(&punctual, "signup-reminder-late").await.len(), 1);
    punctual.advance(DAY * 30).await;
    assert_eq!(punctual.messages().await.len(), 3);
}

async fn a_reminder_says_what_other_services_know(database: TestDatabase) {
    let punctual = start(database).await;
    let id = begin(&punctual, "ada@example.com").await;
    punctual.advance(DAY).await;
    for slug in ["signup-reminder-early", "signup-reminder-late"] {
        let [reminder] = messages(&punctual, slug).await.try_into().unwrap();
        let resume_url = format!("https://app.example.com/signup?session={id}");
        assert_eq!(reminder.recipient, "ada@example.com");
        assert_eq!(reminder.dedupe_key, format!("{slug}__{id}"));
        assert_eq!(
            reminder.data,
            json!({
                "templateSlug": slug, "recipient": "ada@example.com", "tenantId": id, "resumeUrl": resume_url,
                "dedupeKey": format!("{slug}__{id}"),
            })
        );
        assert!(reminder.text.contains(&resume_url), "{}", reminder.text);
    }
}

async fn reminders_lead_to_the_usual_dashboard_unless_it_is_said(database: TestDatabase) {
    for (said, begins) in
        [(None, "https://app.leadmetrics.ai/signup?"), (Some("http://a.example/"), "http://a.example/signup?")]
    {
        let setup = setup(Signup).database(database.clone());
        let setup = if let Some(said) = said { setup.setting("DASHBOARD_URL", said) } else { setup };
        let punctual = setup.start().await;
        begin(&punctual, "ada@example.com").await;
        punctual.advance(HOUR).await;
        let reminder = messages(&punctual, "signup-reminder-early").await.pop().unwrap();
        assert!(reminder.data["resumeUrl"].as_str().unwrap().starts_with(begins), "{reminder:?}");
        punctual.stop().await;
    }
}

async fn a_finished_sign_up_is_reminded_of_no_more(database: TestDatabase) {
    let punctual = start(database).await;
    let id = begin(&punctual, "ada@example.com").await;
    let path = format!("/sessions/{id}");
    assert_eq!(punctual.delete(&path).await.status, 204);
    assert_eq!((punctual.get(&path).await.status, punctual.delete(&path).await.status), (404, 404));
    punctual.advance(DAY).await;
    for topic in &TOPICS[1..] {
        let [task] = punctual.tasks(topic).await.try_into().unwrap();
        assert_eq!((task.status, task.error), (TaskStatus::Completed, None), "{topic}");
    }
    assert_eq!(punctual.messages().await.len(), 1);
}

async fn whoever_came_past_step_3_is_not_reminded(database: TestDatabase) {
    let punctual = start(database).await;
    for (stage, reminders) in [("step_2", 1), ("step_3", 1), ("step_4", 0), ("complete", 0)] {
        let email = format!("{stage}@example.com");
        let id = begin(&punctual, &email).await;
        let advanced = punctual.patch(&format!("/sessions/{id}"), json!({ "currentStage": stage })).await;
        assert_eq!((advanced.status, advanced.text("currentStage")), (200, stage));
        punctual.advance(HOUR).await;
        let reminded = messages(&punctual, "signup-reminder-early").await;
        assert_eq!(reminded.iter().filter(|message| message.recipient == email).count(), reminders, "{stage}");
    }
}

async fn a_reminder_that_is_repeated_is_sent_once(database: TestDatabase) {
    let punctual = start(database).await;
    let id = begin(&punctual, "ada@example.com").await;
    for _ in 0..3 {
        let payload = json!({"sessionId": id, "email": "ada@example.com"});
        assert_eq!(punctual.run("signup.reminder.early", payload).await.status, TaskStatus::Completed);
    }
    assert_eq!(messages(&punctual, "signup-reminder-early").await.len(), 1);
}

async fn a_task_that_fails_is_not_tried_again(database: TestDatabase) {
    let punctual = start(database).await;
    let id = punctual.enqueue(NewTask::new("signup.reminder.early").payload(json!({"sessionId": 7}))).await;
    let failed = punctual.task(id).await;
    assert_eq!((failed.status, failed.outcomes.len()), (TaskStatus::Failed, 1));
    assert!(failed.error.unwrap().contains("invalid type"));
    punctual.advance(DAY).await;
    assert_eq!(punctual.task(id).await.outcomes.len(), 1);
}

async fn a_reminder_waits_for_a_mail_server_that_is_down(database: TestDatabase) {
    let punctual = start(database).await;
    begin(&punctual, "ada@example.com").await;
    punctual.advance(HOUR / 2).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.advance(HOUR).await;
    assert_eq!(messages(&punctual, "signup-reminder-early").await.len(), 0);
    punctual.fail_messages(None);
    punctual.advance(HOUR).await;
    assert_eq!(messages(&punctual, "signup-reminder-early").await.len(), 1);
}

/// Nodes of two versions work side by side while one after the other is upgraded.
async fn a_column_that_a_newer_version_adds_changes_nothing(database: TestDatabase) {
    /// More often than there are connections, of which each prepares its statements by itself.
    const MANY: usize = 20;
    let punctual = start(database).await;
    let paths = [format!("/sessions/{}", begin(&punctual, "ada@example.com").await), "/sessions".to_owned()];
    let read = async || [punctual.get(&paths[0]).await.body, punctual.get(&paths[1]).await.body];
    let before = read().await;
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
    let add = "ALTER TABLE signup_sessions ADD COLUMN newer TEXT";
    punctual.execute(add, add).await;
    for _ in 0..MANY {
        assert_eq!(read().await, before);
    }
}

on_both_databases![
    a_sign_up_is_a_session_and_three_tasks,
    a_sign_up_that_cannot_be_planned_never_was,
    the_same_call_under_one_idempotency_key_begins_one,
    bad_sessions_are_refused_by_field,
    the_sales_hear_of_it_at_once,
    one_address_makes_one_alert,
    the_alert_goes_out_even_if_the_session_is_gone,
    without_an_address_the_alert_is_skipped_with_a_warning,
    the_early_reminder_comes_after_an_hour_and_the_late_one_after_a_day,
    a_reminder_says_what_other_services_know,
    reminders_lead_to_the_usual_dashboard_unless_it_is_said,
    a_finished_sign_up_is_reminded_of_no_more,
    whoever_came_past_step_3_is_not_reminded,
    a_reminder_that_is_repeated_is_sent_once,
    a_task_that_fails_is_not_tried_again,
    a_reminder_waits_for_a_mail_server_that_is_down,
    a_column_that_a_newer_version_adds_changes_nothing,
];
