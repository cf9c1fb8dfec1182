//! What operations says of whoever sends for it, with one that is real.

use serde_json::{Value, json};

use crate::on_each_database;
use crate::receiver::Receiver;
use crate::support::{Database, Server};

on_each_database!(a_failure_names_the_provider_that_refused);

async fn a_failure_names_the_provider_that_refused(database: Database) {
    let mut resend = Receiver::start().await;
    resend.answer(422, &[], r#"{"message":"not an address"}"#);
    let mut server = Server::start_with(&database, |command| {
        let resend = [("RESEND_API_KEY", "re_swordfish"), ("RESEND_URL", resend.url.as_str())];
        command.env("PUNCTUAL_PLUGINS", "operations").envs(resend)
    });
    let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(5);
    let event = json!({
        "title": "Stand-up", "startDate": soon.to_rfc3339(), "creator": {"name": "Ada", "email": "ada@example.com"},
    });
    let made = server.post("/api/v1/plugins/operations/events", event.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let line: Value = serde_json::from_str(&server.process.wait_for_log("notifications.sender.failed")).unwrap();
    assert_eq!(
        [&line["level"], &line["provider"], &line["recipient"], &line["templateKey"]],
        ["ERROR", "resend", "ada@example.com", "operations-event-start"]
    );
    assert!(line["error"].as_str().unwrap().contains("not an address"), "{line}");
    let line: Value = serde_json::from_str(&server.process.wait_for_log("notifications.operations.failed")).unwrap();
    assert_eq!(line["errorName"], "NotificationError");
    assert_eq!(resend.next().await.json()["to"], json!(["ada@example.com"]));
    server.stop();
}
