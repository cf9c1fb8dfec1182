//! Plugins as the service runs them: their routes, their settings, and what they bring.

use std::time::{Duration, Instant};

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::{Value, json};

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_plugins_route_is_one_like_any_other,
    a_plugins_route_keeps_its_answer_with_what_it_writes,
    what_plugins_do_needs_a_key_for_their_topics_and_is_noted,
    a_plugin_that_is_off_has_no_routes,
    tasks_of_a_plugin_that_is_off_wait_for_it_and_say_so,
    a_plugin_hears_what_the_configuration_says,
    what_a_plugin_brings_belongs_to_the_operator,
);

const SESSIONS: &str = "/api/v1/plugins/signup/sessions";
const EVENTS: &str = "/api/v1/plugins/operations/events";

async fn a_plugins_route_is_one_like_any_other(database: Database) {
    let server = Server::start_with_plugins(&database);
    let begun = server.post(SESSIONS, r#"{"email":"ada@example.com"}"#).await;
    assert_eq!((begun.status.as_u16(), begun.json()["currentStage"].as_str()), (201, Some("step_1")));
    let location = format!("{SESSIONS}/{}", begun.json()["id"].as_str().unwrap());
    assert_eq!(begun.header("location"), location);
    assert_eq!(server.get(&location).await.json(), begun.json());
    let tasks = server.get("/api/v1/tasks?topic=signup.reminder.late").await.json();
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1);
    server.post(SESSIONS, r#"{"email":"ada@example.com"}"#).await;
    let page = server.get(&format!("{SESSIONS}?limit=1")).await;
    assert!(page.header("link").contains(page.json()["nextCursor"].as_str().unwrap()), "{page:?}");

    assert_eq!(server.post(SESSIONS, r#"{"email":7,"x":1}"#).await.problem(400, "INVALID"), ["email", "x"]);
    assert_eq!(server.get(&format!("{SESSIONS}?colour=red")).await.problem(400, "INVALID"), ["colour"]);
    server.post(SESSIONS, r#"{"email":"a@b.c","email":"d@e.f"}"#).await.problem(400, "INVALID");
    server.post(SESSIONS, "{").await.problem(400, "INVALID");
    server.get(&format!("{SESSIONS}/nobody")).await.problem(404, "NOT_FOUND");
    server.put(SESSIONS, "{}").await.problem(405, "METHOD_NOT_ALLOWED");
    let typed = server.request(Method::POST, SESSIONS).header("content-type", "text/plain").body("{}");
    Answer::to(typed).await.problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let large = format!(r#"{{"email":"{}"}}"#, "x".repeat(3 * 1024 * 1024));
    server.post(SESSIONS, large).await.problem(413, "TOO_LARGE");
    let gone = Answer::to(server.request(Method::DELETE, &location)).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (204, ""));
    server.stop();
}

async fn post_with_key(server: &Server, body: &str) -> Answer {
    let request = server.request(Method::POST, SESSIONS).header("content-type", "application/json");
    Answer::to(request.header("Idempotency-Key", "k").body(body.to_owned())).await
}

async fn a_plugins_route_keeps_its_answer_with_what_it_writes(database: Database) {
    let server = Server::start_with_plugins(&database);
    let body = r#"{"email":"ada@example.com"}"#;
    let calls = futures::future::join_all((0..5).map(|_| post_with_key(&server, body))).await;
    for call in &calls {
        assert_eq!((call.status.as_u16(), &call.text), (201, &calls[0].text));
        assert_eq!(call.header("location"), calls[0].header("location"));
    }
    post_with_key(&server, r#"{"email":"eve@example.com"}"#).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(server.get(SESSIONS).await.json()["items"].as_array().unwrap().len(), 1);
    server.stop();
}

async fn what_plugins_do_needs_a_key_for_their_topics_and_is_noted(database: Database) {
    add_key(&database, "pk_mail", Role::Admin, &["mail.*"]).await;
    add_key(&database, "pk_signup", Role::Submit, &["signup.*"]).await;
    add_key(&database, "pk_admin", Role::Admin, &[]).await;
    let server = Server::start_with_plugins(&database);
    let call = |key: &str, path: &str, body: &str| {
        let request = server.request(Method::POST, path).header("content-type", "application/json");
        Answer::to(request.bearer_auth(key).body(body.to_owned()))
    };
    let email = r#"{"email":"ada@example.com"}"#;
    call("pk_mail", SESSIONS, email).await.problem(403, "FORBIDDEN");
    assert_eq!(call("pk_signup", SESSIONS, email).await.status, 201);
    let event = r#"{"title":"Stand-up","creator":{"name":"Ada"}}"#;
    call("pk_signup", EVENTS, event).await.problem(403, "FORBIDDEN");
    assert_eq!(call("pk_admin", EVENTS, event).await.status, 201);
    let audit = Answer::to(server.request(Method::GET, "/api/v1/audit").bearer_auth("pk_admin")).await.json();
    let noted: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|entry| (&entry["action"], &entry["status"])).collect();
    let action = json!(format!("POST {EVENTS}"));
    assert_eq!(noted, [(&action, &json!(201)), (&action, &json!(403))]);
    server.stop();
}

async fn a_plugin_that_is_off_has_no_routes(database: Database) {
    let server = Server::start(&database);
    // The description is that of all plugins: it does not know of this.
    let unknown = server.request(Method::GET, SESSIONS).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    let served = server.get("/api/v1/openapi.json").await.json();
    assert!(!served["paths"].as_object().unwrap().keys().any(|path| path.contains("/plugins/")));
    server.stop();
}

async fn tasks_of_a_plugin_that_is_off_wait_for_it_and_say_so(database: Database) {
    let with_plugin = || Server::start_with(&database, |command| command.env("PUNCTUAL_PLUGINS", "signup"));
    const TOPIC: &str = "signup.reminder.early";
    with_plugin().stop();

    let server = Server::start(&database);
    let topics = server.get("/api/v1/topics?limit=1000").await.json();
    let topic = topics["items"].as_array().unwrap().iter().find(|topic| topic["name"] == TOPIC).unwrap();
    assert_eq!(topic["route"], json!({"type": "handler"}), "{topic}");
    let task = server.make_task(&json!({"topic": TOPIC}).to_string()).await;
    let [path, why] = ["tasks", "why"].map(|what| format!("/api/v1/{what}/{}", task["id"].as_str().unwrap()));
    let said = server.get(&why).await.json();
    let expected = format!("no node has a handler for the topic {TOPIC}: start one with the plugin that has it");
    let reasons = said["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["message"].as_str().unwrap().starts_with(&expected)), "{said}");
    // What came later and is served has ended meanwhile.
    let other = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(other["id"].as_str().unwrap()).await;
    let waits = server.get(&path).await.json();
    assert_eq!((&waits["status"], &waits["attempt"]), (&json!("pending"), &json!(0)), "{waits}");
    server.stop();

    let server = with_plugin();
    server.wait_for(&path, |task| task["attempts"][0]["outcome"].is_string()).await;
    server.stop();
}

async fn a_plugin_hears_what_the_configuration_says(database: Database) {
    let server = Server::start_with(&database, |command| {
        command.envs([("PUNCTUAL_PLUGINS", "signup"), ("SIGNUP_ALERT_EMAIL", "sales@example.com")])
    });
    server.post(SESSIONS, r#"{"email":"ada@example.com"}"#).await;
    let begun_at = Instant::now();
    let message = loop {
        let outbox = server.get("/api/v1/outbox").await.json();
        match outbox["items"].as_array().unwrap().first() {
            Some(message) if message["status"] == "sent" => break message.clone(),
            _ => assert!(begun_at.elapsed() < Duration::from_secs(30), "{outbox}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(message["recipient"], "sales@example.com");
    assert_eq!(message["dedupeKey"], "signup-alert-internal__ada@example.com");
    server.stop();
}

async fn what_a_plugin_brings_belongs_to_the_operator(database: Database) {
    let server = Server::start_with_plugins(&database);
    let schedule = async |server: &Server| {
        let found = server.get("/api/v1/schedules?name=operationsReconcile").await.json();
        found["items"].as_array().unwrap().first().cloned()
    };
    let brought = schedule(&server).await.unwrap();
    assert_eq!((brought["cronExpression"].as_str(), brought["enabled"].as_bool()), (Some("*/5 * * * *"), Some(true)));
    let topic = server.get("/api/v1/topics/operations.*").await.json();
    assert_eq!((&topic["retry"]["attempts"], &topic["retry"]["backoff"]["delay"]), (&json!(5), &json!(5000)));
    let path = format!("/api/v1/schedules/{}", brought["id"].as_str().unwrap());
    let edit = server.request(Method::PATCH, &path).header("content-type", "application/json");
    assert_eq!(Answer::to(edit.body(r#"{"cronExpression":"0 * * * *"}"#)).await.status, 200);
    server.put_topic("operations.*", r#"{"route":{"type":"handler"},"retry":{"attempts":2}}"#).await;
    server.stop();

    let server = Server::start_with_plugins(&database);
    assert_eq!(schedule(&server).await.unwrap()["cronExpression"], "0 * * * *");
    assert_eq!(server.get("/api/v1/topics/operations.*").await.json()["retry"]["attempts"], 2);
    assert_eq!(Answer::to(server.request(Method::DELETE, &path)).await.status, 204);
    server.stop();

    let server = Server::start_with_plugins(&database);
    assert_eq!(schedule(&server).await, None::<Value>);
    server.stop();
}
