//! Pages that bring themselves up to date.

use serde_json::json;

use crate::browser::Browser;
use crate::support::{Database, Server};

/// Has pages hear of what happens from the stream alone: they do not look again by themselves.
const NO_TIMER: &str =
    "const every = window.setInterval; window.setInterval = (what, ms) => ms > 5000 ? 0 : every(what, ms)";

/// Waits until the page says so of itself.
async fn says(browser: &Browser, word: &str) {
    let pulse = "return document.querySelector('[data-pulse]').textContent === arguments[0]";
    browser.wait_for(pulse, &[json!(word)], word).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_shows_what_happens_without_being_loaded_again() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.before_every_page(NO_TIMER).await;
    server.put_topic("waiting", r#"{"route": {"type": "pull"}}"#).await;
    browser.go("/topics").await;
    says(&browser, "live").await;
    browser.run("window.loadedOnce = true", &[]).await;
    let row = "tr:has(a[href='/tasks?topic=waiting'])";
    assert!(browser.text(row).await.contains('0'));
    for _ in 0..7 {
        server.make_task(r#"{"topic": "waiting"}"#).await;
    }
    // What ends is announced, and the page looks again.
    server.make_task(r#"{"topic": "echo"}"#).await;
    let seven = "return document.querySelector(arguments[0])?.children[2]?.innerText.trim() === '7'";
    browser.wait_for(seven, &[json!(row)], "seven tasks that wait").await;
    assert_eq!(browser.run("return window.loadedOnce", &[]).await, json!(true));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_says_when_it_is_cut_off_and_hears_again() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let address = server.url.trim_start_matches("http://").to_owned();
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/nodes").await;
    says(&browser, "live").await;
    browser.run("window.loadedOnce = true", &[]).await;
    server.stop();
    says(&browser, "reconnecting").await;
    let is_old = "return document.querySelector('[data-old]').innerText.startsWith('No answer since')";
    browser.wait_for(is_old, &[], "a sentence that says how old the page is").await;
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_LISTEN", &address));
    says(&browser, "live").await;
    assert_eq!(browser.run("return document.querySelector('[data-old]').hidden", &[]).await, json!(true));
    assert_eq!(browser.run("return window.loadedOnce", &[]).await, json!(true));
    // On SQLite there is one node: the one before has ended.
    let nodes = server.get("/api/v1/nodes").await.json();
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_be_fetched_says_that_it_is_not_up_to_date() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/nodes").await;
    says(&browser, "live").await;
    for stub in ["async () => new Response('', { status: 503 })", "async () => { throw new TypeError('cut off'); }"] {
        let fetch = format!("window.ours ??= window.fetch; window.fetch = {stub}");
        browser.run(&fetch, &[]).await;
        server.make_task(r#"{"topic": "echo"}"#).await;
        says(&browser, "not up to date").await;
        browser.run("window.fetch = window.ours", &[]).await;
        server.make_task(r#"{"topic": "echo"}"#).await;
        says(&browser, "live").await;
    }
}
