//! E-mails by way of a real mail server, and of Resend's API.

use serde_json::{Value, json};

use crate::messages::until;
use crate::receiver::Receiver;
use crate::support::{Database, MailServer, Past, Server, beside_us};

/// A service that sends by that mail server.
fn serve(database: &Database, smtp_url: &str) -> Server {
    let variables = [("SMTP_URL", smtp_url), ("MAIL_FROM", "Punctual <punctual@example.com>")];
    let authority = beside_us("tls/ca.pem");
    Server::start_with(database, |command| command.envs(variables).env("SSL_CERT_FILE", authority))
}

/// Posts a message to this recipient before the service starts.
async fn posted(database: &Database, recipient: &str, body: Value) -> String {
    let past = Past::of(database).await;
    let id = past.message_to(recipient, "key é", "smtp", body).await;
    past.close().await;
    id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_arrives_as_it_was_written() {
    let database = Database::sqlite();
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let body = json!({"subject": "Grüße 🎉", "text": "Hällo\n.\nWorld", "html": "<p>Hällo</p>"});
    let id = posted(&database, "Ada <ada@example.org>", body).await;
    let server = serve(&database, &format!("smtp://127.0.0.1:{}", mails.port));
    let mail = mails.next();
    assert_eq!((&mail["from"], &mail["to"]), (&json!("punctual@example.com"), &json!(["ada@example.org"])));
    assert_eq!((&mail["subject"], &mail["toHeader"]), (&json!("Grüße 🎉"), &json!("Ada <ada@example.org>")));
    assert_eq!(mail["text"].as_str().unwrap().replace("\r\n", "\n").trim_end(), "Hällo\n.\nWorld");
    assert_eq!(mail["html"].as_str().unwrap().trim_end(), "<p>Hällo</p>");
    let sent = until(&server, &id, "sent").await;
    assert_eq!(sent["providerId"], mail["messageId"]);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_and_emails_go_over_encrypted_connections() {
    for (tls, url) in
        [("starttls", "smtp://me:sword%2Ffish@localhost:{}"), ("implicit", "smtps://me:sword%2Ffish@localhost:{}")]
    {
        let database = Database::sqlite();
        let Some(mut mails) = MailServer::start(&json!({"tls": tls, "auth": true})) else { return };
        posted(&database, "ada@example.org", json!({"subject": "x", "text": "y"})).await;
        let server = serve(&database, &url.replace("{}", &mails.port.to_string()));
        let mail = mails.next();
        assert_eq!((&mail["encrypted"], &mail["authenticated"]), (&json!(true), &json!(true)), "{tls}");
        server.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_refused_is_tried_again_and_never_shown() {
    let database = Database::sqlite();
    let Some(mails) = MailServer::start(&json!({"auth": true})) else { return };
    let id = posted(&database, "ada@example.org", json!({"subject": "x", "text": "y"})).await;
    let mut server = serve(&database, &format!("smtp://me:swordfish@127.0.0.1:{}", mails.port));
    server.process.wait_for_log("message not sent, tried again");
    let message = server.get(&format!("/api/v1/outbox/{id}")).await;
    assert_eq!(message.json()["status"], "pending");
    assert!(message.text.contains("535") && !message.text.contains("swordfish"), "{}", message.text);
    assert!(!server.process.log().iter().any(|line| line.contains("swordfish")));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_for_good_fails_and_what_it_puts_off_is_tried_again() {
    let database = Database::sqlite();
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let id = posted(&database, "refused-for-good@example.org", json!({"subject": "x", "text": "y"})).await;
    let past = Past::of(&database).await;
    let put_off =
        past.message_to("refused-once@example.org", "other", "smtp", json!({"subject": "x", "text": "y"})).await;
    past.close().await;
    let mut server = serve(&database, &format!("smtp://127.0.0.1:{}", mails.port));
    let failed = until(&server, &id, "failed").await;
    assert!(failed["error"].as_str().unwrap().contains("nobody of that name"), "{failed}");
    server.process.wait_for_log("message not sent, tried again");
    // Nobody has to wait for the back-off here.
    database.execute("UPDATE punctual_outbox SET next_attempt_at = 0 WHERE status = 'pending'").await;
    server.post(&format!("/api/v1/outbox/{id}/retry"), "").await;
    until(&server, put_off, "sent").await;
    assert_eq!(mails.next()["to"], json!(["refused-once@example.org"]));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_too_late_gets_no_other_email_mixed_into_that_one() {
    let database = Database::sqlite();
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let late = posted(&database, "late-once@example.org", json!({"subject": "x", "text": "y"})).await;
    let url = format!("smtp://127.0.0.1:{}", mails.port);
    let mut server = Server::start_with(&database, |command| {
        let plugin = [("PUNCTUAL_PLUGINS", "signup"), ("SIGNUP_ALERT_EMAIL", "sales@example.org")];
        // Who sends waits for three seconds.
        command.envs(plugin).envs([("SMTP_URL", url.as_str()), ("PUNCTUAL_LEASE_SECONDS", "1")])
    });
    server.process.wait_for_log("message not sent, tried again");
    for n in 0..3 {
        let session = json!({"email": format!("ada{n}@example.org")}).to_string();
        assert_eq!(server.post("/api/v1/plugins/signup/sessions", session).await.status, 201);
    }
    let mut arrived = Vec::new();
    while arrived.len() < 4 {
        let mail = mails.next();
        let letter = (mail["to"][0].clone(), mail["subject"].clone(), mail["messageId"].clone());
        // The late one may come again: nobody heard that it was taken.
        if !arrived.contains(&letter) {
            arrived.push(letter);
        }
    }
    until(&server, &late, "sent").await;
    let failed = server.get("/api/v1/outbox?status=failed").await.json();
    assert_eq!(failed["items"], json!([]));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_is_told_the_same_key_on_every_try() {
    let database = Database::sqlite();
    let mut resend = Receiver::start().await;
    resend.answer(429, &[("retry-after", "0")], "slow down");
    resend.answer(200, &[], r#"{"id":"49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}"#);
    let past = Past::of(&database).await;
    let body = json!({"subject": "Grüße", "text": "Hällo", "html": "<p>Hällo</p>"});
    let id = past.message_to("Ada <ada@example.org>", "welcome__7", "resend", body).await;
    past.close().await;
    let variables = [
        ("RESEND_API_KEY", "re_swordfish"),
        ("RESEND_URL", resend.url.as_str()),
        ("MAIL_FROM", "Punctual <punctual@example.com>"),
    ];
    let mut server = Server::start_with(&database, |command| command.envs(variables));
    let (first, second) = (resend.next().await, resend.next().await);
    assert_eq!((first.path.as_str(), first.header("authorization")), ("/emails", "Bearer re_swordfish"));
    let key = first.header("idempotency-key");
    assert!(key.ends_with("@example.com"), "{key}");
    assert_eq!((key, &first.body), (second.header("idempotency-key"), &second.body));
    let expected = json!({
        "from": "Punctual <punctual@example.com>", "to": ["Ada <ada@example.org>"], "subject": "Grüße", "text": "Hällo",
        "html": "<p>Hällo</p>", "headers": {"Message-ID": format!("<{key}>")},
    });
    assert_eq!(first.json(), expected);
    let sent = until(&server, id, "sent").await;
    assert_eq!(sent["providerId"], "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794");
    assert!(!server.process.log().iter().any(|line| line.contains("swordfish")));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_that_waits_for_a_server_that_is_gone_is_sent_by_what_took_its_place() {
    let database = Database::sqlite();
    let mut resend = Receiver::start().await;
    resend.answer(200, &[], r#"{"id":"49a3999c"}"#);
    let past = Past::of(&database).await;
    let id = past.message_to("ada@example.org", "welcome__7", "smtp", json!({"subject": "x", "text": "y"})).await;
    let logged = past.message_to("ada@example.org", "logged", "queue", json!({"subject": "x", "text": "y"})).await;
    past.close().await;
    // Where nothing sends e-mails, they are not lost to the log.
    let server = Server::start(&database);
    assert_eq!(server.get(&format!("/api/v1/outbox/{id}")).await.json()["transport"], "smtp");
    server.stop();
    let variables = [("RESEND_API_KEY", "re_swordfish"), ("RESEND_URL", resend.url.as_str())];
    let server = Server::start_with(&database, |command| command.envs(variables));
    let sent = until(&server, id, "sent").await;
    assert_eq!((&sent["transport"], &sent["providerId"]), (&json!("resend"), &json!("49a3999c")));
    assert_eq!(resend.next().await.json()["to"], json!(["ada@example.org"]));
    assert_eq!(server.get(&format!("/api/v1/outbox/{logged}")).await.json()["transport"], "queue");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_a_webhook_are_signed_and_repeated_under_one_id() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let database = Database::sqlite();
    let mut receiver = Receiver::start().await;
    receiver.answer(503, &[("retry-after", "0")], "");
    let past = Past::of(&database).await;
    let id = past.message("welcome__7", "webhook", json!({"subject": "Hello", "text": "you", "data": {"n": 1}})).await;
    past.close().await;
    let variables = [
        ("NOTIFY_WEBHOOK_URL", receiver.url.as_str()),
        ("NOTIFY_WEBHOOK_SECRETS", SECRET),
        ("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8"),
    ];
    let server = Server::start_with(&database, |command| command.envs(variables));
    for _ in 0..2 {
        let call = receiver.next().await;
        assert!(call.is_signed_with(SECRET));
        assert_eq!(call.header("webhook-id"), id.to_string());
        let said = call.json();
        assert_eq!(said["type"], "notification");
        let expected = json!({
            "recipient": "ada@example.com", "dedupeKey": "welcome__7", "subject": "Hello", "text": "you", "html": null,
            "templateSlug": null, "data": {"n": 1},
        });
        assert_eq!(said["data"], expected);
    }
    until(&server, id, "sent").await;
    server.stop();
}
