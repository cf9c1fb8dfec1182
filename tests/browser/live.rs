//! Pages that bring themselves up to date.

use serde_json::json;

use crate::browser::Browser;
use crate::support::{Database, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_shows_what_happens_without_being_loaded_again() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    server.put_topic("waiting", r#"{"route": {"type": "pull"}}"#).await;
    browser.go("/topics").await;
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
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/nodes").await;
    browser.wait_for_text("live").await;
    server.stop();
    browser.wait_for_text("reconnecting").await;
}
