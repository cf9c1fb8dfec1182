//! The five jobs, each condition at its boundary, each guard twice, on both databases, with a clock that the test moves.

mod certificates;
mod cnrpp;
mod emails;
mod lab;
mod lab_server;
mod picture;
mod schedules;
mod sessions;

use std::time::Duration;

use punctual_clearpath::Clearpath;
use punctual_testing::{Punctual, Setup, Task, TaskStatus, TestDatabase, setup};
use serde_json::{Value, json};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Noon in Alberta, on 16 November 2026.
pub(crate) const NOW: &str = "2026-11-16T18:00:00Z";

pub(crate) fn at_work(database: TestDatabase) -> Setup {
    setup(Clearpath::default()).database(database).at(NOW)
}

pub(crate) async fn start(database: TestDatabase) -> Punctual {
    at_work(database).start().await
}

/// Runs a job, which must complete, and answers its counts.
pub(crate) async fn run(punctual: &Punctual, job: &str) -> Value {
    let task = try_to_run(punctual, job).await;
    assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
    task.result
}

pub(crate) async fn try_to_run(punctual: &Punctual, job: &str) -> Task {
    punctual.run(&format!("clearpath.{job}"), json!({})).await
}

/// Makes a session, and answers its id.
pub(crate) async fn session(punctual: &Punctual, more: Value) -> String {
    let mut body = json!({"name": "Ada", "email": "ada@example.com"});
    more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    let made = punctual.post("/sessions", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.text("id").to_owned()
}

/// A field of something that a route shows.
pub(crate) async fn field(punctual: &Punctual, path: &str, name: &str) -> Value {
    punctual.get(path).await.body[name].clone()
}

pub(crate) async fn items(punctual: &Punctual, path: &str) -> Vec<Value> {
    punctual.get(path).await.body["items"].as_array().unwrap().clone()
}

/// The e-mails of a session by their kinds: status, and when they are due.
pub(crate) async fn emails(punctual: &Punctual, session: &str) -> Vec<Value> {
    let mut found = items(punctual, &format!("/emails?sessionId={session}")).await;
    found.sort_by_key(|email| email["scheduledAt"].to_string());
    found
}

pub(crate) async fn statuses(punctual: &Punctual, session: &str) -> Vec<String> {
    let found = emails(punctual, session).await;
    found
        .iter()
        .map(|email| format!("{}: {}", email["emailType"].as_str().unwrap(), email["status"].as_str().unwrap()))
        .collect()
}

/// Runs a statement on whichever database there is.
pub(crate) async fn execute(punctual: &Punctual, sql: &str) {
    punctual.execute(sql, sql).await;
}

/// From now on a row of this table with this text in this column cannot be changed.
pub(crate) async fn freeze(punctual: &Punctual, table: &str, column: &str, text: &str) {
    punctual
        .execute(
            format!(
                "CREATE TRIGGER frozen BEFORE UPDATE ON {table} WHEN OLD.{column} = '{text}'
                 BEGIN SELECT RAISE(ABORT, 'frozen'); END"
            ),
            format!(
                "CREATE FUNCTION frozen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'frozen'; END $$;
                 CREATE TRIGGER frozen BEFORE UPDATE ON {table} FOR EACH ROW WHEN (OLD.{column} = '{text}')
                 EXECUTE FUNCTION frozen()"
            ),
        )
        .await;
}
