//! The keyboard alone: every control can be reached and pressed, is seen to have the focus, and keeps it.

use serde_json::json;

use crate::browser::{Browser, Key};
use crate::live::{NO_TIMER, says, wait_while_live};
use crate::support::{Database, Server};

/// More controls than any page here has.
const MANY: usize = 100;

/// Two topics that workers claim from, and a browser that looks at them.
async fn topics() -> Option<(Server, Browser, Database)> {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let browser = Browser::open(&server.url).await?;
    browser.before_every_page(NO_TIMER).await;
    for name in ["mail.in", "mail.out"] {
        server.put_topic(name, r#"{"route": {"type": "pull"}}"#).await;
    }
    browser.go("/topics").await;
    Some((server, browser, database))
}

async fn has_focus(browser: &Browser, selector: &str) -> bool {
    browser.run("return document.activeElement.matches(arguments[0])", &[json!(selector)]).await == json!(true)
}

/// Goes on from control to control until the one has the focus that a selector names. Each on the way is seen to have it.
async fn tab_to(browser: &Browser, selector: &str) {
    let look = "const one = document.activeElement, style = getComputedStyle(one), place = one.getBoundingClientRect();
        const isSeen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
            && place.bottom > 0 && place.right > 0 && place.top < innerHeight && place.left < innerWidth;
        return [one.outerHTML.slice(0, 160), isSeen]";
    for _ in 0..MANY {
        browser.key(Key::Tab).await;
        let seen = browser.run(look, &[]).await;
        assert_eq!(seen[1], json!(true), "nobody sees that it has the focus: {seen}");
        if has_focus(browser, selector).await {
            return;
        }
    }
    panic!("{selector} is not reached by the keyboard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_control_of_a_page_leads_past_the_navigation() {
    let Some((_server, browser, _database)) = topics().await else { return };
    let top = "return document.querySelector('a.skip').getBoundingClientRect().top";
    assert!(browser.run(top, &[]).await.as_f64().unwrap() < 0.0, "it is there for those who need it");
    tab_to(&browser, "a").await;
    assert!(has_focus(&browser, "a.skip").await);
    assert_eq!(browser.text("a.skip").await, "Skip to the content");
    browser.key(Key::Enter).await;
    browser.wait_for("return document.activeElement.id === 'main'", &[], "the content").await;
    assert_eq!(browser.path().await, "/topics#main");
    tab_to(&browser, "a, button").await;
    let first = "return document.querySelector('main').querySelector('a, button') === document.activeElement";
    assert_eq!(browser.run(first, &[]).await, json!(true));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_button_is_reached_and_pressed() {
    let Some((server, browser, _database)) = topics().await else { return };
    let is_paused = async || server.get("/api/v1/topics/mail.out").await.json()["paused"].as_bool().unwrap();
    tab_to(&browser, "form[action='/topics/mail.out/pause'] button").await;
    browser.key(Key::Enter).await;
    browser.wait_for_text("mail.out is paused").await;
    assert!(is_paused().await);
    tab_to(&browser, "form[action='/topics/mail.out/resume'] button").await;
    browser.key(Key::Space).await;
    browser.wait_for_text("mail.out works again").await;
    assert!(!is_paused().await);
    tab_to(&browser, "nav a[href='/nodes']").await;
    browser.key(Key::Enter).await;
    browser.wait_for("return location.pathname === '/nodes'", &[], "the nodes").await;
    browser.check().await;
}

/// Has the part of the page exchanged that the control with the focus is in.
async fn exchange(browser: &Browser, server: &Server) {
    browser.run("window.before = document.activeElement", &[]).await;
    wait_while_live(browser, server, "return !window.before.isConnected", &[], "another state of the page").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_keeps_the_focus_when_its_place_on_the_page_changes() {
    let Some((server, browser, _database)) = topics().await else { return };
    let button = "form[action='/topics/mail.in/pause'] button";
    says(&browser, "live").await;
    tab_to(&browser, button).await;
    // Another row now stands above.
    server.put_topic("fax", r#"{"route": {"type": "pull"}}"#).await;
    exchange(&browser, &server).await;
    assert!(browser.has("form[action='/topics/fax/pause']").await && has_focus(&browser, button).await);
    browser.key(Key::Enter).await;
    browser.wait_for_text("mail.in is paused").await;
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_control_takes_the_focus_of_one_that_is_gone() {
    let Some((server, browser, _database)) = topics().await else { return };
    says(&browser, "live").await;
    tab_to(&browser, "form[action='/topics/mail.in/pause'] button").await;
    assert_eq!(server.post("/api/v1/topics/mail.in/pause", "{}").await.status, 200);
    exchange(&browser, &server).await;
    assert!(browser.has("form[action='/topics/mail.in/resume']").await && has_focus(&browser, "#topics").await);
    // Not from the top of the page again.
    tab_to(&browser, "a, button").await;
    assert!(has_focus(&browser, "#topics *").await);
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_keeps_the_focus_although_its_address_moves_with_the_time() {
    let Some((server, browser, _database)) = topics().await else { return };
    browser.go("/").await;
    says(&browser, "live").await;
    let link = "#health dl a[href^='/tasks?status=pending']";
    tab_to(&browser, link).await;
    for _ in 0..2 {
        exchange(&browser, &server).await;
        assert!(has_focus(&browser, link).await);
    }
    browser.check().await;
}
