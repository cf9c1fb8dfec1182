//! What the store does for plugins.

use async_trait::async_trait;
use punctual_domain::store::{MigrationError, Plugins};
use punctual_sdk::{Database, Migration};

use super::PostgresStore;
use crate::plugins;

#[async_trait]
impl Plugins for PostgresStore {
    fn database(&self) -> &Database {
        &self.database
    }

    async fn missing_migrations(
        &self,
        plugin: &str,
        migrations: &[Migration],
    ) -> Result<Vec<&'static str>, MigrationError> {
        plugins::missing_migrations(&self.database, plugin, migrations).await
    }

    async fn migrate_plugin(&self, plugin: &str, migrations: &[Migration]) -> Result<(), MigrationError> {
        plugins::migrate(&self.database, plugin, migrations, PostgresStore::now(self)).await
    }
}
