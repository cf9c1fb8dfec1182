//! The service from the outside: the real binary, a fresh database for each test, HTTP.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../support/mod.rs"]
mod support;

mod alerts;
mod api_page;
mod attempts;
mod backup;
mod batch;
mod bridge;
mod bulk;
mod bullmq;
mod bullmq_page;
mod bygone;
mod calendars;
mod client_commands;
mod command_line;
mod enqueue_function;
mod events;
mod executions;
mod firing;
mod fleet;
mod fuzzing;
mod health;
mod hostile;
mod hostile_receivers;
mod idempotency;
mod in_process;
mod inspection;
mod key_routes;
mod keys;
mod list;
mod mail;
mod messages;
mod metrics;
mod monitoring;
mod moves;
mod notifications_page;
mod openapi;
mod operating_page;
mod outlook;
mod plugin_routes;
mod pooler;
mod prove_page;
mod pulls;
mod readme;
mod receiver;
mod refusals;
mod roles;
mod routes_page;
mod schedule_edits;
mod schedule_moves;
mod schedules;
mod secrets;
mod shutdown;
mod side_by_side;
mod tasks;
mod time_zones_page;
mod topics;
mod webhooks;
mod work;
mod workers_page;
