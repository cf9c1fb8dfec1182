//! Lists: filters, pages, cursors.

use std::process::Command;

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::Value;

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Database, Server};

on_each_database_and_pooler!(
    pages_follow_each_other_newest_first,
    every_list_has_pages_and_a_link_to_the_next,
    filters_narrow_the_list,
    large_payloads_end_a_page_early,
    long_answers_are_compressed_for_those_who_can_read_that,
);

async fn pages_follow_each_other_newest_first(database: Database) {
    let server = Server::start(&database);
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(server.make_task(r#"{"topic":"echo"}"#).await["id"].clone());
    }
    made.reverse();
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/api/v1/tasks?limit=3&cursor={cursor}")).await.json();
        listed.extend(ids(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(listed, made);
    let exact = server.get("/api/v1/tasks?limit=7").await.json();
    assert_eq!((ids(&exact).len(), &exact["nextCursor"]), (7, &Value::Null));
    server.stop();
}

/// Follows the links from page to page of one item each; answers how many there were.
async fn follow_links(server: &Server, path: &str, key: &str) -> usize {
    let (mut link, mut pages) = (path.to_owned(), 0);
    loop {
        let page = Answer::to(server.request(Method::GET, &link).bearer_auth(key)).await;
        assert_eq!((page.status.as_u16(), page.json()["items"].as_array().unwrap().len()), (200, 1), "{page:?}");
        pages += 1;
        let next = page.header("link").strip_prefix('<').and_then(|link| link.strip_suffix(r#">; rel="next""#));
        assert_eq!(next.is_some(), !page.json()["nextCursor"].is_null(), "{page:?}");
        match next {
            Some(next) => link = next.to_owned(),
            None => return pages,
        }
    }
}

async fn every_list_has_pages_and_a_link_to_the_next(database: Database) {
    for name in ["pk_a", "pk_b", "pk_c"] {
        add_key(&database, name, Role::Admin, &[]).await;
    }
    let server = Server::start(&database);
    let call = |method, path: &str, body: String| {
        let request = server.request(method, path).bearer_auth("pk_a").header("content-type", "application/json");
        Answer::to(request.body(body))
    };
    for n in 0..3 {
        let name = format!(r#""name":"n{n}""#);
        let schedule = format!(r#"{{{name},"everyMs":3600000,"timezone":"UTC","topic":"echo"}}"#);
        for (method, path, body) in [
            (Method::POST, "/api/v1/tasks".to_owned(), r#"{"topic":"echo"}"#.to_owned()),
            (Method::POST, "/api/v1/schedules".to_owned(), schedule),
            (Method::POST, "/api/v1/calendars".to_owned(), format!("{{{name}}}")),
            (Method::PUT, format!("/api/v1/topics/n{n}"), "{}".to_owned()),
        ] {
            let made = call(method, &path, body).await;
            assert_eq!(made.status, 201, "{made:?}");
        }
    }
    let schedules = call(Method::GET, "/api/v1/schedules", String::new()).await.json();
    let id = schedules["items"][0]["id"].as_str().unwrap();
    for _ in 0..3 {
        call(Method::POST, &format!("/api/v1/schedules/{id}/trigger"), "{}".to_owned()).await;
    }
    for (path, pages) in [
        ("/api/v1/tasks?topic=echo&limit=1", 6),
        ("/api/v1/schedules?limit=1", 3),
        ("/api/v1/calendars?limit=1", 3),
        // The one of the plugin is among them.
        ("/api/v1/topics?limit=1", 4),
        ("/api/v1/keys?limit=1", 3),
        ("/api/v1/nodes?limit=1", 1),
        ("/api/v1/audit?limit=1&actor=pk_a", 12),
        (&format!("/api/v1/schedules/{id}/executions?limit=1"), 3),
    ] {
        assert_eq!(follow_links(&server, path, "pk_a").await, pages, "{path}");
    }
    server.stop();
}

async fn long_answers_are_compressed_for_those_who_can_read_that(database: Database) {
    let server = Server::start(&database);
    for _ in 0..10 {
        server.make_task(r#"{"topic":"echo","delayMs":3600000}"#).await;
    }
    let plain = server.get("/api/v1/tasks").await;
    assert_eq!(plain.header("content-encoding"), "");
    let url = format!("{}/api/v1/tasks", server.url);
    let read = Command::new("curl").args(["-sSi", "--compressed", &url]).output().unwrap();
    let read = String::from_utf8(read.stdout).unwrap();
    let (headers, body) = read.split_once("\r\n\r\n").unwrap();
    assert!(headers.contains("content-encoding: gzip") && body == plain.text, "{read}");
    let gzip = |path| server.request(Method::GET, path).header("accept-encoding", "gzip").send();
    let short = gzip("/livez").await.unwrap();
    assert_eq!(short.headers().get("content-encoding"), None, "not worth it");
    let events = gzip("/api/v1/events").await.unwrap();
    assert_eq!(events.headers().get("content-encoding"), None, "what happens is told at once");
    drop(events);
    server.stop();
}

async fn filters_narrow_the_list(database: Database) {
    let server = Server::start(&database);
    let a = server
        .make_task(
            r#"{"topic":"a","clientRequestId":"c","metadata":{"ownerId":"o","tenantId":"t","correlationId":"x"},
               "runAt":"2036-01-01T00:00:00Z","timezone":"UTC"}"#,
        )
        .await["id"]
        .clone();
    let b = server.make_task(r#"{"topic":"b","runAt":"2037-01-01T00:00:00Z","timezone":"UTC"}"#).await["id"].clone();
    for (query, expected) in [
        ("topic=a", vec![&a]),
        ("ownerId=o", vec![&a]),
        ("tenantId=t", vec![&a]),
        ("correlationId=x", vec![&a]),
        ("clientRequestId=c", vec![&a]),
        ("ownerId=o&topic=b", vec![]),
        ("status=pending", vec![&b, &a]),
        ("status=active", vec![]),
        ("status=running,pending", vec![&b, &a]),
        ("from=2036-01-01T00:00:00Z&to=2037-01-01T00:00:00Z", vec![&a]),
        ("from=2036-01-01T01:00:00%2B01:00", vec![&b, &a]),
        ("scheduleId=018f0000-0000-7000-8000-000000000000", vec![]),
        ("", vec![&b, &a]),
    ] {
        let page = server.get(&format!("/api/v1/tasks?{query}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert_eq!(ids(&page.json()), expected.into_iter().cloned().collect::<Vec<_>>(), "{query}");
    }
    server.stop();
}

async fn large_payloads_end_a_page_early(database: Database) {
    let server = Server::start(&database);
    let mut made = Vec::new();
    for size in [10; 21].into_iter().chain([1_000_000; 12]).chain([10; 21]) {
        let body = format!(r#"{{"topic":"echo","delayMs":3600000,"payload":"{}"}}"#, "x".repeat(size));
        made.insert(0, server.make_task(&body).await["id"].clone());
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let answer = server.get(&format!("/api/v1/tasks?limit=1000&cursor={cursor}")).await;
        assert_eq!(answer.header("content-length"), answer.text.len().to_string());
        assert!(answer.text.len() < 10 * 1024 * 1024, "a page of {} bytes", answer.text.len());
        let page = answer.json();
        listed.extend(ids(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(listed, made, "none is missed, none comes twice");
    server.stop();
}

fn ids(page: &Value) -> Vec<Value> {
    page["items"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
}
