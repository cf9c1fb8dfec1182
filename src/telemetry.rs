//! What machines and people see of a running process: metrics, and logs to stderr, pretty on a terminal, one JSON object
//! per line otherwise.

mod exporter;
mod metric;

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

pub(crate) use exporter::Exporter;

/// Starts logging what `filter` lets through. A second call changes nothing.
///
/// Panics are logged like everything else, so that a pipe carries JSON alone.
pub(crate) fn init(filter: &str) {
    // It would show the values of parameters in the database's URL that it does not know, such as misspelt passwords.
    let silent = "sqlx_postgres::options=off".parse().expect("a directive");
    let filter = EnvFilter::new(filter).add_directive(silent);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    let started = if stderr().is_terminal() {
        builder.try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string).unwrap_or_default();
            let message = panic.payload_as_str().unwrap_or("no message");
            tracing::error!(location, panic = message, "panicked");
        }));
    }
}
