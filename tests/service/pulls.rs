//! Workers that claim by the API.

use std::time::Duration;

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::io::AsyncWriteExt;

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Samples, Server};

on_each_database_and_pooler!(
    a_worker_claims_extends_and_completes,
    a_claim_waits_for_what_is_written_and_for_what_becomes_due,
    a_waiting_claim_ends_empty_after_its_time_and_at_shutdown,
    many_waiting_workers_share_what_comes,
    only_pull_topics_are_claimed,
    prefixes_lead_to_all_topics_below_them,
    a_failure_is_retried_snoozed_or_final,
    a_settle_that_comes_again_is_answered_as_before,
    another_epoch_or_outcome_has_lost_the_lease,
    a_result_that_is_too_large_leaves_the_lease,
    a_cancelled_task_is_lost_to_its_worker,
    a_lease_that_runs_out_is_claimed_again_and_the_third_fails,
    a_worker_that_has_gone_takes_nothing,
    a_key_that_is_revoked_gets_nothing_that_it_waits_for,
    concurrency_and_rate_are_the_topics,
    a_paused_topic_gives_nothing_and_wakes_waiting_workers_when_resumed,
    leases_of_workers_outlive_the_node,
    claims_and_settles_can_be_repeated_under_their_key,
    what_is_malformed_is_refused,
);

const PULL: &str = r#"{"route":{"type":"pull"}}"#;

async fn start(database: &Database) -> Server {
    let server = Server::start(database);
    server.put_topic("work", PULL).await;
    server
}

async fn claim(server: &Server, body: Value) -> Vec<Value> {
    let answer = server.post("/api/v1/claims", body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["tasks"].as_array().unwrap().clone()
}

async fn claim_one(server: &Server) -> Value {
    let mut tasks = claim(server, json!({"topics": ["work"], "waitMs": 30000})).await;
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

fn path(task: &Value, action: &str) -> String {
    format!("/api/v1/tasks/{}/{action}", task["id"].as_str().unwrap())
}

async fn say(server: &Server, task: &Value, action: &str, mut body: Value) -> Answer {
    if body.get("epoch").is_none() {
        body["epoch"] = task["epoch"].clone();
    }
    server.post(&path(task, action), body.to_string()).await
}

async fn show(server: &Server, task: &Value) -> Value {
    server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json()
}

async fn a_worker_claims_extends_and_completes(database: Database) {
    let server = start(&database).await;
    assert!(claim(&server, json!({"topics": ["work"]})).await.is_empty());
    let made = server.make_task(r#"{"topic":"work","payload":{"n":1.50},"metadata":{"ownerId":"me"}}"#).await;
    let tasks = claim(&server, json!({"topics": ["work"], "max": 10, "leaseSeconds": 60})).await;
    assert_eq!(tasks.len(), 1);
    let task = &tasks[0];
    assert_eq!((&task["id"], &task["status"], &task["epoch"]), (&made["id"], &json!("running"), &json!(1)));
    assert_eq!(
        (&task["payload"], &task["metadata"], &task["attempt"]),
        (&json!({"n": 1.50}), &json!({"ownerId": "me"}), &json!(1))
    );
    let expires_at = task["leaseExpiresAt"].as_str().unwrap().to_owned();
    assert!(claim(&server, json!({"topics": ["work"]})).await.is_empty(), "it is held");

    let extended = say(&server, task, "heartbeat", json!({})).await;
    assert_eq!(extended.status, 200, "{extended:?}");
    assert!(extended.json()["leaseExpiresAt"].as_str().unwrap() >= expires_at.as_str());
    let done = say(&server, task, "complete", json!({"result": {"ok": true}})).await;
    assert_eq!((done.status.as_u16(), &done.json()["status"]), (200, &json!("completed")));
    let shown = show(&server, task).await;
    assert_eq!(shown["result"], json!({"ok": true}));
    assert_eq!(shown["attempts"][0]["outcome"], "completed");
    say(&server, task, "heartbeat", json!({})).await.problem(409, "LEASE_LOST");
    server.stop();
}

async fn a_claim_waits_for_what_is_written_and_for_what_becomes_due(database: Database) {
    let server = start(&database).await;
    let waiting = claim(&server, json!({"topics": ["work"], "waitMs": 30000}));
    let ((), got) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.make_task(r#"{"topic":"work","payload":1}"#).await;
        },
        waiting
    );
    assert_eq!(got[0]["payload"], 1);
    server.make_task(r#"{"topic":"work","payload":2,"delayMs":400}"#).await;
    let got = claim(&server, json!({"topics": ["work"], "waitMs": 30000})).await;
    assert_eq!(got[0]["payload"], 2, "by time alone");
    let waiting = claim(&server, json!({"topics": ["work"], "waitMs": 30000}));
    let ((), got) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.make_task(r#"{"topic":"work","payload":3,"delayMs":300}"#).await;
        },
        waiting
    );
    assert_eq!(got[0]["payload"], 3, "written and then due");
    server.stop();
}

async fn a_waiting_claim_ends_empty_after_its_time_and_at_shutdown(database: Database) {
    let server = start(&database).await;
    assert!(claim(&server, json!({"topics": ["work"], "waitMs": 50})).await.is_empty());
    let waiting = claim(&server, json!({"topics": ["work"], "waitMs": 30000}));
    let ((), got) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.process.signal("TERM");
        },
        waiting
    );
    assert!(got.is_empty());
    let mut server = server;
    assert_eq!(server.process.wait().code(), Some(0));
}

async fn many_waiting_workers_share_what_comes(database: Database) {
    let server = start(&database).await;
    let workers = (0..20).map(|_| claim(&server, json!({"topics": ["work"], "waitMs": 30000})));
    let (got, ()) = tokio::join!(futures::future::join_all(workers), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let tasks = vec![json!({"topic": "work"}); 20];
        let made = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await;
        assert_eq!(made.status, 201);
    });
    let mut ids: Vec<_> = got.concat().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20, "each got one of its own");
    server.stop();
}

async fn only_pull_topics_are_claimed(database: Database) {
    let server = start(&database).await;
    server.put_topic("paused", r#"{"route":{"type":"event"},"paused":true}"#).await;
    server.make_task(r#"{"topic":"paused"}"#).await;
    assert!(claim(&server, json!({"topics": ["paused", "nobody", "echo"], "max": 10})).await.is_empty());
    server.put_topic("paused", PULL).await;
    assert_eq!(claim(&server, json!({"topics": ["paused"]})).await.len(), 1);
    server.stop();
}

async fn prefixes_lead_to_all_topics_below_them(database: Database) {
    let server = start(&database).await;
    server.put_topic("mail.*", PULL).await;
    server.put_topic("mail.echo", r#"{"route":{"type":"event"},"paused":true}"#).await;
    for topic in ["mail.a", "mail.b.c", "mail.echo", "work"] {
        server.make_task(&json!({"topic": topic}).to_string()).await;
    }
    let got = claim(&server, json!({"topics": ["mail.*"], "max": 10})).await;
    let mut topics: Vec<_> = got.iter().map(|task| task["topic"].as_str().unwrap()).collect();
    topics.sort_unstable();
    assert_eq!(topics, ["mail.a", "mail.b.c"], "the longest match decides");
    server.stop();
}

async fn a_failure_is_retried_snoozed_or_final(database: Database) {
    let server = start(&database).await;
    let retry = r#"{"topic":"work","retry":{"attempts":3,"backoff":{"type":"fixed","delay":60000,"jitter":0}}}"#;
    server.make_task(retry).await;
    let first = claim_one(&server).await;
    let failed = say(&server, &first, "fail", json!({"error": "no luck", "retryAfterMs": 0})).await.json();
    assert_eq!((&failed["status"], &failed["error"]), (&json!("pending"), &json!("no luck")));
    let second = claim_one(&server).await;
    assert_eq!((&second["attempt"], &second["epoch"]), (&json!(2), &json!(2)));
    let snoozed = say(&server, &second, "fail", json!({"snoozeMs": 0})).await.json();
    assert_eq!(snoozed["status"], "pending");
    let third = claim_one(&server).await;
    let failed = say(&server, &third, "fail", json!({"error": "again", "retryAfterMs": 0})).await.json();
    assert_eq!(failed["status"], "pending", "a snooze used up no attempt");
    let fourth = claim_one(&server).await;
    let failed = say(&server, &fourth, "fail", json!({"error": "enough", "retryAfterMs": 0})).await.json();
    assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("enough")));
    let outcomes: Vec<_> = show(&server, &first).await["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| (attempt["number"].as_u64().unwrap(), attempt["outcome"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [(1, "failed"), (2, "snoozed"), (3, "failed"), (4, "failed")];
    assert_eq!(outcomes, expected.map(|(number, outcome)| (number, outcome.to_owned())));

    server.make_task(retry).await;
    let task = claim_one(&server).await;
    let failed = say(&server, &task, "fail", json!({"error": "for good", "final": true})).await.json();
    assert_eq!(failed["status"], "failed");
    server.stop();
}

async fn a_settle_that_comes_again_is_answered_as_before(database: Database) {
    let server = start(&database).await;
    for (action, body) in [
        ("complete", json!({"result": 1})),
        ("fail", json!({"error": "x", "final": true})),
        ("fail", json!({"error": "x", "retryAfterMs": 600000})),
        ("fail", json!({"snoozeMs": 600000})),
    ] {
        server.make_task(r#"{"topic":"work","retry":{"attempts":2}}"#).await;
        let task = claim_one(&server).await;
        let first = say(&server, &task, action, body.clone()).await;
        assert_eq!(first.status, 200, "{first:?}");
        for _ in 0..2 {
            let again = say(&server, &task, action, body.clone()).await;
            assert_eq!((again.status.as_u16(), again.json()), (200, first.json()), "{action} {body}");
        }
        let (other, body) = match action {
            "complete" => ("fail", json!({"error": "x"})),
            _ => ("complete", json!({})),
        };
        say(&server, &task, other, body).await.problem(409, "LEASE_LOST");
    }
    server.stop();
}

async fn another_epoch_or_outcome_has_lost_the_lease(database: Database) {
    let server = start(&database).await;
    server.make_task(r#"{"topic":"work","retry":{"attempts":3}}"#).await;
    let first = claim_one(&server).await;
    for epoch in [2, 99, i64::MAX] {
        for (action, body) in [("complete", json!({})), ("fail", json!({"error": "x"})), ("heartbeat", json!({}))] {
            let mut body = body;
            body["epoch"] = json!(epoch);
            say(&server, &first, action, body).await.problem(409, "LEASE_LOST");
        }
    }
    say(&server, &first, "fail", json!({"error": "x", "retryAfterMs": 0})).await;
    let second = claim_one(&server).await;
    say(&server, &first, "complete", json!({})).await.problem(409, "LEASE_LOST");
    say(&server, &first, "heartbeat", json!({})).await.problem(409, "LEASE_LOST");
    assert_eq!(say(&server, &second, "complete", json!({})).await.status, 200);
    say(&server, &first, "complete", json!({})).await.problem(409, "LEASE_LOST");
    let nobody = json!({"id": "018f0000-0000-7000-8000-000000000000", "epoch": 1});
    say(&server, &nobody, "complete", json!({})).await.problem(404, "NOT_FOUND");
    server.stop();
}

async fn a_result_that_is_too_large_leaves_the_lease(database: Database) {
    let server = start(&database).await;
    server.make_task(r#"{"topic":"work"}"#).await;
    let task = claim_one(&server).await;
    let large = json!({"result": "x".repeat(65 * 1024)});
    say(&server, &task, "complete", large).await.problem(413, "TOO_LARGE");
    say(&server, &task, "fail", json!({"error": "x".repeat(17 * 1024)})).await.problem(413, "TOO_LARGE");
    assert_eq!(show(&server, &task).await["status"], "running");
    assert_eq!(say(&server, &task, "heartbeat", json!({})).await.status, 200);
    assert_eq!(say(&server, &task, "complete", json!({"result": "x".repeat(64 * 1024 - 2)})).await.status, 200);
    server.stop();
}

async fn a_cancelled_task_is_lost_to_its_worker(database: Database) {
    let server = start(&database).await;
    server.make_task(r#"{"topic":"work"}"#).await;
    let task = claim_one(&server).await;
    assert_eq!(server.post(&path(&task, "cancel"), "").await.status, 200);
    for (action, body) in [("heartbeat", json!({})), ("complete", json!({})), ("fail", json!({"error": "x"}))] {
        say(&server, &task, action, body).await.problem(409, "LEASE_LOST");
    }
    assert_eq!(show(&server, &task).await["status"], "cancelled");
    server.stop();
}

async fn a_lease_that_runs_out_is_claimed_again_and_the_third_fails(database: Database) {
    let server = start(&database).await;
    let made = server.make_task(r#"{"topic":"work"}"#).await;
    for epoch in 1..=3 {
        let got = claim(&server, json!({"topics": ["work"], "waitMs": 30000, "leaseSeconds": 1})).await;
        assert_eq!(got[0]["epoch"], epoch);
    }
    let ended = server.ended_task(made["id"].as_str().unwrap()).await;
    assert_eq!((&ended["status"], &ended["error"]), (&json!("failed"), &json!("node died during attempt")));
    assert_eq!(ended["attempts"].as_array().unwrap().len(), 3);
    server.stop();
}

async fn a_worker_that_has_gone_takes_nothing(database: Database) {
    let server = start(&database).await;
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let body = json!({"topics": ["work"], "waitMs": 30000, "max": 1000}).to_string();
    let request = format!(
        "POST /api/v1/claims HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..5 {
        let mut gone = tokio::net::TcpStream::connect(&address).await.unwrap();
        gone.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(gone);
        let made = server.make_task(r#"{"topic":"work"}"#).await;
        let task = claim_one(&server).await;
        assert_eq!(
            (&task["id"], &task["attempt"]),
            (&made["id"], &json!(1)),
            "the next one gets it, as if nothing had been"
        );
        say(&server, &task, "complete", json!({})).await;
    }
    server.stop();
}

/// A service with the topic `work`, and two keys for it: `pk_chief` and `pk_gone`.
async fn start_with_keys(database: &Database) -> Server {
    add_key(database, "pk_chief", Role::Admin, &[]).await;
    add_key(database, "pk_gone", Role::Submit, &["work"]).await;
    let server = Server::start(database);
    let put = server.request(Method::PUT, "/api/v1/topics/work").header("content-type", "application/json");
    assert!(Answer::to(put.bearer_auth("pk_chief").body(PULL)).await.status.is_success());
    server
}

async fn post_as(server: &Server, key: &str, path: &str, body: Value) -> Answer {
    let post = server.request(Method::POST, path).header("content-type", "application/json");
    Answer::to(post.bearer_auth(key).body(body.to_string())).await
}

const REVOKE: &str = "UPDATE punctual_api_keys SET revoked_at = created_at WHERE name = 'pk_gone'";

async fn a_key_that_is_revoked_gets_nothing_that_it_waits_for(database: Database) {
    let server = start_with_keys(&database).await;
    let chief = |path: String| Answer::to(server.request(Method::GET, &path).bearer_auth("pk_chief"));
    let one = json!({"topics": ["work"], "waitMs": 30000});
    let (refused, made) = tokio::join!(post_as(&server, "pk_gone", "/api/v1/claims", one.clone()), async {
        while Samples::of(&chief("/metrics".into()).await.text).value("punctual_workers") != Some(1.0) {}
        database.execute(REVOKE).await;
        post_as(&server, "pk_chief", "/api/v1/tasks", json!({"topic": "work"})).await.json()
    });
    refused.problem(401, "UNAUTHENTICATED");
    let shown = chief(format!("/api/v1/tasks/{}", made["id"].as_str().unwrap())).await.json();
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("pending"), &json!([])), "nobody took it");
    let got = post_as(&server, "pk_chief", "/api/v1/claims", one).await.json();
    assert_eq!((&got["tasks"][0]["id"], &got["tasks"][0]["attempt"]), (&made["id"], &json!(1)));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_revoked_while_it_claims_gives_back_what_it_took() {
    let Some(database) = Database::postgres().await else { return };
    let server = start_with_keys(&database).await;
    let made = post_as(&server, "pk_chief", "/api/v1/tasks", json!({"topic": "work"})).await.json();
    let lock = "pg_advisory_lock(hashtextextended('punctual pull work', 0))";
    let mut holder = sqlx::PgConnection::connect(&database.url).await.unwrap();
    holder.execute(AssertSqlSafe(format!("SELECT {lock}"))).await.unwrap();
    let claim = server.request(Method::POST, "/api/v1/claims").header("content-type", "application/json");
    // One that could be asked for again.
    let claim = claim.header("idempotency-key", "k").bearer_auth("pk_gone").body(r#"{"topics":["work"]}"#);
    let (refused, ()) = tokio::join!(Answer::to(claim), async {
        while database.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").await == 0 {}
        database.execute(REVOKE).await;
        holder.close().await.unwrap();
    });
    refused.problem(401, "UNAUTHENTICATED");
    let one = json!({"topics": ["work"], "waitMs": 30000});
    let got = post_as(&server, "pk_chief", "/api/v1/claims", one).await.json();
    assert_eq!(
        (&got["tasks"][0]["id"], &got["tasks"][0]["attempt"]),
        (&made["id"], &json!(1)),
        "as if it had not been"
    );
    server.stop();
}

async fn concurrency_and_rate_are_the_topics(database: Database) {
    let server = start(&database).await;
    server.put_topic("few", r#"{"route":{"type":"pull"},"concurrency":2}"#).await;
    server.put_topic("slow", r#"{"route":{"type":"pull"},"ratePerSecond":2}"#).await;
    let tasks: Vec<_> = (0..10).map(|n| json!({"topic": if n < 5 { "few" } else { "slow" }})).collect();
    server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await;
    let got = claim(&server, json!({"topics": ["few"], "max": 10})).await;
    assert_eq!(got.len(), 2);
    assert!(claim(&server, json!({"topics": ["few"], "max": 10})).await.is_empty());
    let waiting = claim(&server, json!({"topics": ["few"], "max": 10, "waitMs": 30000}));
    let (settled, next) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            say(&server, &got[0], "complete", json!({})).await
        },
        waiting
    );
    assert_eq!((settled.status.as_u16(), next.len()), (200, 1), "a worker that waits gets the place that became free");

    assert_eq!(claim(&server, json!({"topics": ["slow"], "max": 10})).await.len(), 2);
    let later = claim(&server, json!({"topics": ["slow"], "max": 10, "waitMs": 30000})).await;
    assert!((1..=2).contains(&later.len()), "{later:?}");
    server.stop();
}

async fn a_paused_topic_gives_nothing_and_wakes_waiting_workers_when_resumed(database: Database) {
    let server = start(&database).await;
    server.post("/api/v1/topics/work/pause", "").await;
    server.make_task(r#"{"topic":"work"}"#).await;
    assert!(claim(&server, json!({"topics": ["work"]})).await.is_empty());
    let waiting = claim(&server, json!({"topics": ["work"], "waitMs": 30000}));
    let (_, got) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            server.post("/api/v1/topics/work/resume", "").await
        },
        waiting
    );
    assert_eq!(got.len(), 1);
    server.stop();
}

async fn leases_of_workers_outlive_the_node(database: Database) {
    let server = start(&database).await;
    server.make_task(r#"{"topic":"work"}"#).await;
    let task = claim(&server, json!({"topics": ["work"], "leaseSeconds": 600})).await.remove(0);
    server.stop();
    let server = Server::start(&database);
    assert_eq!(show(&server, &task).await["status"], "running");
    assert_eq!(say(&server, &task, "heartbeat", json!({})).await.status, 200);
    assert_eq!(say(&server, &task, "complete", json!({})).await.status, 200);
    server.stop();
}

async fn claims_and_settles_can_be_repeated_under_their_key(database: Database) {
    let server = start(&database).await;
    for _ in 0..3 {
        server.make_task(r#"{"topic":"work"}"#).await;
    }
    let post = |key: &str, path: String, body: Value| {
        let request = server.request(Method::POST, &path).header("content-type", "application/json");
        Answer::to(request.header("Idempotency-Key", key).body(body.to_string()))
    };
    let one = json!({"topics": ["work"]});
    let first = post("c", "/api/v1/claims".into(), one.clone()).await;
    let task = first.json()["tasks"][0].clone();
    let again = post("c", "/api/v1/claims".into(), one.clone()).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    post("c", "/api/v1/claims".into(), json!({"topics": ["work"], "max": 2}))
        .await
        .problem(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(claim(&server, json!({"topics": ["work"], "max": 10})).await.len(), 2, "it claimed once");

    let empty = post("e", "/api/v1/claims".into(), one.clone()).await;
    server.make_task(r#"{"topic":"work"}"#).await;
    assert_eq!(post("e", "/api/v1/claims".into(), one).await.text, empty.text);

    let epoch = json!({"epoch": task["epoch"]});
    for (key, action) in [("h", "heartbeat"), ("s", "complete")] {
        let first = post(key, path(&task, action), epoch.clone()).await;
        assert_eq!(first.status, 200, "{first:?}");
        let again = post(key, path(&task, action), epoch.clone()).await;
        assert_eq!((again.status, &again.text), (first.status, &first.text), "{action}");
    }
    post("s", path(&task, "fail"), json!({"epoch": 1, "error": "x"})).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    server.stop();
}

async fn what_is_malformed_is_refused(database: Database) {
    let server = start(&database).await;
    server.make_task(r#"{"topic":"work"}"#).await;
    for (body, field) in [
        (json!({}), "topics"),
        (json!({"topics": ["*"]}), "topics"),
        (json!({"topics": ["work"], "max": 1001}), "max"),
        (json!({"topics": ["work"], "waitMs": 30001}), "waitMs"),
        (json!({"topics": ["work"], "leaseSeconds": 0}), "leaseSeconds"),
        (json!({"topics": ["work"], "lease": 5}), "lease"),
    ] {
        assert_eq!(server.post("/api/v1/claims", body.to_string()).await.problem(400, "INVALID"), [field]);
    }
    let task = claim_one(&server).await;
    for (action, body, field) in [
        ("complete", json!({"epoch": null}), "epoch"),
        ("complete", json!({"epoch": "1"}), "epoch"),
        ("complete", json!({"epoch": 1, "answer": 1}), "answer"),
        ("fail", json!({"epoch": 1}), "error"),
        ("fail", json!({"epoch": 1, "error": "x", "final": true, "snoozeMs": 1}), "final"),
        ("heartbeat", json!({"epoch": 0}), "epoch"),
    ] {
        assert_eq!(server.post(&path(&task, action), body.to_string()).await.problem(400, "INVALID"), [field]);
    }
    assert_eq!(show(&server, &task).await["status"], "running");
    server.stop();
}
