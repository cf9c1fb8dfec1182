//! The service inside the test's process, on a clock that the test moves.

use std::sync::Arc;

use chrono::TimeDelta;
use punctual::config::{Config, Sources};
use punctual::service::{Options, Service};
use punctual_domain::clock::FakeClock;
use reqwest::Client;
use tokio::sync::oneshot;

use crate::on_each_database;
use crate::support::Database;

on_each_database!(the_given_clock_decides_what_is_past);

async fn the_given_clock_decides_what_is_past(database: Database) {
    let flags =
        vec![("listen", "--listen", "127.0.0.1:0".to_owned()), ("database.url", "--database", database.url.clone())];
    let config = Config::load(&Sources { flags, ..Sources::default() }).unwrap().config;
    let clock = FakeClock::at_text("2040-01-01T00:00:00Z");
    let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
    let service = Service::start(config, options).await.unwrap();
    let url = format!("http://{}/api/v1/tasks", service.address());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(service.run(async move { drop(stopped.await) }));

    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().build().unwrap();
    let body = r#"{"topic":"echo","runAt":"2040-01-01T00:00:10Z","timezone":"UTC"}"#;
    let post = |key: &'static str| {
        let request = client.post(&url).header("content-type", "application/json").header("idempotency-key", key);
        async move {
            let response = request.body(body).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        }
    };
    let first = post("one").await;
    assert_eq!(first.0, 201);
    assert!(first.1.contains(r#""createdAt":"2040-01-01T00:00:00.000Z""#), "{first:?}");
    clock.advance(TimeDelta::seconds(10));
    let refused = post("two").await;
    assert!(refused.0 == 400 && refused.1.contains("RUN_AT_IN_PAST"), "{refused:?}");
    assert_eq!(post("one").await, first, "a call that comes again gets its first answer, whatever time it is");

    drop(stop);
    running.await.unwrap().unwrap();
}
