//! Definitions of topics.

use std::collections::BTreeSet;

use async_trait::async_trait;
use punctual_domain::store::{Load, StoreError, Topics};
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Postgres, Transaction};

use super::{PostgresStore, broken, rows};
use crate::text::{from_text, to_text};

#[async_trait]
impl Topics for PostgresStore {
    async fn put_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = lock(connection).await?;
            if definition.route != Route::Handler {
                check_unhandled(&mut transaction, &definition.name).await?;
            }
            let is_new = write(&mut transaction, definition).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(is_new)
        })
    }

    async fn register_topic(&self, name: &TopicPattern) -> Result<(), StoreError> {
        lend!(self, |connection| {
            let mut transaction = lock(connection).await?;
            let noted = sqlx::query("INSERT INTO punctual_handled_topics (name) VALUES ($1) ON CONFLICT DO NOTHING")
                .bind(name.as_str())
                .execute(&mut *transaction)
                .await
                .map_err(broken)?;
            let known = find(&mut transaction, name).await?;
            let is_handled = known.as_ref().is_some_and(|known| known.route == Route::Handler);
            if !is_handled || noted.rows_affected() > 0 {
                let route = Route::Handler;
                let definition = match known {
                    Some(known) => TopicDefinition { route, ..known },
                    None => TopicDefinition::new(name.clone(), route),
                };
                write(&mut transaction, &definition).await?;
            }
            transaction.commit().await.map_err(broken)
        })
    }

    async fn pause_topic(&self, name: &TopicPattern, paused: bool) -> Result<Option<TopicDefinition>, StoreError> {
        lend!(self, |connection| {
            let mut transaction = lock(connection).await?;
            let Some(known) = find(&mut transaction, name).await? else { return Ok(None) };
            let definition = TopicDefinition { paused, ..known };
            write(&mut transaction, &definition).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(Some(definition))
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

    async fn loads(&self) -> Result<Vec<Load>, StoreError> {
        lend!(self, |connection| {
            let now = PostgresStore::now(self);
            let rows = sqlx::query(include_str!("sql/loads.sql")).bind(now).fetch_all(connection).await;
            rows.map_err(broken)?.iter().map(load).collect()
        })
    }

    async fn delete_topic(&self, name: &TopicPattern) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let mut transaction = lock(connection).await?;
            check_unhandled(&mut transaction, name).await?;
            let deleted = sqlx::query("DELETE FROM punctual_topics WHERE name = $1")
                .bind(name.as_str())
                .execute(&mut *transaction)
                .await
                .map_err(broken)?;
            transaction.commit().await.map_err(broken)?;
            Ok(deleted.rows_affected() > 0)
        })
    }
}

/// A row of `loads.sql`.
fn load(row: &PgRow) -> Result<Load, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(Load {
        topic: columns.take()?,
        due: columns.take_count()?,
        due_since: columns.take()?,
        running: columns.take_count()?,
    })
}

/// Begins a transaction that is the only one to change definitions.
async fn lock(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, StoreError> {
    let mut transaction = connection.begin().await.map_err(broken)?;
    sqlx::query("LOCK TABLE punctual_handled_topics IN EXCLUSIVE MODE")
        .execute(&mut *transaction)
        .await
        .map_err(broken)?;
    Ok(transaction)
}

async fn check_unhandled(connection: &mut PgConnection, name: &TopicPattern) -> Result<(), StoreError> {
    let is_handled: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM punctual_handled_topics WHERE name = $1)")
        .bind(name.as_str())
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    if is_handled { Err(StoreError::HandlerRegistered(name.as_str().to_owned())) } else { Ok(()) }
}

/// Writes a definition; whether it is new.
async fn write(connection: &mut PgConnection, definition: &TopicDefinition) -> Result<bool, StoreError> {
    // A row that was inserted has no deleting transaction yet; one that was updated has.
    sqlx::query_scalar(
        "INSERT INTO punctual_topics (name, definition) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
         RETURNING xmax = 0",
    )
    .bind(definition.name.as_str())
    .bind(to_text(definition)?)
    .fetch_one(connection)
    .await
    .map_err(broken)
}

async fn find(connection: &mut PgConnection, name: &TopicPattern) -> Result<Option<TopicDefinition>, StoreError> {
    let text: Option<String> = sqlx::query_scalar("SELECT definition FROM punctual_topics WHERE name = $1")
        .bind(name.as_str())
        .fetch_optional(connection)
        .await
        .map_err(broken)?;
    let known = text.map(|text| from_text::<TopicDefinition>("a topic", &text)).transpose()?;
    Ok(known.map(|known| TopicDefinition { name: name.clone(), ..known }))
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
