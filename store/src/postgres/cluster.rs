//! What nodes know of each other, and who may talk to them.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, KeyId, NodeId};
use punctual_domain::json::Json;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::news::News;
use punctual_domain::node::{Leadership, Node};
use punctual_domain::store::{Cluster, Page, StoreError};
use punctual_domain::topic::TopicPattern;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder};

use super::hearing::announce;
use super::{PostgresStore, broken, micros, rows};
use crate::text::{from_text, is_newer_tz_version, to_text};

const SELECT_KEY: &str = "SELECT id, name, role, topics, hash, created_at, revoked_at FROM punctual_api_keys ";

#[async_trait]
impl Cluster for PostgresStore {
    async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar("SELECT coalesce($1, statement_timestamp())")
                .bind(PostgresStore::now(self))
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn check(&self) -> Result<(), StoreError> {
        lend!(self, |connection| {
            let is_read_only: bool = sqlx::query_scalar("SELECT current_setting('transaction_read_only')::boolean")
                .fetch_one(connection)
                .await
                .map_err(broken)?;
            match is_read_only {
                true => Err(StoreError::Unavailable("the database can only be read".to_owned())),
                false => Ok(()),
            }
        })
    }

    async fn announce(&self, news: &News) -> Result<(), StoreError> {
        if let Some(announced) = &self.announced {
            announced(news);
        }
        lend!(self, |connection| { announce(connection, news).await })
    }

    async fn hear(&self) -> Result<News, StoreError> {
        self.hearing.hear(&self.connections).await
    }

    fn has_other_nodes(&self) -> bool {
        true
    }

    async fn heartbeat(&self, node: &Node) -> Result<DateTime<Utc>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(
                "INSERT INTO punctual_nodes (id, version, tz_version, about, started_at, seen_at)
                 VALUES ($2, $3, $4, $5, $6, coalesce($1, statement_timestamp()))
                 ON CONFLICT (id) DO UPDATE
                 SET version = excluded.version, tz_version = excluded.tz_version, about = excluded.about,
                     seen_at = excluded.seen_at
                 RETURNING seen_at",
            )
            .bind(PostgresStore::now(self))
            .bind(node.id.0)
            .bind(&node.version)
            .bind(&node.tz_version)
            .bind(node.about.as_str())
            .bind(node.started_at)
            .fetch_one(connection)
            .await
            .map_err(broken)
        })
    }

    async fn remove_node(&self, id: NodeId) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query("DELETE FROM punctual_nodes WHERE id = $1")
                .bind(id.0)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(())
        })
    }

    async fn nodes(&self, within: Duration) -> Result<Vec<Node>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(
                "SELECT id, version, tz_version, about, started_at, seen_at FROM punctual_nodes
                 WHERE seen_at + $2::bigint * interval '1 microsecond' >= coalesce($1, statement_timestamp())
                 ORDER BY started_at, id",
            )
            .bind(PostgresStore::now(self))
            .bind(micros(within))
            .fetch_all(connection)
            .await
            .map_err(broken)?;
            found
                .iter()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok(Node {
                        id: NodeId(columns.take()?),
                        version: columns.take()?,
                        tz_version: columns.take()?,
                        about: Json::from_stored(columns.take::<&str>()?),
                        started_at: columns.take()?,
                        seen_at: columns.take()?,
                    })
                })
                .collect()
        })
    }

    async fn lead(&self, name: &str, node: NodeId, lease: Duration) -> Result<Leadership, StoreError> {
        lend!(self, |connection| {
            loop {
                let row = sqlx::query(include_str!("sql/lead.sql"))
                    .bind(PostgresStore::now(self))
                    .bind(name)
                    .bind(node.0)
                    .bind(micros(lease))
                    .fetch_optional(&mut *connection)
                    .await
                    .map_err(broken)?;
                if let Some(row) = row {
                    return leadership(&row);
                }
            }
        })
    }

    async fn resign(&self, name: &str, node: NodeId) -> Result<(), StoreError> {
        lend!(self, |connection| {
            // The row stays, so that the next leader's epoch is larger.
            sqlx::query(
                "UPDATE punctual_leaderships SET expires_at = coalesce($1, statement_timestamp())
                 WHERE name = $2 AND owner = $3",
            )
            .bind(PostgresStore::now(self))
            .bind(name)
            .bind(node.0)
            .execute(connection)
            .await
            .map_err(broken)?;
            Ok(())
        })
    }

    async fn cluster_id(&self) -> Result<String, StoreError> {
        lend!(self, |connection| {
            sqlx::query("INSERT INTO punctual_facts (name, value) VALUES ('cluster_id', $1) ON CONFLICT DO NOTHING")
                .bind(uuid::Uuid::new_v4().to_string())
                .execute(&mut *connection)
                .await
                .map_err(broken)?;
            sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'cluster_id'")
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn note_tz_version(&self, version: &str) -> Result<String, StoreError> {
        lend!(self, |connection| {
            loop {
                let stored: Option<String> =
                    sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = 'tz_version'")
                        .fetch_optional(&mut *connection)
                        .await
                        .map_err(broken)?;
                if let Some(stored) = stored.clone().filter(|stored| !is_newer_tz_version(version, stored)) {
                    return Ok(stored);
                }
                let noted = sqlx::query(
                    "INSERT INTO punctual_facts AS f (name, value) VALUES ('tz_version', $1)
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE f.value = $2",
                )
                .bind(version)
                .bind(stored)
                .execute(&mut *connection)
                .await
                .map_err(broken)?;
                if noted.rows_affected() > 0 {
                    return Ok(version.to_owned());
                }
            }
        })
    }

    async fn state_cell(&self, name: &str) -> Result<Option<(Json, u64)>, StoreError> {
        lend!(self, |connection| {
            let row = sqlx::query("SELECT value, version FROM punctual_state_cells WHERE name = $1")
                .bind(name)
                .fetch_optional(connection)
                .await
                .map_err(broken)?;
            row.as_ref()
                .map(|row| {
                    let mut columns = rows::Columns::of(row);
                    Ok((Json::from_stored(columns.take::<&str>()?), columns.take_count()?))
                })
                .transpose()
        })
    }

    async fn put_state_cell(&self, name: &str, value: &Json, version: u64) -> Result<Option<u64>, StoreError> {
        let statement = if version == 0 {
            "INSERT INTO punctual_state_cells (name, value, version) VALUES ($1, $2, $3 + 1) ON CONFLICT DO NOTHING"
        } else {
            "UPDATE punctual_state_cells SET value = $2, version = version + 1 WHERE name = $1 AND version = $3"
        };
        lend!(self, |connection| {
            let written = sqlx::query(statement)
                .bind(name)
                .bind(value.as_str())
                .bind(version as i64)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok((written.rows_affected() > 0).then_some(version + 1))
        })
    }

    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query(
                "INSERT INTO punctual_api_keys (id, name, role, topics, hash, created_at, revoked_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
            )
            .bind(key.id.0)
            .bind(&key.name)
            .bind(key.role.as_str())
            .bind(to_text(&key.topics)?)
            .bind(key.hash.as_slice())
            .bind(key.created_at)
            .bind(key.revoked_at)
            .execute(connection)
            .await
            .map_err(broken)?;
            Ok(())
        })
    }

    async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT_KEY);
        query.push("WHERE revoked_at IS NULL AND hash = ").push_bind(hash.to_vec());
        lend!(self, |connection| {
            let row = query.build().fetch_optional(connection).await.map_err(broken)?;
            row.as_ref().map(key_row).transpose()
        })
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT_KEY);
        query.push("WHERE revoked_at IS NULL AND id = ").push_bind(id.0);
        lend!(self, |connection| {
            let row = query.build().fetch_optional(connection).await.map_err(broken)?;
            row.as_ref().map(key_row).transpose()
        })
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT_KEY);
        query.push("ORDER BY created_at, id");
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(key_row).collect()
        })
    }

    async fn newest_keys(&self, page: Page<KeyId>) -> Result<Vec<ApiKey>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT_KEY);
        if let Some(after) = page.after {
            query.push("WHERE id < ").push_bind(after.0);
        }
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(key_row).collect()
        })
    }

    async fn has_valid_key(&self) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM punctual_api_keys WHERE revoked_at IS NULL)")
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn revoke_key(&self, id: KeyId) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let revoked = sqlx::query(
                "UPDATE punctual_api_keys SET revoked_at = coalesce($1, statement_timestamp())
                 WHERE id = $2 AND revoked_at IS NULL",
            )
            .bind(PostgresStore::now(self))
            .bind(id.0)
            .execute(connection)
            .await
            .map_err(broken)?;
            Ok(revoked.rows_affected() > 0)
        })
    }

    async fn fact(&self, name: &str) -> Result<Option<String>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar("SELECT value FROM punctual_facts WHERE name = $1")
                .bind(name)
                .fetch_optional(connection)
                .await
                .map_err(broken)
        })
    }

    async fn note_fact(&self, name: &str, value: &str) -> Result<(), StoreError> {
        lend!(self, |connection| {
            sqlx::query(
                "INSERT INTO punctual_facts (name, value) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            )
            .bind(name)
            .bind(value)
            .execute(connection)
            .await
            .map(drop)
            .map_err(broken)
        })
    }
}

/// A row of `lead.sql` or `leadership.sql`.
pub(super) fn leadership(row: &PgRow) -> Result<Leadership, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(Leadership {
        owner: NodeId(columns.take()?),
        epoch: Epoch(columns.take()?),
        expires_at: columns.take()?,
        left: Duration::from_micros(columns.take_count()?),
    })
}

fn key_row(row: &PgRow) -> Result<ApiKey, StoreError> {
    let mut columns = rows::Columns::of(row);
    let id = KeyId(columns.take()?);
    let name = columns.take()?;
    let role = rows::word(columns.take()?, Role::from_name)?;
    let topics: Vec<String> = from_text("an API key's topics", columns.take()?)?;
    let hash: Vec<u8> = columns.take()?;
    Ok(ApiKey {
        id,
        name,
        role,
        topics: topics.into_iter().map(TopicPattern::from_stored).collect(),
        hash: hash.try_into().map_err(|_| StoreError::Broken("an API key's hash has not 32 bytes".into()))?,
        created_at: columns.take()?,
        revoked_at: columns.take()?,
    })
}
