//! The service inside the test's process, on a clock that the test moves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use punctual::config::{Config, Sources};
use punctual::service::{Options, RunError, Service, Start};
use punctual_domain::clock::FakeClock;
use reqwest::{Client, Method};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::on_each_database;
use crate::support::{Answer, Database};

on_each_database!(the_given_clock_decides_what_is_past, a_schema_that_is_not_ours_any_more_is_503_within_a_minute);

/// A service that runs in this process.
pub(crate) struct InProcess {
    url: String,
    pub(crate) clock: FakeClock,
    client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), RunError>>,
}

impl InProcess {
    pub(crate) async fn start(database: &Database, now: &str) -> Self {
        Self::start_with(database, FakeClock::at_text(now), &[]).await
    }

    /// The same with variables of the environment.
    pub(crate) async fn start_with(database: &Database, clock: FakeClock, variables: &[(&str, &str)]) -> Self {
        Self::start_as(database, clock, variables, Start::Working).await
    }

    /// One that neither claims nor ticks until it is resumed.
    pub(crate) async fn start_paused(database: &Database, now: &str) -> Self {
        Self::start_as(database, FakeClock::at_text(now), &[], Start::Paused).await
    }

    async fn start_as(database: &Database, clock: FakeClock, variables: &[(&str, &str)], start: Start) -> Self {
        let flags = vec![
            ("listen", "--listen", "127.0.0.1:0".to_owned()),
            ("database.url", "--database", database.url.clone()),
        ];
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let config = Config::load(&Sources { flags, environment, ..Sources::default() }).unwrap().config;
        let options = Options { clock: Some(Arc::new(clock.clone())), start, ..Options::default() };
        let service = Service::start(config, options).await.unwrap();
        let url = format!("http://{}", service.address());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(service.run(async move { drop(stopped.await) }));
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { url, clock, client: Client::builder().no_proxy().build().unwrap(), stop, running }
    }

    /// Sends a text as JSON, and answers what came back.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &str) -> Answer {
        self.send_with(method, path, body, &[]).await
    }

    /// The same with more headers.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Answer {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Answer::to(request.header("content-type", "application/json").body(body.to_owned())).await
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.running.await.unwrap().unwrap();
    }
}

async fn a_schema_that_is_not_ours_any_more_is_503_within_a_minute(database: Database) {
    let service = InProcess::start(&database, "2040-01-01T00:00:00Z").await;
    let ready = || async {
        let answer = service.client.get(format!("{}/readyz", service.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let first = ready().await;
    assert_eq!(first.0, 200, "{first:?}");
    database.execute("UPDATE punctual_schema SET oldest_compatible = 1000000").await;
    service.clock.advance(TimeDelta::seconds(60));
    let asked_at = Instant::now();
    loop {
        let (status, body) = ready().await;
        if status == 503 {
            assert!(body.contains(r#""status":"unavailable","database":"ok""#), "{body}");
            break;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{body}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    service.stop().await;
}

async fn the_given_clock_decides_what_is_past(database: Database) {
    let service = InProcess::start(&database, "2040-01-01T00:00:00Z").await;
    let body = r#"{"topic":"echo","runAt":"2040-01-01T00:00:10Z","timezone":"UTC"}"#;
    let post = |key: &'static str| {
        let request = service.client.post(format!("{}/api/v1/tasks", service.url)).header("idempotency-key", key);
        async move {
            let response = request.header("content-type", "application/json").body(body).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        }
    };
    let first = post("one").await;
    assert_eq!(first.0, 201);
    assert!(first.1.contains(r#""createdAt":"2040-01-01T00:00:00.000Z""#), "{first:?}");
    service.clock.advance(TimeDelta::seconds(10));
    let refused = post("two").await;
    assert!(refused.0 == 400 && refused.1.contains("RUN_AT_IN_PAST"), "{refused:?}");
    assert_eq!(post("one").await, first, "a call that comes again gets its first answer, whatever time it is");
    service.stop().await;
}
