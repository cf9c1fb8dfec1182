//! `punctual demo`: the service on a database that is thrown away, with sample data at work.
//!
//! Nothing of it is staged: it is the service that `punctual serve` runs, and all that is in it was said to it over its own
//! HTTP API, by [`story`]. What the work is, and that some of it fails, is up to the handlers of [`sample`] and to the
//! [`outside`] world, which this process plays as well.

mod outside;
mod sample;
mod story;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio_util::task::AbortOnDropHandle;

use super::client::ClientArgs;
use super::serve::{Signals, announce, stop_on};
use crate::config::{Config, Sources};
use crate::plugins::Plugins;
use crate::service::{Options, Service};
use crate::telemetry;
use outside::Outside;
use sample::Sample;

/// What of the environment counts; anything else belongs to another service.
const VARIABLES: [&str; 3] = ["PUNCTUAL_LISTEN", "PUNCTUAL_LOG", "PUNCTUAL_TZDIR"];

/// Runs the service on a throw-away database with sample data, until SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual demo
  punctual demo --listen 127.0.0.1:0    any free port; the address is printed")]
pub(super) struct DemoArgs {
    /// Where to listen, such as 127.0.0.1:7878; port 0 is any free one
    #[arg(long, value_name = "A")]
    listen: Option<String>,
}

impl DemoArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let home = tempfile::Builder::new().prefix("punctual-demo-").tempdir();
        let home = home.context("no folder for the throw-away database can be made")?;
        // Before anything is written there: from here on a signal removes it.
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let outside = Outside::start().await.context("cannot listen on 127.0.0.1")?;
        let config = self.config(home.path(), outside.address(), &plugins)?;
        telemetry::init(&config.log);

        let plugins = plugins.and(Sample)?;
        let service = tokio::select! {
            service = Service::start(config, Options { plugins, ..Options::default() }) => service?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        let address = reachable(service.address());
        announce(&service.announcement());
        announce(&format!(
            "\nOpen http://{address}/ to watch it at work. Some of it fails on purpose. Ctrl-C ends it and removes all of it.\n"
        ));
        let client = ClientArgs::at(format!("http://{address}")).connect()?;
        let story = AbortOnDropHandle::new(tokio::spawn(async move { story::tell(&client, outside.address()).await }));
        let folder = home.path().to_owned();
        let at_once = move || drop(std::fs::remove_dir_all(folder));
        let shutdown = async move {
            stop_on(signals, at_once).await;
            // Nobody orders of a shop that closes.
            drop(story);
        };
        service.run(shutdown).await?;
        home.close().context("the throw-away database is still there")?;
        Ok(ExitCode::SUCCESS)
    }

    /// No file's settings, and next to none of the environment's.
    fn config(&self, home: &Path, outside: SocketAddr, plugins: &Plugins) -> Result<Config> {
        let file = home.join("punctual.toml");
        std::fs::write(&file, "").context("the folder of the throw-away database cannot be written to")?;
        let mut sources = Sources::of_process(plugins.clone());
        sources.environment.retain(|(name, _)| VARIABLES.contains(&name.as_str()));
        if !sources.environment.iter().any(|(name, _)| name == "PUNCTUAL_LOG") {
            // Failures are part of it, and would hide what matters.
            sources.flags.push(("log", "demo", "error,punctual::delivery=info".to_owned()));
        }
        let said = [
            ("database.url", format!("sqlite://{}", home.join("demo.db").display())),
            ("plugins.enabled", "signup,operations,clearpath,demo".to_owned()),
            ("drain_seconds", "2".to_owned()),
            ("webhook.allow", "127.0.0.0/8".to_owned()),
            ("notify.transport", "log".to_owned()),
            ("notify.webhook_url", format!("http://{outside}/messages")),
            ("notify.webhook_secrets", outside::SECRET.to_owned()),
            ("notify.admin_alert_email", "oncall@example.com".to_owned()),
            ("signup.alert_email", "sales@example.com".to_owned()),
            ("clearpath.lab_integration_model", "api".to_owned()),
            ("clearpath.lab_api_url", format!("http://{outside}/lab")),
        ];
        sources.flags.extend(said.map(|(key, value)| (key, "demo", value)));
        sources.flags.extend(self.listen.clone().map(|address| ("listen", "--listen", address)));
        sources.file = Some(file);
        sources.plugins = plugins.and(Sample)?;
        Ok(Config::load(&sources)?.config)
    }
}

/// Where somebody on this machine finds what listens there.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(all) if all.ip().is_unspecified() => ([127, 0, 0, 1], all.port()).into(),
        SocketAddr::V6(all) if all.ip().is_unspecified() => ([0, 0, 0, 0, 0, 0, 0, 1], all.port()).into(),
        one => one,
    }
}
