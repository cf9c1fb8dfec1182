//! Every page, read by axe-core.

use crate::browser::{Browser, Scheme, Width};
use crate::demo::Demo;
use crate::roles::Guarded;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_keeps_anybody_out() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    let mut found = Vec::new();
    for (name, path) in demo.pages().await {
        for (width, scheme) in [(Width::Desk, Scheme::Light), (Width::Desk, Scheme::Dark), (Width::Phone, Scheme::Dark)]
        {
            browser.look(width, scheme).await;
            browser.go(&path).await;
            let violations = browser.violations().await;
            found.extend(violations.into_iter().map(|one| format!("{name} {width:?} {scheme:?}: {one}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_logs_in_can_read_the_form() {
    let guarded = Guarded::start();
    let Some(browser) = Browser::open(&guarded.server.url).await else { return };
    browser.go("/topics").await;
    assert_eq!(browser.violations().await, Vec::<String>::new());
    browser.fill("#key", "pk_wrong").await;
    browser.press("form", "Log in").await;
    browser.wait_for_text("unknown, or it was revoked").await;
    assert_eq!(browser.violations().await, Vec::<String>::new());
}
