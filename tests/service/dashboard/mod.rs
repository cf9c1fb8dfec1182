//! The dashboard over HTTP: every page, every form, who may do what, and that nothing of others' making runs in it.

mod access;
mod content;
mod live;
mod nodes;
mod overview;
mod pages;
mod schedules;
mod sessions;
mod tasks;
mod topics;

use std::time::{Duration, Instant};

use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::support::Server;

/// How long a page may take to know everything.
const PATIENCE: Duration = Duration::from_secs(30);
const NOWHERE: &str = "018f0000-0000-7000-8000-000000000000";
const YEARLY: &str = r#"{"name":"yearly","cronExpression":"0 0 1 1 *","timezone":"America/Edmonton","topic":"echo"}"#;

/// A browser without scripts: it keeps its cookies by hand, and does not follow where it is led.
struct Visit<'a> {
    server: &'a Server,
    client: Client,
    /// The cookie of whoever has logged in.
    session: Option<String>,
}

/// What a page answered.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    location: String,
    cookies: Vec<String>,
    policy: String,
    text: String,
}

impl<'a> Visit<'a> {
    fn of(server: &'a Server) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { server, client, session: None }
    }

    /// Whoever has logged in with this key.
    async fn with_key(server: &'a Server, key: &str) -> Self {
        let visit = Self::of(server);
        let opened = visit.post("/login", &[("key", key)]).await;
        let session = opened.cookies.iter().find(|cookie| cookie.starts_with("punctual_session=")).unwrap();
        Self { session: session.split(';').next().map(str::to_owned), ..visit }
    }

    async fn send(&self, method: Method, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Seen {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.server.url));
        if method == Method::POST {
            let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
            request = request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"));
        }
        if let Some(session) = &self.session {
            request = request.header("cookie", session);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let header = |name: &str| {
            response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let cookies = response.headers().get_all("set-cookie");
        Seen {
            status: response.status(),
            location: header("location"),
            policy: header("content-security-policy"),
            cookies: cookies.iter().map(|cookie| cookie.to_str().unwrap().to_owned()).collect(),
            text: response.text().await.unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Seen {
        self.send(Method::GET, path, &[], &[]).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.send(Method::POST, path, fields, &[]).await
    }

    /// A page that is there.
    async fn page(&self, path: &str) -> String {
        let seen = self.get(path).await;
        assert_eq!(seen.status, 200, "{path}: {seen:?}");
        seen.text
    }

    /// The overview, asked for until it says this and all is known: it does not wait long for the database.
    async fn overview(&self, part: &str) -> String {
        let asked_at = Instant::now();
        loop {
            let page = self.page("/").await;
            if page.contains(part) && !page.contains(" is being ") {
                return page;
            }
            assert!(asked_at.elapsed() < PATIENCE, "{part}: {page}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a form that does what it should, and answers where it leads and the page there, with its notice.
    async fn done(&self, path: &str, fields: &[(&str, &str)]) -> (String, String) {
        let seen = self.post(path, fields).await;
        assert_eq!(seen.status, 303, "{path}: {seen:?}");
        let notice = seen.cookies.iter().find(|cookie| cookie.starts_with("punctual_notice=")).unwrap();
        let cookie = notice.split(';').next().unwrap();
        let page = self.send(Method::GET, &seen.location, &[], &[("cookie", cookie)]).await;
        assert_eq!(page.status, 200, "{page:?}");
        (seen.location, page.text)
    }
}

/// The part of a page that has this id.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, begun) = page.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}: {page}"));
    begun.split_once("</section>").unwrap().0
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn make(server: &Server, body: &str) -> String {
    let answer = server.post("/api/v1/schedules", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn api(server: &Server, path: &str) -> Value {
    server.get(path).await.json()
}

/// A task that failed.
async fn failed_task(server: &Server, topic: &str, error: &str) -> String {
    server.put_topic(topic, r#"{"route":{"type":"pull"}}"#).await;
    server.make_task(&json!({"topic": topic}).to_string()).await;
    let claim = json!({"topics": [topic], "waitMs": 10_000}).to_string();
    let task = server.post("/api/v1/claims", claim).await.json()["tasks"][0].clone();
    let id = task["id"].as_str().unwrap().to_owned();
    let fail = json!({"epoch": task["epoch"], "error": error, "final": true}).to_string();
    assert_eq!(server.post(&format!("/api/v1/tasks/{id}/fail"), fail).await.status, 200);
    id
}
