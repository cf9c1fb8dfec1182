/// One step of the tables of a plugin, in both dialects.
///
/// Steps are applied in order, each once and in a transaction of its own, when the service starts. One that was applied
/// must not change any more: add another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// What it does; unique within the plugin.
    pub name: &'static str,
    /// Its statements for SQLite.
    pub sqlite: &'static str,
    /// Its statements for PostgreSQL.
    pub postgres: &'static str,
}
