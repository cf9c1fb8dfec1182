//! What workers do with jobs is what becomes of the attempts of tasks.

use serde_json::{Value, json};

use super::{attempts, make, serve, until, until_handed_over, working_fleet};
use crate::fleet::RELEASES;
use crate::on_each_database;
use crate::support::Database;

on_each_database!(
    retries_and_failures_come_back,
    an_attempt_that_failed_has_ended_before_the_next_begins,
    what_a_worker_puts_off_is_no_attempt,
    a_task_has_time_for_the_waits_that_its_queue_makes,
);

async fn retries_and_failures_come_back(database: Database) {
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let task = |fails: u32| {
            json!({
                "topic": release, "payload": {"n": 1, "fails": fails},
                "retry": {"attempts": 3, "backoff": {"type": "fixed", "delay": 20, "jitter": 0}},
            })
        };
        let (recovers, gives_up) = (make(&server, task(2)).await, make(&server, task(9)).await);
        let recovered = server.ended_task(&recovers).await;
        assert_eq!((&recovered["status"], &recovered["attempt"]), (&json!("completed"), &json!(3)), "{recovered:#}");
        assert_eq!((&recovered["result"], &recovered["error"]), (&json!({"did": 1}), &Value::Null));
        let failed = server.ended_task(&gives_up).await;
        assert_eq!((&failed["status"], &failed["attempt"]), (&json!("failed"), &json!(3)), "{failed:#}");
        assert_eq!(failed["error"], "no 3");
        let no = |n| (n, Some("failed".to_owned()), Some(format!("no {n}")));
        assert_eq!(attempts(&failed), [no(1), no(2), no(3)], "{failed:#}");
        assert_eq!(attempts(&recovered), [no(1), no(2), (3, Some("completed".into()), None)], "{recovered:#}");
        assert_eq!(fleet.tries(6).len(), 6);
        // A retry by the API is a task of its own, and a job of its own.
        let again = server.post(&format!("/api/v1/tasks/{gives_up}/retry"), "").await.json();
        assert_eq!(server.ended_task(again["id"].as_str().unwrap()).await["status"], "failed");
        assert_eq!(fleet.tries(9).len(), 9);
    }
    server.stop();
}

async fn an_attempt_that_failed_has_ended_before_the_next_begins(database: Database) {
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let retry = json!({"attempts": 3, "backoff": {"type": "fixed", "delay": 3_600_000, "jitter": 0}});
        let id = make(&server, json!({"topic": release, "payload": {"fails": 9}, "retry": retry})).await;
        let path = format!("/api/v1/tasks/{id}");
        let task = server.wait_for(&path, |task| task["attempts"][0]["outcome"] == "failed").await;
        let first = (1, Some("failed".to_owned()), Some("no 1".to_owned()));
        assert_eq!((&task["status"], &task["attempt"], &task["error"]), (&json!("running"), &json!(1), &json!("no 1")));
        assert_eq!(attempts(&task), std::slice::from_ref(&first), "{task:#}");
        let why = server.get(&format!("/api/v1/why/{id}")).await.json();
        let said = why["reasons"][0]["message"].as_str().unwrap();
        assert!(said.contains("attempt 1 of 3 has failed, the next has not begun"), "{said}");

        // What a flushed queue had, begins with the next attempt.
        redis.forget();
        let task = server.wait_for(&path, |task| task["attempts"].as_array().unwrap().len() == 2).await;
        assert_eq!(attempts(&task)[0], first, "{task:#}");
        let task = server.wait_for(&path, |task| task["attempts"][1]["outcome"] == "failed").await;
        assert_eq!((&task["attempt"], attempts(&task).len()), (&json!(2), 2), "{task:#}");
        let options = fleet.tries(2)[1]["opts"].clone();
        assert_eq!(options["attempts"], 2, "two are left");

        let task = server.post(&format!("{path}/cancel"), "").await.json();
        assert_eq!(task["status"], "cancelled");
        until_handed_over(&database, 0).await;
        assert_eq!(redis.ask(&format!("EXISTS bull:{release}:t_{id}")), ":0");
        let task = server.get(&path).await.json();
        assert_eq!(attempts(&task).len(), 2, "nobody began a third: {task:#}");
    }
    server.stop();
}

async fn a_task_has_time_for_the_waits_that_its_queue_makes(database: Database) {
    let (redis, server) = serve(&database);
    let mut tasks = Vec::new();
    let mut fleets = Vec::new();
    for release in RELEASES {
        let Some(fleet) = working_fleet(&server, &redis, release, release).await else { return };
        fleets.push(fleet);
        // The queue knows no longest wait: with it, the time would be over 2.7 s before the last attempt.
        let backoff = json!({"type": "exponential", "delay": 700, "maxDelay": 700, "jitter": 0});
        let retry = json!({"attempts": 5, "backoff": backoff});
        let task = json!({"topic": release, "payload": {"fails": 4, "n": 5}, "timeoutSeconds": 1, "retry": retry});
        tasks.push(make(&server, task).await);
    }
    for id in tasks {
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], &task["attempt"]), (&json!("completed"), &json!(5)), "{task:#}");
    }
    server.stop();
}

async fn what_a_worker_puts_off_is_no_attempt(database: Database) {
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let mut begun = 0;
        for put_off in ["delays", "limits"] {
            let retry = json!({"attempts": 2, "backoff": {"type": "fixed", "delay": 20, "jitter": 0}});
            let payload = json!({put_off: 2, "fails": 1, "n": 5});
            let id = make(&server, json!({"topic": release, "payload": payload, "retry": retry})).await;
            let task = server.ended_task(&id).await;
            assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"did": 5})), "{task:#}");
            let failed = (1, Some("failed".to_owned()), Some("no 1".to_owned()));
            assert_eq!(attempts(&task), [failed, (2, Some("completed".into()), None)], "{release} {put_off}: {task:#}");
            begun += 4;
            assert_eq!(fleet.tries(begun).len(), begun);
        }
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_that_a_worker_reports_is_told() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let Some(_fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let payload = json!({"progress": {"pages": 7}, "sleep": 3_600_000});
        let id = make(&server, json!({"topic": release, "payload": payload})).await;
        let told = "SELECT count(*) FROM punctual_hand_overs WHERE progress IS NOT NULL";
        until(&database, told, nth as i64 + 1).await;
        let why = server.get(&format!("/api/v1/why/{id}")).await.json();
        let said = why["reasons"][0]["message"].as_str().unwrap();
        assert!(said.contains(r#"has not ended (its progress is {"pages":7}), and it fails"#), "{said}");
    }
    server.stop();
}
