//! `/live`: the stream that tells open pages that something happened.

use punctual_domain::key::Role;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::Visit;
use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Answer, Database, Server, Stream};

on_each_database!(an_open_page_is_told_that_something_happened, a_revoked_key_ends_the_stream_however_much_happens);

fn live(server: &Server) -> RequestBuilder {
    server.request(Method::GET, "/live")
}

/// Lets something happen until the page is told; what happens before its first look is news to nobody.
async fn is_told(stream: &mut Stream, happen: impl AsyncFn()) {
    let told = stream.next();
    tokio::pin!(told);
    loop {
        happen().await;
        tokio::select! {
            frame = &mut told => return assert_eq!(frame.expect("the stream has ended").event, "changed"),
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    }
}

async fn an_open_page_is_told_that_something_happened(database: Database) {
    let server = Server::start(&database);
    let mut stream = Stream::open(live(&server)).await;
    is_told(&mut stream, async || {
        server.make_task(r#"{"topic":"echo"}"#).await;
    })
    .await;
    server.stop();
    while stream.next().await.is_some() {}
}

async fn a_revoked_key_ends_the_stream_however_much_happens(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let refused = Visit::of(&server).get("/live").await;
    assert!(refused.status == 303 && refused.location.starts_with("/login"), "{refused:?}");

    let chief = |method, path: &str| {
        let request = server.request(method, path).bearer_auth("pk_chief");
        request.header("content-type", "application/json")
    };
    let happen = async || {
        let made = Answer::to(chief(Method::POST, "/api/v1/tasks").body(r#"{"topic":"echo"}"#)).await;
        assert_eq!(made.status, 201);
    };
    let mut stream = Stream::open(live(&server).bearer_auth("pk_reader")).await;
    is_told(&mut stream, &happen).await;
    let keys = Answer::to(chief(Method::GET, "/api/v1/keys")).await.json();
    let is_reader = |key: &&Value| key["name"] == "pk_reader";
    let id = keys["items"].as_array().unwrap().iter().find(is_reader).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(Answer::to(chief(Method::DELETE, &format!("/api/v1/keys/{id}"))).await.status, 204);
    // Something happens every second meanwhile.
    let ended = async { while stream.next().await.is_some() {} };
    tokio::pin!(ended);
    loop {
        happen().await;
        tokio::select! {
            () = &mut ended => break,
            () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {}
        }
    }
    server.stop();
}
