//! `punctual config`: is it right, and what is it?

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

use crate::config::{Config, Loaded, Setting, Sources};
use crate::plugins::Plugins;

/// Checks or shows the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Reports every error of the configuration at once
    Check {
        /// The configuration file [default: config/punctual.toml, if it is there]
        #[arg(long, value_name = "F")]
        config: Option<PathBuf>,
    },
    /// Prints every key with its value and where that comes from; secrets are hidden
    Show {
        /// The configuration file [default: config/punctual.toml, if it is there]
        #[arg(long, value_name = "F")]
        config: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl ConfigCommand {
    pub(super) fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        match self {
            Self::Check { config } => {
                load(config, plugins)?;
                writeln!(out, "the configuration is in order")?;
            }
            Self::Show { config, json: false } => {
                for Setting { name, value, source } in load(config, plugins)?.settings {
                    let value = value.filter(|value| !value.is_empty()).unwrap_or_else(|| "(none)".into());
                    writeln!(out, "{name:<32} {value:<32} {source}")?;
                }
            }
            Self::Show { config, json: true } => {
                let settings: serde_json::Map<_, _> = load(config, plugins)?
                    .settings
                    .into_iter()
                    .map(|setting| {
                        let shown = json!({"value": setting.value, "source": setting.source.to_string()});
                        (setting.name.to_owned(), shown)
                    })
                    .collect();
                writeln!(out, "{}", serde_json::to_string_pretty(&settings)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Loads the configuration, and says what is odd about it.
fn load(file: Option<PathBuf>, plugins: Plugins) -> Result<Loaded> {
    let loaded = Config::load(&Sources { file, ..Sources::of_process(plugins) })?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(loaded)
}
