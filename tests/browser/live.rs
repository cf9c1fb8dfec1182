//! Pages that bring themselves up to date.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::{Database, Server};

/// Has pages hear of what happens from the stream alone: they do not look again by themselves.
pub(crate) const NO_TIMER: &str =
    "const every = window.setInterval; window.setInterval = (what, ms) => ms > 5000 ? 0 : every(what, ms)";

/// Waits until the page says so of itself.
pub(crate) async fn says(browser: &Browser, word: &str) {
    let pulse = "return document.querySelector('[data-pulse]').textContent === arguments[0]";
    browser.wait_for(pulse, &[json!(word)], word).await;
}

/// Lets something happen until a script answers `true`: what happened before the page was there is no news to it.
pub(crate) async fn wait_while_live(browser: &Browser, server: &Server, script: &str, given: &[Value], what: &str) {
    tokio::select! {
        () = browser.wait_for(script, given, what) => {}
        () = go_on(server) => {}
    }
}

/// Has tasks end, one after the other.
async fn go_on(server: &Server) {
    loop {
        server.make_task(r#"{"topic": "echo"}"#).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_overview_says_and_draws_what_happens_without_being_loaded_again() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.before_every_page(NO_TIMER).await;
    server.put_topic("fax", r#"{"route": {"type": "pull"}}"#).await;
    browser.go("/").await;
    says(&browser, "live").await;
    browser.run("window.loadedOnce = true", &[]).await;
    browser.wait_for_text("No schedule is enabled").await;
    assert!(!browser.has("#ahead svg").await && !browser.has("#throughput .bad").await);

    let body = r#"{"name": "quarterly", "cronExpression": "*/15 * * * *", "timezone": "UTC", "topic": "echo"}"#;
    server.post("/api/v1/schedules", body).await;
    let headline =
        "return /The only schedule is on time.* Next: quarterly in /.test(document.querySelector('h1').innerText)
        && document.querySelector('#ahead table')?.innerText.includes('quarterly')";
    wait_while_live(&browser, &server, headline, &[], "the schedule in the headline").await;
    // A bar as high as the chart, in a colour that is seen, and what it says in words.
    let draws = "const chart = document.querySelector('#throughput svg');
        const bars = [...chart?.querySelectorAll('rect.' + arguments[0]) ?? []];
        return bars.some((bar) => bar.getBoundingClientRect().height >= chart.getBoundingClientRect().height * arguments[1]
            && getComputedStyle(bar).fill !== 'none' && getComputedStyle(bar).fill !== getComputedStyle(bar.parentNode.querySelector('.back')).fill)
            && !chart.ariaLabel.includes(': 0 in all') && chart.ariaLabel.includes(arguments[2])";
    wait_while_live(&browser, &server, draws, &[json!("good"), json!(0.9), json!(" 0 failed")], "what ended").await;
    let lag = "const line = document.querySelector('#lag .line, #lag .dot'), box = line?.getBoundingClientRect();
        return !!box && box.width > 0 && box.height > 0 && document.querySelector('#lag').innerText.includes('lately')";
    wait_while_live(&browser, &server, lag, &[], "the lag").await;

    for _ in 0..20 {
        server.make_task(r#"{"topic": "fax"}"#).await;
    }
    let claimed = server.post("/api/v1/claims", r#"{"topics": ["fax"], "max": 20}"#).await.json();
    for task in claimed["tasks"].as_array().unwrap() {
        let fail = json!({ "epoch": task["epoch"], "error": "no paper", "final": true });
        let path = format!("/api/v1/tasks/{}/fail", task["id"].as_str().unwrap());
        assert_eq!(server.post(&path, fail.to_string()).await.status, 200);
    }
    let given = [json!("bad"), json!(0.05), json!(" 20 failed")];
    wait_while_live(&browser, &server, draws, &given, "what failed").await;
    let failed = "const said = document.querySelector('#failures').innerText;
        return said.includes('20×') && said.includes('no paper') && document.querySelector('#health').innerText.includes('20 tasks failed')";
    wait_while_live(&browser, &server, failed, &[], "why they failed").await;
    assert_eq!(browser.run("return window.loadedOnce", &[]).await, json!(true));
    browser.check().await;
}
