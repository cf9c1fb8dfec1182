//! `punctual serve`: the service, until it is told to stop.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::ConfigArgs;
use crate::config::Config;
use crate::plugins::Plugins;
use crate::service::{Options, Schema, Service, Start};
use crate::telemetry;

/// Runs the service until SIGTERM or SIGINT; a second signal stops it at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual serve
  punctual serve --listen 127.0.0.1:0    any free port; the address is printed
  DATABASE_URL=postgres://me:secret@db/app punctual serve")]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Where to listen, such as 127.0.0.1:7878; port 0 is any free one
    #[arg(long, value_name = "A")]
    listen: Option<String>,
    /// Take tasks, but run none until `punctual resume`
    #[arg(long)]
    paused: bool,
    /// Refuse a database whose schema is not up to date, instead of migrating it
    #[arg(long)]
    no_migrate: bool,
}

impl ServeArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let mut sources = self.config.sources(plugins.clone());
        sources.flags.extend(self.listen.map(|address| ("listen", "--listen", address)));
        let loaded = Config::load(&sources)?;
        telemetry::init(&loaded.config.log);
        for warning in &loaded.warnings {
            warn!(warning, "odd configuration");
        }
        // From here on a signal is not lost, however long starting takes.
        let mut signals = Signals::new().context("cannot listen for signals")?;

        let start = if self.paused { Start::Paused } else { Start::Working };
        let schema = if self.no_migrate { Schema::Required } else { Schema::Migrated };
        let options = Options { start, schema, plugins, ..Options::default() };
        let service = tokio::select! {
            service = Service::start(loaded.config, options) => service?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        announce(&service.announcement());
        service.run(async move { stop_on(signals, || {}).await }).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Ends with the first signal; the second one does what must not be left undone, and ends the process.
pub(super) async fn stop_on(mut signals: Signals, at_once: impl FnOnce() + Send + 'static) {
    signals.next().await;
    tokio::spawn(async move {
        signals.next().await;
        warn!("second signal, stopped at once");
        at_once();
        std::process::exit(1);
    });
}

/// Prints to stdout; that nobody reads it is no reason to stop.
pub(super) fn announce(text: &str) {
    let mut stdout = std::io::stdout();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if printed.is_err() {
        info!("stdout is closed");
    }
}

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
