//! What others wrote is shown, and never runs.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Visit, YEARLY, escaped, failed_task, make};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(what_others_wrote_is_escaped_everywhere, a_page_stays_small_however_large_and_deep_a_payload_is,);

async fn a_page_stays_small_however_large_and_deep_a_payload_is(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let deep = format!("{}\"<>\"{}", "[".repeat(100), "]".repeat(100));
    let deep = format!("[{}{deep}]", format!("{deep},").repeat(4_900));
    let task = server.make_task(&format!(r#"{{"topic":"mail","delayMs":3600000,"payload":{deep}}}"#)).await;
    let schedule: Value = serde_json::from_str(YEARLY).unwrap();
    let schedule = schedule.to_string().replacen('{', &format!(r#"{{"payload":{deep},"#), 1);
    let id = make(&server, &schedule).await;
    for (path, whole) in [("tasks", task["id"].as_str().unwrap()), ("schedules", &*id)] {
        let page = visit.page(&format!("/{path}/{whole}")).await;
        assert!(page.len() < 512 * 1024, "{path}: {} bytes", page.len());
        assert!(page.contains(&format!("href=\"/api/v1/{path}/{whole}\"")), "the whole of it is a link away");
        assert!(server.get(&format!("/api/v1/{path}/{whole}")).await.text.contains(&deep), "{path}");
    }
    // A form has all of it, as it was written.
    let form = visit.page(&format!("/schedules/{id}/edit")).await;
    assert!(form.len() < 2 * 1024 * 1024 && form.contains(&deep.replace("<>", "&lt;&gt;").replace('"', "&quot;")));
    server.stop();
}

async fn what_others_wrote_is_escaped_everywhere(database: Database) {
    const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let mut schedule: Value = serde_json::from_str(YEARLY).unwrap();
    for (field, value) in [
        ("name", json!(HOSTILE)),
        ("description", json!(HOSTILE)),
        ("payload", json!({HOSTILE: HOSTILE})),
        ("metadata", json!({"ownerId": HOSTILE})),
        ("createdBy", json!(HOSTILE)),
    ] {
        schedule[field] = value;
    }
    let id = make(&server, &schedule.to_string()).await;
    let note = json!({"note": HOSTILE}).to_string();
    assert_eq!(server.post(&format!("/api/v1/schedules/{id}/pause"), note).await.status, 200);
    let failed = failed_task(&server, "pulled", HOSTILE).await;
    let task = json!({"topic": "mail", "delayMs": 3_600_000, "payload": HOSTILE, "dedupeKey": HOSTILE,
        "serialKey": HOSTILE, "clientRequestId": HOSTILE, "metadata": {"tenantId": HOSTILE}});
    let task = server.make_task(&task.to_string()).await["id"].as_str().unwrap().to_owned();
    let query = escaped(HOSTILE);
    for path in [
        "/".to_owned(),
        "/schedules".to_owned(),
        format!("/schedules?name={query}"),
        format!("/schedules/{id}"),
        format!("/schedules/{id}/edit"),
        format!("/schedules/{id}/delete"),
        format!("/schedules/{id}/backfill"),
        "/schedules/calendar?month=2040-01".to_owned(),
        "/tasks".to_owned(),
        format!("/tasks?ownerId={query}&tenantId={query}"),
        format!("/tasks/bulk?action=cancel&tenantId={query}"),
        format!("/tasks/{failed}"),
        format!("/tasks/{task}"),
        format!("/tasks?topic={query}"),
        format!("/{query}"),
    ] {
        let seen = visit.send(Method::GET, &path, &[], &[("accept", "text/html")]).await;
        assert!(!seen.status.is_server_error(), "{path}: {seen:?}");
        for part in ["<script>alert", "<img src=x", "\"'>"] {
            assert!(!seen.text.contains(part), "{path}: {}", seen.text);
        }
    }
    let form = [("name", HOSTILE), ("topic", HOSTILE), ("cronExpression", HOSTILE), ("timezone", HOSTILE)];
    for path in ["/schedules/new", "/schedules/preview", &format!("/schedules/{id}/pause")] {
        let seen = visit.post(path, &form).await;
        assert!(!seen.text.contains("<script>alert") && !seen.text.contains("<img src=x"), "{path}: {}", seen.text);
    }
    server.stop();
}
