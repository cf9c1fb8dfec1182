//! The demo, page by page: what there is, that no page complains, and how little the first one weighs.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use reqwest::Method;
use tempfile::TempDir;

use crate::browser::{Browser, Scheme, Width};
use crate::support::{Process, Server, punctual};

/// What a first page may weigh with everything it loads, in bytes.
const FIRST_PAGE: u64 = 150 * 1024;

/// A running demo, with a folder for its temporary files.
pub(crate) struct Demo {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command: Command = punctual(folder.path());
        command.args(["demo", "--listen", "127.0.0.1:0"]).env("TMPDIR", folder.path());
        Self { server: Server::listening(Process::start(&mut command)), _folder: folder }
    }

    /// Waits until there is something on every page.
    pub(crate) async fn is_set_up(&self) {
        let has = |list: &serde_json::Value, status: &str| {
            list["items"].as_array().unwrap().iter().any(|one| one["status"] == status)
        };
        self.server.wait_for("/api/v1/outbox?limit=100", |outbox| has(outbox, "sent") && has(outbox, "failed")).await;
        self.server
            .wait_for("/api/v1/tasks?status=failed&limit=100", |failed| failed["items"].as_array().unwrap().len() >= 4)
            .await;
    }

    /// Every page, with one of each kind of detail.
    pub(crate) async fn pages(&self) -> Vec<(&'static str, String)> {
        let first = async |path: &str| {
            let list = self.server.get(path).await.json();
            list["items"][0]["id"].as_str().unwrap_or_else(|| panic!("nothing at {path}")).to_owned()
        };
        let failed = first("/api/v1/tasks?status=failed&topic=shop.payments").await;
        let message = first("/api/v1/outbox?status=failed").await;
        let schedule = first("/api/v1/schedules?name=nightly-report").await;
        let paused = first("/api/v1/schedules?name=old-importer").await;
        let retried = first("/api/v1/tasks?status=failed&topic=shop.refund").await;
        assert_eq!(self.server.post(&format!("/api/v1/tasks/{retried}/retry"), "").await.status, 201);
        let pages = vec![
            ("overview", "/".to_owned()),
            ("failures", "/failures".to_owned()),
            ("schedules", "/schedules".to_owned()),
            ("schedule", format!("/schedules/{schedule}")),
            ("schedule-paused", format!("/schedules/{paused}")),
            ("schedule-edit", format!("/schedules/{schedule}/edit")),
            ("schedule-new", "/schedules/new".to_owned()),
            ("backfill", format!("/schedules/{schedule}/backfill")),
            ("delete", format!("/schedules/{schedule}/delete")),
            ("calendar", "/schedules/calendar".to_owned()),
            ("tasks", "/tasks".to_owned()),
            ("tasks-failed", "/tasks?status=failed".to_owned()),
            ("bulk", "/tasks/bulk?action=retry&status=failed".to_owned()),
            ("task", format!("/tasks/{failed}")),
            ("task-retried", format!("/tasks/{retried}")),
            ("topics", "/topics".to_owned()),
            ("outbox", "/outbox".to_owned()),
            ("message", format!("/outbox/{message}")),
            ("nodes", "/nodes".to_owned()),
            ("audit", "/audit".to_owned()),
            ("keys", "/keys".to_owned()),
        ];
        // It stands in the frame of the message.
        assert_eq!(left_out(pages.iter().map(|(_, path)| path.as_str())), ["/outbox/{id}/html"]);
        pages
    }
}

/// The pages of the dashboard that none of these addresses leads to, but for what somebody who is nobody yet sees.
pub(crate) fn left_out<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    const NO_PAGES: [&str; 3] = ["/assets/{name}", "/login", "/live"];
    let route = |path: &str| {
        let parts = path.split('?').next().unwrap_or_default().split('/');
        // Nothing else is as long as an id.
        parts.map(|part| if part.len() == 36 { "{id}" } else { part }).collect::<Vec<_>>().join("/")
    };
    let led_to: BTreeSet<_> = paths.map(route).collect();
    let pages = include_str!("../testdata/dashboard_routes.txt").lines().filter_map(|line| line.strip_prefix("GET "));
    let pages = pages.map(|line| line.split(' ').next().unwrap());
    pages.filter(|page| !NO_PAGES.contains(page) && !led_to.contains(*page)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_of_the_demo_complains_or_is_too_wide() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    for (name, path) in demo.pages().await {
        for width in [Width::Desk, Width::Phone] {
            browser.look(width, Scheme::Light).await;
            browser.go(&path).await;
            assert!(!browser.text("h1").await.is_empty(), "{name} has no heading");
            assert!(!browser.text("title").await.contains("Not found"), "{name} is not there");
            browser.check().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_page_weighs_little_with_all_that_it_loads() {
    let demo = Demo::start();
    let Some(browser) = Browser::open(&demo.server.url).await else { return };
    demo.is_set_up().await;
    // Until it shows everything: it does not wait long for the database.
    loop {
        let page = demo.server.request(Method::GET, "/").send().await.unwrap().text().await.unwrap();
        if !page.contains(" is being ") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    browser.go("/").await;
    let loaded = "return ['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind))
        .map((one) => [new URL(one.name).pathname, one.decodedBodySize, one.transferSize])";
    let loaded = browser.run(loaded, &[]).await;
    let loaded = loaded.as_array().unwrap();
    let sum = |place: usize| loaded.iter().map(|part| part[place].as_u64().unwrap()).sum::<u64>();
    let (weight, sent) = (sum(1), sum(2));
    for kind in ["/", ".css", ".js", ".svg"] {
        let is_there = |part: &serde_json::Value| part[0].as_str().unwrap().ends_with(kind) && part[1] != 0;
        assert!(loaded.iter().any(is_there), "{kind} is not among {loaded:?}");
    }
    println!("{weight} bytes, {sent} as they were sent");
    // Also for those who cannot read what is compressed.
    assert!(weight < FIRST_PAGE, "{weight} bytes: {loaded:?}");
}
