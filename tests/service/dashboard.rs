//! The dashboard over HTTP: every page, every form, who may do what, and that nothing of others' making runs in it.

use punctual_domain::key::Role;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(
    every_page_answers_and_says_what_it_is_for,
    every_answer_keeps_foreign_content_out,
    a_schedule_is_made_edited_and_deleted,
    a_schedule_is_paused_resumed_and_triggered,
    a_backfill_counts_first,
    a_preview_marks_gaps_and_folds,
    a_task_is_cancelled_rescheduled_and_retried,
    many_tasks_are_changed_after_they_were_counted,
    what_others_wrote_is_escaped_everywhere,
    every_route_needs_its_role_and_no_more,
    a_key_opens_a_session_and_its_end_closes_it,
    forms_of_other_sites_are_refused,
    a_form_is_audited_as_the_call_that_it_makes,
);

const NOWHERE: &str = "018f0000-0000-7000-8000-000000000000";
const YEARLY: &str = r#"{"name":"yearly","cronExpression":"0 0 1 1 *","timezone":"America/Edmonton","topic":"echo"}"#;

/// A browser without scripts: it keeps its cookies by hand, and does not follow where it is led.
struct Visit<'a> {
    server: &'a Server,
    client: Client,
    key: Option<String>,
}

/// What a page answered.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    location: String,
    cookies: Vec<String>,
    policy: String,
    text: String,
}

impl<'a> Visit<'a> {
    fn of(server: &'a Server) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { server, client, key: None }
    }

    fn with_key(server: &'a Server, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::of(server) }
    }

    async fn send(&self, method: Method, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Seen {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.server.url));
        if method == Method::POST {
            let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
            request = request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        }
        if let Some(key) = &self.key {
            request = request.header("cookie", format!("punctual_session={key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let header = |name: &str| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let cookies = response.headers().get_all("set-cookie");
        Seen {
            status: response.status(),
            location: header("location"),
            policy: header("content-security-policy"),
            cookies: cookies.iter().map(|cookie| cookie.to_str().unwrap().to_owned()).collect(),
            text: response.text().await.unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Seen {
        self.send(Method::GET, path, &[], &[]).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.send(Method::POST, path, fields, &[]).await
    }

    /// A page that is there.
    async fn page(&self, path: &str) -> String {
        let seen = self.get(path).await;
        assert_eq!(seen.status, 200, "{path}: {seen:?}");
        seen.text
    }

    /// Sends a form that does what it should, and answers where it leads and the page there, with its notice.
    async fn done(&self, path: &str, fields: &[(&str, &str)]) -> (String, String) {
        let seen = self.post(path, fields).await;
        assert_eq!(seen.status, 303, "{path}: {seen:?}");
        let notice = seen.cookies.iter().find(|cookie| cookie.starts_with("punctual_notice=")).unwrap();
        let cookie = notice.split(';').next().unwrap();
        let page = self.send(Method::GET, &seen.location, &[], &[("cookie", cookie)]).await;
        assert_eq!(page.status, 200, "{page:?}");
        (seen.location, page.text)
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn make(server: &Server, body: &str) -> String {
    let answer = server.post("/api/v1/schedules", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn api(server: &Server, path: &str) -> Value {
    server.get(path).await.json()
}

/// A task that failed.
async fn failed_task(server: &Server, topic: &str, error: &str) -> String {
    server.put_topic(topic, r#"{"route":{"type":"pull"}}"#).await;
    server.make_task(&json!({"topic": topic}).to_string()).await;
    let claim = json!({"topics": [topic], "waitMs": 10_000}).to_string();
    let task = server.post("/api/v1/claims", claim).await.json()["tasks"][0].clone();
    let id = task["id"].as_str().unwrap().to_owned();
    let fail = json!({"epoch": task["epoch"], "error": error, "final": true}).to_string();
    assert_eq!(server.post(&format!("/api/v1/tasks/{id}/fail"), fail).await.status, 200);
    id
}

async fn every_page_answers_and_says_what_it_is_for(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    server.wait_for("/api/v1/nodes", |nodes| nodes["items"][0]["leader"] == true).await;
    let overview = visit.page("/").await;
    for part in ["No schedule is enabled", "The next hour", "No task failed in the last 24 hours", "leads", "<nav"] {
        assert!(overview.contains(part), "{part}: {overview}");
    }
    assert!(visit.page("/schedules").await.contains("There are no schedules yet"));
    assert!(visit.page("/tasks").await.contains("There are no tasks yet"));
    assert!(visit.page("/schedules/calendar").await.contains("No schedule fires in this month"));
    assert!(visit.page("/schedules/calendar?month=2031-02").await.contains("February 2031"));

    let id = make(&server, YEARLY).await;
    let task = failed_task(&server, "mail.welcome", "no user 17 here").await;
    let list = visit.page("/schedules").await;
    for part in ["yearly", "0 0 1 1 *", "America/Edmonton", "none yet", "Pause", "Trigger"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    assert!(visit.page("/schedules?enabled=false").await.contains("No schedule matches"));
    let schedule = visit.page(&format!("/schedules/{id}")).await;
    for part in ["yearly", "Next fires", "It has not fired yet", "Definition", "Trigger now", "Backfill…", "Delete…"]
    {
        assert!(schedule.contains(part), "{part}: {schedule}");
    }
    assert!(visit.page("/schedules/calendar?month=2040-01").await.contains("yearly"));
    assert!(visit.page(&format!("/schedules/{id}/edit")).await.contains("value=\"0 0 1 1 *\""));
    let tasks = visit.page("/tasks?status=failed&topic=mail.welcome").await;
    for part in [task.as_str(), "no user 17 here", "Retry failed…"] {
        assert!(tasks.contains(part), "{part}: {tasks}");
    }
    let shown = visit.page(&format!("/tasks/{task}")).await;
    for part in ["Why it failed", "no user 17 here", "Attempt 1", "Payload", "What became of it"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = visit.get(&format!("/tasks?id=%20{task}")).await;
    assert_eq!((found.status.as_u16(), found.location), (303, format!("/tasks/{task}")));
    assert_eq!(visit.get("/tasks?id=unknown").await.location, "/tasks");

    let waiting = server.make_task(r#"{"topic":"mail.welcome","delayMs":3600000}"#).await;
    let waiting = visit.page(&format!("/tasks/{}", waiting["id"].as_str().unwrap())).await;
    assert!(waiting.contains("Why is this not running?") && waiting.contains("Reschedule"), "{waiting}");

    assert!(overview.len() < 150 * 1024);
    for (path, status) in [
        ("/nowhere", 404),
        ("/schedules/none", 404),
        (&*format!("/schedules/{NOWHERE}"), 404),
        (&*format!("/tasks/{NOWHERE}"), 404),
        ("/tasks?colour=red", 400),
        ("/tasks?status=done", 400),
        ("/schedules/calendar?month=13", 400),
        ("/assets/other.css", 404),
    ] {
        let seen = visit.send(Method::GET, path, &[], &[("accept", "text/html")]).await;
        assert_eq!(seen.status.as_u16(), status, "{path}");
        assert!(seen.text.starts_with("<!DOCTYPE html>"), "{path}: {seen:?}");
    }
    server.stop();
}

async fn every_answer_keeps_foreign_content_out(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    for path in ["/", "/schedules", "/tasks", "/nowhere", "/login", "/schedules/new"] {
        let seen = visit.send(Method::GET, path, &[], &[("accept", "text/html")]).await;
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(seen.policy.contains(part), "{path}: {}", seen.policy);
        }
        assert!(!seen.text.contains("style=\"") && !seen.text.contains("<style"), "{path}: nothing inline");
        assert!(!seen.text.contains("http://") && !seen.text.contains("https://"), "{path}: nothing from outside");
    }
    let page = visit.page("/").await;
    for kind in [".css", ".js", ".svg"] {
        let end = page.find(kind).unwrap() + kind.len();
        let begin = page[..end].rfind('"').unwrap() + 1;
        let response = server.request(Method::GET, &page[begin..end]).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    }
    server.stop();
}

async fn a_schedule_is_made_edited_and_deleted(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = [
        ("name", "nightly report"),
        ("topic", "report.nightly"),
        ("rhythm", "cron"),
        ("cronExpression", "0 2 * * *"),
        ("timezone", "Europe/Paris"),
        ("payload", "{\"pages\": 3}"),
        ("enabled", "true"),
        ("maxRetries", "5"),
        ("overlapPolicy", "queue"),
    ];
    let (path, page) = visit.done("/schedules/new", &fields).await;
    assert!(page.contains("was made") && page.contains("nightly report"), "{page}");
    let made = api(&server, &format!("/api/v1{path}")).await;
    for (field, expected) in [
        ("name", json!("nightly report")),
        ("cronExpression", json!("0 2 * * *")),
        ("payload", json!({"pages": 3})),
        ("maxRetries", json!(5)),
        ("overlapPolicy", json!("queue")),
        ("enabled", json!(true)),
    ] {
        assert_eq!(made[field], expected, "{field}");
    }

    let again = visit.post("/schedules/new", &fields).await;
    assert_eq!(again.status, 409);
    assert!(again.text.contains("is taken"), "{again:?}");
    let wrong =
        [("name", "x"), ("topic", "a b"), ("cronExpression", "0 0 30 2 *"), ("timezone", "EST"), ("payload", "{")];
    assert!(visit.post("/schedules/new", &wrong).await.text.contains("is not JSON"));
    let refused = visit.post("/schedules/new", &wrong[..4]).await;
    assert_eq!(refused.status, 400);
    for part in ["America/New_York", "value=\"a b\"", "aria-invalid=\"true\""] {
        assert!(refused.text.contains(part), "{part}: {}", refused.text);
    }

    let edited = [
        ("version", "1"),
        ("name", "nightly report"),
        ("topic", "report.nightly"),
        ("rhythm", "every"),
        ("every", "90m"),
        ("timezone", "Europe/Paris"),
        ("payload", "[]"),
    ];
    let (_, page) = visit.done(&format!("{path}/edit"), &edited).await;
    assert!(page.contains("was changed") && page.contains("every 1h30m"), "{page}");
    let schedule = api(&server, &format!("/api/v1{path}")).await;
    assert_eq!((&schedule["everyMs"], &schedule["cronExpression"]), (&json!(5_400_000), &Value::Null));
    assert_eq!((&schedule["maxRetries"], &schedule["enabled"]), (&json!(3), &json!(true)), "emptied, and left alone");
    let stale = visit.post(&format!("{path}/edit"), &edited).await;
    assert_eq!(stale.status, 412, "somebody edited it in between: {stale:?}");

    assert!(visit.page(&format!("{path}/delete")).await.contains("Delete “nightly report”?"));
    let (location, page) = visit.done(&format!("{path}/delete"), &[("version", "2")]).await;
    assert!(location == "/schedules" && page.contains("was deleted"), "{page}");
    assert_eq!(visit.get(&path).await.status, 404);
    server.stop();
}

async fn a_schedule_is_paused_resumed_and_triggered(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let path = format!("/schedules/{id}");
    let (_, page) = visit.done(&format!("{path}/pause"), &[("note", "holidays"), ("until", "2040-01-01T00:00")]).await;
    assert!(page.contains("is paused") && page.contains("holidays") && page.contains("Resume"), "{page}");
    let paused = api(&server, &format!("/api/v1{path}")).await;
    assert_eq!(paused["pausedUntil"], "2040-01-01T06:00:00.000Z", "read in the schedule's zone");
    let (_, refused) = visit.done(&format!("{path}/pause"), &[("until", "2001-01-01T00:00")]).await;
    assert!(refused.contains("must be in the future"), "{refused}");
    let (_, page) = visit.done(&format!("{path}/resume"), &[]).await;
    assert!(page.contains("fires again"), "{page}");
    let (task, page) = visit.done(&format!("{path}/trigger"), &[]).await;
    assert!(task.starts_with("/tasks/") && page.contains("yearly"), "{page}");
    server.ended_task(task.strip_prefix("/tasks/").unwrap()).await;
    let page = visit.page(&path).await;
    assert!(page.contains("manual") && page.contains("1 completed"), "{page}");
    server.stop();
}

async fn a_backfill_counts_first(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(
        &server,
        r#"{"name":"hourly","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo","enabled":false,
            "startAt":"2020-01-01T00:00:00Z"}"#,
    )
    .await;
    let path = format!("/schedules/{id}/backfill");
    assert!(visit.page(&path).await.contains("Count first"));
    let stretch = [("from", "2026-01-01T00:00"), ("to", "2026-01-01T03:00")];
    let counted = visit.post(&path, &stretch).await;
    assert!(counted.status == 200 && counted.text.contains("Make 3 fires"), "{counted:?}");
    assert_eq!(api(&server, &format!("/api/v1/schedules/{id}/executions")).await["items"], json!([]), "only counted");
    let refused = visit.post(&path, &[("from", "2026-01-01T03:00"), ("to", "2026-01-01T03:00")]).await;
    assert!(refused.text.contains("must be before to"), "{refused:?}");
    let confirmed = [stretch[0], stretch[1], ("confirmed", "true")];
    let (_, page) = visit.done(&path, &confirmed).await;
    assert!(page.contains("3 fires were made"), "{page}");
    let made = api(&server, &format!("/api/v1/schedules/{id}/executions")).await;
    assert_eq!(made["items"].as_array().unwrap().len(), 3);
    server.stop();
}

async fn a_preview_marks_gaps_and_folds(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let fields = |cron: &'static str, start: &'static str| {
        [("rhythm", "cron"), ("cronExpression", cron), ("timezone", "Europe/Paris"), ("startAt", start)]
    };
    for (cron, start, part) in [
        ("30 2 * * *", "2027-03-27T00:00:00Z", "gap: clocks skip"),
        ("30 2 * * *", "2027-10-30T00:00:00Z", "fold: clocks show this time twice"),
        ("0 0 13 * fri", "2027-01-01T00:00:00Z", "either matches"),
        ("0 0 30 2 *", "2027-01-01T00:00:00Z", "class=\"wrong\""),
    ] {
        let seen = visit.post("/schedules/preview", &fields(cron, start)).await;
        let preview = &seen.text[seen.text.find("id=\"preview\"").unwrap()..];
        assert!(seen.status == 200 && preview.contains(part), "{cron}: {preview}");
    }
    assert_eq!(api(&server, "/api/v1/schedules").await["items"], json!([]), "nothing is kept");
    server.stop();
}

async fn a_task_is_cancelled_rescheduled_and_retried(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let later = r#"{"topic":"mail","runAt":"2039-01-01T00:00:00Z","timezone":"America/Edmonton"}"#;
    let task = server.make_task(later).await["id"].as_str().unwrap().to_owned();
    let (moved, page) = visit.done(&format!("/tasks/{task}/reschedule"), &[("runAt", "2040-06-01T12:00")]).await;
    assert!(page.contains("Rescheduled") && page.contains("Instead of"), "{page}");
    assert_eq!(api(&server, &format!("/api/v1{moved}")).await["runAt"], "2040-06-01T18:00:00.000Z", "in its zone");
    let (_, refused) = visit.done(&format!("/tasks/{task}/reschedule"), &[("runAt", "2041-06-01T12:00")]).await;
    assert!(refused.contains("the task has ended"), "{refused}");
    let (_, page) = visit.done(&format!("{moved}/cancel"), &[]).await;
    assert!(page.contains("The task is cancelled") && !page.contains("Reschedule"), "{page}");
    let failed = failed_task(&server, "pulled", "broken").await;
    let (retried, page) = visit.done(&format!("/tasks/{failed}/retry"), &[]).await;
    assert!(page.contains("Retry of"), "{page}");
    assert_eq!(api(&server, &format!("/api/v1{retried}")).await["retryOf"], json!(failed));
    let (_, refused) = visit.done(&format!("{retried}/retry"), &[]).await;
    assert!(refused.contains("has not failed"), "{refused}");
    server.stop();
}

async fn many_tasks_are_changed_after_they_were_counted(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    for _ in 0..3 {
        server.make_task(r#"{"topic":"mail","delayMs":3600000}"#).await;
    }
    server.make_task(r#"{"topic":"other","delayMs":3600000}"#).await;
    assert!(!visit.page("/tasks").await.contains("Everything that matches"), "not without a filter");
    let list = visit.page("/tasks?topic=mail").await;
    assert!(list.contains("/tasks/bulk?action=cancel&amp;topic=mail"), "{list}");
    let asked = visit.page("/tasks/bulk?action=cancel&topic=mail").await;
    assert!(asked.contains("Cancel 3 tasks?"), "{asked}");
    let (_, page) = visit.done("/tasks/bulk/cancel", &[("topic", "mail")]).await;
    assert!(page.contains("3 tasks were cancelled"), "{page}");
    let left = api(&server, "/api/v1/tasks?status=pending").await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    let (_, refused) = visit.done("/tasks/bulk/cancel", &[]).await;
    assert!(refused.contains("must say which tasks"), "{refused}");

    failed_task(&server, "pulled", "broken").await;
    assert!(visit.page("/tasks/bulk?action=retry&topic=pulled").await.contains("Retry 1 failed task?"));
    let (_, page) = visit.done("/tasks/bulk/retry", &[("topic", "pulled"), ("status", "failed")]).await;
    assert!(page.contains("1 task was made anew"), "{page}");
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

/// What each route needs, as the rules say it.
fn routes() -> Vec<(Method, String, Role)> {
    let get = |path: &str, role| (Method::GET, path.replace("{id}", NOWHERE), role);
    let post = |path: &str, role| (Method::POST, path.replace("{id}", NOWHERE), role);
    vec![
        get("/", Role::Read),
        get("/schedules", Role::Read),
        get("/schedules/calendar", Role::Read),
        get("/schedules/{id}", Role::Read),
        post("/schedules/preview", Role::Read),
        get("/schedules/new", Role::Operate),
        post("/schedules/new", Role::Operate),
        get("/schedules/{id}/edit", Role::Operate),
        post("/schedules/{id}/edit", Role::Operate),
        post("/schedules/{id}/pause", Role::Operate),
        post("/schedules/{id}/resume", Role::Operate),
        post("/schedules/{id}/trigger", Role::Operate),
        get("/schedules/{id}/backfill", Role::Operate),
        post("/schedules/{id}/backfill", Role::Operate),
        get("/schedules/{id}/delete", Role::Operate),
        post("/schedules/{id}/delete", Role::Operate),
        get("/tasks", Role::Read),
        get("/tasks/{id}", Role::Read),
        get("/tasks/bulk?action=cancel&topic=a", Role::Operate),
        post("/tasks/bulk/cancel", Role::Operate),
        post("/tasks/bulk/retry", Role::Operate),
        post("/tasks/{id}/retry", Role::Operate),
        post("/tasks/{id}/cancel", Role::Operate),
        post("/tasks/{id}/reschedule", Role::Operate),
        get("/topics", Role::Read),
        post("/topics/none/pause", Role::Operate),
        post("/topics/none/resume", Role::Operate),
        get("/outbox", Role::Read),
        get("/outbox/{id}", Role::Read),
        post("/outbox/{id}/retry", Role::Operate),
        get("/nodes", Role::Read),
        get("/audit", Role::Admin),
        get("/keys", Role::Admin),
        post("/keys", Role::Admin),
        post("/keys/{id}/revoke", Role::Admin),
    ]
}

async fn every_route_needs_its_role_and_no_more(database: Database) {
    for role in Role::ALL {
        add_key(&database, &format!("pk_{}", role.as_str()), role, &[]).await;
    }
    let server = Server::start(&database);
    let nobody = Visit::of(&server);
    for (method, path, needed) in routes() {
        let seen = nobody.send(method.clone(), &path, &[], &[]).await;
        assert!(seen.status == 303 && seen.location.starts_with("/login"), "{method} {path}: {seen:?}");
        for role in Role::ALL {
            let visit = Visit::with_key(&server, &format!("pk_{}", role.as_str()));
            let seen = visit.send(method.clone(), &path, &[], &[]).await;
            let cell = format!("{method} {path} as {}: {}", role.as_str(), seen.status);
            assert_eq!(seen.status == 403, role < needed, "{cell}");
            assert!(!seen.location.starts_with("/login") && !seen.status.is_server_error(), "{cell}");
        }
    }
    let task = server.request(Method::POST, "/api/v1/tasks").bearer_auth("pk_admin");
    let task = task.header("content-type", "application/json").body(r#"{"topic":"a","delayMs":3600000}"#);
    let task: Value = serde_json::from_str(&task.send().await.unwrap().text().await.unwrap()).unwrap();
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    let reader = Visit::with_key(&server, "pk_read").page(&path).await;
    assert!(
        !reader.contains("/cancel") && !reader.contains("href=\"/keys\""),
        "no button for whoever may not: {reader}"
    );
    let operator = Visit::with_key(&server, "pk_operate").page(&path).await;
    assert!(operator.contains("/cancel") && !operator.contains("href=\"/keys\""), "{operator}");
    assert!(Visit::with_key(&server, "pk_admin").page(&path).await.contains("href=\"/keys\""));
    server.stop();
}

async fn a_key_opens_a_session_and_its_end_closes_it(database: Database) {
    add_key(&database, "pk_visitor", Role::Read, &[]).await;
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let led = visit.get("/tasks?status=failed").await;
    assert_eq!((led.status.as_u16(), &*led.location), (303, "/login?next=%2Ftasks%3Fstatus%3Dfailed"));
    assert!(visit.page(&led.location).await.contains("API key"));
    for wrong in ["pk_guess", "", "pk_visitor\r\nx", "é"] {
        let refused = visit.post("/login", &[("key", wrong)]).await;
        assert!(refused.status == 401 && refused.cookies.is_empty(), "{wrong}: {refused:?}");
    }
    let opened = visit.post("/login", &[("key", "pk_visitor"), ("next", "/tasks?status=failed")]).await;
    assert_eq!((opened.status.as_u16(), &*opened.location), (303, "/tasks?status=failed"));
    assert_eq!(opened.cookies, ["punctual_session=pk_visitor; Path=/; HttpOnly; SameSite=Strict"]);
    let encrypted = [("x-forwarded-proto", "https")];
    let secure = visit.send(Method::POST, "/login", &[("key", "pk_visitor")], &encrypted).await;
    assert!(secure.cookies[0].ends_with("; Secure"), "{secure:?}");
    let elsewhere = visit.post("/login", &[("key", "pk_visitor"), ("next", "//evil.example")]).await;
    assert_eq!(elsewhere.location, "/");

    let visitor = Visit::with_key(&server, "pk_visitor");
    assert!(visitor.page("/").await.contains("pk_visitor · read"));
    assert_eq!(visitor.get("/api/v1/tasks").await.status, 200, "what is read of the API is open too");
    assert_eq!(visitor.post("/api/v1/tasks", &[]).await.status, 401, "what writes needs the key itself");
    assert!(visitor.post("/logout", &[]).await.cookies[0].contains("Max-Age=0"));

    let keys = server.request(Method::GET, "/api/v1/keys").bearer_auth("pk_chief").send().await.unwrap();
    let keys: Value = serde_json::from_str(&keys.text().await.unwrap()).unwrap();
    let key = keys["items"].as_array().unwrap().iter().find(|key| key["name"] == "pk_visitor").unwrap();
    let path = format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
    let revoked = server.request(Method::DELETE, &path).bearer_auth("pk_chief").send().await.unwrap();
    assert_eq!(revoked.status(), 204);
    assert_eq!(visitor.get("/").await.status, 303, "at once");
    assert_eq!(visitor.get("/api/v1/tasks").await.status, 401);
    server.stop();
}

async fn forms_of_other_sites_are_refused(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let path = format!("/schedules/{id}/pause");
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        for path in [&*path, "/login", "/logout"] {
            let seen = visit.send(Method::POST, path, &[], &[(name, value)]).await;
            assert_eq!(seen.status, 403, "{name}: {value}: {path}");
        }
    }
    assert_eq!(visit.send(Method::GET, "/", &[], &[("host", "evil.example")]).await.status, 403, "no rebinding");
    assert_eq!(api(&server, &format!("/api/v1/schedules/{id}")).await["enabled"], true);
    let ours = visit.send(Method::POST, &path, &[], &[("sec-fetch-site", "same-origin")]).await;
    assert_eq!(ours.status, 303);
    server.stop();
}

async fn a_form_is_audited_as_the_call_that_it_makes(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    add_key(&database, "pk_operator", Role::Operate, &[]).await;
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let made = server.request(Method::POST, "/api/v1/schedules").bearer_auth("pk_chief");
    let made = made.header("content-type", "application/json").body(YEARLY).send().await.unwrap();
    let made: Value = serde_json::from_str(&made.text().await.unwrap()).unwrap();
    let id = made["id"].as_str().unwrap();
    Visit::with_key(&server, "pk_operator").done(&format!("/schedules/{id}/pause"), &[]).await;
    let audit = server.request(Method::GET, "/api/v1/audit").bearer_auth("pk_chief").send().await.unwrap();
    let audit: Value = serde_json::from_str(&audit.text().await.unwrap()).unwrap();
    let entry = &audit["items"][0];
    let told = |entry: &Value| ["actor", "action", "target"].map(|field| entry[field].as_str().unwrap().to_owned());
    assert_eq!(told(entry), ["pk_operator", "POST /api/v1/schedules/{id}/pause", id]);
    assert_eq!((&entry["status"], audit["items"].as_array().unwrap().len()), (&json!(200), 2), "one entry each");

    let refused = Visit::with_key(&server, "pk_reader").post(&format!("/schedules/{id}/delete"), &[]).await;
    assert_eq!(refused.status, 403);
    let audit = server.request(Method::GET, "/api/v1/audit").bearer_auth("pk_chief").send().await.unwrap();
    let audit: Value = serde_json::from_str(&audit.text().await.unwrap()).unwrap();
    let entry = &audit["items"][0];
    assert_eq!(told(entry), ["pk_reader", "DELETE /api/v1/schedules/{id}", id], "also what was refused");
    assert_eq!(entry["status"], 403);
    server.stop();
}
