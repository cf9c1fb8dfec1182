//! Definitions of topics.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_definition_is_written_read_and_deleted,
    a_put_replaces_and_shows_every_default,
    definitions_are_listed_by_name_page_by_page,
    secrets_are_never_shown_again,
    what_cannot_be_is_refused,
    a_topic_with_a_handler_keeps_its_route,
    a_paused_topic_waits_until_it_is_resumed,
    tasks_of_a_deleted_topic_go_to_the_next_longest_match,
    defaults_of_a_topic_are_those_of_its_tasks,
    the_configuration_declares_topics,
);

async fn delete(server: &Server, path: &str) -> Answer {
    Answer::to(server.request(Method::DELETE, path)).await
}

async fn a_definition_is_written_read_and_deleted(database: Database) {
    let server = Server::start(&database);
    let path = "/api/v1/topics/reports.*";
    server.get(path).await.problem(404, "NOT_FOUND");
    let made = server.put(path, r#"{"route":{"type":"pull"},"concurrency":7}"#).await;
    assert_eq!((made.status.as_u16(), made.header("location")), (201, path), "{made:?}");
    assert_eq!(server.get(path).await.json(), made.json());
    let again = server.put(path, r#"{"route":{"type":"pull"},"concurrency":8}"#).await;
    assert_eq!((again.status.as_u16(), &again.json()["concurrency"]), (200, &json!(8)));
    assert_eq!(delete(&server, path).await.status, 204);
    delete(&server, path).await.problem(404, "NOT_FOUND");
    server.get(path).await.problem(404, "NOT_FOUND");
    server.stop();
}

async fn a_put_replaces_and_shows_every_default(database: Database) {
    let server = Server::start(&database);
    let full = json!({
        "route": {"type": "bullmq", "queue": "jobs", "prefix": "own"}, "concurrency": 3, "ratePerSecond": 2.5,
        "retry": {"attempts": 4, "backoff": {"type": "fixed", "delay": 10, "maxDelay": 20, "jitter": 0.0}},
        "timeoutSeconds": 60, "paused": true, "retentionDays": 5,
    });
    let mut shown = server.put("/api/v1/topics/mail", full.to_string()).await.json();
    assert!(shown["warnings"][0].as_str().unwrap().contains("BullMQ"), "{shown}");
    let fields = shown.as_object_mut().unwrap();
    fields.remove("warnings");
    assert_eq!(fields.remove("name"), Some(json!("mail")));
    assert_eq!(shown, full);
    let bare = server.put("/api/v1/topics/mail", "{}").await.json();
    let expected = json!({
        "name": "mail", "route": {"type": "event"}, "concurrency": 50, "ratePerSecond": null, "retry": null,
        "timeoutSeconds": null, "paused": false, "retentionDays": null, "warnings": [],
    });
    assert_eq!(bare, expected);
    server.stop();
}

async fn definitions_are_listed_by_name_page_by_page(database: Database) {
    let server = Server::start(&database);
    for name in ["b", "a.*", "a", "c-1"] {
        server.put_topic(name, "{}").await;
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/topics?limit=2".to_owned();
    loop {
        let page = server.get(&path).await;
        let list = page.json();
        assert!(list["items"].as_array().unwrap().len() <= 2);
        names.extend(list["items"].as_array().unwrap().iter().map(|topic| topic["name"].clone()));
        let Some(cursor) = list["nextCursor"].as_str() else {
            assert_eq!(page.header("link"), "");
            break;
        };
        path = format!("/api/v1/topics?limit=2&cursor={cursor}");
        assert_eq!(page.header("link"), format!("<{path}>; rel=\"next\""));
    }
    assert_eq!(Value::from(names), json!(["a", "a.*", "b", "c-1", "echo"]));
    server.get("/api/v1/topics?cursor=x").await.problem(400, "INVALID");
    server.stop();
}

async fn secrets_are_never_shown_again(database: Database) {
    let mut server = Server::start_with(&database, |command| command.env("PUNCTUAL_LOG", "debug"));
    let body = r#"{"route":{"type":"webhook","url":"https://hook.invalid/","secrets":["swordfish-1","swordfish-2"]}}"#;
    let made = server.put("/api/v1/topics/hook", body).await;
    assert_eq!(made.json()["route"]["secrets"], json!(["***", "***"]));
    let task = server.make_task(r#"{"topic":"hook"}"#).await;
    server.ended_task(task["id"].as_str().unwrap()).await;
    for path in ["/api/v1/topics/hook", "/api/v1/topics"] {
        assert!(!server.get(path).await.text.contains("swordfish"));
    }
    let refused = server.put("/api/v1/topics/hook", body.replace("https://", "ftp://")).await;
    assert_eq!(refused.problem(400, "INVALID"), ["route.url"]);
    assert!(!refused.text.contains("swordfish"));
    assert!(!server.process.log().join("\n").contains("swordfish"));
    server.stop();
}

async fn what_cannot_be_is_refused(database: Database) {
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_WEBHOOK_ALLOW", "10.1.0.0/16"));
    let hook = |url: &str| json!({"route": {"type": "webhook", "url": url, "secrets": ["swordfish"]}}).to_string();
    for (name, body, fields) in [
        ("a%20b", "{}".to_owned(), vec!["name"]),
        ("*", "{}".to_owned(), vec!["name"]),
        ("a", r#"{"name":"b"}"#.to_owned(), vec!["name"]),
        ("a", r#"{"concurrency":0,"colour":1}"#.to_owned(), vec!["concurrency", "colour"]),
        ("a", hook("http://169.254.169.254/latest"), vec!["route.url"]),
        ("a", hook("http://0x7f.1/"), vec!["route.url"]),
        ("a", hook("http://10.2.0.1/"), vec!["route.url"]),
        ("a", hook("nonsense"), vec!["route.url"]),
    ] {
        let answer = server.put(&format!("/api/v1/topics/{name}"), body.as_str()).await;
        assert_eq!(answer.problem(400, "INVALID"), fields, "{body}");
    }
    server.get("/api/v1/topics/a").await.problem(404, "NOT_FOUND");
    assert_eq!(server.put("/api/v1/topics/a", hook("http://10.1.2.3/hook")).await.status, 201);
    server.stop();
}

async fn a_topic_with_a_handler_keeps_its_route(database: Database) {
    let server = Server::start(&database);
    let path = "/api/v1/topics/echo";
    assert_eq!(server.get(path).await.json()["route"], json!({"type": "handler"}));
    server.put(path, r#"{"route":{"type":"pull"}}"#).await.problem(409, "HANDLER_REGISTERED");
    delete(&server, path).await.problem(409, "HANDLER_REGISTERED");
    let edited = server.put(path, r#"{"concurrency":2}"#).await.json();
    assert_eq!((&edited["route"], &edited["concurrency"]), (&json!({"type": "handler"}), &json!(2)));
    server.stop();
    let server = Server::start(&database);
    assert_eq!(server.get(path).await.json(), edited, "a restart changes nothing");
    let task = server.make_task(r#"{"topic":"echo","payload":[1]}"#).await;
    assert_eq!(server.ended_task(task["id"].as_str().unwrap()).await["result"], json!([1]));
    server.stop();
}

async fn a_paused_topic_waits_until_it_is_resumed(database: Database) {
    let server = Server::start(&database);
    server.post("/api/v1/topics/nobody/pause", "").await.problem(404, "NOT_FOUND");
    let paused = server.post("/api/v1/topics/echo/pause", "").await;
    assert_eq!((paused.status.as_u16(), &paused.json()["paused"]), (200, &json!(true)));
    let waiting = server.make_task(r#"{"topic":"echo"}"#).await;
    let other = server.make_task(r#"{"topic":"other"}"#).await;
    server.ended_task(other["id"].as_str().unwrap()).await;
    let path = format!("/api/v1/tasks/{}", waiting["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["status"], "pending");
    let resumed = server.post("/api/v1/topics/echo/resume", "{}").await;
    assert_eq!(resumed.json()["paused"], json!(false));
    assert_eq!(server.ended_task(waiting["id"].as_str().unwrap()).await["status"], "completed");
    server.stop();
}

async fn tasks_of_a_deleted_topic_go_to_the_next_longest_match(database: Database) {
    let server = Server::start(&database);
    server.put_topic("mail.fast", r#"{"route":{"type":"pull"}}"#).await;
    server.put_topic("mail.*", r#"{"route":{"type":"event"}}"#).await;
    let task = server.make_task(r#"{"topic":"mail.fast"}"#).await;
    let other = server.make_task(r#"{"topic":"mail.slow"}"#).await;
    server.ended_task(other["id"].as_str().unwrap()).await;
    let path = format!("/api/v1/tasks/{}", task["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["status"], "pending", "nobody claims it");
    assert_eq!(delete(&server, "/api/v1/topics/mail.fast").await.status, 204);
    assert_eq!(server.ended_task(task["id"].as_str().unwrap()).await["status"], "completed");
    server.stop();
}

async fn defaults_of_a_topic_are_those_of_its_tasks(database: Database) {
    let server = Server::start(&database);
    server.put_topic("mail.*", r#"{"retry":{"attempts":4},"timeoutSeconds":9,"paused":true}"#).await;
    let task = server.make_task(r#"{"topic":"mail.x","delayMs":60000}"#).await;
    assert_eq!((&task["retry"]["attempts"], &task["timeoutSeconds"]), (&json!(4), &json!(9)), "at once");
    let own = server.make_task(r#"{"topic":"mail.x","delayMs":60000,"timeoutSeconds":5}"#).await;
    assert_eq!((&own["retry"]["attempts"], &own["timeoutSeconds"]), (&json!(4), &json!(5)));
    server.stop();
}

async fn the_configuration_declares_topics(database: Database) {
    std::fs::create_dir(database.folder.path().join("config")).unwrap();
    let declared =
        "[topics.\"mail.*\"]\nroute = { type = \"pull\" }\nconcurrency = 7\n[topics.echo]\nconcurrency = 3\n";
    std::fs::write(database.folder.path().join("config/punctual.toml"), declared).unwrap();
    let server = Server::start(&database);
    // They hold from the first task on.
    let task = server.make_task(r#"{"topic":"mail.first"}"#).await;
    let echoed = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(echoed["id"].as_str().unwrap()).await;
    let waits = server.get(&format!("/api/v1/tasks/{}", task["id"].as_str().unwrap())).await.json();
    assert_eq!((&waits["status"], &waits["attempt"]), (&json!("pending"), &json!(0)), "{waits}");
    let mail = server.get("/api/v1/topics/mail.*").await.json();
    assert_eq!((&mail["route"]["type"], &mail["concurrency"]), (&json!("pull"), &json!(7)));
    let echo = server.get("/api/v1/topics/echo").await.json();
    assert_eq!((&echo["route"]["type"], &echo["concurrency"]), (&json!("handler"), &json!(3)));
    server.put_topic("mail.*", r#"{"route":{"type":"pull"},"concurrency":9}"#).await;
    server.post("/api/v1/topics/mail.*/pause", "").await;
    server.stop();
    let server = Server::start(&database);
    let mail = server.get("/api/v1/topics/mail.*").await.json();
    assert_eq!((&mail["concurrency"], &mail["paused"]), (&json!(7), &json!(true)), "the file wins, the pause stays");
    server.stop();
}
