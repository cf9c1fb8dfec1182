//! Definitions of topics.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures::FutureExt;
use punctual_domain::store::{Load, StoreError, Topics};
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::rows::{Columns, micros};
use super::{SqliteStore, broken};
use crate::text::{from_text, to_text};

#[async_trait]
impl Topics for SqliteStore {
    async fn put_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError> {
        let definition = definition.clone();
        self.write(move |connection, _| {
            async move {
                if definition.route != Route::Handler {
                    check_unhandled(connection, &definition.name).await?;
                }
                write(connection, &definition).await
            }
            .boxed()
        })
        .await
    }

    async fn register_topic(&self, name: &TopicPattern) -> Result<(), StoreError> {
        let name = name.clone();
        self.write(move |connection, _| {
            async move {
                sqlx::query("INSERT INTO punctual_handled_topics (name) VALUES (?1) ON CONFLICT DO NOTHING")
                    .bind(name.as_str())
                    .execute(&mut *connection)
                    .await
                    .map_err(broken)?;
                let route = Route::Handler;
                let definition = match find(connection, &name).await? {
                    Some(known) => TopicDefinition { route, ..known },
                    None => TopicDefinition::new(name, route),
                };
                write(connection, &definition).await.map(drop)
            }
            .boxed()
        })
        .await
    }

    async fn pause_topic(&self, name: &TopicPattern, paused: bool) -> Result<Option<TopicDefinition>, StoreError> {
        let name = name.clone();
        self.write(move |connection, _| {
            async move {
                let Some(known) = find(connection, &name).await? else { return Ok(None) };
                let definition = TopicDefinition { paused, ..known };
                write(connection, &definition).await?;
                Ok(Some(definition))
            }
            .boxed()
        })
        .await
    }

    async fn add_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError> {
        let text = to_text(definition)?;
        let name = definition.name.as_str().to_owned();
        self.write(move |connection, _| {
            async move {
                let added = sqlx::query(
                    "INSERT INTO punctual_topics (name, definition) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                )
                .bind(name)
                .bind(text)
                .execute(connection)
                .await
                .map_err(broken)?;
                Ok(added.rows_affected() > 0)
            }
            .boxed()
        })
        .await
    }

    async fn topics(&self) -> Result<Vec<TopicDefinition>, StoreError> {
        self.read(|connection, _| definitions(connection).boxed()).await
    }

    async fn loads(&self) -> Result<Vec<Load>, StoreError> {
        self.read(|connection, now| {
            async move {
                let rows = sqlx::query(include_str!("sql/loads.sql")).bind(micros(now)).fetch_all(connection).await;
                rows.map_err(broken)?.iter().map(load).collect()
            }
            .boxed()
        })
        .await
    }

    async fn delete_topic(&self, name: &TopicPattern) -> Result<bool, StoreError> {
        let name = name.clone();
        self.write(move |connection, _| {
            async move {
                check_unhandled(connection, &name).await?;
                let deleted = sqlx::query("DELETE FROM punctual_topics WHERE name = ?1")
                    .bind(name.as_str())
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(deleted.rows_affected() > 0)
            }
            .boxed()
        })
        .await
    }
}

/// A row of `loads.sql`.
fn load(row: &SqliteRow) -> Result<Load, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Load {
        topic: columns.take()?,
        due: columns.take_count()?,
        due_since: columns.take_instant_if_any()?,
        running: columns.take_count()?,
    })
}

async fn check_unhandled(connection: &mut SqliteConnection, name: &TopicPattern) -> Result<(), StoreError> {
    let is_handled: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM punctual_handled_topics WHERE name = ?1)")
        .bind(name.as_str())
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    if is_handled { Err(StoreError::HandlerRegistered(name.as_str().to_owned())) } else { Ok(()) }
}

/// Writes a definition; whether it is new.
async fn write(connection: &mut SqliteConnection, definition: &TopicDefinition) -> Result<bool, StoreError> {
    let text = to_text(definition)?;
    let updated = sqlx::query("UPDATE punctual_topics SET definition = ?2 WHERE name = ?1")
        .bind(definition.name.as_str())
        .bind(&text)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    if updated.rows_affected() > 0 {
        return Ok(false);
    }
    sqlx::query("INSERT INTO punctual_topics (name, definition) VALUES (?1, ?2)")
        .bind(definition.name.as_str())
        .bind(text)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(true)
}

async fn find(connection: &mut SqliteConnection, name: &TopicPattern) -> Result<Option<TopicDefinition>, StoreError> {
    let text: Option<String> = sqlx::query_scalar("SELECT definition FROM punctual_topics WHERE name = ?1")
        .bind(name.as_str())
        .fetch_optional(connection)
        .await
        .map_err(broken)?;
    let known = text.map(|text| from_text::<TopicDefinition>("a topic's definition", &text)).transpose()?;
    Ok(known.map(|known| TopicDefinition { name: name.clone(), ..known }))
}

/// All definitions, by name.
pub(crate) async fn definitions(connection: &mut SqliteConnection) -> Result<Vec<TopicDefinition>, StoreError> {
    let found = sqlx::query("SELECT name, definition FROM punctual_topics ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(definition).collect()
}

/// The definitions that these topics could be led to.
pub(super) async fn definitions_for(
    connection: &mut SqliteConnection,
    topics: impl Iterator<Item = &str>,
) -> Result<Vec<TopicDefinition>, StoreError> {
    let names: BTreeSet<_> = topics.flat_map(|topic| Topic::from_stored(topic).patterns()).collect();
    let names: Vec<_> = names.into_iter().collect();
    let found =
        sqlx::query("SELECT name, definition FROM punctual_topics WHERE name IN (SELECT value FROM json_each(?1))")
            .bind(to_text(&names)?)
            .fetch_all(connection)
            .await
            .map_err(broken)?;
    found.iter().map(definition).collect()
}

fn definition(row: &SqliteRow) -> Result<TopicDefinition, StoreError> {
    let mut columns = Columns::of(row);
    let name = TopicPattern::from_stored(columns.take::<&str>()?);
    Ok(TopicDefinition { name, ..from_text("a topic's definition", columns.take()?)? })
}
