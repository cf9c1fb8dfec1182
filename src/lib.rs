//! The Punctual service: HTTP, command line and configuration around the store and the actors.
//!
//! [`main_with`] is a whole service binary, to which plugins of one's own can be given. Beside it, the tests and the benches use
//! what is public here; everything else is private.

mod bench;
mod binary;
pub mod cli;
mod clock;
pub mod config;
mod http;
mod plugins;
mod pulse;
mod redis;
pub mod service;
mod store_time;
mod telemetry;
mod topics;

pub use binary::main_with;
pub use clock::SystemClock;
pub use plugins::{BadPlugin, Plugins};
