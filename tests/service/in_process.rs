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
    let post = || client.post(&url).header("content-type", "application/json").body(body).send();
    let made = post().await.unwrap();
    assert_eq!(made.status(), 201);
    assert!(made.text().await.unwrap().contains(r#""createdAt":"2040-01-01T00:00:00.000Z""#));
    clock.advance(TimeDelta::seconds(10));
    let refused = post().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("RUN_AT_IN_PAST"));

    drop(stop);
    running.await.unwrap().unwrap();
}
