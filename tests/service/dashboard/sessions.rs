//! A key opens a session, and its end closes it.

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::Value;

use super::Visit;
use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(a_key_opens_a_session_and_its_end_closes_it, a_session_holds_on_every_node,);

async fn a_key_opens_a_session_and_its_end_closes_it(database: Database) {
    add_key(&database, "pk_visitor", Role::Read, &[]).await;
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let led = visit.get("/tasks?status=failed").await;
    assert_eq!((led.status.as_u16(), &*led.location), (303, "/login?next=%2Ftasks%3Fstatus%3Dfailed"));
    assert!(visit.page(&led.location).await.contains("API key"));
    for wrong in ["pk_guess", "", "pk_visitor\r\nx", "é"] {
        let refused = visit.post("/login", &[("key", wrong)]).await;
        assert!(refused.status == 401 && refused.cookies.is_empty(), "{wrong}: {refused:?}");
    }
    let opened = visit.post("/login", &[("key", "pk_visitor"), ("next", "/tasks?status=failed")]).await;
    assert_eq!((opened.status.as_u16(), &*opened.location), (303, "/tasks?status=failed"));
    let [cookie] = &opened.cookies[..] else { panic!("{opened:?}") };
    assert!(cookie.ends_with("; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains("pk_visitor"), "not the key itself: {cookie}");
    let encrypted = [("x-forwarded-proto", "https")];
    let secure = visit.send(Method::POST, "/login", &[("key", "pk_visitor")], &encrypted).await;
    assert!(secure.cookies[0].ends_with("; Secure"), "{secure:?}");
    let elsewhere = visit.post("/login", &[("key", "pk_visitor"), ("next", "//evil.example")]).await;
    assert_eq!(elsewhere.location, "/");

    let visitor = Visit::with_key(&server, "pk_visitor").await;
    assert!(visitor.page("/").await.contains("pk_visitor · read"));
    assert_eq!(visitor.get("/api/v1/tasks").await.status, 200, "what is read of the API is open too");
    assert_eq!(visitor.post("/api/v1/tasks", &[]).await.status, 401, "what writes needs the key itself");
    assert!(visitor.post("/logout", &[]).await.cookies[0].contains("Max-Age=0"));
    let session = visitor.session.clone().unwrap();
    let forged = session.replace(&session[session.len() - 8..], "AAAAAAAA");
    for session in ["punctual_session=pk_visitor", &forged, &session.replace('.', "")] {
        let forger = Visit { session: Some(session.to_owned()), ..Visit::of(&server) };
        assert_eq!(forger.get("/").await.status, 303, "{session}");
        assert_eq!(forger.get("/api/v1/tasks").await.status, 401, "{session}");
    }
    let token = session.strip_prefix("punctual_session=").unwrap();
    let bearer = server.request(Method::GET, "/api/v1/tasks").bearer_auth(token).send().await.unwrap();
    assert_eq!(bearer.status(), 401, "a session is no key");

    let keys = server.request(Method::GET, "/api/v1/keys").bearer_auth("pk_chief").send().await.unwrap();
    let keys: Value = serde_json::from_str(&keys.text().await.unwrap()).unwrap();
    let key = keys["items"].as_array().unwrap().iter().find(|key| key["name"] == "pk_visitor").unwrap();
    let path = format!("/api/v1/keys/{}", key["id"].as_str().unwrap());
    let revoked = server.request(Method::DELETE, &path).bearer_auth("pk_chief").send().await.unwrap();
    assert_eq!(revoked.status(), 204);
    assert_eq!(visitor.get("/").await.status, 303, "at once");
    assert_eq!(visitor.get("/api/v1/tasks").await.status, 401);
    server.stop();
}

async fn a_session_holds_on_every_node(database: Database) {
    add_key(&database, "pk_visitor", Role::Read, &[]).await;
    let first = Server::start(&database);
    let session = Visit::with_key(&first, "pk_visitor").await.session;
    // SQLite has one node at a time: the next one.
    first.stop();
    let second = Server::start(&database);
    let visit = Visit { session, ..Visit::of(&second) };
    assert!(visit.page("/").await.contains("pk_visitor · read"));
    second.stop();
}
