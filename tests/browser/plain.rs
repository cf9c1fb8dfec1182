//! The pages without their script: everything can be read, and every form works.

use crate::browser::Browser;
use crate::demo::Demo;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_can_be_read_without_scripts() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    browser.without_scripts().await;
    for (name, path) in demo.pages().await {
        browser.go(&path).await;
        assert!(!browser.text("main h1").await.is_empty(), "{name} has no heading");
        let page = browser.text("main").await;
        assert!(page.len() > 60, "{name} says too little: {page}");
        assert!(!page.contains("connecting"), "{name} waits for its script: {page}");
        browser.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_works_without_scripts() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    browser.without_scripts().await;
    browser.go("/topics").await;
    browser.click("form[action='/topics/audit.trail/pause'] button").await;
    browser.wait_for_text("audit.trail is paused").await;
    assert_eq!(demo.server.get("/api/v1/topics/audit.trail").await.json()["paused"], true);
}
