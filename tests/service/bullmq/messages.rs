//! Messages that go to queues.

use serde_json::{Value, json};

use super::{serve_by, until};
use crate::fleet::{Fleet, RELEASES};
use crate::on_each_database;
use crate::support::{Database, Past, Redis, Server};

on_each_database!(a_notification_that_a_flushed_redis_lost_arrives_once,);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_to_a_queue_by_their_dedupe_keys() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let Some(mut fleet) = Fleet::with_worker(&redis, "bullmq5", "notifications__email") else { return };
    let past = Past::of(&database).await;
    let content = json!({"subject": "s", "text": "t", "templateSlug": "welcome", "data": {"tenantId": "7"}});
    let first = past.message("welcome__7", "queue", content).await;
    let second = past.message("tenant:7", "queue", json!({"subject": "s", "text": "t"})).await;
    past.close().await;
    let server = serve_by(&database, &redis);
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
