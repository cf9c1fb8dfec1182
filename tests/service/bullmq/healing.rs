//! What is lost or missed is made good.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    backfill, fleet, is_soak, make, make_all, schedule_of, serve, serve_by, until, until_answered, until_completed,
    until_handed_over, working_fleet,
};
use crate::fleet::RELEASES;
use crate::on_each_database;
use crate::support::{Database, Redis, Server};

on_each_database!(
    what_a_flushed_redis_lost_is_handed_over_again,
    what_ends_while_nobody_follows_is_found_after_a_restart,
    what_ended_and_was_removed_is_not_handed_over_again,
);

async fn what_a_flushed_redis_lost_is_handed_over_again(database: Database) {
    // Half of them fires, half tasks of callers.
    let half = if is_soak() { 500 } else { 150 };
    for (nth, release) in RELEASES.into_iter().enumerate() {
        let (redis, mut server) = serve(&database);
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let payload = |n: usize| json!({"n": n, "sleep": 20});
        let schedule = schedule_of(&server, release, payload(7)).await;
        let task = |n: usize| json!({"topic": release, "payload": payload(n)});
        make_all(&server, (0..half / 2).map(task).collect()).await;
        backfill(&server, &schedule, half).await;
        make_all(&server, (half / 2..half).map(task).collect()).await;
        fleet.tries(half / 2);
        redis.forget();
        until_completed(&database, 2 * half as i64 * (nth as i64 + 1)).await;
        until_handed_over(&database, 0).await;
        // None has ended otherwise, and no fire stands without its end.
        until(&database, "SELECT count(*) FROM punctual_task_history WHERE status <> 'completed'", 0).await;
        until(&database, "SELECT count(*) FROM punctual_tasks", 0).await;
        let ended = server.get(&format!("/api/v1/schedules/{schedule}/executions?limit=1000&status=completed")).await;
        assert_eq!(ended.json()["items"].as_array().unwrap().len(), half, "{release}");
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
}

async fn what_ends_while_nobody_follows_is_found_after_a_restart(database: Database) {
    let (redis, mut server) = serve(&database);
    let Some(mut fleet) = fleet(&server, &redis, "bullmq5", "jobs").await else { return };
    let ids = make_all(&server, (0..20).map(|n| json!({"topic": "jobs", "payload": {"n": n}})).collect()).await;
    until_handed_over(&database, 20).await;
    server.process.signal("KILL");
    server.process.wait();
    fleet.tell("worker");
    fleet.jobs(20);
    let server = serve_by(&database, &redis);
    for (n, id) in ids.iter().enumerate() {
        let task = server.ended_task(id).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"did": n})), "{task}");
    }
    assert_eq!(fleet.tries(20).len(), 20);
    server.stop();
}

async fn what_ended_and_was_removed_is_not_handed_over_again(database: Database) {
    let redis = Redis::start();
    for release in RELEASES {
        let mut server = serve_by(&database, &redis);
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        let id = make(&server, json!({"topic": release, "payload": {"n": 3}})).await;
        until_handed_over(&database, 1).await;
        server.process.signal("KILL");
        server.process.wait();
        fleet.tell("worker");
        fleet.jobs(1);
        until_answered(&redis, &format!("ZCARD bull:{release}:completed"), ":1").await;
        fleet.tell(&format!("remove t_{id}"));
        let server = serve_by(&database, &redis);
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"did": 3})), "{task:#}");
        assert_eq!(fleet.jobs(1).len(), 1);
        server.stop();
    }
}

/// There is no other process that could follow: nobody waits for the end of a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_queue_is_followed_at_once_after_a_crash() {
    let database = Database::sqlite();
    let redis = Redis::start();
    let serve = || Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()));
    let mut server = serve();
    let Some(mut fleet) = fleet(&server, &redis, "bullmq6", "jobs").await else { return };
    let id = make(&server, json!({"topic": "jobs", "payload": {"n": 3}})).await;
    let led = "SELECT count(*) FROM punctual_leaderships WHERE name = 'queue bull:jobs'";
    until(&database, led, 1).await;
    server.process.signal("KILL");
    server.process.wait();
    let server = serve();
    let asked_at = Instant::now();
    fleet.tell("worker");
    assert_eq!(server.ended_task(&id).await["result"], json!({"did": 3}));
    // A lease of 15 s was just taken.
    assert!(asked_at.elapsed() < Duration::from_secs(10), "{:?}", asked_at.elapsed());
    server.stop();
}
