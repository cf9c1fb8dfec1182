//! Lists: filters, pages, cursors.

use serde_json::Value;

use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(pages_follow_each_other_newest_first, filters_narrow_the_list, large_payloads_end_a_page_early);

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
