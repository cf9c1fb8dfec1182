//! Messages on their way out.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::id::{Epoch, MessageId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{Message, MessageStatus, NewMessage, Sending};
use punctual_domain::store::{Outbox, Page, Posted, StoreError, Taken};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PostgresStore, broken, micros, rows};

const SELECT: &str = "SELECT id, dedupe_key, transport, recipient, body, status, attempt, epoch, next_attempt_at, \
     provider_id, error, created_at, completed_at FROM punctual_outbox ";

#[async_trait]
impl Outbox for PostgresStore {
    async fn post(&self, messages: Vec<NewMessage>) -> Result<Vec<Posted>, StoreError> {
        lend!(self, |connection| { post(connection, &messages, self.now()).await })
    }

    async fn take_messages(&self, transport: &str, lease: Duration, limit: u32) -> Result<Vec<Message>, StoreError> {
        lend!(self, |connection| {
            let taken = sqlx::query(include_str!("sql/take_messages.sql"))
                .bind(self.now())
                .bind(micros(lease))
                .bind(i64::from(limit))
                .bind(transport)
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            let mut messages = taken.iter().map(message_row).collect::<Result<Vec<_>, _>>()?;
            messages.sort_unstable_by_key(|message| message.id);
            Ok(messages)
        })
    }

    async fn post_taken(&self, message: NewMessage, lease: Duration) -> Result<Taken, StoreError> {
        lend!(self, |connection| {
            let mut transaction = connection.begin().await.map_err(broken)?;
            let taken = post_taken(&mut transaction, message, lease, self.now()).await?;
            transaction.commit().await.map_err(broken)?;
            Ok(taken)
        })
    }

    async fn record_sending(&self, id: MessageId, epoch: Epoch, sending: &Sending) -> Result<bool, StoreError> {
        let (status, provider_id, error, after) = match sending {
            Sending::Sent { provider_id } => (MessageStatus::Sent, Some(provider_id), None, None),
            Sending::Retried { error, after } => (MessageStatus::Pending, None, Some(error), Some(micros(*after))),
            Sending::Failed { error } => (MessageStatus::Failed, None, Some(error), None),
        };
        lend!(self, |connection| {
            let recorded: i64 = sqlx::query_scalar(include_str!("sql/record_sending.sql"))
                .bind(self.now())
                .bind(id.0)
                .bind(epoch.0)
                .bind(status.as_str())
                .bind(provider_id)
                .bind(error)
                .bind(after)
                .fetch_one(connection)
                .await
                .map_err(broken)?;
            Ok(recorded > 0)
        })
    }

    async fn next_message_at(&self, transports: &[&str]) -> Result<Option<DateTime<Utc>>, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(include_str!("sql/next_message_at.sql"))
                .bind(transports)
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError> {
        let mut query = QueryBuilder::<Postgres>::new(SELECT);
        query.push("WHERE id = ").push_bind(id.0);
        lend!(self, |connection| {
            let row = query.build().fetch_optional(connection).await.map_err(broken)?;
            row.as_ref().map(message_row).transpose()
        })
    }

    async fn messages(&self, status: Option<MessageStatus>, page: Page<MessageId>) -> Result<Vec<Message>, StoreError> {
        let mut query = matching(status, page);
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(message_row).collect()
        })
    }

    async fn redirect_messages(&self, from: &str, to: &str) -> Result<u64, StoreError> {
        lend!(self, |connection| {
            let redirected = sqlx::query(include_str!("sql/redirect_messages.sql"))
                .bind(self.now())
                .bind(from)
                .bind(to)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(redirected.rows_affected())
        })
    }

    async fn retry_message(&self, id: MessageId) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            let retried = sqlx::query(include_str!("sql/retry_message.sql"))
                .bind(self.now())
                .bind(id.0)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(retried.rows_affected() > 0)
        })
    }
}

/// Messages that match, newest first.
pub(super) fn matching(status: Option<MessageStatus>, page: Page<MessageId>) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push("WHERE true");
    if let Some(status) = status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(after) = page.after {
        query.push(" AND id < ").push_bind(after.0);
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

/// Writes messages; the first of each key counts, in this call and for good.
pub(crate) async fn post(
    connection: &mut PgConnection,
    messages: &[NewMessage],
    now: Option<DateTime<Utc>>,
) -> Result<Vec<Posted>, StoreError> {
    fn column<T>(messages: &[NewMessage], read: impl Fn(&NewMessage) -> T) -> Vec<T> {
        messages.iter().map(read).collect()
    }
    let written: Vec<Uuid> = sqlx::query_scalar(include_str!("sql/post_messages.sql"))
        .bind(now)
        .bind(column(messages, |m| m.id.0))
        .bind(column(messages, |m| m.dedupe_key.clone()))
        .bind(column(messages, |m| m.transport.clone()))
        .bind(column(messages, |m| m.recipient.clone()))
        .bind(column(messages, |m| m.body.as_str().to_owned()))
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let written: HashSet<_> = written.into_iter().map(MessageId).collect();
    if messages.iter().all(|message| written.contains(&message.id)) {
        return Ok(messages.iter().map(|message| Posted::New(message.id)).collect());
    }
    let known: Vec<(String, Uuid, Option<String>)> = sqlx::query_as(
        "SELECT dedupe_key, message_id, provider_id FROM punctual_outbox_keys WHERE dedupe_key = ANY ($1)",
    )
    .bind(column(messages, |m| m.dedupe_key.clone()))
    .fetch_all(connection)
    .await
    .map_err(broken)?;
    let known: HashMap<_, _> = known.into_iter().map(|(key, id, provider_id)| (key, (id, provider_id))).collect();
    messages
        .iter()
        .map(|message| {
            if written.contains(&message.id) {
                return Ok(Posted::New(message.id));
            }
            let (id, provider_id) = known
                .get(&message.dedupe_key)
                .cloned()
                .ok_or_else(|| StoreError::Broken("a message was neither written nor found".into()))?;
            Ok(Posted::Known { id: MessageId(id), provider_id })
        })
        .collect()
}

async fn post_taken(
    connection: &mut PgConnection,
    message: NewMessage,
    lease: Duration,
    now: Option<DateTime<Utc>>,
) -> Result<Taken, StoreError> {
    let key = message.dedupe_key.clone();
    let Some(Posted::New(id) | Posted::Known { id, .. }) = post(connection, &[message], now).await?.pop() else {
        return Err(StoreError::Broken("a message was neither written nor found".into()));
    };
    let taken = sqlx::query(include_str!("sql/take_message.sql"))
        .bind(now)
        .bind(id.0)
        .bind(micros(lease))
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    if let Some(taken) = taken {
        return Ok(Taken::Ours(message_row(&taken)?));
    }
    let (until, provider_id): (Option<DateTime<Utc>>, Option<String>) =
        sqlx::query_as(include_str!("sql/sender_of_message.sql"))
            .bind(key)
            .fetch_one(connection)
            .await
            .map_err(broken)?;
    Ok(match provider_id {
        Some(provider_id) => Taken::Sent { provider_id },
        // Without a lease it was let go a moment ago.
        None => Taken::Theirs { until: until.unwrap_or_default() },
    })
}

fn message_row(row: &PgRow) -> Result<Message, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(Message {
        id: MessageId(columns.take()?),
        dedupe_key: columns.take()?,
        transport: columns.take()?,
        recipient: columns.take()?,
        body: Json::from_stored(columns.take::<&str>()?),
        status: rows::word(columns.take()?, MessageStatus::from_name)?,
        attempt: columns.take_small()?,
        epoch: Epoch(columns.take()?),
        next_attempt_at: columns.take()?,
        provider_id: columns.take()?,
        error: columns.take()?,
        created_at: columns.take()?,
        completed_at: columns.take()?,
    })
}
