//! `punctual serve`, and what it answers.

use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::process::PATIENCE;
use super::{Contract, Database, Process, Samples, punctual};

/// Every plugin that is linked and not always on.
pub const ALL_PLUGINS: &str = "signup,operations,clearpath";

/// A running service.
pub struct Server {
    pub process: Process,
    pub url: String,
    client: Client,
}

/// What it answered.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Server {
    /// Starts the service on a database, and waits until it listens.
    pub fn start(database: &Database) -> Self {
        Self::start_with(database, |command| command)
    }

    /// The same, with more arguments or variables.
    pub fn start_with(database: &Database, more: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        Self::listening(Self::spawn(database, more))
    }

    /// Starts the service, and does not wait.
    pub fn spawn(database: &Database, more: impl FnOnce(&mut Command) -> &mut Command) -> Process {
        let mut command = punctual(database.folder.path());
        command.arg("serve").envs([("DATABASE_URL", database.url.as_str()), ("PUNCTUAL_LISTEN", "127.0.0.1:0")]);
        Process::start(more(&mut command))
    }

    /// A service that was started, once it listens.
    pub fn listening(mut process: Process) -> Self {
        let line = process.wait_for_output("http://");
        let url = line[line.find("http://").unwrap()..].trim().replace("0.0.0.0", "127.0.0.1");
        Self { process, url, client: client() }
    }

    /// The same, with every plugin turned on.
    pub fn start_with_plugins(database: &Database) -> Self {
        Self::start_with(database, |command| command.env("PUNCTUAL_PLUGINS", ALL_PLUGINS))
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::to(self.request(Method::GET, path)).await
    }

    /// Posts a text as JSON.
    pub async fn post(&self, path: &str, body: impl Into<String>) -> Answer {
        Answer::to(self.request(Method::POST, path).header("content-type", "application/json").body(body.into())).await
    }

    /// Puts a text as JSON.
    pub async fn put(&self, path: &str, body: impl Into<String>) -> Answer {
        Answer::to(self.request(Method::PUT, path).header("content-type", "application/json").body(body.into())).await
    }

    /// Defines a topic.
    pub async fn put_topic(&self, name: &str, body: &str) {
        let answer = self.put(&format!("/api/v1/topics/{name}"), body).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    /// Makes a task and answers it.
    pub async fn make_task(&self, body: &str) -> Value {
        let answer = self.post("/api/v1/tasks", body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// Waits until a task has ended, and answers it with its attempts.
    pub async fn ended_task(&self, id: &str) -> Value {
        let asked_at = Instant::now();
        loop {
            let answer = self.get(&format!("/api/v1/tasks/{id}")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let task = answer.json();
            if !matches!(task["status"].as_str(), Some("pending" | "running")) {
                return task;
            }
            assert!(asked_at.elapsed() < PATIENCE, "it does not end: {task}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a path answers, looked at until that is what is waited for.
    pub async fn wait_for(&self, path: &str, shows: impl Fn(&Value) -> bool) -> Value {
        let asked_at = Instant::now();
        loop {
            let answer = self.get(path).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let found = answer.json();
            if shows(&found) {
                return found;
            }
            assert!(asked_at.elapsed() < PATIENCE, "{path} does not show it: {found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What it counts, looked at until that shows what is waited for.
    pub async fn samples(&self, shows: impl Fn(&Samples) -> bool) -> Samples {
        let asked_at = Instant::now();
        loop {
            let answer = self.get("/metrics").await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let samples = Samples::of(&answer.text);
            if shows(&samples) {
                return samples;
            }
            assert!(asked_at.elapsed() < PATIENCE, "it does not show: {}", answer.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks the service to end, and waits for that.
    pub fn stop(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.wait().code(), Some(0), "{:#?}", self.process.log());
    }
}

impl Answer {
    /// The answer to a request, which is one of those that the API's description names.
    pub async fn to(request: RequestBuilder) -> Self {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = client.execute(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let answer = Self { status, headers, text: response.text().await.unwrap() };
        Contract::of_binary().check(&method, &path, &answer);
        answer
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Checks that it is a problem with this status and code, and answers the names of the bad fields.
    pub fn problem(&self, status: u16, code: &str) -> Vec<String> {
        assert_eq!(
            (self.status.as_u16(), self.header("content-type")),
            (status, "application/problem+json"),
            "{self:?}"
        );
        let body = self.json();
        for member in ["type", "title", "detail"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {body}");
        }
        assert_eq!((body["status"].as_u64(), body["code"].as_str()), (Some(u64::from(status)), Some(code)), "{body}");
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }
}

/// A client without a proxy, whose connections stay open.
fn client() -> Client {
    // The first test of the process installs it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}
