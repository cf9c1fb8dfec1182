//! `punctual backup F` and `punctual restore F`: a whole database in one file, and back.
//!
//! SQLite is copied as it is at one moment, also while a service uses it. For PostgreSQL its own tools do that, and are
//! named.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::ConfigArgs;
use super::output::print;
use crate::config::Secret;
use crate::plugins::Plugins;

/// Copies the database into a file, also while a service uses it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual backup /var/backups/punctual-2026-11-16.db
  punctual backup monday.db --database sqlite:///var/lib/punctual/punctual.db")]
pub(super) struct BackupArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The file to make; one that is there is left alone
    #[arg(value_name = "F")]
    file: PathBuf,
}

/// Puts a backup where the configuration says the database is. Nothing that is there is overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual restore monday.db --database sqlite://restored.db
  punctual serve --database sqlite://restored.db --paused   look at it before anything runs
  punctual resume                                           let it work")]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The backup
    #[arg(value_name = "F")]
    file: PathBuf,
}

impl BackupArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let url = self.config.load(plugins)?.config.database_url;
        if !url.expose().starts_with("sqlite:") {
            bail!(
                "{url} is PostgreSQL's to copy; run\n  pg_dump --format=custom --file={} --dbname=\"$DATABASE_URL\"",
                quoted(&self.file)
            );
        }
        let bytes = punctual_store::sqlite::backup(url.expose(), &self.file).await?;
        print(&format!("{} has {bytes} bytes", self.file.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let url = self.config.load(plugins)?.config.database_url;
        if !url.expose().starts_with("sqlite:") {
            bail!(
                "{url} is PostgreSQL's to restore; make an empty database, and run\n  pg_restore --no-owner \
                 --exit-on-error --dbname=\"$DATABASE_URL\" {}",
                quoted(&self.file)
            );
        }
        punctual_store::sqlite::restore(&self.file, url.expose()).await?;
        print(&format!("{url} is as it was backed up; `{}` shows it before anything runs", self.serve(&url)))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreArgs {
    /// What serves the database that was made: the same that said where to make it.
    fn serve(&self, url: &Secret) -> String {
        let mut command = "punctual serve".to_owned();
        if let Some(file) = &self.config.config {
            command.push_str(&format!(" --config {}", quoted(file)));
        }
        if self.config.database.is_some() {
            command.push_str(&format!(" --database {}", quoted(url.to_string().as_ref())));
        }
        command + " --paused"
    }
}

/// A path as a shell takes it for one word.
fn quoted(path: &std::path::Path) -> String {
    let path = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:".contains(letter);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Restore {
        #[command(flatten)]
        args: RestoreArgs,
    }

    #[test]
    fn what_was_restored_is_served_from_where_it_is() {
        for (given, told) in [
            (&[][..], "punctual serve --paused"),
            (&["--database", "sqlite://there.db"], "punctual serve --database sqlite://there.db --paused"),
            (&["--config", "my file.toml"], "punctual serve --config 'my file.toml' --paused"),
        ] {
            let args = Restore::parse_from([&["restore", "monday.db"], given].concat()).args;
            assert_eq!(args.serve(&Secret::url("sqlite://there.db")), told);
        }
    }

    #[test]
    fn a_path_stays_one_word() {
        for (path, word) in [("/a/b-1.db", "/a/b-1.db"), ("a b", "'a b'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(path.as_ref()), word);
        }
    }
}
