//! The route `webhook`, seen by those who are called.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::on_each_database_and_pooler;
use crate::receiver::Receiver;
use crate::support::{Database, Past, Process, Server, beside_us, python};

on_each_database_and_pooler!(
    a_task_is_a_signed_call_and_its_answer_the_result,
    a_failed_call_is_repeated_with_the_same_id_and_a_larger_fence,
    an_accepted_call_is_settled_later_with_the_fence,
);

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_c3dvcmRmaXNoIGFuZCBzYXVzYWdlcw==";

fn serve(database: &Database) -> Server {
    Server::start_with(database, |command| command.env("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8"))
}

async fn define(server: &Server, receiver: &Receiver, secrets: &[&str]) {
    let retry = json!({"attempts": 3, "backoff": {"type": "fixed", "delay": 1, "jitter": 0}});
    let route = json!({"type": "webhook", "url": format!("{}/hook?a=1", receiver.url), "secrets": secrets});
    server.put_topic("hook", &json!({"route": route, "retry": retry}).to_string()).await;
}

async fn make(server: &Server) -> String {
    let body = r#"{"topic":"hook","payload":{"n": 1.50},"metadata":{"ownerId":"o"},"timezone":"America/Edmonton"}"#;
    server.make_task(body).await["id"].as_str().unwrap().to_owned()
}

async fn a_task_is_a_signed_call_and_its_answer_the_result(database: Database) {
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    assert_eq!(server.get("/api/v1/topics/hook").await.json()["warnings"], json!([]));
    receiver.answer(201, &[], "made é");
    let id = make(&server).await;
    let call = receiver.next().await;
    assert!(call.is_signed_with(OLD) && !call.is_signed_with(NEW));
    assert_eq!((call.header("webhook-id"), call.path.as_str()), (id.as_str(), "/hook"));
    assert_eq!((call.header("punctual-fence"), call.header("punctual-attempt")), ("1", "1"));
    assert_eq!(call.header("content-type"), "application/json");
    // Digit by digit.
    assert!(String::from_utf8_lossy(&call.body).contains(r#""userPayload":{"n": 1.50}"#));
    let said = call.json();
    assert_eq!(said["type"], "schedule.arrived");
    assert!(said["timestamp"].as_str().unwrap().ends_with('Z'));
    let data = &said["data"];
    assert_eq!((&data["scheduledJobId"], &data["scheduleId"]), (&json!(id), &Value::Null));
    assert_eq!((&data["topic"], &data["timezone"]), (&json!("hook"), &json!("America/Edmonton")));
    assert_eq!((&data["metadata"], &data["attempt"]), (&json!({"ownerId": "o"}), &json!(1)));
    assert!(data["scheduledAt"].is_string() && data["firedAt"].is_string());
    let task = server.ended_task(&id).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!({"status": 201, "body": "made é"})));
    server.stop();
}

async fn a_failed_call_is_repeated_with_the_same_id_and_a_larger_fence(database: Database) {
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    receiver.answer(500, &[], "not now");
    receiver.answer(307, &[("location", &format!("{}/elsewhere", receiver.url))], "");
    let id = make(&server).await;
    for number in ["1", "2", "3"] {
        let call = receiver.next().await;
        assert!(call.is_signed_with(OLD));
        assert_eq!((call.header("webhook-id"), call.path.as_str()), (id.as_str(), "/hook"));
        assert_eq!((call.header("punctual-fence"), call.header("punctual-attempt")), (number, number));
        assert_eq!(call.json()["data"]["attempt"].to_string(), number);
    }
    let task = server.ended_task(&id).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(task["attempts"][0]["error"], "answered 500 Internal Server Error: not now");
    assert_eq!(task["attempts"][1]["error"], "answered 307 Temporary Redirect, and redirects are not followed");
    assert_eq!(receiver.unasked(), 0);
    server.stop();
}

async fn an_accepted_call_is_settled_later_with_the_fence(database: Database) {
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    receiver.answer(202, &[], "");
    let id = make(&server).await;
    let fence: i64 = receiver.next().await.header("punctual-fence").parse().unwrap();
    let path = |call: &str| format!("/api/v1/tasks/{id}/{call}");
    // It is ours as soon as the lease is.
    let heartbeat = loop {
        let answer = server.post(&path("heartbeat"), json!({"epoch": fence}).to_string()).await;
        if answer.status == 200 {
            break answer.json();
        }
        answer.problem(409, "LEASE_LOST");
    };
    let task = server.get(&format!("/api/v1/tasks/{id}")).await.json();
    assert_eq!(task["status"], "running");
    let ends_at = heartbeat["leaseExpiresAt"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    let started_at = task["startedAt"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert!(ends_at - started_at >= chrono::TimeDelta::seconds(3600), "{heartbeat} {task}");
    server.post(&path("complete"), json!({"epoch": fence + 1}).to_string()).await.problem(409, "LEASE_LOST");
    let done = server.post(&path("complete"), json!({"epoch": fence, "result": "done"}).to_string()).await;
    assert_eq!((done.status.as_u16(), &done.json()["status"]), (200, &json!("completed")), "{done:?}");
    assert_eq!(receiver.unasked(), 0);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_call_that_nobody_settles_is_made_three_times() {
    let database = Database::sqlite();
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    (0..3).for_each(|_| receiver.answer(202, &[], ""));
    let task = server.make_task(r#"{"topic":"hook","timeoutSeconds":1,"retry":{"attempts":1}}"#).await;
    for fence in ["1", "2", "3"] {
        assert_eq!(receiver.next().await.header("punctual-fence"), fence);
    }
    let task = server.ended_task(task["id"].as_str().unwrap()).await;
    assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("node died during attempt")), "{task:#}");
    assert!(task["attempts"].as_array().unwrap().iter().all(|attempt| attempt["outcome"] == "lost"), "{task:#}");
    assert_eq!(receiver.unasked(), 0);
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_can_put_a_task_off_or_end_it() {
    let database = Database::sqlite();
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    receiver.answer(410, &[], "no such thing any more");
    let gone = server.ended_task(&make(&server).await).await;
    assert_eq!((&gone["status"], &gone["attempt"]), (&json!("failed"), &json!(1)));
    assert_eq!(gone["error"], "answered 410 Gone: no such thing any more");
    for status in [429, 503] {
        receiver.answer(status, &[("retry-after", "3600")], "");
        let id = make(&server).await;
        let task = loop {
            let task = server.get(&format!("/api/v1/tasks/{id}")).await.json();
            if task["status"] == "pending" && task["attempt"] == 1 {
                break task;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let at = |name: &str| task[name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let wait = at("runAt") - at("createdAt");
        assert!((3600..3660).contains(&wait.num_seconds()), "{task}");
    }
    for _ in 0..3 {
        receiver.next().await;
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_rotated_without_a_moment_in_which_nobody_can_verify() {
    let database = Database::sqlite();
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    for (secrets, old, new) in [(&[OLD][..], true, false), (&[OLD, NEW], true, true), (&[NEW], false, true)] {
        define(&server, &receiver, secrets).await;
        let id = make(&server).await;
        let call = receiver.next().await;
        assert_eq!((call.is_signed_with(OLD), call.is_signed_with(NEW)), (old, new), "{secrets:?}");
        server.ended_task(&id).await;
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_changes_or_repeats_a_call_is_found_out() {
    let database = Database::sqlite();
    let (server, mut receiver) = (serve(&database), Receiver::start().await);
    define(&server, &receiver, &[OLD]).await;
    make(&server).await;
    let call = receiver.next().await;
    assert!(call.is_signed_with(OLD));
    let with = |name: &'static str, value: String| {
        let mut changed = call.clone();
        changed.headers.insert(name, value.parse().unwrap());
        changed
    };
    let mut tampered = call.clone();
    tampered.body = String::from_utf8(call.body.to_vec()).unwrap().replace("1.50", "9.50").into();
    assert!(!tampered.is_signed_with(OLD));
    assert!(!with("webhook-id", "other".into()).is_signed_with(OLD));
    // One that is sent again later has an old timestamp, and a new one does not fit the signature.
    let sent_at: i64 = call.header("webhook-timestamp").parse().unwrap();
    assert!(!with("webhook-timestamp", (sent_at + 1).to_string()).is_signed_with(OLD));
    assert!(!with("webhook-timestamp", (sent_at - 600).to_string()).is_signed_with(OLD));
    assert!(!with("webhook-signature", call.header("webhook-signature").replace("v1,", "v1,A")).is_signed_with(OLD));
    // One that somebody kept, signed as it was.
    for (offset, is_genuine) in [(-600, false), (-60, true), (0, true), (600, false)] {
        let at = sent_at + offset;
        let signature = Webhook::new(OLD).unwrap().sign(call.header("webhook-id"), at, &call.body).unwrap();
        let mut kept = with("webhook-timestamp", at.to_string());
        kept.headers.insert("webhook-signature", signature.parse().unwrap());
        assert_eq!(kept.is_signed_with(OLD), is_genuine, "{offset}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_in_python_verifies_every_call_and_is_fooled_by_none() {
    let Some(python) = python() else { return };
    let database = Database::sqlite();
    let server = serve(&database);
    let mut command = Command::new(python);
    let mut receiver = Process::start(command.arg(beside_us("webhook_receiver.py")).args([OLD, NEW]));
    let url = format!("http://127.0.0.1:{}/hook", receiver.wait_for_output("").trim());
    let payloads =
        [json!({"n": 1.5}), json!("Grüße 🎉\u{2028}\"\\"), json!(null), json!({"long": "x".repeat(100_000)})];
    for (secrets, genuine) in [(&[OLD][..], [true, false]), (&[OLD, NEW], [true, true]), (&[NEW], [false, true])] {
        let route = json!({"type": "webhook", "url": url, "secrets": secrets});
        server.put_topic("hook", &json!({"route": route}).to_string()).await;
        for payload in &payloads {
            let task = server.make_task(&json!({"topic": "hook", "payload": payload}).to_string()).await;
            let call: Value = serde_json::from_str(&receiver.wait_for_output("{")).unwrap();
            assert_eq!((&call["id"], &call["body"]["data"]["userPayload"]), (&task["id"], payload));
            assert_eq!((&call["genuine"], &call["forged"]), (&json!(genuine), &json!([])), "{secrets:?}");
            let task = server.ended_task(task["id"].as_str().unwrap()).await;
            assert_eq!(task["status"], "completed", "{task}");
        }
    }
    server.stop();
}

/// Listens on every address of this machine, and counts who comes.
async fn canary() -> (u16, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("[::]:0").await.unwrap();
    let (port, visits) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = visits.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, visits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_closed_target_is_reached_by_the_service() {
    let (port, visits) = canary().await;
    for address in ["127.0.0.1", "127.1.2.3", "::1"] {
        tokio::net::TcpStream::connect((address, port)).await.unwrap();
    }
    let lines = include_str!("../testdata/closed_targets.txt").lines().filter(|line| !line.starts_with('#'));
    let urls: Vec<_> = lines.map(|line| line.replace("{port}", &port.to_string())).collect();
    assert!(urls.len() >= 150, "{}", urls.len());
    // Stored by somebody who did not check them.
    let database = Database::sqlite();
    let past = Past::of(&database).await;
    for (i, url) in urls.iter().enumerate() {
        past.webhook(&format!("closed.{i}"), url, "swordfish").await;
    }
    past.close().await;
    let server = Server::start(&database);
    let tasks: Vec<_> = (0..urls.len()).map(|i| json!({"topic": format!("closed.{i}")})).collect();
    let made = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await.json();
    for (id, url) in made["ids"].as_array().unwrap().iter().zip(&urls) {
        let task = server.ended_task(id.as_str().unwrap()).await;
        let error = task["error"].as_str().unwrap_or_default();
        assert!(error.contains("not on the open internet") || error.contains("must "), "{url:?}: {task}");
        // And over the API they cannot be stored in the first place, but for names that only a resolver knows.
        let route = json!({"type": "webhook", "url": url, "secrets": ["swordfish"]});
        let refused = server.put("/api/v1/topics/other", json!({"route": route}).to_string()).await;
        refused.problem(400, "INVALID");
    }
    server.stop();
    while visits.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(visits.load(Ordering::SeqCst), 3, "only we came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_proxy_of_the_environment_is_asked() {
    let (database, (port, visits)) = (Database::sqlite(), canary().await);
    let mut receiver = Receiver::start().await;
    let proxy = format!("http://127.0.0.1:{port}");
    let server = Server::start_with(&database, |command| {
        let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
        command.envs(names.map(|name| (name, proxy.as_str()))).env("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8")
    });
    define(&server, &receiver, &[OLD]).await;
    make(&server).await;
    assert!(receiver.next().await.is_signed_with(OLD));
    server.stop();
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_address_is_not_called_even_if_it_was_stored_when_that_was_allowed() {
    let database = Database::sqlite();
    let mut receiver = Receiver::start().await;
    let past = Past::of(&database).await;
    past.webhook("hook", &receiver.url, "swordfish").await;
    past.webhook("named", &receiver.url.replace("127.0.0.1", "localhost"), "swordfish").await;
    past.close().await;
    let server = Server::start(&database);
    for topic in ["hook", "named"] {
        let id = server.make_task(&json!({"topic": topic}).to_string()).await["id"].as_str().unwrap().to_owned();
        let task = server.ended_task(&id).await;
        let error = task["error"].as_str().unwrap();
        assert!(error.contains("not on the open internet") && task["status"] == "failed", "{task}");
    }
    assert_eq!(receiver.unasked(), 0);
    server.stop();
}
