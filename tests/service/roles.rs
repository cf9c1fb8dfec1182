//! Who may call what: every route that the API describes, with every method, for every role; and nothing else for anybody.

use punctual_domain::key::Role;
use reqwest::{Method, StatusCode};

use crate::keys::add_key;
use crate::on_each_database_and_pooler;
use crate::support::{Answer, Contract, Database, Operation, Server};

on_each_database_and_pooler!(every_route_needs_its_role_and_no_more, what_is_not_described_is_not_there);

const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::TRACE];

/// What the rules say that a route needs; nothing where everybody may call it.
fn needed(operation: &Operation<'_>) -> Option<Role> {
    let (method, route) = (&operation.method, operation.route);
    let is_of = |names: &[&str]| names.iter().any(|name| route.starts_with(&format!("/api/v1/{name}")));
    let is_work = ["/api/v1/tasks", "/api/v1/tasks/batch", "/api/v1/claims"].contains(&route)
        || ["/heartbeat", "/complete", "/fail"].iter().any(|end| route.ends_with(end))
        || route.starts_with("/api/v1/plugins/signup/");
    match route {
        "/livez" | "/readyz" => None,
        _ if is_of(&["keys", "audit"]) => Some(Role::Admin),
        "/api/v1/schedules/preview" => Some(Role::Read),
        _ if *method == Method::GET => Some(Role::Read),
        _ if is_work => Some(Role::Submit),
        _ => Some(Role::Operate),
    }
}

/// A path of the route that leads to nothing.
fn nowhere(route: &str) -> String {
    route.replace("{id}", "018f0000-0000-7000-8000-000000000000").replace("{name}", "none")
}

/// Calls with the key of a role, which is called like it; for streams without waiting for their end.
async fn status(server: &Server, method: &Method, path: &str, key: Option<&str>) -> StatusCode {
    let mut request = server.request(method.clone(), path).header("content-type", "application/json").body("{}");
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    match path {
        "/api/v1/events" => request.send().await.unwrap().status(),
        _ => Answer::to(request).await.status,
    }
}

async fn server_with_a_key_for_each_role(database: &Database) -> Server {
    for role in Role::ALL {
        add_key(database, &format!("pk_{}", role.as_str()), role, &[]).await;
    }
    Server::start_with_plugins(database)
}

async fn every_route_needs_its_role_and_no_more(database: Database) {
    let server = server_with_a_key_for_each_role(&database).await;
    let keys = Role::ALL.map(|role| (role, format!("pk_{}", role.as_str())));
    let mut cells = 0;
    for operation in Contract::of_binary().operations() {
        let path = nowhere(operation.route);
        let told = operation.told["security"][0]["apiKey"][0].as_str();
        assert_eq!(told, needed(&operation).map(Role::as_str), "{} {path}", operation.method);
        let call = |key| status(&server, &operation.method, &path, key);
        let Some(needed) = needed(&operation) else {
            assert!(call(None).await.is_success() && call(Some("pk_wrong")).await.is_success(), "{path}");
            continue;
        };
        assert_eq!(call(None).await, 401, "{} {path}", operation.method);
        assert_eq!(call(Some("pk_wrong")).await, 401, "{} {path}", operation.method);
        for (role, key) in &keys {
            let answered = call(Some(key.as_str())).await;
            let cell = format!("{} {path} as {}: {answered}", operation.method, role.as_str());
            assert_eq!(answered == 403, *role < needed, "{cell}");
            assert!(answered != 401 && !answered.is_server_error(), "{cell}");
            cells += 1;
        }
    }
    assert!(cells >= 200, "{cells} cells");
    server.stop();
}

async fn what_is_not_described_is_not_there(database: Database) {
    let server = server_with_a_key_for_each_role(&database).await;
    let operations: Vec<_> = Contract::of_binary().operations().collect();
    let is_described =
        |method: &Method, route| operations.iter().any(|known| known.route == route && known.method == method);
    for operation in &operations {
        let path = nowhere(operation.route);
        for method in METHODS.iter().filter(|method| !is_described(method, operation.route)) {
            let is_open = needed(operation).is_none();
            let without = if is_open { 405 } else { 401 };
            assert_eq!(status(&server, method, &path, None).await, without, "{method} {path}");
            assert_eq!(status(&server, method, &path, Some("pk_admin")).await, 405, "{method} {path}");
        }
    }
    for path in
        ["/nowhere", "/api", "/api/v1", "/api/v1/", "/api/v1/nowhere", "/api/v1/tasks/", "/api/v2/tasks", "/metrics/x"]
    {
        for method in METHODS {
            assert_eq!(status(&server, &method, path, None).await, 401, "{method} {path}");
            assert_eq!(status(&server, &method, path, Some("pk_admin")).await, 404, "{method} {path}");
        }
    }
    server.stop();
}
