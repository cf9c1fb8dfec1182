//! Where a command that only looks gets its answers: from a running service, or from the database itself.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::time::ZoneDatabase;
use punctual_store::{Access, ConnectError, Migrate, Options};

use super::client::{Client, ClientArgs};
use super::output::Progress;
use super::url;
use crate::SystemClock;
use crate::config::{Config, Secret, Sources};
use crate::inspect::Inspector;
use crate::plugins::Plugins;

/// A service's address, or a database.
#[derive(Debug, clap::Args)]
pub(super) struct LookArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Look into this database instead of asking a service: sqlite://FILE (also while a service uses it) or postgres://…
    #[arg(long, value_name = "URL", value_parser = url, help_heading = "Connection")]
    database: Option<Secret>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Who answers.
pub(super) enum Look {
    Service(Client),
    Database(Box<Inspector>, Option<Progress>),
}

impl LookArgs {
    pub(super) async fn open(&self, plugins: Plugins) -> Result<Look> {
        let Some(url) = &self.database else { return Ok(Look::Service(self.client.connect()?.or_database())) };
        let flags = vec![("database.url", "--database", url.expose().to_owned())];
        let config = Config::load(&Sources { flags, ..Sources::of_process(plugins) })?.config;
        let options = Options { access: Access::Look, migrate: Migrate::Check, connections: 2, ..Options::default() };
        let store =
            punctual_store::connect(config.database_url.expose(), options).await.map_err(|error: ConnectError| {
                anyhow::anyhow!("the database {} cannot be used: {error}", config.database_url)
            })?;
        let progress = Progress::start();
        Ok(Look::Database(
            Box::new(Inspector {
                store,
                zones: ZoneDatabase::current(config.tzdir.as_deref())?,
                misfire_threshold: TimeDelta::from_std(config.misfire_threshold)?,
                tzdir: config.tzdir,
                progress: progress.is_some().then(|| Arc::new(Progress::tell) as _),
            }),
            progress,
        ))
    }
}

/// A stretch of time, as it is typed.
#[derive(Debug, clap::Args)]
pub(super) struct SpanArgs {
    /// The first instant: 2026-11-16T00:00:00Z, '2026-11-16 09:00' or 2026-11-16 (read in --tz), now, -24h, +7d
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    from: Option<String>,
    /// The first instant after it, in the same forms
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    to: Option<String>,
    /// The zone that times without an offset are read in, and times are shown in; a schedule's own where it is not given
    #[arg(long, value_name = "ZONE")]
    pub(super) tz: Option<String>,
}

impl SpanArgs {
    /// The two instants; where one is not given, `defaults` after now.
    pub(super) fn read(
        &self,
        zones: &ZoneDatabase,
        defaults: (TimeDelta, TimeDelta),
    ) -> Result<(DateTime<Utc>, DateTime<Utc>)> {
        if let Some(tz) = &self.tz {
            zones.zone(tz).context("--tz cannot be used")?;
        }
        let now = SystemClock::new().now();
        let read = |name: &str, text: &Option<String>, default| match text {
            None => Ok(now + default),
            Some(text) => super::when::instant(text, self.tz.as_deref().unwrap_or("UTC"), zones, now)
                .with_context(|| format!("--{name} cannot be used")),
        };
        let (from, to) = (read("from", &self.from, defaults.0)?, read("to", &self.to, defaults.1)?);
        if from >= to {
            let stands = |at: DateTime<Utc>| if at == now { "now".to_owned() } else { super::when::written(at) };
            match (&self.from, &self.to) {
                (None, _) => bail!("--to must be after {}, where the stretch begins without --from", stands(from)),
                (_, None) => bail!("--from must be before {}, where the stretch ends without --to", stands(to)),
                _ => bail!("--from must be before --to"),
            }
        }
        Ok((from, to))
    }
}
