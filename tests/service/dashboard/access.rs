//! Who may do what, and that it is noted.

use punctual_domain::key::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{NOWHERE, Visit, YEARLY, api, make};
use crate::keys::add_key;
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(
    every_route_needs_its_role_and_no_more,
    forms_of_other_sites_are_refused,
    a_form_is_audited_as_the_call_that_it_makes,
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
