//! A Redis that is away, that refuses, or that must be trusted first.

use serde_json::{Value, json};

use super::{attempts, define, fleet, make, make_all, serve, serve_by, until_handed_over, working_fleet};
use crate::fleet::{Fleet, RELEASES};
use crate::on_each_database;
use crate::support::{Database, Redis, Server, beside_us};

on_each_database!(a_redis_that_speaks_tls_is_trusted_by_the_authority_that_the_operator_names);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_refuses_a_job_gets_nothing_of_it_and_others_are_served() {
    let database = Database::sqlite();
    let (redis, mut server) = serve(&database);
    let Some(mut fleet) = working_fleet(&server, &redis, "bullmq6", "well").await else { return };
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_redis_does_not_take_waits_and_nothing_is_lost() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        let tasks = |from: usize| (from..from + 20).map(|n| json!({"topic": release, "payload": {"n": n}})).collect();
        let mut ids = make_all(&server, tasks(0)).await;
        until_handed_over(&database, 20).await;
        assert_eq!(redis.ask("CONFIG SET maxmemory 1mb"), "+OK");
        let refused = make_all(&server, tasks(20)).await;
        for id in &refused {
            let task = server.wait_for(&format!("/api/v1/tasks/{id}"), |task| task["error"].is_string()).await;
            let error = task["error"].as_str().unwrap();
            assert!(error.starts_with(&format!("the queue {release} does not take it")), "{error}");
            assert!(error.contains("OOM"), "{error}");
            assert_eq!(redis.ask(&format!("EXISTS bull:{release}:t_{id}")), ":0");
        }
        assert_eq!(redis.ask(&format!("LLEN bull:{release}:wait")), ":20");
        let why = server.get(&format!("/api/v1/why/{}", refused[0])).await.json();
        assert!(why.to_string().contains("OOM"), "{why}");
        assert_eq!(redis.ask("CONFIG SET maxmemory 0"), "+OK");
        fleet.tell("worker");
        ids.extend(refused);
        for (n, id) in ids.iter().enumerate() {
            let task = server.ended_task(id).await;
            assert_eq!((&task["result"], &task["error"]), (&json!({"did": n}), &Value::Null), "{release}: {task:#}");
            let mut outcomes = attempts(&task).into_iter().map(|(_, outcome, _)| outcome.unwrap());
            assert_eq!(outcomes.next_back().as_deref(), Some("completed"), "{release}: {task:#}");
            // What was refused has used up no attempt.
            assert!(outcomes.all(|outcome| outcome == "snoozed"), "{release}: {task:#}");
        }
        assert_eq!(fleet.jobs(40).len(), 40);
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_allows_us_the_queues_only_is_followed_and_healed() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let url = redis.url_for_keys("bull:*");
    let mut server = Server::start_with(&database, |command| {
        command.envs([("REDIS_URL", url.as_str()), ("PUNCTUAL_RECONCILE_SECONDS", "1")])
    });
    let Some(mut well) = fleet(&server, &redis, "bullmq6", "jobs").await else { return };
    let body = json!({"route": {"type": "bullmq", "queue": "jobs", "prefix": "others"}});
    server.put_topic("others", &body.to_string()).await;
    let refused = make(&server, json!({"topic": "others"})).await;
    let task = server.wait_for(&format!("/api/v1/tasks/{refused}"), |task| task["error"].is_string()).await;
    assert!(task["error"].as_str().unwrap().contains("no permissions"), "{task}");

    let id = make(&server, json!({"topic": "jobs", "payload": {"n": 3}})).await;
    until_handed_over(&database, 1).await;
    let told = server.process.wait_for_log("what Redis loses is noticed later");
    assert!(told.contains("no permissions") && told.contains("punctual:witness:*"), "{told}");
    redis.forget();
    well.tell("worker");
    assert_eq!(server.ended_task(&id).await["result"], json!({"did": 3}));
    assert_eq!(well.jobs(1).len(), 1);
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
    let server = serve_by(&database, &redis);
    let Some(mut fleet) = Fleet::start(&redis, "bullmq6", "jobs") else { return };
    assert_eq!(server.get("/readyz").await.json()["status"], "degraded");
    let impatient = server.make_task(r#"{"topic":"jobs","timeoutSeconds":2}"#).await;
    let put_off = |task: &Value| task["error"].as_str().is_some_and(|error| error.contains("Redis does not answer"));
    server.wait_for(&format!("/api/v1/tasks/{}", impatient["id"].as_str().unwrap()), put_off).await;
    redis.restart();
    fleet.tell("worker");
    assert_eq!(server.ended_task(impatient["id"].as_str().unwrap()).await["status"], "completed");
    let ended = server.ended_task(task["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended:#}");
    server.stop();
}

async fn a_redis_that_speaks_tls_is_trusted_by_the_authority_that_the_operator_names(database: Database) {
    let redis = Redis::encrypted();
    let mut server = serve_by(&database, &redis);
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
    // The stream of events goes the same way, and so do the leader's key and wake-ups where there can be other nodes.
    fleet.tell("key punctual:events");
    if database.url.starts_with("postgres") {
        fleet.tell("key punctual:leader:*");
        fleet.tell("channel punctual:news:*");
    }
    server.stop();
}
