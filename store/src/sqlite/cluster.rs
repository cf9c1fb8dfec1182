//! What nodes know of each other, and who may talk to them.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::id::{Epoch, KeyId, NodeId};
use punctual_domain::json::Json;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::news::News;
use punctual_domain::node::{Leadership, Node};
use punctual_domain::store::{Cluster, Page, StoreError};
use punctual_domain::topic::TopicPattern;
use sqlx::sqlite::SqliteRow;

use super::rows::{Columns, micros, micros_after, micros_before};
use super::{SqliteStore, broken};
use crate::text::{from_text, is_newer_tz_version, to_text};

#[async_trait]
impl Cluster for SqliteStore {
    async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        Ok(self.now.now())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.writer.check()
    }

    async fn announce(&self, _: &News) -> Result<(), StoreError> {
        // There are no other nodes.
        Ok(())
    }

    async fn hear(&self) -> Result<News, StoreError> {
        std::future::pending().await
    }

    fn has_other_nodes(&self) -> bool {
        false
    }

    async fn heartbeat(&self, node: &Node) -> Result<DateTime<Utc>, StoreError> {
        let node = node.clone();
        self.write(move |connection, now| {
            async move {
                sqlx::query(include_str!("sql/heartbeat.sql"))
                    .bind(node.id.0)
                    .bind(node.version)
                    .bind(node.tz_version)
                    .bind(node.about.as_str())
                    .bind(micros(node.started_at))
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(now)
            }
            .boxed()
        })
        .await
    }

    async fn remove_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.write(move |connection, _| {
            async move {
                let removal = sqlx::query("DELETE FROM punctual_nodes WHERE id = ?1").bind(id.0);
                removal.execute(connection).await.map(drop).map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn nodes(&self, within: Duration) -> Result<Vec<Node>, StoreError> {
        self.read(move |connection, now| {
            async move {
                let found = sqlx::query(
                    "SELECT id, version, tz_version, about, started_at, seen_at FROM punctual_nodes
                     WHERE seen_at >= ?1 ORDER BY started_at, id",
                )
                .bind(micros_before(now, within))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
                found.iter().map(node).collect()
            }
            .boxed()
        })
        .await
    }

    async fn lead(&self, name: &str, node: NodeId, lease: Duration) -> Result<Leadership, StoreError> {
        let name = name.to_owned();
        self.write(move |connection, now| {
            async move {
                sqlx::query(include_str!("sql/lead.sql"))
                    .bind(&name)
                    .bind(node.0)
                    .bind(micros(now))
                    .bind(micros_after(now, lease))
                    .execute(&mut *connection)
                    .await
                    .map_err(broken)?;
                let row = sqlx::query(include_str!("sql/leadership.sql"))
                    .bind(name)
                    .fetch_one(connection)
                    .await
                    .map_err(broken)?;
                leadership(&row, now)
            }
            .boxed()
        })
        .await
    }

    async fn resign(&self, name: &str, node: NodeId) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |connection, now| {
            async move {
                // The row stays: its epoch must never be given out again.
                sqlx::query("UPDATE punctual_leaderships SET expires_at = ?3 WHERE name = ?1 AND owner = ?2")
                    .bind(name)
                    .bind(node.0)
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn cluster_id(&self) -> Result<String, StoreError> {
        self.write(|connection, _| {
            async move {
                sqlx::query("INSERT OR IGNORE INTO punctual_facts (name, value) VALUES ('cluster_id', ?1)")
                    .bind(uuid::Uuid::new_v4().to_string())
                    .execute(&mut *connection)
                    .await
                    .map_err(broken)?;
                sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'cluster_id'")
                    .fetch_one(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn note_tz_version(&self, version: &str) -> Result<String, StoreError> {
        let version = version.to_owned();
        self.write(move |connection, _| {
            async move {
                let noted: Option<String> =
                    sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'tz_version'")
                        .fetch_optional(&mut *connection)
                        .await
                        .map_err(broken)?;
                if let Some(noted) = noted.filter(|noted| !is_newer_tz_version(&version, noted)) {
                    return Ok(noted);
                }
                sqlx::query("INSERT OR REPLACE INTO punctual_facts (name, value) VALUES ('tz_version', ?1)")
                    .bind(&version)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(version)
            }
            .boxed()
        })
        .await
    }

    async fn state_cell(&self, name: &str) -> Result<Option<(Json, u64)>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query("SELECT value, version FROM punctual_state_cells WHERE name = ?1")
                    .bind(name)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)?;
                let Some(row) = row else { return Ok(None) };
                let mut columns = Columns::of(&row);
                Ok(Some((Json::from_stored(columns.take::<&str>()?), columns.take_count()?)))
            }
            .boxed()
        })
        .await
    }

    async fn put_state_cell(&self, name: &str, value: &Json, version: u64) -> Result<Option<u64>, StoreError> {
        let (name, value) = (name.to_owned(), value.as_str().to_owned());
        let written = if version == 0 {
            "INSERT INTO punctual_state_cells (name, value, version) VALUES (?1, ?2, ?3 + 1)
             ON CONFLICT (name) DO NOTHING"
        } else {
            "UPDATE punctual_state_cells SET value = ?2, version = version + 1 WHERE name = ?1 AND version = ?3"
        };
        // A version beyond what SQLite counts to is one that no cell has.
        let Ok(expected) = i64::try_from(version) else { return Ok(None) };
        self.write(move |connection, _| {
            async move {
                let written = sqlx::query(written).bind(name).bind(value).bind(expected);
                let written = written.execute(connection).await.map_err(broken)?;
                Ok((written.rows_affected() > 0).then_some(version + 1))
            }
            .boxed()
        })
        .await
    }

    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection, _| {
            async move {
                sqlx::query(
                    "INSERT INTO punctual_api_keys (id, name, role, topics, hash, created_at, revoked_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .bind(key.id.0)
                .bind(key.name)
                .bind(key.role.as_str())
                .bind(to_text(&key.topics)?)
                .bind(key.hash.to_vec())
                .bind(micros(key.created_at))
                .bind(key.revoked_at.map(micros))
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError> {
        const BY_HASH: &str = concat!(include_str!("sql/keys.sql"), "WHERE hash = ?1 AND revoked_at IS NULL");
        let hash = hash.to_vec();
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query(BY_HASH).bind(hash).fetch_optional(connection).await.map_err(broken)?;
                row.as_ref().map(key).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        const BY_ID: &str = concat!(include_str!("sql/keys.sql"), "WHERE id = ?1 AND revoked_at IS NULL");
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
                row.as_ref().map(key).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        const ALL: &str = concat!(include_str!("sql/keys.sql"), "ORDER BY created_at, id");
        self.read(|connection, _| {
            async move {
                let found = sqlx::query(ALL).fetch_all(connection).await.map_err(broken)?;
                found.iter().map(key).collect()
            }
            .boxed()
        })
        .await
    }

    async fn newest_keys(&self, page: Page<KeyId>) -> Result<Vec<ApiKey>, StoreError> {
        const NEWEST: &str = concat!(
            include_str!("sql/keys.sql"),
            "WHERE id < coalesce(?1, x'ffffffffffffffffffffffffffffffff') ORDER BY id DESC LIMIT ?2"
        );
        self.read(move |connection, _| {
            async move {
                let query = sqlx::query(NEWEST).bind(page.after.map(|id| id.0)).bind(i64::from(page.limit));
                let found = query.fetch_all(connection).await.map_err(broken)?;
                found.iter().map(key).collect()
            }
            .boxed()
        })
        .await
    }

    async fn has_valid_key(&self) -> Result<bool, StoreError> {
        self.read(|connection, _| {
            async move {
                sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM punctual_api_keys WHERE revoked_at IS NULL)")
                    .fetch_one(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn revoke_key(&self, id: KeyId) -> Result<bool, StoreError> {
        self.write(move |connection, now| {
            async move {
                let revoked =
                    sqlx::query("UPDATE punctual_api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")
                        .bind(id.0)
                        .bind(micros(now))
                        .execute(connection)
                        .await
                        .map_err(broken)?;
                Ok(revoked.rows_affected() > 0)
            }
            .boxed()
        })
        .await
    }

    async fn fact(&self, name: &str) -> Result<Option<String>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection, _| {
            async move {
                sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = ?1")
                    .bind(name)
                    .fetch_optional(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn note_fact(&self, name: &str, value: &str) -> Result<(), StoreError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.write(move |connection, _| {
            async move {
                sqlx::query(
                    "INSERT INTO punctual_facts (name, value) VALUES (?1, ?2)
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                )
                .bind(name)
                .bind(value)
                .execute(connection)
                .await
                .map(drop)
                .map_err(broken)
            }
            .boxed()
        })
        .await
    }
}

fn node(row: &SqliteRow) -> Result<Node, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Node {
        id: NodeId(columns.take()?),
        version: columns.take()?,
        tz_version: columns.take()?,
        about: Json::from_stored(columns.take::<&str>()?),
        started_at: columns.take_instant()?,
        seen_at: columns.take_instant()?,
    })
}

/// A row of `leadership.sql`.
pub(super) fn leadership(row: &SqliteRow, now: DateTime<Utc>) -> Result<Leadership, StoreError> {
    let mut columns = Columns::of(row);
    let (owner, epoch) = (NodeId(columns.take()?), Epoch(columns.take()?));
    let expires_at = columns.take_instant()?;
    Ok(Leadership { owner, epoch, expires_at, left: (expires_at - now).to_std().unwrap_or_default() })
}

/// A row of `keys.sql`.
fn key(row: &SqliteRow) -> Result<ApiKey, StoreError> {
    let mut columns = Columns::of(row);
    Ok(ApiKey {
        id: KeyId(columns.take()?),
        name: columns.take()?,
        role: columns.take_word(Role::from_name)?,
        topics: from_text::<Vec<String>>("a key's topics", columns.take()?)?
            .into_iter()
            .map(TopicPattern::from_stored)
            .collect(),
        hash: columns
            .take::<&[u8]>()?
            .try_into()
            .map_err(|_| StoreError::Broken("a key's hash has another length than SHA-256".into()))?,
        created_at: columns.take_instant()?,
        revoked_at: columns.take_instant_if_any()?,
    })
}
