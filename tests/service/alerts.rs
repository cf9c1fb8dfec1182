//! Alerts, as whoever gets them sees them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use punctual_domain::clock::{Clock, FakeClock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::in_process::InProcess;
use crate::on_each_database;
use crate::receiver::Receiver;
use crate::support::{Database, MailServer, Past, Samples};

on_each_database!(
    a_stuck_outbox_is_told_by_mail_and_webhook_once,
    without_an_address_an_alert_is_logged_and_kept,
    a_stuck_email_log_is_told_once,
);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A service with a message that has waited for half an hour and a minute, for a transport that nobody has set up.
async fn stuck(database: &Database, variables: &[(&str, &str)]) -> InProcess {
    // Signatures must not be old in the end.
    let clock = FakeClock::at(Utc::now() - TimeDelta::minutes(31));
    let past = Past::by(database, Some(Arc::new(clock.clone()))).await;
    past.message("stuck", "queue", json!({"subject": "x", "text": "y"})).await;
    past.close().await;
    let service = InProcess::start_with(database, clock, variables).await;
    service.clock.advance(TimeDelta::minutes(31));
    let clock = service.clock.clone();
    // Whoever looked just before then looks again.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            clock.advance(TimeDelta::seconds(1));
        }
    });
    service
}

async fn outbox(service: &InProcess) -> Vec<Value> {
    let listed = service.send(Method::GET, "/api/v1/outbox", "").await.json();
    listed["items"].as_array().unwrap().clone()
}

async fn a_stuck_outbox_is_told_by_mail_and_webhook_once(database: Database) {
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let mut receiver = Receiver::start().await;
    let smtp = format!("smtp://127.0.0.1:{}", mails.port);
    let variables = [
        ("SMTP_URL", smtp.as_str()),
        ("ADMIN_ALERT_EMAIL", "admin@example.org"),
        ("ADMIN_ALERT_WEBHOOK_URL", receiver.url.as_str()),
        ("NOTIFY_WEBHOOK_SECRETS", SECRET),
        ("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8"),
    ];
    let service = stuck(&database, &variables).await;
    let call = receiver.next().await;
    let mail = mails.next();
    assert_eq!(mail["to"], json!(["admin@example.org"]));
    assert_eq!(mail["subject"], "Punctual: 1 message waits to be sent");
    assert!(call.is_signed_with(SECRET));
    let said = call.json();
    assert_eq!((&said["type"], &said["data"]["data"]), (&json!("alert"), &json!({"cause": "outbox_stuck"})));
    assert_eq!(said["data"]["text"], mail["text"].as_str().unwrap().trim_end().replace("\r\n", "\n"));
    let counted = Samples::of(&service.send(Method::GET, "/metrics", "").await.text);
    assert_eq!(counted.value(r#"punctual_alerts_total{cause="outbox_stuck"}"#), Some(1.0));
    for _ in 0..10 {
        service.clock.advance(TimeDelta::minutes(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(outbox(&service).await.len(), 3);
    service.stop().await;
    assert_eq!((mails.taken().len(), receiver.unasked()), (0, 0));
}

async fn without_an_address_an_alert_is_logged_and_kept(database: Database) {
    let service = stuck(&database, &[]).await;
    let asked_at = Instant::now();
    let alert = loop {
        let messages = outbox(&service).await;
        if messages[0]["status"] == "sent" {
            break messages[0].clone();
        }
        assert!(asked_at.elapsed() < Duration::from_secs(30), "nobody is told: {messages:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((&alert["transport"], &alert["recipient"]), (&json!("log"), &json!("admin")));
    assert_eq!(alert["body"]["subject"], "Punctual: 1 message waits to be sent");
    service.stop().await;
}

async fn a_stuck_email_log_is_told_once(database: Database) {
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let smtp = format!("smtp://127.0.0.1:{}", mails.port);
    let variables =
        [("PUNCTUAL_PLUGINS", "clearpath"), ("SMTP_URL", smtp.as_str()), ("ADMIN_ALERT_EMAIL", "admin@example.org")];
    let clock = FakeClock::at(Utc::now());
    let service = InProcess::start_with(&database, clock, &variables).await;
    let found = service.send(Method::GET, "/api/v1/schedules?name=emailQueue", "").await.json();
    let pause = format!("/api/v1/schedules/{}/pause", found["items"][0]["id"].as_str().unwrap());
    assert_eq!(service.send(Method::POST, &pause, "").await.status, 200);
    let activated_at = (service.clock.now() - TimeDelta::days(40)).to_rfc3339();
    let session = json!({"name": "Ada", "email": "ada@example.org", "activatedAt": activated_at}).to_string();
    assert_eq!(service.send(Method::POST, "/api/v1/plugins/clearpath/sessions", &session).await.status, 201);
    let causes = async || {
        let messages = outbox(&service).await;
        messages.iter().map(|message| message["body"]["data"]["cause"].clone()).collect::<Vec<_>>()
    };
    // What was late when it was written has not been stuck since then.
    for _ in 0..29 {
        service.clock.advance(TimeDelta::minutes(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(causes().await, Vec::<Value>::new());
    let asked_at = Instant::now();
    while causes().await.is_empty() {
        service.clock.advance(TimeDelta::seconds(10));
        assert!(asked_at.elapsed() < Duration::from_secs(30), "nobody is told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mail = mails.next();
    assert_eq!(mail["to"], json!(["admin@example.org"]));
    assert_eq!(mail["subject"], "Punctual: 1 e-mail waits in the email_log");
    let counted = Samples::of(&service.send(Method::GET, "/metrics", "").await.text);
    assert_eq!(counted.value(r#"punctual_alerts_total{cause="email_log_stuck"}"#), Some(1.0));
    for _ in 0..10 {
        service.clock.advance(TimeDelta::minutes(5));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(causes().await, ["email_log_stuck"]);
    service.stop().await;
    assert_eq!(mails.taken().len(), 0);
}
