//! API keys: once there are any, nothing works without one.

use punctual_domain::id::KeyId;
use punctual_domain::key::{ApiKey, Role};
use punctual_store::Options;
use reqwest::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    every_request_needs_a_key_with_the_right_role,
    moving_tasks_needs_the_role_operate,
    a_key_for_some_topics_moves_no_others,
    a_key_for_some_topics_changes_only_their_schedules,
    any_address_can_be_listened_on,
    without_its_last_key_an_open_address_lets_nobody_in,
    without_its_last_key_this_machine_is_let_in_again,
);

pub(crate) async fn add_key(database: &Database, secret: &str, role: Role, topics: &[&str]) {
    let store = punctual_store::connect(&database.url, Options::default()).await.unwrap();
    let key = ApiKey {
        id: KeyId::generate(),
        name: secret.into(),
        role,
        topics: topics.iter().map(|topic| topic.parse().unwrap()).collect(),
        hash: Sha256::digest(secret).into(),
        created_at: store.now().await.unwrap(),
        revoked_at: None,
    };
    store.create_key(&key).await.unwrap();
}

async fn every_request_needs_a_key_with_the_right_role(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    add_key(&database, "pk_sender", Role::Submit, &["a.*"]).await;
    let server = Server::start(&database);
    let list = |key: &str| Answer::to(server.request(Method::GET, "/api/v1/tasks").bearer_auth(key));
    let post = |key: &str, body: &'static str| {
        let request = server.request(Method::POST, "/api/v1/tasks").header("content-type", "application/json");
        Answer::to(request.bearer_auth(key).body(body))
    };
    let refused = server.get("/api/v1/tasks").await;
    refused.problem(401, "UNAUTHENTICATED");
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    list("pk_guess").await.problem(401, "UNAUTHENTICATED");
    assert_eq!(list("pk_reader").await.status, 200);
    post("pk_reader", r#"{"topic":"a.b"}"#).await.problem(403, "FORBIDDEN");
    post("pk_sender", r#"{"topic":"b"}"#).await.problem(403, "FORBIDDEN");
    assert_eq!(post("pk_sender", r#"{"topic":"a.b"}"#).await.status, 201);

    assert_eq!(server.get("/readyz").await.json(), json!({"status": "ready"}));
    let details = Answer::to(server.request(Method::GET, "/readyz").bearer_auth("pk_reader")).await;
    assert_eq!(details.json()["database"], "ok");
    server.stop();
}

async fn post(server: &Server, key: &str, path: &str, body: &str) -> Answer {
    let request = server.request(Method::POST, path).header("content-type", "application/json");
    Answer::to(request.bearer_auth(key).body(body.to_owned())).await
}

async fn moving_tasks_needs_the_role_operate(database: Database) {
    for (secret, role) in
        [("pk_read", Role::Read), ("pk_submit", Role::Submit), ("pk_operate", Role::Operate), ("pk_admin", Role::Admin)]
    {
        add_key(&database, secret, role, &[]).await;
    }
    let server = Server::start(&database);
    let later = r#"{"topic":"echo","delayMs":3600000}"#;
    let batch = format!(r#"{{"tasks":[{later}]}}"#);
    post(&server, "pk_read", "/api/v1/tasks/batch", &batch).await.problem(403, "FORBIDDEN");
    let ids = post(&server, "pk_submit", "/api/v1/tasks/batch", &batch).await.json()["ids"].clone();
    let path = |action: &str| format!("/api/v1/tasks/{}/{action}", ids[0].as_str().unwrap());
    let moves = [
        (path("cancel"), "{}"),
        (path("reschedule"), "{}"),
        (path("retry"), "{}"),
        ("/api/v1/tasks/cancel".into(), r#"{"filter":{"topic":"echo"}}"#),
        ("/api/v1/tasks/retry".into(), r#"{"filter":{"topic":"echo"},"dryRun":true}"#),
    ];
    for (path, body) in &moves {
        server.post(path, *body).await.problem(401, "UNAUTHENTICATED");
        for key in ["pk_read", "pk_submit"] {
            post(&server, key, path, body).await.problem(403, "FORBIDDEN");
        }
        let get = server.request(Method::GET, path).bearer_auth("pk_read");
        Answer::to(get).await.problem(405, "METHOD_NOT_ALLOWED");
    }
    let list = server.request(Method::GET, "/api/v1/tasks").bearer_auth("pk_read");
    assert_eq!(Answer::to(list).await.json()["items"][0]["status"], "pending");
    assert_eq!(post(&server, "pk_admin", &moves[3].0, r#"{"filter":{"topic":"b"}}"#).await.status, 200);
    post(&server, "pk_operate", &path("retry"), "").await.problem(409, "NOT_FAILED");
    assert_eq!(post(&server, "pk_operate", &path("reschedule"), "{}").await.status, 201);
    assert_eq!(post(&server, "pk_operate", &path("cancel"), "").await.status, 200);
    server.stop();
}

async fn a_key_for_some_topics_moves_no_others(database: Database) {
    add_key(&database, "pk_all", Role::Operate, &[]).await;
    add_key(&database, "pk_some", Role::Operate, &["a.*"]).await;
    let server = Server::start(&database);
    let batch = r#"{"tasks":[{"topic":"a.b","delayMs":3600000},{"topic":"b","delayMs":3600000}]}"#;
    post(&server, "pk_some", "/api/v1/tasks/batch", batch).await.problem(403, "FORBIDDEN");
    let ids = post(&server, "pk_all", "/api/v1/tasks/batch", batch).await.json()["ids"].clone();
    let path = |n: usize, action: &str| format!("/api/v1/tasks/{}/{action}", ids[n].as_str().unwrap());
    for (path, body) in [
        (path(1, "cancel"), "{}"),
        (path(1, "reschedule"), r#"{"topic":"a.b"}"#),
        (path(1, "retry"), "{}"),
        (path(0, "reschedule"), r#"{"topic":"b"}"#),
        ("/api/v1/tasks/cancel".into(), r#"{"filter":{"topic":"b"}}"#),
        ("/api/v1/tasks/cancel".into(), r#"{"filter":{"status":"pending"}}"#),
        ("/api/v1/tasks/retry".into(), r#"{"filter":{"status":"failed"},"dryRun":true}"#),
        // What is for all topics.
        ("/api/v1/pause".into(), "{}"),
        ("/api/v1/resume".into(), "{}"),
        ("/api/v1/outbox/00000000-0000-7000-8000-000000000000/retry".into(), "{}"),
    ] {
        post(&server, "pk_some", &path, body).await.problem(403, "FORBIDDEN");
    }
    let list = server.request(Method::GET, "/api/v1/tasks?status=pending").bearer_auth("pk_all");
    assert_eq!(Answer::to(list).await.json()["items"].as_array().unwrap().len(), 2);
    let cancelled = post(&server, "pk_some", "/api/v1/tasks/cancel", r#"{"filter":{"topic":"a.b"}}"#).await;
    assert_eq!(cancelled.json(), json!({"count": 1}));
    assert_eq!(post(&server, "pk_some", &path(0, "cancel"), "").await.status, 200);
    server.stop();
}

async fn a_key_for_some_topics_changes_only_their_schedules(database: Database) {
    for (secret, role, topics) in [
        ("pk_all", Role::Operate, &[][..]),
        ("pk_some", Role::Operate, &["a.*"]),
        ("pk_submit", Role::Submit, &[]),
        ("pk_read", Role::Read, &[]),
    ] {
        add_key(&database, secret, role, topics).await;
    }
    let server = Server::start(&database);
    let body = |name: &str, topic: &str| {
        format!(r#"{{"name":"{name}","cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"{topic}"}}"#)
    };
    const PATH: &str = "/api/v1/schedules";
    for key in ["pk_submit", "pk_read"] {
        post(&server, key, PATH, &body("x", "a.b")).await.problem(403, "FORBIDDEN");
        let preview = post(&server, key, "/api/v1/schedules/preview", &body("x", "b")).await;
        assert_eq!(preview.status, 200, "to look is no change");
    }
    post(&server, "pk_some", PATH, &body("x", "b")).await.problem(403, "FORBIDDEN");
    let mine = post(&server, "pk_some", PATH, &body("mine", "a.b")).await.json();
    let theirs = post(&server, "pk_all", PATH, &body("theirs", "b")).await.json();
    let send = |method: Method, schedule: &serde_json::Value, rest: &str, body: String| {
        let path = format!("{PATH}/{}{rest}", schedule["id"].as_str().unwrap());
        let request = server.request(method, &path).header("content-type", "application/json");
        Answer::to(request.bearer_auth("pk_some").body(body))
    };
    let stretch = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}"#;
    for (method, rest, text) in [
        (Method::PUT, "", body("theirs", "a.b")),
        (Method::PATCH, "", r#"{"priority":1}"#.into()),
        (Method::DELETE, "", String::new()),
        (Method::POST, "/pause", String::new()),
        (Method::POST, "/resume", String::new()),
        (Method::POST, "/trigger", String::new()),
        (Method::POST, "/backfill", stretch.into()),
    ] {
        send(method, &theirs, rest, text).await.problem(403, "FORBIDDEN");
    }
    send(Method::PATCH, &mine, "", r#"{"topic":"b"}"#.into()).await.problem(403, "FORBIDDEN");
    assert_eq!(send(Method::GET, &theirs, "", String::new()).await.json()["version"], 1);
    assert_eq!(send(Method::PATCH, &mine, "", r#"{"topic":"a.c"}"#.into()).await.status, 200);
    assert_eq!(send(Method::POST, &mine, "/trigger", String::new()).await.status, 201);
    assert_eq!(send(Method::DELETE, &mine, "", String::new()).await.status, 204);
    post(&server, "pk_some", "/api/v1/calendars", r#"{"name":"c"}"#).await.problem(403, "FORBIDDEN");
    assert_eq!(post(&server, "pk_all", "/api/v1/calendars", r#"{"name":"c"}"#).await.status, 201);
    server.stop();
}

async fn any_address_can_be_listened_on(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_LISTEN", "0.0.0.0:0"));
    let request = server.request(Method::GET, "/api/v1/tasks").header("host", "punctual.example");
    assert_eq!(Answer::to(request.bearer_auth("pk_reader")).await.status, 200);
    server.stop();
}

const REVOKE_ALL: &str = "UPDATE punctual_api_keys SET revoked_at = created_at";

async fn without_its_last_key_an_open_address_lets_nobody_in(database: Database) {
    add_key(&database, "pk_admin", Role::Admin, &[]).await;
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_LISTEN", "0.0.0.0:0"));
    database.execute(REVOKE_ALL).await;
    for host in ["localhost", "127.0.0.1", "punctual.example"] {
        let request = |method, path| server.request(method, path).header("host", host);
        let post = request(Method::POST, "/api/v1/tasks").header("content-type", "application/json");
        let list = || request(Method::GET, "/api/v1/tasks");
        for refused in [list(), list().bearer_auth("pk_admin"), post.body(r#"{"topic":"echo"}"#)] {
            Answer::to(refused).await.problem(401, "UNAUTHENTICATED");
        }
        let ready = Answer::to(request(Method::GET, "/readyz")).await;
        assert_eq!((ready.status.as_u16(), ready.json()), (200, json!({"status": "ready"})), "{host}");
    }
    server.stop();
}

async fn without_its_last_key_this_machine_is_let_in_again(database: Database) {
    add_key(&database, "pk_admin", Role::Admin, &[]).await;
    let server = Server::start(&database);
    database.execute(REVOKE_ALL).await;
    assert_eq!(server.get("/api/v1/tasks").await.status, 200);
    server.stop();
}
