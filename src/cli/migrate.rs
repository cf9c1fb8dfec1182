//! `punctual migrate`: brings the database's schema up to date, or says what that would do.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use punctual_store::{Options, SchemaState};

use super::ConfigArgs;
use crate::plugins::{self, Plugins};

/// Brings the database's schema up to date. `serve` does the same at its start.
#[derive(Debug, clap::Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only list what would be applied
    #[arg(long)]
    dry_run: bool,
}

impl MigrateArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let config = self.config.load(plugins.clone())?.config;
        let (url, plugins) = (config.database_url, plugins.enabled(&config.plugins));
        let before = punctual_store::schema_state(url.expose()).await?;
        before.check_not_newer().map_err(anyhow::Error::msg)?;
        if !self.dry_run && before.missing().next().is_some() {
            punctual_store::connect(url.expose(), Options::default()).await?;
        }

        let mut out = std::io::stdout().lock();
        let done = if self.dry_run { "would apply" } else { "applied" };
        for migration in before.missing() {
            writeln!(out, "{done} {}", migration.name)?;
        }
        let mut applied_for_plugins = 0;
        // Opened only if need be: the file may be in use.
        if plugins.iter().any(|plugin| !plugin.migrations().is_empty()) {
            if self.dry_run && before.missing().next().is_some() {
                writeln!(out, "would then apply what the plugins lack")?;
            } else {
                let store = punctual_store::connect(url.expose(), Options::default()).await?;
                let missing = plugins::missing_migrations(&*store, &plugins).await?;
                if !self.dry_run {
                    plugins::migrate(&*store, &plugins).await?;
                }
                applied_for_plugins = missing.len();
                for migration in missing {
                    writeln!(out, "{done} {migration}")?;
                }
            }
        }
        match before.missing().count() {
            0 if applied_for_plugins > 0 => writeln!(out, "{url} has schema {}", before.version)?,
            0 => writeln!(out, "{url} has schema {}, nothing to do", before.version)?,
            _ if self.dry_run => writeln!(out, "{url} has schema {} and is left as it is", before.version)?,
            _ => writeln!(out, "{url} has schema {} now", SchemaState::ours())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
