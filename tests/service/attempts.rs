//! The attempts of a task, however each of them ended.

use std::time::Duration;

use punctual_domain::task::{AttemptOutcome, Settlement};
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Database, Past, Server};

on_each_database_and_pooler!(every_ending_shows_its_attempts, real_attempts_are_shown);

async fn every_ending_shows_its_attempts(database: Database) {
    use AttemptOutcome::{Failed, Panicked, TimedOut};
    let past = Past::of(&database).await;
    let completed = || Settlement::Completed { result: None };
    let failed = |outcome| Settlement::Failed { outcome, error: "it broke".into() };
    let retried = |outcome| Settlement::Retried { outcome, error: "not yet".into(), after: Duration::ZERO };
    let snoozed = || Settlement::Snoozed { after: Duration::ZERO, error: None };
    let mut lives = Vec::new();
    for (settlements, status, outcomes) in [
        (vec![completed()], "completed", vec!["completed"]),
        (vec![failed(Failed)], "failed", vec!["failed"]),
        (vec![failed(TimedOut)], "failed", vec!["timed_out"]),
        (vec![failed(Panicked)], "failed", vec!["panicked"]),
        (vec![Settlement::Cancelled], "cancelled", vec!["cancelled"]),
        (vec![retried(TimedOut), completed()], "completed", vec!["timed_out", "completed"]),
        (vec![retried(Panicked), retried(Failed), failed(Failed)], "failed", vec!["panicked", "failed", "failed"]),
        (vec![snoozed(), completed()], "completed", vec!["snoozed", "completed"]),
        (vec![Settlement::HandedBack, completed()], "completed", vec!["handed_back", "completed"]),
    ] {
        lives.push((past.settled("a", settlements).await, status, outcomes));
    }
    lives.push((past.lost("b").await, "failed", vec!["lost"]));
    past.close().await;

    let server = Server::start(&database);
    for (id, status, outcomes) in lives {
        let task = server.get(&format!("/api/v1/tasks/{id}")).await.json();
        assert_eq!(task["status"], status, "{task}");
        let attempts = task["attempts"].as_array().unwrap();
        assert_eq!(attempts.iter().map(|attempt| &attempt["outcome"]).collect::<Vec<_>>(), outcomes, "{task}");
        for attempt in attempts {
            let fields: Vec<_> = attempt.as_object().unwrap().keys().map(String::as_str).collect();
            let mut expected = ["number", "nodeId", "epoch", "startedAt", "endedAt", "outcome", "error"];
            expected.sort_unstable();
            assert_eq!(fields, expected);
            assert!(attempt["nodeId"].is_string() && attempt["endedAt"].is_string(), "{attempt}");
        }
        let epochs: Vec<_> = attempts.iter().map(|attempt| attempt["epoch"].as_i64().unwrap()).collect();
        assert!(epochs.is_sorted_by(|a, b| a < b), "{task}");
        let last = attempts.last().unwrap();
        assert_eq!((&last["number"], &last["error"]), (&task["attempt"], &task["error"]), "{task}");
    }
    server.stop();
}

async fn real_attempts_are_shown(database: Database) {
    let server = Server::start(&database);
    let completed = server.make_task(r#"{"topic":"echo"}"#).await;
    let announced = server.make_task(r#"{"topic":"nobody.serves.it"}"#).await;
    for task in [completed, announced] {
        let ended = server.ended_task(task["id"].as_str().unwrap()).await;
        let attempts = ended["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{ended}");
        assert_eq!((&attempts[0]["number"], &attempts[0]["outcome"]), (&json!(1), &json!("completed")));
        assert_eq!((&attempts[0]["startedAt"], &attempts[0]["endedAt"]), (&ended["startedAt"], &ended["completedAt"]));
        assert_eq!(attempts[0]["error"], Value::Null);
    }
    let too_large = format!(
        r#"{{"topic":"echo","payload":"{}","retry":{{"attempts":3,"backoff":{{"type":"fixed","delay":0}}}}}}"#,
        "x".repeat(65 * 1024)
    );
    let failing = server.make_task(&too_large).await;
    let failed = server.ended_task(failing["id"].as_str().unwrap()).await;
    let outcomes: Vec<_> = failed["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].clone()).collect();
    assert!(!outcomes.is_empty() && outcomes.iter().all(|outcome| outcome == "failed"), "{failed}");
    assert_eq!(failed["attempt"], outcomes.len());
    server.stop();
}
