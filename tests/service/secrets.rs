//! Secrets are planted wherever one can be given, and must show nowhere; and what is logged about a request can be found.

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::Value;

use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Answer, Database, Past, Server, punctual};

on_each_database!(secrets_show_nowhere, what_is_logged_of_a_request_has_its_id);

/// Every planted secret has this in it.
const SWORDFISH: &str = "swordfish";

async fn secrets_show_nowhere(mut database: Database) {
    add_key(&database, "pk_swordfish_admin", Role::Admin, &[]).await;
    let past = Past::of(&database).await;
    past.webhook("hook", "https://hook.invalid/", "whsec_swordfish").await;
    past.close().await;
    // The server asks for no password, and takes any.
    database.url = database.url.replace("postgres://postgres@", "postgres://postgres:swordfish-db@");
    let planted = [
        ("DATABASE_URL", database.url.clone()),
        ("REDIS_URL", "redis://user:swordfish-redis@127.0.0.1:1/".to_owned()),
        ("SMTP_URL", "smtp://user:swordfish-smtp@mail.invalid".to_owned()),
        ("RESEND_API_KEY", "re_swordfish".to_owned()),
        ("LAB_API_KEY", "lab_swordfish".to_owned()),
        ("PUNCTUAL_LOG", "trace".to_owned()),
    ];
    let mut server = Server::start_with(&database, |command| command.envs(planted.clone()));
    let mut shown: Vec<String> = Vec::new();
    let call = |method: Method, path: &str, key: &str, body: &'static str| {
        let request = server.request(method, path).bearer_auth(key).header("content-type", "application/json");
        let request = request.header("cookie", "session=swordfish-cookie").header("x-request-id", "swordfish id");
        Answer::to(request.body(body))
    };
    let task = r#"{"topic":"echo","payload":{"password":"swordfish-payload"},"metadata":{"k":"swordfish-metadata"}}"#;
    let made = call(Method::POST, "/api/v1/tasks", "pk_swordfish_admin", task).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = format!("/api/v1/tasks/{}", made.json()["id"].as_str().unwrap());
    while call(Method::GET, &path, "pk_swordfish_admin", "").await.json()["status"] != "completed" {
        tokio::task::yield_now().await;
    }
    for (key, body) in [
        ("pk_swordfish_wrong", task),
        ("pk_swordfish_admin", r#"{"topic":"echo","payload":{"password":"swordfish-payload"}"#),
        ("pk_swordfish_admin", r#"{"topic":"echo","payload":{"a":"swordfish-1"},"delayMs":"soon"}"#),
        ("pk_swordfish_admin", r#"{"topic":"echo","payload":{"a":"swordfish-1","a":"swordfish-2"}}"#),
    ] {
        let refused = call(Method::POST, "/api/v1/tasks", key, body).await;
        assert!(refused.status.is_client_error(), "{refused:?}");
        shown.push(refused.text);
    }
    shown.push(call(Method::GET, "/metrics", "pk_swordfish_admin", "").await.text);
    shown.push(call(Method::GET, "/readyz", "pk_swordfish_admin", "").await.text);
    for arguments in [&["config", "show"][..], &["config", "check"], &["doctor"], &["doctor", "--json"]] {
        let output = punctual(database.folder.path()).envs(planted.clone()).args(arguments).output().unwrap();
        shown.push(String::from_utf8([output.stdout, output.stderr].concat()).unwrap());
    }
    server.process.signal("TERM");
    assert_eq!(server.process.wait().code(), Some(0));
    shown.extend(server.process.log().iter().cloned());
    assert!(shown.iter().any(|line| line.contains(r#""level":"TRACE""#)), "nothing was traced: {shown:#?}");
    let leaks: Vec<_> = shown.iter().filter(|text| text.contains(SWORDFISH)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

async fn what_is_logged_of_a_request_has_its_id(database: Database) {
    let mut server = Server::start_with(&database, |command| command.env("PUNCTUAL_LOG", "punctual=debug"));
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = server.request(Method::GET, "/api/v1/tasks").header("x-request-id", "mine-17");
    let answer = Answer::to(request.header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"))).await;
    assert_eq!(answer.header("x-request-id"), "mine-17");
    let line: Value = serde_json::from_str(&server.process.wait_for_log("request answered")).unwrap();
    let span = &line["span"];
    assert_eq!((&span["request_id"], &span["trace_id"]), (&Value::from("mine-17"), &Value::from(trace_id)), "{line}");
    assert_eq!((&span["route"], &line["status"]), (&Value::from("/api/v1/tasks"), &Value::from(200)));
    assert_eq!(server.get("/livez").await.header("x-request-id").len(), 36, "one of our own");
    server.stop();
}
