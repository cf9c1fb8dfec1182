//! The demo, page by page: what there is, and that no page complains.

use std::process::Command;

use tempfile::TempDir;

use crate::browser::{Browser, Scheme, Width};
use crate::support::{Process, Server, punctual};

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
        vec![
            ("overview", "/".to_owned()),
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
        ]
    }
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
