//! What can be done on the pages, done.

use serde_json::json;

use crate::browser::Browser;
use crate::demo::Demo;
use crate::support::{Database, Server};

/// A service with nothing in it, and a browser that looks at it.
async fn empty() -> Option<(Server, Browser, Database)> {
    let database = Database::sqlite();
    let server = Server::start_with_plugins(&database);
    let browser = Browser::open(&server.url).await?;
    Some((server, browser, database))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_paused_and_works_again() {
    let Some((server, browser, _database)) = empty().await else { return };
    server.put_topic("mail.out", r#"{"route": {"type": "pull"}, "concurrency": 3, "ratePerSecond": 2.5}"#).await;
    browser.go("/topics").await;
    let page = browser.text("main").await;
    for said in ["mail.out", "pull", "of 3 in all", "2.5 /s"] {
        assert!(page.contains(said), "{said:?} is not in {page}");
    }
    let row = "tr:has(a[href='/tasks?topic=mail.out'])";
    browser.press(row, "Pause").await;
    browser.wait_for_text("mail.out is paused").await;
    assert_eq!(server.get("/api/v1/topics/mail.out").await.json()["paused"], true);
    assert!(browser.text(row).await.contains("paused"));
    browser.press(row, "Resume").await;
    browser.wait_for_text("mail.out works again").await;
    assert_eq!(server.get("/api/v1/topics/mail.out").await.json()["paused"], false);
    // The notice is for one page.
    browser.go("/topics").await;
    assert!(!browser.has(".notice").await);
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_read_and_tried_again() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    browser.go("/outbox?status=failed").await;
    browser.click("tbody a[href^='/outbox/']").await;
    browser.wait_for_text("Last error").await;
    let id = browser.path().await.trim_start_matches("/outbox/").to_owned();
    assert!(browser.text("main").await.contains("this address takes no messages"));
    // A sandbox without exceptions: what is inside cannot even be looked at from here.
    assert_eq!(browser.run("return document.querySelector('iframe').contentDocument", &[]).await, json!(null));
    let before = demo.server.get(&format!("/api/v1/outbox/{id}")).await.json()["completedAt"].clone();
    browser.press("#message", "Retry").await;
    browser.wait_for_text("The message is tried again").await;
    let path = format!("/api/v1/outbox/{id}");
    let again = |message: &serde_json::Value| message["status"] == "failed" && message["completedAt"] != before;
    demo.server.wait_for(&path, again).await;
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_made_shown_once_used_and_revoked() {
    let Some((server, browser, _database)) = empty().await else { return };
    browser.go("/keys").await;
    let proposed = "return document.querySelector('select[name=role]').value";
    assert_eq!(browser.run(proposed, &[]).await, "admin", "whoever makes the first has to make others");
    browser.fill("input[name=name]", "operations <b>desk</b>").await;
    browser.press("main", "Make the key").await;
    browser.wait_for_text("The key of operations <b>desk</b>").await;
    let key = browser.text("code.secret").await;
    assert!(key.starts_with("pk_"), "{key}");
    browser.press("#made", "Log in").await;
    browser.wait_for("return location.pathname === '/login'", &[], "the login").await;
    browser.fill("#key", &key).await;
    browser.press("form", "Log in").await;
    browser.wait_for("return location.pathname === '/'", &[], "the overview").await;

    browser.go("/keys").await;
    assert!(!browser.text("body").await.contains(&key), "a key is shown once");
    assert_eq!(browser.run(proposed, &[]).await, "read", "no more than somebody asks for");
    browser.fill("input[name=name]", "worker").await;
    browser.choose("select[name=role]", "submit").await;
    browser.fill("input[name=topics]", "mail.* not/a/topic").await;
    browser.press("main", "Make the key").await;
    browser.wait_for_text("is neither a topic nor a prefix").await;
    // Chromium notes every answer of 400.
    browser.complaints().await;
    browser.fill("input[name=topics]", "mail.*").await;
    browser.press("main", "Make the key").await;
    browser.wait_for_text("The key of worker").await;
    let worker = browser.text("code.secret").await;
    let call =
        async || server.request(reqwest::Method::GET, "/api/v1/tasks").bearer_auth(&worker).send().await.unwrap();
    assert_eq!(call().await.status(), 200);
    browser.go("/keys").await;
    browser.press("#keys tbody tr:first-child", "Revoke").await;
    browser.wait_for_text("The key is revoked").await;
    assert_eq!(call().await.status(), 401);
    browser.check().await;

    browser.go("/audit").await;
    let entries = browser.text("#entries").await;
    for said in ["operations <b>desk</b>", "DELETE /api/v1/keys/{id}", "POST /api/v1/keys"] {
        assert!(entries.contains(said), "{said:?} is not in {entries}");
    }
    browser.fill("input[name=action]", "DELETE /api/v1/keys/{id}").await;
    browser.press("form.filters", "Filter").await;
    browser.wait_for("return location.search.includes('action=DELETE')", &[], "the filter").await;
    assert!(!browser.text("#entries").await.contains("POST /api/v1/keys"));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_with_nothing_to_show_say_what_would_be_there() {
    let Some((_server, browser, _database)) = empty().await else { return };
    for path in ["/outbox", "/outbox?status=failed", "/audit?actor=nobody", "/keys"] {
        browser.go(path).await;
        assert!(browser.text(".empty").await.contains("would be here"), "{path}: {}", browser.text("main").await);
        browser.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_none_is_a_page_too() {
    let Some((_server, browser, _database)) = empty().await else { return };
    for path in
        ["/nothing", "/outbox/01a1ecb3-649b-7416-8a51-9d805db7f145", "/outbox/%3Cscript%3E", "/topics?colour=red"]
    {
        browser.go(path).await;
        assert!(browser.has("main h1").await && browser.has("main a[href='/']").await, "{path}");
    }
}
