//! API keys over HTTP and by command, what they may do, the audit log, rate limits, nodes and the outbox.

use std::process::{Command, Output};

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server, punctual};

on_each_database_and_pooler!(
    a_key_is_made_by_command_used_and_revoked,
    keys_are_made_listed_and_revoked_over_http,
    changes_are_noted_with_who_made_them,
    a_key_that_sends_too_much_is_told_to_slow_down,
    a_key_for_some_topics_claims_and_settles_no_others,
    nodes_say_what_they_are,
    the_outbox_is_listed,
    requests_have_ids,
);

fn key_command(database: &Database, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command: Command = punctual(database.folder.path());
    let output = command.arg("key").args(arguments).args(["--database", &database.url]).output().unwrap();
    let Output { status, stdout, stderr } = output;
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn create(database: &Database, name: &str, role: &str, more: &[&str]) -> String {
    let arguments = [&["create", "--name", name, "--role", role], more].concat();
    let (code, out, error) = key_command(database, &arguments);
    assert_eq!(code, Some(0), "{error}");
    out.trim().to_owned()
}

async fn call(server: &Server, method: Method, path: &str, key: &str, body: &str) -> Answer {
    let request = server.request(method, path).bearer_auth(key).header("content-type", "application/json");
    Answer::to(request.body(body.to_owned())).await
}

async fn a_key_is_made_by_command_used_and_revoked(database: Database) {
    let (code, _, error) = key_command(&database, &["create", "--name", "x", "--role", "king"]);
    assert!(code == Some(2) && error.contains("admin"), "{error}");
    let key = create(&database, "ops", "operate", &[]);
    assert!(key.starts_with("pk_"), "{key}");
    let (_, listed, _) = key_command(&database, &["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(!listed.to_string().contains(&key[3..]), "it is not shown again");
    let id = listed["items"][0]["id"].as_str().unwrap().to_owned();

    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_LISTEN", "0.0.0.0:0"));
    server.get("/api/v1/tasks").await.problem(401, "UNAUTHENTICATED");
    assert_eq!(call(&server, Method::GET, "/api/v1/tasks", &key, "").await.status, 200);
    server.stop();
    let (code, _, error) = key_command(&database, &["revoke", &id]);
    assert_eq!(code, Some(0), "{error}");
    let (code, _, error) = key_command(&database, &["revoke", &id]);
    assert!(code == Some(1) && error.contains("revoked before"), "{error}");
    let (code, _, _) = key_command(&database, &["revoke", "nonsense"]);
    assert_eq!(code, Some(1));
}

async fn keys_are_made_listed_and_revoked_over_http(database: Database) {
    let admin = create(&database, "admin", "admin", &[]);
    let server = Server::start(&database);
    let made =
        call(&server, Method::POST, "/api/v1/keys", &admin, r#"{"name":"mailer","role":"submit","topics":["mail.*"]}"#)
            .await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let key = made["key"].as_str().unwrap().to_owned();
    assert_eq!((&made["role"], &made["topics"]), (&json!("submit"), &json!(["mail.*"])));
    let list = call(&server, Method::GET, "/api/v1/keys", &admin, "").await;
    assert!(list.json()["items"].as_array().unwrap().len() == 2 && !list.text.contains(&key), "{list:?}");
    assert_eq!(call(&server, Method::POST, "/api/v1/tasks", &key, r#"{"topic":"mail.a"}"#).await.status, 201);
    call(&server, Method::POST, "/api/v1/tasks", &key, r#"{"topic":"other"}"#).await.problem(403, "FORBIDDEN");
    for path in ["/api/v1/keys", "/api/v1/audit"] {
        call(&server, Method::GET, path, &key, "").await.problem(403, "FORBIDDEN");
    }
    // One for some topics makes none for all, and ends none.
    let limited = r#"{"name":"limited","role":"admin","topics":["mail.*"]}"#;
    let limited = call(&server, Method::POST, "/api/v1/keys", &admin, limited).await.json();
    let limited = limited["key"].as_str().unwrap();
    let more = r#"{"name":"more","role":"admin"}"#;
    call(&server, Method::POST, "/api/v1/keys", limited, more).await.problem(403, "FORBIDDEN");
    let path = format!("/api/v1/keys/{}", made["id"].as_str().unwrap());
    call(&server, Method::DELETE, &path, limited, "").await.problem(403, "FORBIDDEN");
    assert_eq!(call(&server, Method::DELETE, &path, &admin, "").await.status, 204);
    let refused = call(&server, Method::GET, "/api/v1/tasks", &key, "").await;
    refused.problem(401, "UNAUTHENTICATED");
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    call(&server, Method::DELETE, &path, &admin, "").await.problem(404, "NOT_FOUND");
    for (body, field) in [
        (r#"{"role":"read"}"#, "name"),
        (r#"{"name":"x","role":"king"}"#, "role"),
        (r#"{"name":"x","role":"read","topics":["a b"]}"#, "topics"),
        (r#"{"name":"x","role":"read","key":"pk_mine"}"#, "key"),
    ] {
        assert_eq!(call(&server, Method::POST, "/api/v1/keys", &admin, body).await.problem(400, "INVALID"), [field]);
    }
    server.stop();
}

async fn changes_are_noted_with_who_made_them(database: Database) {
    let admin = create(&database, "boss", "admin", &[]);
    let reader = create(&database, "reader", "read", &[]);
    let server = Server::start(&database);
    let put = |key: String| {
        let request = server.request(Method::PUT, "/api/v1/topics/mail").bearer_auth(key);
        Answer::to(request.header("content-type", "application/json").header("x-request-id", "r-7").body("{}"))
    };
    assert_eq!(put(admin.clone()).await.status, 201);
    put(reader).await.problem(403, "FORBIDDEN");
    let task = call(&server, Method::POST, "/api/v1/tasks", &admin, r#"{"topic":"a","delayMs":60000}"#).await.json();
    let cancel = format!("/api/v1/tasks/{}/cancel", task["id"].as_str().unwrap());
    assert_eq!(call(&server, Method::POST, &cancel, &admin, "").await.status, 200);
    let audit = call(&server, Method::GET, "/api/v1/audit", &admin, "").await.json();
    let noted: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| json!([entry["actor"], entry["action"], entry["target"], entry["status"]]))
        .collect();
    assert_eq!(noted[0], json!(["boss", "POST /api/v1/tasks/{id}/cancel", task["id"], 200]));
    assert_eq!(noted[1], json!(["reader", "PUT /api/v1/topics/{name}", "mail", 403]));
    assert_eq!(noted[2], json!(["boss", "PUT /api/v1/topics/{name}", "mail", 201]));
    assert_eq!(noted.len(), 5, "and the two keys by command: {noted:?}");
    assert_eq!(audit["items"][2]["requestId"], "r-7");
    let found = call(&server, Method::GET, "/api/v1/audit?actor=boss&target=mail&limit=1", &admin, "").await.json();
    assert_eq!((found["items"].as_array().unwrap().len(), &found["nextCursor"]), (1, &Value::Null));
    call(&server, Method::GET, "/api/v1/audit?keyId=1", &admin, "").await.problem(400, "INVALID");
    // What was made has its name only in the answer, the first time and when the call comes again.
    let schedule = r#"{"name":"yearly","cronExpression":"0 0 1 1 *","timezone":"UTC","topic":"a"}"#;
    let make = async |key: &str| {
        let request = server.request(Method::POST, "/api/v1/schedules").bearer_auth(&admin);
        let request = request.header("content-type", "application/json").header("idempotency-key", key);
        Answer::to(request.body(schedule)).await
    };
    let made = make("once").await.json();
    assert_eq!(make("once").await.json(), made);
    make("twice").await.problem(409, "NAME_TAKEN");
    assert_eq!(call(&server, Method::POST, "/api/v1/calendars", &admin, r#"{"name":"off"}"#).await.status, 201);
    let found = call(&server, Method::GET, "/api/v1/audit?limit=4", &admin, "").await.json();
    let noted: Vec<_> =
        found["items"].as_array().unwrap().iter().map(|entry| (&entry["target"], &entry["status"])).collect();
    let (none, off) = (json!(""), json!("off"));
    let [made_now, taken] = [json!(201), json!(409)];
    let of_schedule = (&made["id"], &made_now);
    assert_eq!(noted, [(&off, &made_now), (&none, &taken), of_schedule, of_schedule]);
    // Which tasks a bulk call was for, its filter says, also if it was refused.
    let bulk = r#"{"filter": {"topic": "a", "status": "pending"}, "dryRun": true}"#;
    assert_eq!(call(&server, Method::POST, "/api/v1/tasks/cancel", &admin, bulk).await.status, 200);
    call(&server, Method::POST, "/api/v1/tasks/retry", &admin, r#"{"filter": {"colour": 1}}"#).await;
    let found = call(&server, Method::GET, "/api/v1/audit?limit=2", &admin, "").await.json();
    let noted: Vec<_> = found["items"].as_array().unwrap().iter().map(|entry| entry["target"].clone()).collect();
    assert_eq!(noted, [r#"{"colour":1}"#, r#"{"status":"pending","topic":"a"}"#]);
    server.stop();
}

async fn a_key_that_sends_too_much_is_told_to_slow_down(database: Database) {
    let key = create(&database, "busy", "read", &[]);
    let other = create(&database, "other", "read", &[]);
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_RATE_LIMIT", "2"));
    let mut answers = Vec::new();
    for _ in 0..50 {
        let answer = call(&server, Method::GET, "/api/v1/tasks", &key, "").await;
        if answer.status == 429 {
            answers.push(answer);
            break;
        }
    }
    let refused = answers.first().expect("one is refused");
    refused.problem(429, "RATE_LIMITED");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(call(&server, Method::GET, "/api/v1/tasks", &other, "").await.status, 200);
    assert_eq!(server.get("/livez").await.status, 200);
    server.stop();
}

async fn a_key_for_some_topics_claims_and_settles_no_others(database: Database) {
    let admin = create(&database, "admin", "admin", &[]);
    let worker = create(&database, "worker", "submit", &["--topic", "mail.*"]);
    let server = Server::start(&database);
    for topic in ["mail.*", "other"] {
        call(&server, Method::PUT, &format!("/api/v1/topics/{topic}"), &admin, r#"{"route":{"type":"pull"}}"#).await;
    }
    for topic in ["mail.a", "other"] {
        call(&server, Method::POST, "/api/v1/tasks", &admin, &json!({"topic": topic}).to_string()).await;
    }
    for topics in [json!(["other"]), json!(["mail.a", "other"]), json!(["mail"])] {
        let body = json!({"topics": topics}).to_string();
        call(&server, Method::POST, "/api/v1/claims", &worker, &body).await.problem(403, "FORBIDDEN");
    }
    let got = call(&server, Method::POST, "/api/v1/claims", &worker, r#"{"topics":["mail.*"],"max":10}"#).await.json();
    assert_eq!(got["tasks"].as_array().unwrap().len(), 1);
    let other = call(&server, Method::POST, "/api/v1/claims", &admin, r#"{"topics":["other"]}"#).await.json();
    let path = format!("/api/v1/tasks/{}/complete", other["tasks"][0]["id"].as_str().unwrap());
    call(&server, Method::POST, &path, &worker, r#"{"epoch":1}"#).await.problem(403, "FORBIDDEN");
    let path = format!("/api/v1/tasks/{}/complete", got["tasks"][0]["id"].as_str().unwrap());
    assert_eq!(call(&server, Method::POST, &path, &worker, r#"{"epoch":1}"#).await.status, 200);
    server.stop();
}

async fn nodes_say_what_they_are(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let nodes = server.get("/api/v1/nodes").await.json();
    let node = &nodes["items"][0];
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");
    assert_eq!((&node["paused"], &node["plugins"]), (&json!(true), &json!(["echo"])));
    assert_eq!(node["silent"], false);
    assert!(server.url.ends_with(node["listen"].as_str().unwrap()), "{node}");
    for field in ["id", "version", "tzVersion", "startedAt", "seenAt"] {
        assert!(node[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert_eq!(node["leader"], false, "it does not work");
    assert_eq!(server.post("/api/v1/resume", "").await.status, 200);
    // It is elected by and by.
    while server.get("/api/v1/nodes").await.json()["items"][0]["leader"] != true {
        tokio::task::yield_now().await;
    }
    server.stop();
}

async fn the_outbox_is_listed(database: Database) {
    let server = Server::start(&database);
    assert_eq!(server.get("/api/v1/outbox?status=failed").await.json(), json!({"items": [], "nextCursor": null}));
    assert_eq!(server.get("/api/v1/outbox?status=lost").await.problem(400, "INVALID"), ["status"]);
    server.post("/api/v1/outbox/018f0000-0000-7000-8000-000000000000/retry", "").await.problem(404, "NOT_FOUND");
    server.stop();
}

async fn requests_have_ids(database: Database) {
    let server = Server::start(&database);
    let given = Answer::to(server.request(Method::GET, "/api/v1/tasks").header("x-request-id", "mine-1")).await;
    assert_eq!(given.header("x-request-id"), "mine-1");
    assert_eq!(server.get("/livez").await.header("x-request-id").len(), 36);
    server.get("/api/v1/tasks/%ff").await.problem(400, "INVALID");
    server.stop();
}
