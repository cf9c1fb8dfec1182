//! Receivers of webhooks that are slow, endless, broken or gone: each hurts its own tasks only, and memory stays flat.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::support::{Database, MailServer, Server};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn serve(database: &Database) -> Server {
    let variables = [("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8,::1"), ("PUNCTUAL_LEASE_SECONDS", "2")];
    Server::start_with(database, |command| command.envs(variables))
}

async fn define(server: &Server, topic: &str, url: &str, more: Value) {
    let mut definition = json!({"route": {"type": "webhook", "url": url, "secrets": [SECRET]}});
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.put_topic(topic, &definition.to_string()).await;
}

async fn make(server: &Server, topic: &str) -> String {
    server.make_task(&json!({"topic": topic}).to_string()).await["id"].as_str().unwrap().to_owned()
}

/// A receiver that answers once it may, and knows how many it keeps waiting.
#[derive(Clone)]
struct Patient {
    url: String,
    open: Arc<watch::Sender<bool>>,
    waiting: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// The fences that each task came with.
    fences: Arc<Mutex<HashMap<String, Vec<i64>>>>,
    takes: Duration,
}

impl Patient {
    async fn start(takes: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let patient = Self {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            open: Arc::new(watch::channel(false).0),
            waiting: Arc::default(),
            most: Arc::default(),
            fences: Arc::default(),
            takes,
        };
        let router = Router::new().fallback(receive).with_state(patient.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        patient
    }

    async fn until_waiting(&self, calls: usize) {
        while self.waiting.load(Ordering::SeqCst) < calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn receive(State(patient): State<Patient>, headers: HeaderMap) {
    /// Counts also those who do not wait for the end.
    struct Waiting(Arc<AtomicUsize>);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let fence = text("punctual-fence").parse().unwrap();
    patient.fences.lock().unwrap().entry(text("webhook-id")).or_default().push(fence);
    let waiting = patient.waiting.fetch_add(1, Ordering::SeqCst) + 1;
    let _waiting = Waiting(patient.waiting.clone());
    patient.most.fetch_max(waiting, Ordering::SeqCst);
    patient.open.subscribe().wait_for(|is_open| *is_open).await.unwrap();
    tokio::time::sleep(patient.takes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_topics_of_one_slow_host_take_turns_and_hold_up_no_other() {
    let database = Database::sqlite();
    let server = serve(&database);
    let (slow, other) = (Patient::start(Duration::from_millis(20)).await, Patient::start(Duration::ZERO).await);
    // With a limit that waiting for all the others would use up.
    define(&server, "slow.*", &slow.url, json!({"timeoutSeconds": 4})).await;
    define(&server, "other", &other.url, json!({})).await;
    let tasks: Vec<_> = (0..1_000).map(|i| json!({"topic": format!("slow.{i}")})).collect();
    let made = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await.json();
    slow.until_waiting(32).await;
    other.open.send_replace(true);
    assert_eq!(server.ended_task(&make(&server, "other").await).await["status"], "completed");
    // Some have been put off by now, and none has failed.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    slow.open.send_replace(true);
    let mut put_off = 0;
    for id in made["ids"].as_array().unwrap() {
        let task = server.ended_task(id.as_str().unwrap()).await;
        assert_eq!(task["status"], "completed", "{task}");
        let attempts = task["attempts"].as_array().unwrap();
        put_off += attempts.iter().filter(|attempt| attempt["outcome"] == "snoozed").count();
    }
    assert!(put_off > 0, "nobody waited too long");
    assert_eq!(slow.most.load(Ordering::SeqCst), 32);
    assert!(slow.fences.lock().unwrap().values().all(|fences| fences.len() == 1), "each was called once");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_were_under_way_at_a_kill_are_made_again_with_larger_fences() {
    let database = Database::sqlite();
    let mut server = serve(&database);
    let receiver = Patient::start(Duration::ZERO).await;
    define(&server, "hook", &receiver.url, json!({})).await;
    let tasks = vec![json!({"topic": "hook"}); 20];
    let made = server.post("/api/v1/tasks/batch", json!({"tasks": tasks}).to_string()).await.json();
    receiver.until_waiting(20).await;
    server.process.signal("KILL");
    assert_eq!(server.process.wait().code(), None);
    receiver.open.send_replace(true);
    let server = serve(&database);
    for id in made["ids"].as_array().unwrap() {
        let task = server.ended_task(id.as_str().unwrap()).await;
        assert_eq!(task["status"], "completed", "{task}");
        let fences = receiver.fences.lock().unwrap()[id.as_str().unwrap()].clone();
        assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_never_answers_costs_the_task_its_time_and_nobody_else_anything() {
    let database = Database::sqlite();
    let server = serve(&database);
    let receiver = Patient::start(Duration::ZERO).await;
    define(&server, "hook", &receiver.url, json!({"timeoutSeconds": 1})).await;
    let task = server.ended_task(&make(&server, "hook").await).await;
    assert_eq!((&task["status"], &task["attempts"][0]["outcome"]), (&json!("failed"), &json!("timed_out")), "{task}");
    // The connection is closed with it.
    while receiver.waiting.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop();
}

/// Answers every call with the same bytes, again and again if there is no end to them; then closes.
async fn answering(first: Vec<u8>, again: Option<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (first, again) = (first.clone(), again.clone());
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 65_536]).await;
                let mut written = socket.write_all(&first).await;
                while let (Ok(()), Some(again)) = (&written, &again) {
                    written = socket.write_all(again).await;
                }
                let _ = socket.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_fills_the_memory_or_fools_the_service() {
    let database = Database::sqlite();
    let server = serve(&database);
    let before = server.process.resident_kib();
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    let zeros = vec![b'0'; 100_000];
    for (name, first, again, status, part) in [
        ("endless", head("Transfer-Encoding: chunked\r\n"), Some(chunk.clone()), "completed", r#""truncated":true"#),
        // Nothing is unpacked: what is packed stays as it is.
        (
            "packed",
            head("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
            Some(chunk),
            "completed",
            "truncated",
        ),
        ("longer than it is", head("Content-Length: 999999999999\r\n"), Some(zeros.clone()), "completed", "truncated"),
        ("endless header", b"HTTP/1.1 200 OK\r\nX: ".to_vec(), Some(zeros.clone()), "failed", "error sending request"),
        (
            "endless headers",
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            Some(b"X: y\r\n".repeat(1_000)),
            "failed",
            "error sending request",
        ),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), None, "failed", "error sending request"),
        ("nothing", Vec::new(), None, "failed", "error sending request"),
        ("two lengths", head("Content-Length: 1\r\nContent-Length: 2\r\n"), None, "failed", "error sending request"),
        ("only informed", b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), None, "failed", "error sending request"),
        (
            "switched",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_vec(),
            None,
            "failed",
            "101",
        ),
        ("an odd status", b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n".to_vec(), None, "failed", "answered 999"),
        (
            "control characters",
            head("Content-Length: 4\r\n").into_iter().chain(*b"\0\x1b[2").collect(),
            None,
            "completed",
            "\u{fffd}",
        ),
    ] {
        let port = answering(first, again).await;
        let topic = name.replace(' ', "-");
        define(&server, &topic, &format!("http://127.0.0.1:{port}/"), json!({"timeoutSeconds": 20})).await;
        let begun_at = Instant::now();
        let task = server.ended_task(&make(&server, &topic).await).await;
        assert!(task["status"] == status && task.to_string().contains(part), "{name}: {:.2000}", task.to_string());
        assert!(task.to_string().len() < 40_000, "{name}: {}", task.to_string().len());
        assert!(begun_at.elapsed() < Duration::from_secs(15), "{name}");
    }
    if let Some((before, after)) = before.zip(server.process.resident_kib()) {
        assert!(after < before + 64 * 1024, "{before} KiB before, {after} KiB after");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let database = Database::sqlite();
    let plain = answering(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), None).await;
    let Some(mails) = MailServer::start(&json!({"tls": "implicit"})) else { return };
    let server = serve(&database);
    for (topic, port, part) in [("plain", plain, "error sending request"), ("unknown", mails.port, "certificate")] {
        define(&server, topic, &format!("https://localhost:{port}/"), json!({})).await;
        let task = server.ended_task(&make(&server, topic).await).await;
        assert!(task["status"] == "failed" && task["error"].as_str().unwrap().contains(part), "{task}");
    }
    server.stop();
}
