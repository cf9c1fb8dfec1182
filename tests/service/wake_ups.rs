//! How soon a claim that waits hears of a task.

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(a_claim_that_waits_is_woken);

async fn a_claim_that_waits_is_woken(database: Database) {
    let is_soak = std::env::var_os("PUNCTUAL_SOAK").is_some();
    let rounds = if is_soak { 100 } else { 10 };
    let server = Server::start(&database);
    server.put_topic("work", r#"{"route":{"type":"pull"}}"#).await;
    let waiting = |workers: f64| server.samples(move |samples| samples.value("punctual_workers") == Some(workers));
    for (what, delay) in [("is written", 0), ("becomes due", 50)] {
        let mut late = Vec::new();
        for _ in 0..rounds {
            waiting(0.0).await;
            let claiming = async {
                let body = json!({"topics": ["work"], "waitMs": 30_000});
                (server.post("/api/v1/claims", body.to_string()).await, Utc::now())
            };
            let making = async {
                waiting(1.0).await;
                server.make_task(&json!({"topic": "work", "delayMs": delay}).to_string()).await;
                Utc::now()
            };
            let ((answer, claimed_at), written_at) = tokio::join!(claiming, making);
            let task = answer.json()["tasks"][0].clone();
            let due_at: DateTime<Utc> = task["runAt"].as_str().unwrap().parse().unwrap();
            late.push((claimed_at - due_at.max(written_at)).num_milliseconds());
            let path = format!("/api/v1/tasks/{}/complete", task["id"].as_str().unwrap());
            assert_eq!(server.post(&path, json!({"epoch": task["epoch"]}).to_string()).await.status, 200);
        }
        late.sort_unstable();
        let median = late[rounds / 2];
        println!("a waiting claim heard of what {what} within {median} ms (p50), {} ms (longest)", late[rounds - 1]);
        // One that looked again from time to time would be later, one that nobody woke at all thirty seconds.
        assert!(median < 1_000, "{what}: {late:?}");
        // The rest is for a machine that has nothing else to do.
        assert!(!is_soak || median <= 50, "{what}: {late:?}");
    }
    server.stop();
}
