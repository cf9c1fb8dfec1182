/// One step of the tables of a plugin, in both dialects.
///
/// Steps are applied in order, each once and in a transaction of its own, when the service starts. One that was applied
/// must not change any more: add another.
///
/// Nodes of the version before work on the same tables while one after the other is upgraded. So add what they can do
/// without, and name columns where you read them: a `SELECT *` that was prepared before a column came fails after it, on
/// either database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// What it does; unique within the plugin.
    pub name: &'static str,
    /// Its statements for SQLite.
    pub sqlite: &'static str,
    /// Its statements for PostgreSQL.
    pub postgres: &'static str,
}
