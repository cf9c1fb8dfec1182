use async_trait::async_trait;
use punctual_sdk::{Database, Migration};

use super::StoreError;

/// What a store does for plugins, beside their state cells.
#[async_trait]
pub trait Plugins: Send + Sync {
    /// The database as plugins use it.
    fn database(&self) -> &Database;

    /// The names of a plugin's migrations that were not applied yet, in order.
    ///
    /// # Errors
    /// When one was applied in another form.
    async fn missing_migrations(
        &self,
        plugin: &str,
        migrations: &[Migration],
    ) -> Result<Vec<&'static str>, MigrationError>;

    /// Applies those, each in a transaction of its own; safe when several nodes start at once.
    ///
    /// # Errors
    /// When one was applied in another form, or fails; those before it stay applied.
    async fn migrate_plugin(&self, plugin: &str, migrations: &[Migration]) -> Result<(), MigrationError>;
}

/// Why a plugin's tables cannot be brought up to date.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MigrationError {
    /// What was applied is not what the plugin has now.
    #[error(
        "the plugin {plugin} has another migration {number} than the {name} that was applied: put that one back as it was, and \
         add what is new behind it"
    )]
    Changed {
        /// The plugin.
        plugin: String,
        /// Which one, from 1.
        number: usize,
        /// As it was applied.
        name: String,
    },
    /// Its statements fail.
    #[error("the plugin {plugin}'s migration {name} fails: {error}")]
    Failed {
        /// The plugin.
        plugin: String,
        /// The migration.
        name: &'static str,
        /// What the database says.
        error: String,
    },
    /// The database is away.
    #[error(transparent)]
    Store(#[from] StoreError),
}
