//! What others wrote is shown, and never runs.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Visit, YEARLY, escaped, failed_task, make, section};
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
    const SHOWN: &str = "&lt;script&gt;alert(1)&lt;/script&gt;";
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
    // One that comes within the hour, one that is in every month too often to be named on its days, and one that is paused.
    for (name, cron) in [("soon", "*/5 * * * *"), ("every second", "* * * * * *"), ("paused", "0 9 * * *")] {
        schedule["name"] = format!("{name} {HOSTILE}").into();
        schedule["cronExpression"] = cron.into();
        schedule["topic"] = "quiet".into();
        let id = make(&server, &schedule.to_string()).await;
        if name == "paused" {
            let note = json!({"note": HOSTILE}).to_string();
            assert_eq!(server.post(&format!("/api/v1/schedules/{id}/pause"), note).await.status, 200);
        }
    }
    let failed = failed_task(&server, "pulled", HOSTILE).await;
    let task = json!({"topic": "mail", "delayMs": 3_600_000, "payload": HOSTILE, "dedupeKey": HOSTILE,
        "serialKey": HOSTILE, "clientRequestId": HOSTILE, "metadata": {"tenantId": HOSTILE}});
    let task = server.make_task(&task.to_string()).await["id"].as_str().unwrap().to_owned();
    let (query, paused) = (escaped(HOSTILE), escaped(&format!("paused {HOSTILE}")));

    let overview = visit.overview(&format!("Next, beside what fires all the time: soon {SHOWN}")).await;
    let ahead = section(&overview, "ahead");
    for part in [format!("every second {SHOWN}"), format!("min: soon {SHOWN}"), format!(">soon {SHOWN}")] {
        assert!(ahead.contains(&part), "{part}: {ahead}");
    }
    assert!(section(&overview, "failures").contains(SHOWN), "{overview}");
    is_escaped("/", &overview);
    let day = format!("title=\"{SHOWN}&quot;'&gt;&lt;img src=x onerror=alert(2)&gt; at ");
    for (path, part) in [
        ("/schedules".to_owned(), SHOWN),
        (format!("/schedules?name={query}"), SHOWN),
        (format!("/schedules?name={paused}"), SHOWN),
        (format!("/schedules/{id}"), SHOWN),
        (format!("/schedules/{id}/edit"), SHOWN),
        (format!("/schedules/{id}/delete"), SHOWN),
        (format!("/schedules/{id}/backfill"), SHOWN),
        ("/schedules/calendar?month=2040-01".to_owned(), &*day),
        ("/schedules/calendar?month=2040-02".to_owned(), &*format!(">soon {SHOWN}")),
        ("/tasks".to_owned(), SHOWN),
        (format!("/tasks?ownerId={query}&tenantId={query}"), SHOWN),
        (format!("/tasks/bulk?action=cancel&tenantId={query}"), SHOWN),
        (format!("/tasks/bulk?action=retry&correlationId={query}"), SHOWN),
        (format!("/tasks/{failed}"), SHOWN),
        (format!("/tasks/{task}"), SHOWN),
        ("/failures".to_owned(), SHOWN),
        (format!("/failures?topic=pulled&cause={query}"), SHOWN),
        (format!("/audit?actor={query}"), SHOWN),
        // What is no address is not repeated.
        (format!("/tasks?topic={query}"), ""),
        (format!("/{query}"), ""),
    ] {
        let seen = visit.send(Method::GET, &path, &[], &[("accept", "text/html")]).await;
        assert!(!seen.status.is_server_error() && seen.text.contains(part), "{path}: {seen:?}");
        is_escaped(&path, &seen.text);
    }
    let form = [("name", HOSTILE), ("topic", HOSTILE), ("cronExpression", HOSTILE), ("timezone", HOSTILE)];
    for path in ["/schedules/new", "/schedules/preview", "/keys"] {
        let seen = visit.post(path, &form).await;
        assert!(seen.text.contains(SHOWN), "{path}: {seen:?}");
        is_escaped(path, &seen.text);
    }
    // It stands in what the page says then, too.
    let (path, page) = visit.done(&format!("/schedules/{id}/pause"), &[("note", HOSTILE)]).await;
    assert!(page.contains(&format!("“{SHOWN}")) && page.contains(&format!("Paused: {SHOWN}")), "{page}");
    is_escaped(&path, &page);
    server.stop();
}

/// Checks that nothing of it has become a part of the page.
fn is_escaped(path: &str, page: &str) {
    for part in ["<script>alert", "<img src=x", "\"'>"] {
        assert!(!page.contains(part), "{path}: {page}");
    }
}
