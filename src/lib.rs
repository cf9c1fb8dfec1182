//! The Punctual service: HTTP, command line and configuration around the store and the actors.
//!
//! `main`, the tests and the benches use what is public here; everything else is private.

mod bench;
pub mod cli;
mod clock;
pub mod config;
mod engine;
mod http;
mod plugins;
mod pulse;
mod redis;
pub mod service;
mod store_time;
mod telemetry;
mod topics;

pub use clock::SystemClock;
