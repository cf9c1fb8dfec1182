//! Calendars over HTTP.

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::schedules::{YEARLY, make, path_of};
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    a_calendar_is_made_shown_replaced_and_deleted,
    bad_calendars_are_refused_by_name,
    a_calendar_in_use_stays,
    calendars_are_listed_by_name_in_pages,
);

const PATH: &str = "/api/v1/calendars";

async fn put(server: &Server, name: &str, body: &str) -> Answer {
    let request = server.request(Method::PUT, &format!("{PATH}/{name}")).header("content-type", "application/json");
    Answer::to(request.body(body.to_owned())).await
}

async fn delete(server: &Server, name: &str) -> Answer {
    Answer::to(server.request(Method::DELETE, &format!("{PATH}/{name}"))).await
}

async fn a_calendar_is_made_shown_replaced_and_deleted(database: Database) {
    let server = Server::start(&database);
    let body =
        r#"{"name":"ferien ü/1","dates":["2026-12-26","2026-12-25","2026-12-25"],"weekdays":["sun","SAT","sunday"]}"#;
    let answer = server.post(PATH, body).await;
    let expected = json!({"name": "ferien ü/1", "dates": ["2026-12-25", "2026-12-26"], "weekdays": ["sun", "sat"]});
    assert_eq!((answer.status.as_u16(), answer.json()), (201, expected.clone()));
    assert_eq!(answer.header("location"), "/api/v1/calendars/ferien%20%C3%BC%2F1");
    assert_eq!(server.get("/api/v1/calendars/ferien%20%C3%BC%2F1").await.json(), expected);
    server.post(PATH, body).await.problem(409, "NAME_TAKEN");

    let replaced = put(&server, "ferien%20%C3%BC%2F1", r#"{"weekdays":["mon"]}"#).await;
    assert_eq!((replaced.status.as_u16(), &replaced.json()["dates"]), (200, &json!([])));
    let made = put(&server, "new", r#"{"name":"new"}"#).await;
    assert_eq!((made.status.as_u16(), made.header("location")), (201, "/api/v1/calendars/new"));
    assert_eq!(delete(&server, "new").await.status, 204);
    delete(&server, "new").await.problem(404, "NOT_FOUND");
    for name in ["new", "%00", "Ferien"] {
        server.get(&format!("{PATH}/{name}")).await.problem(404, "NOT_FOUND");
        delete(&server, name).await.problem(404, "NOT_FOUND");
    }
    let keyed = |body: &'static str| {
        let request = server.request(Method::POST, PATH).header("idempotency-key", "k");
        Answer::to(request.header("content-type", "application/json").body(body))
    };
    let first = keyed(r#"{"name":"k"}"#).await;
    let again = keyed(r#"{"name":"k"}"#).await;
    assert_eq!((again.status.as_u16(), &again.text), (201, &first.text));
    assert_eq!(again.header("location"), first.header("location"));
    keyed(r#"{"name":"l"}"#).await.problem(409, "IDEMPOTENCY_KEY_REUSED");
    server.stop();
}

async fn bad_calendars_are_refused_by_name(database: Database) {
    let server = Server::start(&database);
    let many = format!(r#"{{"name":"a","dates":[{}]}}"#, vec!["\"2026-01-01\""; 10_001].join(","));
    for (body, fields) in [
        ("{}", vec!["name"]),
        (r#"{"name":"","dates":{},"weekdays":"sun"}"#, vec!["name", "dates", "weekdays"]),
        (r#"{"name":"a","dates":["2026-02-30","2026-1-1",5,"2026-01-01"]}"#, vec!["dates[0]", "dates[1]", "dates[2]"]),
        (r#"{"name":"a","weekdays":["someday","sun",1]}"#, vec!["weekdays[0]", "weekdays[2]"]),
        (r#"{"name":"a","weekdays":["sun","sun","sun","sun","sun","sun","sun","sun"]}"#, vec!["weekdays"]),
        (r#"{"name":"a\u0000"}"#, vec!["name"]),
        (r#"{"name":"a","colour":1}"#, vec!["colour"]),
        (&many, vec!["dates"]),
    ] {
        assert_eq!(server.post(PATH, body).await.problem(400, "INVALID"), fields, "{}", &body[..body.len().min(80)]);
    }
    assert_eq!(put(&server, "b", r#"{"name":"c"}"#).await.problem(400, "INVALID"), ["name"]);
    assert_eq!(put(&server, &"x".repeat(201), "{}").await.problem(400, "INVALID"), ["name"]);
    assert_eq!(server.get(PATH).await.json(), json!({"items": [], "nextCursor": null}));
    server.stop();
}

async fn a_calendar_in_use_stays(database: Database) {
    let server = Server::start(&database);
    server.post(PATH, r#"{"name":"closed","weekdays":["sun"]}"#).await;
    let made = make(&server, YEARLY.replace('}', r#","excludeCalendars":["closed"]}"#)).await;
    let refused = delete(&server, "closed").await;
    refused.problem(409, "CALENDAR_IN_USE");
    assert!(refused.text.contains("yearly"), "{}", refused.text);
    assert_eq!(Answer::to(server.request(Method::DELETE, &path_of(&made, ""))).await.status, 204);
    assert_eq!(delete(&server, "closed").await.status, 204);
    server.stop();
}

async fn calendars_are_listed_by_name_in_pages(database: Database) {
    let server = Server::start(&database);
    for name in ["c", "a", "e", "b", "d"] {
        assert_eq!(put(&server, name, "{}").await.status, 201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("{PATH}?limit=2&cursor={cursor}")).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        match &page["nextCursor"] {
            Value::String(next) => cursor = next.clone(),
            _ => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    for (query, field) in [("limit=0", "limit"), ("cursor=!", "cursor"), ("name=a", "name")] {
        assert_eq!(server.get(&format!("{PATH}?{query}")).await.problem(400, "INVALID"), [field], "{query}");
    }
    server.stop();
}
