//! `/metrics`: what is counted, under which labels, and who may see it.

use std::sync::Arc;

use punctual_domain::key::Role;
use punctual_domain::task::Settlement;
use reqwest::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::health::forward;
use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::schedules::{make, path_of};
use crate::support::{Answer, Database, Past, Samples, Server};

on_each_database_and_pooler!(
    every_metric_is_described_from_the_start,
    tasks_are_counted_by_topic_status_and_origin,
    topics_that_nobody_defined_share_a_label,
    due_tasks_are_shown_until_somebody_takes_them,
    requests_are_counted_by_route,
    they_need_a_key_once_there_are_any,
    an_address_of_their_own_needs_no_key,
    what_callers_and_workers_end_is_counted,
    what_ends_with_its_schedule_or_for_a_later_fire_is_counted,
    the_third_loss_of_a_task_is_counted,
);

/// What the specification names, with its kind.
const PROMISED: [(&str, &str); 17] = [
    ("punctual_schedule_lag_seconds", "histogram"),
    ("punctual_fires_total", "counter"),
    ("punctual_fires_missed_total", "counter"),
    ("punctual_fires_duplicate_total", "counter"),
    ("punctual_tasks_total", "counter"),
    ("punctual_task_duration_seconds", "histogram"),
    ("punctual_task_lag_seconds", "histogram"),
    ("punctual_attempt_timeout_ratio", "histogram"),
    ("punctual_queue_depth", "gauge"),
    ("punctual_leader", "gauge"),
    ("punctual_leader_changes_total", "counter"),
    ("punctual_leases_expired_total", "counter"),
    ("punctual_stale_settles_total", "counter"),
    ("punctual_actor_restarts_total", "counter"),
    ("punctual_outbox_depth", "gauge"),
    ("punctual_tzdata_info", "gauge"),
    ("punctual_clock_offset_seconds", "gauge"),
];

async fn every_metric_is_described_from_the_start(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let answer = server.get("/metrics").await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let samples = Samples::of(&answer.text);
    for (name, kind) in PROMISED {
        assert_eq!(samples.kinds.get(name).map(String::as_str), Some(kind), "{name}");
        assert!(answer.text.contains(&format!("# HELP {name} ")), "{name}");
    }
    for (series, value) in [
        ("punctual_database_up", 1.0),
        ("punctual_outbox_depth", 0.0),
        ("punctual_stale_settles_total", 0.0),
        (r#"punctual_fires_total{disposition="fired"}"#, 0.0),
        (r#"punctual_fires_missed_total{topic="echo"}"#, 0.0),
        (r#"punctual_tasks_total{topic="echo",status="failed",origin="schedule"}"#, 0.0),
        (r#"punctual_queue_depth{topic="echo",origin="schedule"}"#, 0.0),
    ] {
        assert_eq!(samples.value(series), Some(value), "{series}");
    }
    assert!(samples.value("punctual_clock_offset_seconds").unwrap().abs() < 60.0);
    server.stop();
}

async fn tasks_are_counted_by_topic_status_and_origin(database: Database) {
    let server = Server::start(&database);
    let ids: Vec<_> = futures::future::join_all((0..5).map(|_| server.make_task(r#"{"topic":"echo"}"#))).await;
    for task in ids {
        server.ended_task(task["id"].as_str().unwrap()).await;
    }
    let completed = r#"punctual_tasks_total{topic="echo",status="completed",origin="task"}"#;
    let samples = server.samples(|samples| samples.value(completed) == Some(5.0)).await;
    for name in ["punctual_task_duration_seconds", "punctual_task_lag_seconds", "punctual_attempt_timeout_ratio"] {
        assert_eq!(samples.value(&format!(r#"{name}_count{{topic="echo"}}"#)), Some(5.0), "{name}");
        assert_eq!(samples.value(&format!(r#"{name}_bucket{{topic="echo",le="+Inf"}}"#)), Some(5.0), "{name}");
    }
    server.stop();
}

async fn what_callers_and_workers_end_is_counted(database: Database) {
    let server = Server::start(&database);
    server.put_topic("pull", r#"{"route":{"type":"pull"}}"#).await;
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(id(&server.make_task(r#"{"topic":"pull"}"#).await));
    }
    let claimed = server.post("/api/v1/claims", r#"{"topics":["pull"],"max":3}"#).await.json();
    let outcomes = [("complete", ""), ("fail", r#","error":"no""#), ("fail", r#","snoozeMs":60000"#)];
    for (task, (action, more)) in claimed["tasks"].as_array().unwrap().iter().zip(outcomes) {
        let body = format!(r#"{{"epoch":{}{more}}}"#, task["epoch"]);
        let settled = server.post(&format!("/api/v1/tasks/{}/{action}", id(task)), body).await;
        assert_eq!(settled.status, 200, "{settled:?}");
    }
    // The claims went to the oldest; a task that has ended is not ended again.
    for _ in 0..2 {
        server.post(&format!("/api/v1/tasks/{}/cancel", tasks[3]), "").await;
        server.post(&format!("/api/v1/tasks/{}/cancel", tasks[0]), "").await;
    }
    server.post(&format!("/api/v1/tasks/{}/reschedule", tasks[4]), r#"{"delayMs":60000}"#).await;
    let rest = server.post("/api/v1/tasks/cancel", r#"{"filter":{"status":"pending"}}"#).await;
    assert_eq!(rest.json()["count"], 3, "the snoozed one, the last one, and the one in another's place");

    let samples = server.samples(|_| true).await;
    for (status, tasks) in [("completed", 1.0), ("failed", 1.0), ("cancelled", 5.0)] {
        let series = format!(r#"punctual_tasks_total{{topic="pull",status="{status}",origin="task"}}"#);
        assert_eq!(samples.value(&series), Some(tasks), "{status}");
    }
    for name in ["punctual_task_duration_seconds", "punctual_task_lag_seconds", "punctual_attempt_timeout_ratio"] {
        assert_eq!(samples.value(&format!(r#"{name}_count{{topic="pull"}}"#)), Some(3.0), "{name}");
    }
    assert_eq!(samples.value("punctual_workers"), Some(0.0));
    server.stop();
}

async fn what_ends_with_its_schedule_or_for_a_later_fire_is_counted(database: Database) {
    let server = Server::start(&database);
    // Nobody claims, so each fire finds the task of the one before.
    server.put_topic("pull", r#"{"route":{"type":"pull"}}"#).await;
    let body = r#"{"name":"s","timezone":"UTC","topic":"pull","everyMs":1000,"overlapPolicy":"cancel_previous"}"#;
    let schedule = make(&server, body).await;
    let fired = r#"punctual_fires_total{disposition="fired"}"#;
    server.samples(|samples| samples.value(fired) >= Some(2.0)).await;
    assert_eq!(server.post(&path_of(&schedule, "/pause"), "").await.status, 200);
    let fires = server.samples(|_| true).await.value(fired).unwrap();
    let cancelled = r#"punctual_tasks_total{topic="pull",status="cancelled",origin="schedule"}"#;
    server.samples(|samples| samples.value(cancelled) == Some(fires - 1.0)).await;
    let deleted = Answer::to(server.request(Method::DELETE, &path_of(&schedule, ""))).await;
    assert_eq!(deleted.status, 204);
    server.samples(|samples| samples.value(cancelled) == Some(fires)).await;
    server.stop();
}

async fn the_third_loss_of_a_task_is_counted(database: Database) {
    let past = Past::of(&database).await;
    past.lost_twice("echo").await;
    past.close().await;
    let server = Server::start(&database);
    let failed = r#"punctual_tasks_total{topic="echo",status="failed",origin="task"}"#;
    let samples = server.samples(|samples| samples.value(failed) == Some(1.0)).await;
    assert_eq!(samples.value("punctual_leases_expired_total"), Some(1.0));
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_to_lead_counts_it() {
    let Some(database) = Database::postgres().await else { return };
    let (leads, changes) = ("punctual_leader", "punctual_leader_changes_total");
    let first = Server::start(&database);
    let samples = first.samples(|samples| samples.value(changes) == Some(1.0)).await;
    assert_eq!(samples.value(leads), Some(1.0));
    let second = Server::start(&database);
    let samples = second.samples(|_| true).await;
    assert_eq!((samples.value(leads), samples.value(changes)), (Some(0.0), Some(0.0)));
    first.stop();
    let samples = second.samples(|samples| samples.value(changes) == Some(1.0)).await;
    assert_eq!(samples.value(leads), Some(1.0));
    second.stop();
}

async fn topics_that_nobody_defined_share_a_label(database: Database) {
    let server = Server::start(&database);
    for n in 0..20 {
        let task = server.make_task(&format!(r#"{{"topic":"made.up.{n}"}}"#)).await;
        server.ended_task(task["id"].as_str().unwrap()).await;
    }
    let completed = r#"punctual_tasks_total{topic="_other",status="completed",origin="task"}"#;
    let samples = server.samples(|samples| samples.value(completed) == Some(20.0)).await;
    for name in ["punctual_tasks_total", "punctual_queue_depth", "punctual_task_lag_seconds_count"] {
        assert_eq!(samples.labels(name, "topic"), ["_other", "echo"], "{name}");
    }
    assert_eq!(samples.value("punctual_tasks_undefined_total"), Some(20.0));
    server.stop();
}

async fn due_tasks_are_shown_until_somebody_takes_them(database: Database) {
    let depth = |topic| format!(r#"punctual_queue_depth{{topic="{topic}",origin="task"}}"#);
    let paused = Server::start_with(&database, |command| command.arg("--paused"));
    let mut last = String::new();
    for topic in ["echo", "echo", "echo", "nobodys"] {
        last = paused.make_task(&format!(r#"{{"topic":"{topic}"}}"#)).await["id"].as_str().unwrap().to_owned();
    }
    paused.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    let waiting = |samples: &Samples| (samples.value(&depth("echo")), samples.value(&depth("_other")));
    paused.samples(|samples| waiting(samples) == (Some(3.0), Some(1.0))).await;
    paused.stop();
    let server = Server::start(&database);
    server.ended_task(&last).await;
    server.samples(|samples| waiting(samples) == (Some(0.0), Some(0.0))).await;
    server.stop();
}

async fn requests_are_counted_by_route(database: Database) {
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await;
    for n in 0..3 {
        server.get(&format!("/api/v1/tasks/no-such-task-{n}")).await.problem(404, "NOT_FOUND");
        server.get(&format!("/no/such/route/{n}")).await.problem(404, "NOT_FOUND");
    }
    let method: Method = "ODD".parse().unwrap();
    Answer::to(server.request(method, "/api/v1/tasks")).await.problem(405, "METHOD_NOT_ALLOWED");
    let samples = server.samples(|_| true).await;
    let count = |method, route, status| {
        let labels = format!(r#"{{method="{method}",route="{route}",status="{status}"}}"#);
        samples.value(&format!("punctual_http_requests_total{labels}"))
    };
    assert_eq!(count("POST", "/api/v1/tasks", "2xx"), Some(1.0));
    assert_eq!(count("GET", "/api/v1/tasks/{id}", "2xx"), Some(1.0));
    assert_eq!(count("GET", "/api/v1/tasks/{id}", "4xx"), Some(3.0));
    assert_eq!(count("GET", "_other", "4xx"), Some(3.0));
    assert_eq!(count("_other", "/api/v1/tasks", "4xx"), Some(1.0));
    assert_eq!(samples.value("punctual_http_requests_in_flight"), Some(1.0), "the one that asks");
    server.stop();
}

async fn they_need_a_key_once_there_are_any(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    let server = Server::start(&database);
    server.get("/metrics").await.problem(401, "UNAUTHENTICATED");
    let read = server.request(Method::GET, "/metrics").bearer_auth("pk_reader");
    assert_eq!(Answer::to(read).await.status, 200);
    server.stop();
}

async fn an_address_of_their_own_needs_no_key(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    let mut server = Server::start_with(&database, |command| {
        command.envs([("PUNCTUAL_LISTEN", "0.0.0.0:0"), ("PUNCTUAL_METRICS_LISTEN", "0.0.0.0:0")])
    });
    let line = server.process.wait_for_output("metrics");
    let there = line[line.find("http://").unwrap()..].trim().replace("0.0.0.0", "127.0.0.1");
    let main = std::mem::replace(&mut server.url, there);
    assert_eq!(server.get("/livez").await.status, 200);
    let answer = Answer::to(server.request(Method::GET, "/metrics").header("host", "punctual.example")).await;
    assert_eq!((answer.status.as_u16(), Samples::of(&answer.text).value("punctual_database_up")), (200, Some(1.0)));
    // What the API's description says of this route holds at the other address.
    let elsewhere = server.request(Method::GET, "/api/v1/tasks").send().await.unwrap();
    assert_eq!(elsewhere.status(), 404, "nothing else is there");
    server.url = main;
    server.get("/metrics").await.problem(401, "UNAUTHENTICATED");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_away_what_is_counted_in_it_is_not_a_number() {
    let Some(mut database) = Database::postgres().await else { return };
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (there, url) = database.through_port(socket.local_addr().unwrap().port());
    database.url = url;
    let way = Arc::new(watch::Sender::new(true));
    tokio::spawn(forward(socket, there, Arc::clone(&way)));
    let server = Server::start(&database);
    let depth = r#"punctual_queue_depth{topic="echo",origin="task"}"#;
    server.samples(|samples| samples.value(depth) == Some(0.0)).await;
    way.send_replace(false);
    let samples = server.samples(|samples| samples.value("punctual_database_up") == Some(0.0)).await;
    for series in [depth, "punctual_outbox_depth", "punctual_clock_offset_seconds"] {
        assert!(samples.value(series).unwrap().is_nan(), "{series}");
    }
    way.send_replace(true);
    server.samples(|samples| samples.value(depth) == Some(0.0)).await;
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ran_out_is_counted_when_it_is_freed() {
    let database = Database::sqlite();
    let past = Past::of(&database).await;
    past.settled("echo", [Settlement::Completed { result: None }]).await;
    past.abandoned("echo").await;
    past.close().await;
    let server = Server::start(&database);
    let samples = server.samples(|samples| samples.value("punctual_leases_expired_total") == Some(1.0)).await;
    let completed = r#"punctual_tasks_total{topic="echo",status="completed",origin="task"}"#;
    assert!(samples.value(completed).unwrap() <= 1.0, "the past of others is not ours to count");
    server.stop();
}
