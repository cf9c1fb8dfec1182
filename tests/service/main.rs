//! The service from the outside: the real binary, a fresh database for each test, HTTP.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

mod api_page;
mod attempts;
mod batch;
mod bulk;
mod calendars;
mod command_line;
mod enqueue_function;
mod executions;
mod firing;
mod health;
mod idempotency;
mod in_process;
mod keys;
mod list;
mod metrics;
mod moves;
mod outlook;
mod readme;
mod refusals;
mod schedule_edits;
mod schedule_moves;
mod schedules;
mod shutdown;
mod tasks;
