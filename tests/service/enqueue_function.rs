//! `punctual_enqueue` called by those who are not Rust, on a running service.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Database, Server};

mod postgres {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn psql_writes_a_task_in_its_transaction_and_the_service_runs_it() {
        super::psql_writes_a_task(super::Database::postgres().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn node_writes_a_task_in_its_transaction_and_the_service_runs_it() {
        super::node_writes_a_task(super::Database::postgres().await).await;
    }
}

mod pooled {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn psql_writes_a_task_in_its_transaction_and_the_service_runs_it() {
        super::psql_writes_a_task(super::Database::pooled().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn node_writes_a_task_in_its_transaction_and_the_service_runs_it() {
        super::node_writes_a_task(super::Database::pooled().await).await;
    }
}

/// The database's URL without what only sqlx understands.
fn plain_url(database: &Database) -> &str {
    database.url.split('?').next().unwrap()
}

/// Runs statements with psql, as one script.
fn psql(database: &Database, script: &str) -> Output {
    Command::new("psql")
        .args([plain_url(database), "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-c", script])
        .output()
        .expect("psql comes with PostgreSQL")
}

async fn psql_writes_a_task(database: Option<Database>) {
    let Some(database) = database else { return };
    let server = Server::start(&database);
    let enqueue = r#"SELECT punctual_enqueue('echo', '{"from": "psql"}')"#;
    let id = |end: &str| {
        let output = psql(&database, &format!("BEGIN; {enqueue}; {end}"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let gone = id("ROLLBACK");
    let kept = id("COMMIT");
    let task = server.ended_task(&kept).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"from": "psql"})));
    server.get(&format!("/api/v1/tasks/{gone}")).await.problem(404, "NOT_FOUND");

    let refused = psql(&database, "SELECT punctual_enqueue('a b', timezone => 'EST')");
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && sentence.contains("22023"), "{sentence}");
    assert!(sentence.contains("topic: ") && sentence.contains("timezone: "), "{sentence}");
    server.stop();
}

async fn node_writes_a_task(database: Option<Database>) {
    let Some(database) = database else { return };
    let Some(packages) = std::env::var_os("TEST_NODE_PATH") else {
        assert!(std::env::var_os("CI").is_none(), "TEST_NODE_PATH is not set, and CI skips nothing");
        eprintln!("skipped: TEST_NODE_PATH is not set");
        return;
    };
    let server = Server::start(&database);
    let output = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/enqueue.cjs"))
        .envs([("NODE_PATH", packages), ("DATABASE_URL", plain_url(&database).into())])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();

    let task = server.ended_task(told["kept"].as_str().unwrap()).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"order": "kept"})));
    assert_eq!((&task["metadata"], &task["clientRequestId"]), (&json!({"ownerId": "node"}), &json!("kept")));
    server.get(&format!("/api/v1/tasks/{}", told["gone"].as_str().unwrap())).await.problem(404, "NOT_FOUND");
    assert_eq!(told["orders"], json!(["kept"]));
    assert_eq!(told["used"]["code"], "23505");
    assert!(told["used"]["message"].as_str().unwrap().contains("SCHEDULE_CLIENT_REQUEST_ID_IN_USE"), "{told}");
    assert_eq!(told["bad"]["code"], "22023");
    for field in ["topic: ", "payload: ", "priority: "] {
        assert!(told["bad"]["message"].as_str().unwrap().contains(field), "{told}");
    }
    server.stop();
}
