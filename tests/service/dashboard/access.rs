//! Who may do what, and that it is noted.

use punctual_domain::id::KeyId;
use punctual_domain::key::{ApiKey, Role};
use punctual_store::Options;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{NOWHERE, Visit, YEARLY, api, make};
use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Database, Past, Server};

on_each_database!(
    every_route_needs_its_role_and_no_more,
    forms_of_other_sites_are_refused,
    a_form_is_audited_as_the_call_that_it_makes,
    a_key_for_some_topics_is_offered_what_it_may_do_and_no_more,
    however_many_keys_there_are_a_page_has_a_hundred,
);

/// What each route needs, as the rules say it. Left out are those for everybody, and `/live`, which does not end.
fn routes() -> impl Iterator<Item = (Method, String, Role)> {
    include_str!("../../testdata/dashboard_routes.txt").lines().filter_map(|line| {
        let [method, path, who] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let role = Role::ALL.into_iter().find(|role| role.as_str() == who);
        assert!(role.is_some() || who == "everybody", "{line}");
        let path = match path {
            "/live" => return None,
            "/tasks/bulk" => "/tasks/bulk?action=cancel&topic=a".to_owned(),
            path => path.replace("{id}", NOWHERE).replace("{name}", "none"),
        };
        Some((method.parse().unwrap(), path, role?))
    })
}

async fn every_route_needs_its_role_and_no_more(database: Database) {
    for role in Role::ALL {
        add_key(&database, &format!("pk_{}", role.as_str()), role, &[]).await;
    }
    let server = Server::start(&database);
    let nobody = Visit::of(&server);
    let mut visits = Vec::new();
    for role in Role::ALL {
        visits.push((role, Visit::with_key(&server, &format!("pk_{}", role.as_str())).await));
    }
    for (method, path, needed) in routes() {
        let seen = nobody.send(method.clone(), &path, &[], &[]).await;
        assert!(seen.status == 303 && seen.location.starts_with("/login"), "{method} {path}: {seen:?}");
        for (role, visit) in &visits {
            let seen = visit.send(method.clone(), &path, &[], &[]).await;
            let cell = format!("{method} {path} as {}: {}", role.as_str(), seen.status);
            assert_eq!(seen.status == 403, *role < needed, "{cell}");
            assert!(!seen.location.starts_with("/login") && !seen.status.is_server_error(), "{cell}");
        }
    }
    let task = server.request(Method::POST, "/api/v1/tasks").bearer_auth("pk_admin");
    let task = task.header("content-type", "application/json").body(r#"{"topic":"a","delayMs":3600000}"#);
    let task: Value = serde_json::from_str(&task.send().await.unwrap().text().await.unwrap()).unwrap();
    let path = format!("/tasks/{}", task["id"].as_str().unwrap());
    let reader = Visit::with_key(&server, "pk_read").await.page(&path).await;
    assert!(
        !reader.contains("/cancel") && !reader.contains("href=\"/keys\""),
        "no button for whoever may not: {reader}"
    );
    let operator = Visit::with_key(&server, "pk_operate").await.page(&path).await;
    assert!(operator.contains("/cancel") && !operator.contains("href=\"/keys\""), "{operator}");
    assert!(Visit::with_key(&server, "pk_admin").await.page(&path).await.contains("href=\"/keys\""));
    server.stop();
}

async fn forms_of_other_sites_are_refused(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let id = make(&server, YEARLY).await;
    let path = format!("/schedules/{id}/pause");
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        for path in [&*path, "/login", "/logout"] {
            let seen = visit.send(Method::POST, path, &[], &[(name, value)]).await;
            assert_eq!(seen.status, 403, "{name}: {value}: {path}");
        }
    }
    assert_eq!(visit.send(Method::GET, "/", &[], &[("host", "evil.example")]).await.status, 403, "no rebinding");
    assert_eq!(api(&server, &format!("/api/v1/schedules/{id}")).await["enabled"], true);
    let ours = visit.send(Method::POST, &path, &[], &[("sec-fetch-site", "same-origin")]).await;
    assert_eq!(ours.status, 303);
    server.stop();
}

async fn a_form_is_audited_as_the_call_that_it_makes(database: Database) {
    add_key(&database, "pk_reader", Role::Read, &[]).await;
    add_key(&database, "pk_operator", Role::Operate, &[]).await;
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let made = server.request(Method::POST, "/api/v1/schedules").bearer_auth("pk_chief");
    let made = made.header("content-type", "application/json").body(YEARLY).send().await.unwrap();
    let made: Value = serde_json::from_str(&made.text().await.unwrap()).unwrap();
    let id = made["id"].as_str().unwrap();
    Visit::with_key(&server, "pk_operator").await.done(&format!("/schedules/{id}/pause"), &[]).await;
    let audit = server.request(Method::GET, "/api/v1/audit").bearer_auth("pk_chief").send().await.unwrap();
    let audit: Value = serde_json::from_str(&audit.text().await.unwrap()).unwrap();
    let entry = &audit["items"][0];
    let told = |entry: &Value| ["actor", "action", "target"].map(|field| entry[field].as_str().unwrap().to_owned());
    assert_eq!(told(entry), ["pk_operator", "POST /api/v1/schedules/{id}/pause", id]);
    assert_eq!((&entry["status"], audit["items"].as_array().unwrap().len()), (&json!(200), 2), "one entry each");

    let page = Visit::with_key(&server, "pk_chief").await.page("/audit").await;
    let link = format!("<a href=\"/schedules/{id}\">");
    assert_eq!(page.matches(&link).count(), 2, "what was made, and what was paused: {page}");

    let refused = Visit::with_key(&server, "pk_reader").await.post(&format!("/schedules/{id}/delete"), &[]).await;
    assert_eq!(refused.status, 403);
    let audit = server.request(Method::GET, "/api/v1/audit").bearer_auth("pk_chief").send().await.unwrap();
    let audit: Value = serde_json::from_str(&audit.text().await.unwrap()).unwrap();
    let entry = &audit["items"][0];
    assert_eq!(told(entry), ["pk_reader", "DELETE /api/v1/schedules/{id}", id], "also what was refused");
    assert_eq!(entry["status"], 403);
    server.stop();
}

/// Where the forms of a page are sent to.
fn forms(page: &str) -> Vec<String> {
    let posts = page.split("<form").skip(1).filter_map(|form| form.split_once('>')).map(|(form, _)| form);
    let posts = posts.filter(|form| form.contains("method=\"post\"") && !form.contains("\"/logout\""));
    posts.map(|form| form.split("action=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()).collect()
}

async fn a_key_for_some_topics_is_offered_what_it_may_do_and_no_more(database: Database) {
    add_key(&database, "pk_all", Role::Admin, &[]).await;
    add_key(&database, "pk_mail", Role::Admin, &["mail.*"]).await;
    let past = Past::of(&database).await;
    let message = past.message("k", "log", json!([])).await;
    past.close().await;
    let server = Server::start(&database);
    let call = async |method: Method, path: &str, body: Value| {
        let request = server.request(method, &format!("/api/v1/{path}")).bearer_auth("pk_all");
        let request = request.header("content-type", "application/json").body(body.to_string());
        serde_json::from_str::<Value>(&request.send().await.unwrap().text().await.unwrap()).unwrap()
    };
    while call(Method::GET, &format!("outbox/{message}"), Value::Null).await["status"] != "failed" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // A page, what can be done there, and which of the two keys may do it.
    let mut pages = vec![
        (["/keys".to_owned(), "action=\"/keys\"".to_owned()], [true, false]),
        (["/keys".to_owned(), "/revoke\"".to_owned()], [true, false]),
        (["/outbox".to_owned(), "/retry\"".to_owned()], [true, false]),
        ([format!("/outbox/{message}"), "/retry\"".to_owned()], [true, false]),
        (["/tasks?status=pending".to_owned(), "/tasks/bulk?".to_owned()], [true, false]),
        (["/schedules".to_owned(), "/schedules/new".to_owned()], [true, true]),
    ];
    let mut leading = Vec::new();
    for (topic, is_mine) in [("mail.out", true), ("mail.*", true), ("shop", false), ("shop.*", false)] {
        call(Method::PUT, &format!("topics/{topic}"), json!({"route": {"type": "pull"}})).await;
        let form = format!("action=\"/topics/{}/pause\"", topic.replace('*', "%2A"));
        pages.push((["/topics".to_owned(), form], [true, is_mine]));
        if topic.contains('*') {
            continue;
        }
        let schedule: Value = serde_json::from_str(&YEARLY.replace("yearly", topic).replace("echo", topic)).unwrap();
        let schedule = call(Method::POST, "schedules", schedule).await["id"].as_str().unwrap().to_owned();
        let task = call(Method::POST, "tasks", json!({"topic": topic, "delayMs": 3_600_000})).await;
        let task = format!("/tasks/{}", task["id"].as_str().unwrap());
        let own = format!("/schedules/{schedule}");
        pages.extend([
            (["/schedules".to_owned(), format!("action=\"{own}/trigger\"")], [true, is_mine]),
            ([own.clone(), format!("action=\"{own}/pause\"")], [true, is_mine]),
            ([task.clone(), format!("action=\"{task}/cancel\"")], [true, is_mine]),
            ([format!("/tasks?topic={topic}"), "/tasks/bulk?".to_owned()], [true, is_mine]),
        ]);
        leading.extend(["edit", "backfill", "delete"].map(|page| (format!("{own}/{page}"), is_mine)));
    }
    for (i, key) in ["pk_all", "pk_mail"].into_iter().enumerate() {
        let visit = Visit::with_key(&server, key).await;
        let mut offered = Vec::new();
        for ([path, part], is_offered) in &pages {
            let page = visit.page(path).await;
            assert_eq!(page.contains(part), is_offered[i], "{key}: {part} at {path}: {page}");
            offered.extend(forms(&page));
        }
        for (path, is_mine) in &leading {
            let (seen, is_allowed) = (visit.get(path).await, *is_mine || key == "pk_all");
            assert_eq!(seen.status.as_u16(), if is_allowed { 200 } else { 403 }, "{key}: {path}");
            offered.extend(forms(&seen.text));
        }
        assert!(offered.len() > 10, "{key}: {offered:?}");
        if key == "pk_mail" {
            // Each does something, or says what is missing.
            for path in offered {
                assert_ne!(visit.post(&path, &[]).await.status, 403, "{path}");
            }
        }
    }
    server.stop();
}

async fn however_many_keys_there_are_a_page_has_a_hundred(database: Database) {
    let store = punctual_store::connect(&database.url, Options::default()).await.unwrap();
    for i in 0..101_u32 {
        let hash = Sha256::digest(i.to_string()).into();
        let (id, name, created_at) = (KeyId::generate(), format!("worker {i}."), store.now().await.unwrap());
        let key = ApiKey { id, name, role: Role::Submit, topics: Vec::new(), hash, created_at, revoked_at: None };
        store.create_key(&key).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    add_key(&database, "pk_chief", Role::Admin, &[]).await;
    let server = Server::start(&database);
    let visit = Visit::with_key(&server, "pk_chief").await;
    let first = visit.page("/keys").await;
    assert_eq!(first.matches("/revoke\"").count(), 100);
    assert!(first.contains("pk_chief") && first.contains("worker 2.") && !first.contains("worker 1."), "the newest");
    let next = first.split("href=\"/keys?cursor=").nth(1).unwrap().split('"').next().unwrap();
    let second = visit.page(&format!("/keys?cursor={next}")).await;
    assert_eq!(second.matches("/revoke\"").count(), 2);
    assert!(second.contains("worker 1.") && second.contains("worker 0.") && second.contains("First page"), "{second}");
    server.stop();
}
