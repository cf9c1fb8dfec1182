//! The schema's versions, the same for both databases.
//!
//! Each migration says the oldest binary that can still work on what it leaves behind, so that versions N and N−1 run
//! side by side on schema N, and anything older is refused. Applied migrations are recorded in `punctual_schema`; each
//! backend applies all that are missing in one transaction, under a lock that ends with the transaction (a session's
//! lock would be stranded behind PgBouncer).

use sha2::{Digest, Sha256};

use crate::ConnectError;

/// One step of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Grows from migration to migration.
    pub version: i32,
    /// What it does.
    pub name: &'static str,
    /// The oldest schema version whose binaries still work afterwards.
    pub oldest_compatible: i32,
    /// Its statements for SQLite.
    pub sqlite: &'static str,
    /// Its statements for PostgreSQL.
    pub postgres: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal, oldest_compatible: $oldest:literal) => {
        Migration {
            version: $version,
            name: $name,
            oldest_compatible: $oldest,
            sqlite: include_str!(concat!("../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../migrations/postgres/", $name, ".sql")),
        }
    };
}

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_tasks", oldest_compatible: 1),
    migration!(2, "0002_schedules", oldest_compatible: 1),
    migration!(3, "0003_outbox", oldest_compatible: 1),
    migration!(4, "0004_cluster", oldest_compatible: 1),
    migration!(5, "0005_enqueue", oldest_compatible: 1),
    migration!(6, "0006_plugins", oldest_compatible: 1),
    migration!(11, "0011_pull_and_audit", oldest_compatible: 1),
    migration!(20, "0020_outbox_leases", oldest_compatible: 1),
    migration!(30, "0030_hand_overs", oldest_compatible: 1),
    migration!(40, "0040_alerts", oldest_compatible: 1),
    migration!(50, "0050_lists", oldest_compatible: 1),
    migration!(60, "0060_message_jobs", oldest_compatible: 1),
    migration!(61, "0061_progress", oldest_compatible: 1),
    migration!(70, "0070_retries", oldest_compatible: 1),
    migration!(80, "0080_stretches", oldest_compatible: 1),
];

/// What a database's schema is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest version applied; 0 if none.
    pub version: i32,
    /// The oldest version whose binaries can work on it.
    pub oldest_compatible: i32,
}

impl SchemaState {
    /// A database without our tables.
    pub const EMPTY: Self = Self { version: 0, oldest_compatible: 0 };

    /// What the recorded migrations amount to; `statements` picks the dialect they were applied in.
    pub(crate) fn of(
        applied: impl IntoIterator<Item = Applied>,
        statements: fn(&Migration) -> &'static str,
    ) -> Result<Self, ConnectError> {
        let mut state = Self::EMPTY;
        for Applied { version, checksum: recorded, oldest_compatible } in applied {
            let known = MIGRATIONS.iter().find(|migration| migration.version == version);
            if let Some(known) = known.filter(|known| checksum(statements(known)) != recorded) {
                return Err(ConnectError::Refused(format!(
                    "migration {} was applied to this database in another form than this punctual has: it belongs to a \
                     build that was never released; use a fresh database or that build",
                    known.name
                )));
            }
            state.version = version;
            state.oldest_compatible = state.oldest_compatible.max(oldest_compatible);
        }
        Ok(state)
    }

    /// The version this binary is made for.
    pub fn ours() -> i32 {
        MIGRATIONS.last().map_or(0, |newest| newest.version)
    }

    /// The migrations this binary knows and the database lacks.
    pub fn missing(&self) -> impl Iterator<Item = &'static Migration> + use<> {
        let version = self.version;
        MIGRATIONS.iter().filter(move |migration| migration.version > version)
    }

    /// Whether this binary can work on it once nothing is missing.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn check_not_newer(&self) -> Result<(), String> {
        let ours = Self::ours();
        if self.oldest_compatible > ours {
            return Err(format!(
                "the database has schema {}, which needs a punctual made for schema {} or later; this one is made for {ours}: \
                 install a newer punctual",
                self.version, self.oldest_compatible
            ));
        }
        Ok(())
    }

    /// Whether nothing is missing.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn check_complete(&self) -> Result<(), String> {
        match self.missing().count() {
            0 => Ok(()),
            missing => Err(format!(
                "the database has schema {} and lacks {missing} migrations: run `punctual migrate`",
                self.version
            )),
        }
    }
}

/// A migration as the database records it.
pub(crate) struct Applied {
    pub(crate) version: i32,
    pub(crate) checksum: String,
    pub(crate) oldest_compatible: i32,
}

/// What tells one form of a migration from another.
pub(crate) fn checksum(statements: &str) -> String {
    Sha256::digest(statements).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_and_names_carry_them() {
        assert!(MIGRATIONS.is_sorted_by(|earlier, later| earlier.version < later.version));
        for migration in MIGRATIONS {
            assert!(migration.name.starts_with(&format!("{:04}_", migration.version)));
            assert!(migration.oldest_compatible <= migration.version);
        }
    }

    #[test]
    fn a_newer_schema_is_refused_only_if_it_says_so() {
        let ours = SchemaState::ours();
        let newer = |oldest_compatible| SchemaState { version: ours + 1, oldest_compatible };
        assert_eq!(newer(ours).check_not_newer(), Ok(()));
        assert!(newer(ours + 1).check_not_newer().unwrap_err().contains("install a newer punctual"));
        assert_eq!(SchemaState::EMPTY.missing().count(), MIGRATIONS.len());
        assert!(SchemaState::EMPTY.check_complete().unwrap_err().contains("punctual migrate"));
    }
}
