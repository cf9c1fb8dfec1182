//! Messages on their way out, seen from outside.

use serde_json::{Value, json};

use crate::support::{Database, Past, Server};

crate::on_each_database_and_pooler!(
    a_message_is_written_to_the_log_and_can_be_read,
    a_message_that_cannot_be_sent_fails_and_can_be_retried
);

/// Waits until the message has that status.
pub(crate) async fn until(server: &Server, id: impl std::fmt::Display, status: &str) -> Value {
    loop {
        let message = server.get(&format!("/api/v1/outbox/{id}")).await.json();
        if message["status"] == status {
            return message;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn a_message_is_written_to_the_log_and_can_be_read(database: Database) {
    let past = Past::of(&database).await;
    let id = past.message("welcome__7", "log", json!({"subject": "Welcome", "text": "Good to have you."})).await;
    past.close().await;
    let mut server = Server::start(&database);
    let sent = until(&server, id, "sent").await;
    assert_eq!(sent["body"], json!({"subject": "Welcome", "text": "Good to have you."}));
    assert_eq!((&sent["attempt"], &sent["recipient"]), (&json!(1), &json!("ada@example.com")));
    assert_eq!((&sent["dedupeKey"], &sent["providerId"]), (&json!("welcome__7"), &json!(id.to_string())));
    let logged: Value = serde_json::from_str(&server.process.wait_for_log("Good to have you.")).unwrap();
    assert_eq!(logged["subject"], "Welcome");
    server.get("/api/v1/outbox/nonsense").await.problem(404, "NOT_FOUND");
    server.stop();
}

async fn a_message_that_cannot_be_sent_fails_and_can_be_retried(database: Database) {
    let past = Past::of(&database).await;
    let id = past.message("broken", "log", json!([])).await;
    past.close().await;
    let server = Server::start(&database);
    let failed = until(&server, id, "failed").await;
    assert!(failed["error"].as_str().unwrap().starts_with("the message cannot be read"), "{failed}");
    assert_eq!(failed["nextAttemptAt"], Value::Null);
    let listed = server.get("/api/v1/outbox?status=failed").await.json();
    assert_eq!(listed["items"], json!([failed]));
    let retry = format!("/api/v1/outbox/{id}/retry");
    let retried = server.post(&retry, "").await;
    assert_eq!((retried.status.as_u16(), &retried.json()["status"]), (200, &json!("pending")), "{retried:?}");
    // It was tried again, to no avail.
    let again = until(&server, id, "failed").await;
    assert!(again["completedAt"].as_str() > failed["completedAt"].as_str(), "{again}");
    server.stop();
}
