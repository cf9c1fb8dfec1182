//! The service from the outside: the real binary, a fresh database for each test, HTTP.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

mod api_page;
mod attempts;
mod batch;
mod bulk;
mod command_line;
mod enqueue_function;
mod events;
mod health;
mod idempotency;
mod in_process;
mod keys;
mod list;
mod metrics;
mod monitoring;
mod moves;
mod readme;
mod refusals;
mod secrets;
mod shutdown;
mod tasks;
