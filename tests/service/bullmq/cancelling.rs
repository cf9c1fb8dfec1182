//! Tasks that are cancelled, or whose time is up: their jobs are not begun.

use reqwest::Method;
use serde_json::json;

use super::{define, fleet, make, schedule, serve, serve_by, until_answered, until_handed_over, working_fleet};
use crate::fleet::{Fleet, RELEASES};
use crate::on_each_database;
use crate::support::{Answer, Database, Redis, Server};

on_each_database!(
    a_task_cancelled_while_redis_is_away_is_never_begun,
    a_task_cancelled_after_a_crash_before_its_job_was_noted_is_never_begun,
    a_job_that_nobody_noted_is_removed_even_if_redis_answers_after_a_restart,
    a_job_that_nobody_noted_is_removed_by_a_paused_node_that_cancels_its_task,
    a_job_that_nobody_noted_is_removed_by_a_bulk_cancel_and_with_its_schedule,
    a_job_of_a_fire_that_fails_after_its_cancel_is_not_tried_again_a_little_later,
    a_job_that_fails_after_its_task_was_cancelled_is_not_tried_again,
);

/// Cancels these tasks, one by one.
async fn cancel(server: &Server, ids: &[impl AsRef<str>]) {
    for id in ids {
        let task = server.post(&format!("/api/v1/tasks/{}/cancel", id.as_ref()), "").await.json();
        assert_eq!(task["status"], "cancelled", "{task}");
    }
}

async fn a_task_cancelled_while_redis_is_away_is_never_begun(database: Database) {
    let (mut redis, server) = serve(&database);
    define(&server, "jobs").await;
    for stands_still in [false, true] {
        let Some(mut fleet) = Fleet::start(&redis, "bullmq5", "jobs") else { return };
        match stands_still {
            true => redis.signal("STOP"),
            false => redis.kill(),
        }
        let cancelled = make(&server, json!({"topic": "jobs"})).await;
        server.wait_for(&format!("/api/v1/tasks/{cancelled}"), |task| task["status"] == "running").await;
        cancel(&server, &[&cancelled]).await;
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
    let one = serve_by(&database, &redis);
    define(&one, "jobs").await;
    let waits = make(&one, json!({"topic": "jobs"})).await;
    until_handed_over(&database, 1).await;
    // It claims nothing: whatever is handed over, the first one does.
    let other = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()).arg("--paused"));
    cancel(&other, &[&waits]).await;
    until_handed_over(&database, 0).await;
    assert_eq!(redis.ask(&format!("EXISTS bull:jobs:t_{waits}")), ":0");

    redis.kill();
    let tried = make(&one, json!({"topic": "jobs"})).await;
    one.wait_for(&format!("/api/v1/tasks/{tried}"), |task| task["status"] == "running").await;
    cancel(&other, &[&tried]).await;
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

/// A service that was killed after a queue had accepted a task and an execution, and before that was noted; answers their ids.
async fn crash_before_the_note(database: &Database, redis: &Redis) -> [String; 2] {
    let mut server = serve_by(database, redis);
    define(&server, "jobs").await;
    let schedule = schedule(&server, "jobs").await;
    database.execute("ALTER TABLE punctual_hand_overs RENAME TO out_of_reach").await;
    let task = make(&server, json!({"topic": "jobs"})).await;
    let fire = server.post(&format!("/api/v1/schedules/{schedule}/trigger"), "").await.json();
    until_answered(redis, "LLEN bull:jobs:wait", ":2").await;
    server.process.signal("KILL");
    server.process.wait();
    database.execute("ALTER TABLE out_of_reach RENAME TO punctual_hand_overs").await;
    [task, fire["id"].as_str().unwrap().to_owned()]
}

/// The jobs of all other tasks are gone, and those of new ones are run.
async fn only_new_ones_run(server: &Server, redis: &Redis, fleet: &mut Fleet) {
    until_answered(redis, "LLEN bull:jobs:wait", ":0").await;
    let last = make(server, json!({"topic": "jobs"})).await;
    fleet.tell("worker");
    server.ended_task(&last).await;
    let ran: Vec<_> = fleet.jobs(1).into_keys().collect();
    assert_eq!(ran, [format!("t_{last}")]);
}

async fn a_task_cancelled_after_a_crash_before_its_job_was_noted_is_never_begun(database: Database) {
    let redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let ids = crash_before_the_note(&database, &redis).await;
    // The execution has a second job, as if the id of its fire had once been another's.
    fleet.tell(&format!("add t_{}", ids[1]));
    until_answered(&redis, "LLEN bull:jobs:wait", ":3").await;
    let server = serve_by(&database, &redis);
    cancel(&server, &ids).await;
    only_new_ones_run(&server, &redis, &mut fleet).await;
    server.stop();
}

async fn a_job_that_nobody_noted_is_removed_even_if_redis_answers_after_a_restart(database: Database) {
    let redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let ids = crash_before_the_note(&database, &redis).await;
    redis.signal("STOP");
    let server = serve_by(&database, &redis);
    cancel(&server, &ids).await;
    until_handed_over(&database, 2).await;
    server.stop();
    redis.signal("CONT");
    let server = serve_by(&database, &redis);
    only_new_ones_run(&server, &redis, &mut fleet).await;
    server.stop();
}

async fn a_job_that_nobody_noted_is_removed_by_a_paused_node_that_cancels_its_task(database: Database) {
    let redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let ids = crash_before_the_note(&database, &redis).await;
    let paused = Server::start_with(&database, |command| {
        command.envs([("REDIS_URL", redis.url().as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")]).arg("--paused")
    });
    cancel(&paused, &ids).await;
    until_answered(&redis, "LLEN bull:jobs:wait", ":0").await;
    until_handed_over(&database, 0).await;
    paused.stop();
    let server = serve_by(&database, &redis);
    only_new_ones_run(&server, &redis, &mut fleet).await;
    server.stop();
}

async fn a_job_that_nobody_noted_is_removed_by_a_bulk_cancel_and_with_its_schedule(database: Database) {
    let redis = Redis::start();
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    let ids = crash_before_the_note(&database, &redis).await;
    let server = Server::start_with(&database, |command| {
        command.envs([("REDIS_URL", redis.url().as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")]);
        command.env("PUNCTUAL_LEASE_SECONDS", "1")
    });
    let paused = server.post("/api/v1/topics/jobs/pause", "").await;
    assert_eq!(paused.status, 200, "{paused:?}");
    // As if it had not been seen since: a lease is longer than anybody wants to wait for.
    database
        .execute("UPDATE punctual_tasks SET lease_expires_at = created_at WHERE lease_expires_at IS NOT NULL")
        .await;
    for id in &ids {
        server.wait_for(&format!("/api/v1/tasks/{id}"), |task| task["status"] == "pending").await;
    }
    let schedule = server.get(&format!("/api/v1/tasks/{}", ids[1])).await.json()["scheduleId"].clone();
    let schedule = format!("/api/v1/schedules/{}", schedule.as_str().unwrap());
    let deleted = Answer::to(server.request(Method::DELETE, &schedule)).await;
    assert_eq!(deleted.status, 204, "{deleted:?}");
    until_answered(&redis, "LLEN bull:jobs:wait", ":1").await;
    let answer = server.post("/api/v1/tasks/cancel", r#"{"filter": {"topic": "jobs"}}"#).await.json();
    assert_eq!(answer["count"], 1, "{answer}");
    until_answered(&redis, "LLEN bull:jobs:wait", ":0").await;
    server.post("/api/v1/topics/jobs/resume", "").await;
    only_new_ones_run(&server, &redis, &mut fleet).await;
    server.stop();
}

async fn a_job_that_fails_after_its_task_was_cancelled_is_not_tried_again(database: Database) {
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let retry = json!({"attempts": 3, "backoff": {"type": "fixed", "delay": 3_600_000, "jitter": 0}});
        let payload = json!({"sleep": 1_000, "fails": 9});
        let id = make(&server, json!({"topic": release, "payload": payload, "retry": retry})).await;
        until_handed_over(&database, 1).await;
        fleet.tries(1);
        cancel(&server, &[&id]).await;
        // Known for as long as a worker has it.
        until_handed_over(&database, 0).await;
        assert_eq!(redis.ask(&format!("EXISTS bull:{release}:t_{id}")), ":0");
        assert_eq!(fleet.tries(1).len(), 1);
    }
    server.stop();
}

async fn a_job_of_a_fire_that_fails_after_its_cancel_is_not_tried_again_a_little_later(database: Database) {
    let redis = Redis::start();
    // Rounds are long: nothing but the queue's events tells in time.
    let server = Server::start_with(&database, |command| {
        command.envs([("REDIS_URL", redis.url().as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "60")])
    });
    let Some(mut fleet) = working_fleet(&server, &redis, "bullmq6", "jobs").await else { return };
    let body = json!({
        "name": "fails", "topic": "jobs", "cronExpression": "* * * * *", "timezone": "UTC", "enabled": false,
        "payload": {"sleep": 1_000, "fails": 9},
        "maxRetries": 2, "retry": {"backoff": {"type": "fixed", "delay": 2_000, "jitter": 0}},
    });
    let schedule = server.post("/api/v1/schedules", body.to_string()).await.json();
    let schedule = schedule["id"].as_str().unwrap();
    let fire = server.post(&format!("/api/v1/schedules/{schedule}/trigger"), "").await.json();
    until_handed_over(&database, 1).await;
    let job = fleet.tries(1)[0]["id"].as_str().unwrap().to_owned();
    assert!(job.starts_with(&format!("f_{schedule}")), "{job}");
    cancel(&server, &[fire["id"].as_str().unwrap()]).await;
    until_handed_over(&database, 0).await;
    assert_eq!(redis.ask(&format!("EXISTS bull:jobs:{job}")), ":0");
    assert_eq!(fleet.tries(1).len(), 1);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_is_not_begun_and_one_whose_time_is_up_fails() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    let Some(mut fleet) = fleet(&server, &redis, "bullmq5", "jobs").await else { return };
    let cancelled = make(&server, json!({"topic": "jobs"})).await;
    let late = make(&server, json!({"topic": "jobs", "timeoutSeconds": 1})).await;
    until_handed_over(&database, 2).await;
    cancel(&server, &[&cancelled]).await;
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
