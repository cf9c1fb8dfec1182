//! The route `bullmq`, seen by unmodified workers of BullMQ's releases 5 and 6.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::fleet::{Fleet, RELEASES};
use crate::on_each_database;
use crate::support::{Database, Past, Redis, Server, beside_us};

on_each_database!(
    a_thousand_tasks_run_once_each_with_all_that_they_carry,
    retries_and_failures_come_back,
    what_a_flushed_redis_lost_is_handed_over_again,
    what_ends_while_nobody_follows_is_found_after_a_restart,
    an_execution_is_dispatched_until_the_queue_says_how_it_ended,
    a_notification_that_a_flushed_redis_lost_arrives_once,
    a_task_cancelled_while_redis_is_away_is_never_begun,
    a_task_cancelled_after_a_crash_before_its_job_was_noted_is_never_begun,
    a_job_that_fails_after_its_task_was_cancelled_is_not_tried_again,
    an_attempt_that_failed_has_ended_before_the_next_begins,
    what_a_worker_puts_off_is_no_attempt,
    what_ended_and_was_removed_is_not_handed_over_again,
);

fn serve(database: &Database, redis: &Redis) -> Server {
    Server::start_with(database, |command| {
        command.envs([("REDIS_URL", redis.url().as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")])
    })
}

async fn define(server: &Server, queue: &str) {
    let retry = json!({"attempts": 1, "backoff": {"type": "fixed", "delay": 20, "jitter": 0}});
    let body = json!({"route": {"type": "bullmq", "queue": queue}, "retry": retry});
    server.put_topic(queue, &body.to_string()).await;
}

async fn make(server: &Server, body: Value) -> String {
    server.make_task(&body.to_string()).await["id"].as_str().unwrap().to_owned()
}

/// Makes tasks together; answers their ids.
async fn make_all(server: &Server, tasks: Vec<Value>) -> Vec<String> {
    let answer = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    serde_json::from_value(answer.json()["ids"].clone()).unwrap()
}

/// Waits until a statement counts so many.
async fn until(database: &Database, statement: &str, count: i64) {
    let asked_at = std::time::Instant::now();
    loop {
        let found = database.number(statement).await;
        if found == count {
            return;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{statement}: {found} instead of {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until Redis answers that.
async fn until_answered(redis: &Redis, command: &str, answer: &str) {
    let asked_at = std::time::Instant::now();
    while redis.ask(command) != answer {
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{command}: {} instead of {answer}", redis.ask(command));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_handed_over(database: &Database, count: i64) {
    until(database, "SELECT count(*) FROM punctual_hand_overs", count).await;
}

async fn until_completed(database: &Database, count: i64) {
    until(database, "SELECT count(*) FROM punctual_task_history WHERE status = 'completed'", count).await;
}

/// Makes a schedule of that topic which does not fire by itself for a while.
async fn schedule(server: &Server, topic: &str) -> String {
    let body = json!({
        "name": topic, "topic": topic, "cronExpression": "* * * * *", "timezone": "UTC", "payload": {"n": 7, "e": []},
        "overlapPolicy": "allow", "maxRetries": 2, "enabled": false,
    });
    let answer = server.post("/api/v1/schedules", body.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn a_thousand_tasks_run_once_each_with_all_that_they_carry(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
        let schedule = schedule(&server, release).await;
        let payload = |n: usize| json!({"n": n, "empty": {"list": [], "object": {}}, "text": "é ✓"});
        let task = |n| json!({"topic": release, "payload": payload(n), "retry": {"attempts": 3}});
        let ids = make_all(&server, (0..500).map(task).collect()).await;
        let to = Utc::now() - TimeDelta::minutes(1);
        let stretch = json!({"from": (to - TimeDelta::minutes(500)).to_rfc3339(), "to": to.to_rfc3339()});
        let filled = server.post(&format!("/api/v1/schedules/{schedule}/backfill"), stretch.to_string()).await;
        assert_eq!(filled.json()["made"], 500, "{filled:?}");
        until_completed(&database, 1_000 * (nth as i64 + 1)).await;

        let mut jobs = fleet.jobs(1_000);
        for (n, id) in ids.iter().enumerate() {
            let job = jobs.remove(&format!("t_{id}")).expect("a job with the task's id");
            assert_eq!((&job["name"], &job["data"]), (&json!(release), &payload(n)));
            assert_eq!((&job["opts"]["attempts"], &job["opts"]["jobId"]), (&json!(3), &job["id"]));
        }
        let executions = server.get(&format!("/api/v1/schedules/{schedule}/executions?limit=1000")).await.json();
        for execution in executions["items"].as_array().unwrap() {
            let at: DateTime<Utc> = execution["scheduledAt"].as_str().unwrap().parse().unwrap();
            let job =
                jobs.remove(&format!("f_{schedule}_{}", at.timestamp_millis())).expect("a job with the fire's id");
            let data = json!({
                "n": 7, "e": [], "_schedulerId": schedule, "_executionId": execution["id"],
                "_scheduledAt": execution["scheduledAt"],
            });
            assert_eq!((&job["data"], &job["opts"]["attempts"]), (&data, &json!(2)));
            assert_eq!(execution["status"], "completed");
        }
        assert!(jobs.is_empty(), "{jobs:?}");
        let task = server.get(&format!("/api/v1/tasks/{}", ids[3])).await.json();
        assert_eq!((&task["result"], &task["attempt"]), (&json!({"did": 3}), &json!(1)), "{task}");
    }
    assert_eq!(database.number("SELECT count(*) FROM punctual_hand_overs").await, 0);
    server.stop();
}

async fn retries_and_failures_come_back(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    for release in RELEASES {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
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

/// Number, outcome and error of a task's attempts; each begins when the one before has ended.
fn attempts(task: &Value) -> Vec<(u64, Option<String>, Option<String>)> {
    let mut last = String::new();
    let mut told = Vec::new();
    for attempt in task["attempts"].as_array().unwrap() {
        for at in ["startedAt", "endedAt"] {
            let at = attempt[at].as_str().unwrap_or("9").to_owned();
            assert!(last <= at, "{task:#}");
            last = at;
        }
        let text = |field: &str| attempt[field].as_str().map(str::to_owned);
        told.push((attempt["number"].as_u64().unwrap(), text("outcome"), text("error")));
    }
    told
}

async fn an_attempt_that_failed_has_ended_before_the_next_begins(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    for release in RELEASES {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
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

async fn what_a_worker_puts_off_is_no_attempt(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    for release in RELEASES {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
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

async fn a_task_cancelled_while_redis_is_away_is_never_begun(database: Database) {
    let mut redis = Redis::start();
    let server = serve(&database, &redis);
    define(&server, "jobs").await;
    for stands_still in [false, true] {
        let Some(mut fleet) = Fleet::start(&redis, "bullmq5", "jobs") else { return };
        match stands_still {
            true => redis.signal("STOP"),
            false => redis.kill(),
        }
        let cancelled = make(&server, json!({"topic": "jobs"})).await;
        server.wait_for(&format!("/api/v1/tasks/{cancelled}"), |task| task["status"] == "running").await;
        server.post(&format!("/api/v1/tasks/{cancelled}/cancel"), "").await;
        let other = make(&server, json!({"topic": "jobs", "timeoutSeconds": 8})).await;
        let path = format!("/api/v1/tasks/{other}");
        server.wait_for(&path, |task| task["status"] == "running").await;
        match stands_still {
            true => {
                // Given back after half of its time: nobody waits any more for what Redis was sent before, and has still to
                // carry out.
                server.wait_for(&path, |task| task["status"] == "pending").await;
                redis.signal("CONT");
            }
            false => redis.restart(),
        }
        until_handed_over(&database, 1).await;
        fleet.tell("worker");
        assert_eq!(server.ended_task(&other).await["status"], "completed");
        let ran: Vec<_> = fleet.jobs(1).into_keys().collect();
        assert_eq!(ran, [format!("t_{other}")]);
        assert_eq!(redis.ask(&format!("EXISTS bull:jobs:t_{cancelled}")), ":0");
    }
    server.stop();
}

/// Two nodes; the one that is asked to cancel is not the one that hands over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_cancelled_on_another_node_is_never_begun() {
    let Some(database) = Database::postgres().await else { return };
    let mut redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let one = serve(&database, &redis);
    define(&one, "jobs").await;
    let waits = make(&one, json!({"topic": "jobs"})).await;
    until_handed_over(&database, 1).await;
    // It claims nothing: whatever is handed over, the first one does.
    let other = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()).arg("--paused"));
    let cancel = async |id: &str| {
        let task = other.post(&format!("/api/v1/tasks/{id}/cancel"), "").await.json();
        assert_eq!(task["status"], "cancelled", "{task}");
    };
    cancel(&waits).await;
    until_handed_over(&database, 0).await;
    assert_eq!(redis.ask(&format!("EXISTS bull:jobs:t_{waits}")), ":0");

    redis.kill();
    let tried = make(&one, json!({"topic": "jobs"})).await;
    one.wait_for(&format!("/api/v1/tasks/{tried}"), |task| task["status"] == "running").await;
    cancel(&tried).await;
    redis.restart();
    let last = make(&one, json!({"topic": "jobs"})).await;
    until_handed_over(&database, 1).await;
    fleet.tell("worker");
    assert_eq!(one.ended_task(&last).await["status"], "completed");
    let ran: Vec<_> = fleet.jobs(1).into_keys().collect();
    assert_eq!(ran, [format!("t_{last}")]);
    other.stop();
    one.stop();
}

async fn a_task_cancelled_after_a_crash_before_its_job_was_noted_is_never_begun(database: Database) {
    let redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let mut server = serve(&database, &redis);
    define(&server, "jobs").await;
    let schedule = schedule(&server, "jobs").await;
    database.execute("ALTER TABLE punctual_hand_overs RENAME TO out_of_reach").await;
    let task = make(&server, json!({"topic": "jobs"})).await;
    let fire = server.post(&format!("/api/v1/schedules/{schedule}/trigger"), "").await.json();
    until_answered(&redis, "LLEN bull:jobs:wait", ":2").await;
    server.process.signal("KILL");
    server.process.wait();
    database.execute("ALTER TABLE out_of_reach RENAME TO punctual_hand_overs").await;
    let server = serve(&database, &redis);
    for id in [&task, fire["id"].as_str().unwrap()] {
        let task = server.post(&format!("/api/v1/tasks/{id}/cancel"), "").await.json();
        assert_eq!(task["status"], "cancelled", "{task}");
    }
    until_answered(&redis, "LLEN bull:jobs:wait", ":0").await;
    let last = make(&server, json!({"topic": "jobs"})).await;
    fleet.tell("worker");
    server.ended_task(&last).await;
    let ran: Vec<_> = fleet.jobs(1).into_keys().collect();
    assert_eq!(ran, [format!("t_{last}")]);
    server.stop();
}

async fn a_job_that_fails_after_its_task_was_cancelled_is_not_tried_again(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    for release in RELEASES {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
        let retry = json!({"attempts": 3, "backoff": {"type": "fixed", "delay": 3_600_000, "jitter": 0}});
        let payload = json!({"sleep": 1_000, "fails": 9});
        let id = make(&server, json!({"topic": release, "payload": payload, "retry": retry})).await;
        until_handed_over(&database, 1).await;
        fleet.tries(1);
        let task = server.post(&format!("/api/v1/tasks/{id}/cancel"), "").await.json();
        assert_eq!(task["status"], "cancelled", "{task}");
        // Known for as long as a worker has it.
        until_handed_over(&database, 0).await;
        assert_eq!(redis.ask(&format!("EXISTS bull:{release}:t_{id}")), ":0");
        assert_eq!(fleet.tries(1).len(), 1);
    }
    server.stop();
}

async fn what_ended_and_was_removed_is_not_handed_over_again(database: Database) {
    let redis = Redis::start();
    for release in RELEASES {
        let mut server = serve(&database, &redis);
        let Some(mut fleet) = Fleet::start(&redis, release, release) else { return };
        define(&server, release).await;
        let id = make(&server, json!({"topic": release, "payload": {"n": 3}})).await;
        until_handed_over(&database, 1).await;
        server.process.signal("KILL");
        server.process.wait();
        fleet.tell("worker");
        fleet.jobs(1);
        until_answered(&redis, &format!("ZCARD bull:{release}:completed"), ":1").await;
        fleet.tell(&format!("remove t_{id}"));
        let server = serve(&database, &redis);
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"did": 3})), "{task:#}");
        assert_eq!(fleet.jobs(1).len(), 1);
        server.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_refuses_a_job_gets_nothing_of_it_and_others_are_served() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let mut server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::with_worker(&redis, "bullmq6", "well") else { return };
    define(&server, "well").await;
    for part in ["meta", "wait", "paused", "active", "marker", "events"] {
        let (queue, key) = (format!("ill-{part}"), format!("bull:ill-{part}:{part}"));
        define(&server, &queue).await;
        assert_eq!(redis.ask(&format!("SET {key} x")), "+OK");
        let id = make(&server, json!({"topic": queue, "payload": {"n": 1}})).await;
        let path = format!("/api/v1/tasks/{id}");
        let task = server.wait_for(&path, |task| task["error"].is_string()).await;
        let error = task["error"].as_str().unwrap();
        assert!(error.starts_with(&format!("the queue {queue} does not take it")), "{error}");
        assert!(error.contains(&format!("{key} is a string")), "{error}");
        let why = server.wait_for(&format!("/api/v1/why/{id}"), |why| why.to_string().contains(&key)).await;
        assert!(why["reasons"][0]["message"].as_str().unwrap().contains("WRONGTYPE"), "{why}");
        assert!(server.process.wait_for_log("the queue does not take tasks").contains(&queue));
        for other in [format!("t_{id}"), "wait".into(), "paused".into(), "meta".into(), "events".into()] {
            let expected = if other == part { ":1" } else { ":0" };
            assert_eq!(redis.ask(&format!("EXISTS bull:{queue}:{other}")), expected, "{queue} {other}");
        }
        // Those that were accepted before it broke do not keep others from being followed.
        let well = make(&server, json!({"topic": "well", "payload": {"n": 2}})).await;
        assert_eq!(server.ended_task(&well).await["status"], "completed");

        assert_eq!(redis.ask(&format!("DEL {key}")), ":1");
        let Some(mut mended) = Fleet::with_worker(&redis, "bullmq6", &queue) else { return };
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], &task["error"]), (&json!("completed"), &Value::Null), "{task:#}");
        assert_eq!(mended.jobs(1).len(), 1);
    }
    // One that was followed before is left out, and nobody else.
    redis.ask("DEL bull:ill-wait:events");
    assert_eq!(redis.ask("SET bull:ill-wait:events x"), "+OK");
    assert!(server.process.wait_for_log("the queue cannot be followed").contains("ill-wait"));
    let well = make(&server, json!({"topic": "well", "payload": {"n": 2}})).await;
    assert_eq!(server.ended_task(&well).await["status"], "completed");
    assert_eq!(fleet.tries(7).len(), 7);
    server.stop();
}

async fn what_a_flushed_redis_lost_is_handed_over_again(database: Database) {
    let redis = Redis::start();
    let mut server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::with_worker(&redis, "bullmq6", "jobs") else { return };
    define(&server, "jobs").await;
    let task = |n: usize| json!({"topic": "jobs", "payload": {"n": n, "sleep": 20}});
    make_all(&server, (0..300).map(task).collect()).await;
    fleet.tries(60);
    redis.forget();
    until_completed(&database, 300).await;
    loop {
        let told = server.process.wait_for_log("hand-overs reconciled");
        let told: Value = serde_json::from_str(&told).unwrap();
        assert!(told["scanned"].is_u64() && told["skipped"].is_u64(), "{told}");
        if told["healed"].as_u64().unwrap() > 0 {
            break;
        }
    }
    server.stop();
}

async fn what_ends_while_nobody_follows_is_found_after_a_restart(database: Database) {
    let redis = Redis::start();
    let mut server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::start(&redis, "bullmq5", "jobs") else { return };
    define(&server, "jobs").await;
    let ids = make_all(&server, (0..20).map(|n| json!({"topic": "jobs", "payload": {"n": n}})).collect()).await;
    until_handed_over(&database, 20).await;
    server.process.signal("KILL");
    server.process.wait();
    fleet.tell("worker");
    fleet.jobs(20);
    let server = serve(&database, &redis);
    for (n, id) in ids.iter().enumerate() {
        let task = server.ended_task(id).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"did": n})), "{task}");
    }
    assert_eq!(fleet.tries(20).len(), 20);
    server.stop();
}

async fn an_execution_is_dispatched_until_the_queue_says_how_it_ended(database: Database) {
    let redis = Redis::start();
    let server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    define(&server, "jobs").await;
    let schedule = schedule(&server, "jobs").await;
    let task = server.post(&format!("/api/v1/schedules/{schedule}/trigger"), "").await.json();
    until_handed_over(&database, 1).await;
    let path = format!("/api/v1/schedules/{schedule}/executions");
    let execution = &server.get(&path).await.json()["items"][0];
    assert_eq!(execution["status"], "dispatched", "{execution}");
    for (status, count) in [("dispatched", 1), ("running", 0)] {
        let found = server.get(&format!("{path}?status={status}")).await.json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{status}");
    }
    let id = task["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/v1/tasks/{id}")).await.json()["status"], "running");
    let why = server.get(&format!("/api/v1/why/{id}")).await.json();
    let said = why["reasons"][0]["message"].as_str().unwrap();
    assert!(said.starts_with("it was handed to the queue jobs of BullMQ at "), "{said}");
    fleet.tell("worker");
    server.ended_task(id).await;
    assert_eq!(server.get(&path).await.json()["items"][0]["status"], "completed");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_is_not_begun_and_one_whose_time_is_up_fails() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::start(&redis, "bullmq5", "jobs") else { return };
    define(&server, "jobs").await;
    let cancelled = make(&server, json!({"topic": "jobs"})).await;
    let late = make(&server, json!({"topic": "jobs", "timeoutSeconds": 1})).await;
    until_handed_over(&database, 2).await;
    let task = server.post(&format!("/api/v1/tasks/{cancelled}/cancel"), "").await.json();
    assert_eq!(task["status"], "cancelled");
    let task = server.ended_task(&late).await;
    assert_eq!((&task["status"], &task["attempts"][0]["outcome"]), (&json!("failed"), &json!("timed_out")), "{task:#}");
    assert_eq!(task["error"], "the queue jobs did not end it within 1 s");
    until_handed_over(&database, 0).await;
    let last = make(&server, json!({"topic": "jobs"})).await;
    fleet.tell("worker");
    server.ended_task(&last).await;
    let ran: Vec<_> = fleet.jobs(1).into_keys().collect();
    assert_eq!(ran, [format!("t_{last}")]);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_handed_to_a_paused_queue_runs_when_it_goes_on() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = serve(&database, &redis);
    for release in RELEASES {
        for has_jobs in [false, true] {
            let queue = format!("{release}-{has_jobs}");
            let Some(mut fleet) = Fleet::start(&redis, release, &queue) else { return };
            define(&server, &queue).await;
            let mut expected = Vec::new();
            let mut hand_over = async |count: usize| {
                let tasks = (0..count).map(|n| json!({"topic": queue, "payload": {"n": n}})).collect();
                expected.extend(make_all(&server, tasks).await.into_iter().map(|id| format!("t_{id}")));
                until_handed_over(&database, expected.len() as i64).await;
            };
            if has_jobs {
                hand_over(3).await;
                fleet.tell("add before");
            }
            fleet.tell("pause");
            hand_over(5).await;
            fleet.tell("add during");
            hand_over(2).await;
            fleet.tell("worker");
            fleet.tell("resume");
            let count = expected.len() + if has_jobs { 2 } else { 1 };
            let jobs = fleet.jobs(count);
            assert!(
                expected.iter().all(|id| jobs.contains_key(id)) && jobs.contains_key("during"),
                "{queue}: {jobs:?}"
            );
            until_handed_over(&database, 0).await;
        }
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_begins_when_the_task_is_due() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = serve(&database, &redis);
    for release in RELEASES {
        let Some(mut fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
        server.ended_task(&make(&server, json!({"topic": release})).await).await;
        let due = |n: i64| Utc::now() + TimeDelta::milliseconds(1_000 + 20 * n);
        let instants: Vec<_> = (0..100).map(due).collect();
        let task = |at: &DateTime<Utc>| json!({"topic": release, "runAt": at.to_rfc3339(), "timezone": "UTC"});
        let ids = make_all(&server, instants.iter().map(task).collect()).await;
        let jobs = fleet.jobs(101);
        let mut late: Vec<i64> = ids
            .iter()
            .zip(&instants)
            .map(|(id, at)| jobs[&format!("t_{id}")]["at"].as_i64().unwrap() - at.timestamp_millis())
            .collect();
        late.sort_unstable();
        assert!(late[0] >= 0, "{} ms early", -late[0]);
        println!("{release}: a blocked worker began {} ms (p50), {} ms (p99) after the instant", late[50], late[98]);
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_tasks_wait_and_whoever_sends_them_is_told() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    define(&server, "jobs").await;
    let task = server.make_task(r#"{"topic":"jobs"}"#).await;
    assert!(task["warnings"][0].as_str().unwrap().contains("REDIS_URL"), "{task}");
    server.stop();
    // One that is away costs time only.
    let mut redis = Redis::absent();
    let server = serve(&database, &redis);
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    assert_eq!(server.get("/readyz").await.json()["status"], "degraded");
    redis.restart();
    fleet.tell("worker");
    let ended = server.ended_task(task["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended:#}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_to_a_queue_by_their_dedupe_keys() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let Some(mut fleet) = Fleet::with_worker(&redis, "bullmq5", "notifications__email") else { return };
    let past = Past::of(&database).await;
    let content = json!({"subject": "s", "text": "t", "templateSlug": "welcome", "data": {"tenantId": "7"}});
    let first = past.message("welcome__7", "queue", content).await;
    let second = past.message("tenant:7", "queue", json!({"subject": "s", "text": "t"})).await;
    past.close().await;
    let server = serve(&database, &redis);
    for (id, provider_id) in [(first, "welcome__7"), (second, "k_tenant%3A7")] {
        assert_eq!(crate::messages::until(&server, id, "sent").await["providerId"], provider_id);
    }
    let jobs = fleet.jobs(2);
    let data =
        json!({"tenantId": "7", "templateSlug": "welcome", "recipient": "ada@example.com", "dedupeKey": "welcome__7"});
    assert_eq!((&jobs["welcome__7"]["name"], &jobs["welcome__7"]["data"]), (&json!("welcome"), &data));
    assert_eq!(jobs["k_tenant%3A7"]["data"]["text"], "t");
    server.stop();
}

/// Sign-ups, whose messages go to the queue of notifications.
async fn a_notification_that_a_flushed_redis_lost_arrives_once(database: Database) {
    const JOBS: &str = "SELECT count(*) FROM punctual_message_jobs";
    let redis = Redis::start();
    let url = redis.url();
    let mut server = Server::start_with(&database, |command| {
        command.envs([("REDIS_URL", url.as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")]);
        command.envs([("PUNCTUAL_PLUGINS", "signup"), ("SIGNUP_ALERT_EMAIL", "sales@example.com")]);
        command.env("NOTIFY_TRANSPORT", "queue")
    });
    let sign_up = async |email: &str| {
        let answer = server.post("/api/v1/plugins/signup/sessions", json!({ "email": email }).to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    };
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let Some(mut fleet) = Fleet::start(&redis, release, "notifications__email") else { return };
        let email = format!("{release}@example.com");
        sign_up(&email).await;
        until(&database, "SELECT count(*) FROM punctual_outbox WHERE status = 'sent'", 2 * nth as i64 + 1).await;
        assert_eq!(database.number(JOBS).await, 1, "nobody has done it yet");
        redis.forget();
        fleet.tell("worker");
        let jobs = fleet.jobs(1);
        let job = &jobs[&format!("signup-alert-internal__{email}")];
        assert_eq!(
            (&job["name"], &job["data"]["recipient"]),
            (&json!("signup-alert-internal"), &json!("sales@example.com"))
        );
        until(&database, JOBS, 0).await;
        // What was done before is not done again, whatever Redis forgets.
        redis.forget();
        let later = format!("later-{email}");
        sign_up(&later).await;
        assert!(fleet.jobs(2).contains_key(&format!("signup-alert-internal__{later}")));
        until(&database, JOBS, 0).await;
    }
    while serde_json::from_str::<Value>(&server.process.wait_for_log("hand-overs reconciled")).unwrap()["healed"] == 0 {
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_that_a_worker_reports_is_told() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = serve(&database, &redis);
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let Some(_fleet) = Fleet::with_worker(&redis, release, release) else { return };
        define(&server, release).await;
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

/// The database is what it was before, as after a crash or from a backup; the queue is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_hand_over_of_the_same_id_does_nothing() {
    for release in RELEASES {
        let (database, redis) = (Database::sqlite(), Redis::start());
        let Some(mut fleet) = Fleet::start(&redis, release, "jobs") else { return };
        let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()).arg("--paused"));
        define(&server, "jobs").await;
        let tasks = [json!({"n": 1}), json!({"n": 2, "fails": 9})];
        let tasks = tasks.map(|payload| json!({"topic": "jobs", "payload": payload}));
        let ids = make_all(&server, tasks.to_vec()).await;
        server.stop();
        let saved = database.folder.path().join("saved.db");
        database.execute(format!("VACUUM INTO '{}'", saved.display())).await;
        let restore = || {
            for file in ["punctual.db-wal", "punctual.db-shm"] {
                let _ = std::fs::remove_file(database.folder.path().join(file));
            }
            std::fs::copy(&saved, database.folder.path().join("punctual.db")).unwrap();
        };
        let handed_over = async |server: &Server, result: &str| {
            let sample = format!("punctual_hand_overs_total{{result=\"{result}\"}}");
            server.samples(|samples| samples.value(&sample) == Some(2.0)).await;
        };
        let server = serve(&database, &redis);
        handed_over(&server, "queued").await;
        server.stop();

        restore();
        let server = serve(&database, &redis);
        handed_over(&server, "was_there").await;
        fleet.tell("worker");
        fleet.jobs(2);
        let ended = async |server: &Server| {
            let (done, failed) = (server.ended_task(&ids[0]).await, server.ended_task(&ids[1]).await);
            assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!({"did": 1})), "{done:#}");
            assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("no 1")), "{failed:#}");
        };
        ended(&server).await;
        server.stop();

        // Both have ended there; what they ended with is what counts.
        restore();
        let server = serve(&database, &redis);
        handed_over(&server, "was_there").await;
        ended(&server).await;
        server.stop();
        assert_eq!(fleet.jobs(2).len(), 2, "each ran once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_speaks_tls_is_trusted_by_the_authority_that_the_operator_names() {
    let (database, redis) = (Database::sqlite(), Redis::encrypted());
    let mut server = serve(&database, &redis);
    assert_eq!(server.get("/readyz").await.json()["status"], "degraded", "nobody vouches for it");
    assert!(server.process.wait_for_log("Redis").contains("certificate"), "{:#?}", server.process.log());
    server.stop();
    let server = Server::start_with(&database, |command| {
        command.env("REDIS_URL", redis.url()).env("SSL_CERT_FILE", beside_us("tls/ca.pem"))
    });
    assert_eq!(server.get("/readyz").await.json()["status"], "ready");
    define(&server, "jobs").await;
    let Some(mut fleet) = Fleet::with_worker(&redis, "bullmq6", "jobs") else { return };
    let id = make(&server, json!({"topic": "jobs", "payload": {"n": 7}})).await;
    assert_eq!(server.ended_task(&id).await["result"], json!({"did": 7}));
    assert!(fleet.jobs(1).contains_key(&format!("t_{id}")));
    server.stop();
}
