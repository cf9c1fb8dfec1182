//! Definitions of topics.

use std::collections::BTreeSet;

use async_trait::async_trait;
use punctual_domain::store::{StoreError, Topics};
use punctual_domain::topic::{Topic, TopicDefinition, TopicPattern};
use sqlx::postgres::{PgConnection, PgRow};

use super::{PostgresStore, broken, rows};
use crate::text::{from_text, to_text};

#[async_trait]
impl Topics for PostgresStore {
    async fn put_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError> {
        let text = to_text(definition)?;
        lend!(self, |connection| {
            // A row that was inserted has no deleting transaction yet; one that was updated has.
            sqlx::query_scalar(
                "INSERT INTO punctual_topics (name, definition) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
                 RETURNING xmax = 0",
            )
            .bind(definition.name.as_str())
            .bind(text)
            .fetch_one(connection)
            .await
            .map_err(broken)
        })
    }

    async fn add_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError> {
        let text = to_text(definition)?;
        lend!(self, |connection| {
            let added =
                sqlx::query("INSERT INTO punctual_topics (name, definition) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                    .bind(definition.name.as_str())
                    .bind(text)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
            Ok(added.rows_affected() > 0)
        })
    }

    async fn topics(&self) -> Result<Vec<TopicDefinition>, StoreError> {
        lend!(self, |connection| { definitions(connection).await })
    }

    async fn delete_topic(&self, name: &TopicPattern) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let deleted = sqlx::query("DELETE FROM punctual_topics WHERE name = $1")
                .bind(name.as_str())
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(deleted.rows_affected() > 0)
        })
    }
}

/// All definitions, by name.
pub(crate) async fn definitions(connection: &mut PgConnection) -> Result<Vec<TopicDefinition>, StoreError> {
    let found = sqlx::query("SELECT name, definition FROM punctual_topics ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(definition).collect()
}

/// The definitions that these topics could be led to.
pub(super) async fn definitions_for(
    connection: &mut PgConnection,
    topics: impl Iterator<Item = &str>,
) -> Result<Vec<TopicDefinition>, StoreError> {
    let names: BTreeSet<_> = topics.flat_map(|topic| Topic::from_stored(topic).patterns()).collect();
    let names: Vec<_> = names.into_iter().collect();
    let found = sqlx::query("SELECT name, definition FROM punctual_topics WHERE name = ANY ($1)")
        .bind(names)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(definition).collect()
}

fn definition(row: &PgRow) -> Result<TopicDefinition, StoreError> {
    let mut columns = rows::Columns::of(row);
    let name = TopicPattern::from_stored(columns.take::<&str>()?);
    Ok(TopicDefinition { name, ..from_text("a topic", columns.take()?)? })
}
