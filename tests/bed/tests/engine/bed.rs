//! The bed as the tests use it: nodes with short leases, many tasks at once, and how they ended.

use std::time::{Duration, Instant};

use futures::StreamExt;
use punctual_domain::id::TaskId;
use punctual_domain::json::Json;
use punctual_domain::task::NewTask;
use serde_json::{Value, json};

use crate::support::{Database, Server};

/// How long a claim lasts on these nodes: short, but not so short that a busy machine misses its heartbeats.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(240);

/// Starts a node, with more variables.
pub(crate) fn node(database: &Database, variables: &[(&str, &str)]) -> Server {
    Server::start_with(database, |command| {
        let lease = LEASE.as_secs().to_string();
        command.env("PUNCTUAL_PLUGINS", "bed").env("PUNCTUAL_LEASE_SECONDS", lease).envs(variables.iter().copied())
    })
}

/// Starts a node that takes and shows tasks, but runs none.
pub(crate) fn paused_node(database: &Database) -> Server {
    Server::start_with(database, |command| command.env("PUNCTUAL_PLUGINS", "bed").arg("--paused"))
}

/// `short` in `make test`, `long` in `make soak`.
pub(crate) fn scaled(short: usize, long: usize) -> usize {
    if std::env::var_os("PUNCTUAL_SOAK").is_some() { long } else { short }
}

/// The same as a stretch of time. What is bounded in `make soak` is hardly bounded in `make test`, where other tests keep the
/// machine busy.
pub(crate) fn scaled_seconds(short: usize, long: usize) -> Duration {
    Duration::from_secs(scaled(short, long) as u64)
}

/// Makes so many tasks that are due now; answers their ids.
pub(crate) async fn make_tasks(server: &Server, topic: &str, payload: Value, count: usize) -> Vec<String> {
    let body = json!({"topic": topic, "payload": payload}).to_string();
    let making = futures::stream::iter(0..count).map(|_| server.make_task(&body)).buffer_unordered(32);
    making.map(|task| task["id"].as_str().unwrap().to_owned()).collect().await
}

/// Makes so many tasks that are due now, in a database that no node is working on yet: more than one would send over HTTP.
pub(crate) async fn queue(database: &Database, topic: &str, payload: Value, count: usize) {
    let mut task = NewTask::new(topic.parse().unwrap());
    task.payload = Json::parse(payload.to_string()).unwrap();
    queue_like(database, &task, count).await;
}

/// The same for tasks that are like one in everything but their ids.
pub(crate) async fn queue_like(database: &Database, task: &NewTask, count: usize) {
    let store = punctual_store::connect(&database.url, punctual_store::Options::default()).await.unwrap();
    let like = |_| NewTask { id: TaskId::generate(), ..task.clone() };
    let mut left = count;
    while left > 0 {
        let batch = left.min(1_000);
        store.create_tasks((0..batch).map(like).collect(), None).await.unwrap();
        left -= batch;
    }
    store.close().await.unwrap();
}

/// Every task that the list's query finds.
pub(crate) async fn tasks(server: &Server, query: &str) -> Vec<Value> {
    let (mut tasks, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = server.get(&format!("/api/v1/tasks?{query}&limit=1000&cursor={cursor}")).await.json();
        let Value::Array(items) = page["items"].take() else { panic!("{page}") };
        tasks.extend(items);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return tasks,
        }
    }
}

/// How the attempts of a task ended, in order.
pub(crate) fn outcomes(task: &Value) -> Vec<&str> {
    let attempts = task["attempts"].as_array().unwrap_or_else(|| panic!("not the single view: {task}"));
    attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

/// Waits until a statement answers a number that will do.
pub(crate) async fn until(database: &Database, statement: &str, will_do: impl Fn(i64) -> bool) {
    let asked_at = Instant::now();
    loop {
        let found = database.number(statement).await;
        if will_do(found) {
            return;
        }
        assert!(asked_at.elapsed() < PATIENCE, "{statement}: still {found}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until so many tasks have ended.
pub(crate) async fn until_ended(database: &Database, count: usize) {
    until(database, "SELECT count(*) FROM punctual_task_history", |found| found >= count as i64).await;
}

/// Waits until so many tasks run.
pub(crate) async fn until_running(database: &Database, count: usize) {
    until(database, "SELECT count(*) FROM punctual_tasks WHERE status = 'running'", |found| found == count as i64)
        .await;
}

/// Waits until every task has ended.
pub(crate) async fn until_all_ended(database: &Database) {
    until(database, "SELECT count(*) FROM punctual_tasks", |found| found == 0).await;
}
