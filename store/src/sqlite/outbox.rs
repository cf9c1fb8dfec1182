//! Messages on their way out.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::id::{Epoch, MessageId};
use punctual_domain::outbox::{Message, MessageStatus, NewMessage, Sending};
use punctual_domain::store::{Outbox, Page, Posted, StoreError, Taken};
use sqlx::sqlite::SqliteConnection;

use super::list::Query;
use super::rows::{self, Columns, Hex, instant, micros, micros_after};
use super::{SqliteStore, broken};
use crate::text::to_text;

#[async_trait]
impl Outbox for SqliteStore {
    async fn post(&self, messages: Vec<NewMessage>) -> Result<Vec<Posted>, StoreError> {
        self.write(move |connection, now| async move { post(connection, &messages, now).await }.boxed()).await
    }

    async fn take_messages(&self, transport: &str, lease: Duration, limit: u32) -> Result<Vec<Message>, StoreError> {
        let transport = transport.to_owned();
        self.write(move |connection, now| {
            async move {
                let taken = sqlx::query(include_str!("sql/take_messages.sql"))
                    .bind(micros(now))
                    .bind(micros_after(now, lease))
                    .bind(i64::from(limit))
                    .bind(transport)
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                let mut messages = taken.iter().map(rows::message).collect::<Result<Vec<_>, _>>()?;
                messages.sort_unstable_by_key(|message| message.id);
                Ok(messages)
            }
            .boxed()
        })
        .await
    }

    async fn post_taken(&self, message: NewMessage, lease: Duration) -> Result<Taken, StoreError> {
        self.write(move |connection, now| async move { post_taken(connection, message, lease, now).await }.boxed())
            .await
    }

    async fn record_sending(&self, id: MessageId, epoch: Epoch, sending: &Sending) -> Result<bool, StoreError> {
        let sending = sending.clone();
        self.write(move |connection, now| async move { record(connection, id, epoch, sending, now).await }.boxed())
            .await
    }

    async fn next_message_at(&self, transports: &[&str]) -> Result<Option<DateTime<Utc>>, StoreError> {
        let transports = to_text(&transports)?;
        self.read(move |connection, _| {
            async move {
                let at: Option<i64> = sqlx::query_scalar(include_str!("sql/next_message_at.sql"))
                    .bind(transports)
                    .fetch_one(connection)
                    .await
                    .map_err(broken)?;
                at.map(instant).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError> {
        const BY_ID: &str = concat!(include_str!("sql/messages.sql"), "WHERE id = ?1");
        self.read(move |connection, _| {
            async move {
                let row = sqlx::query(BY_ID).bind(id.0).fetch_optional(connection).await.map_err(broken)?;
                row.as_ref().map(rows::message).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn messages(&self, status: Option<MessageStatus>, page: Page<MessageId>) -> Result<Vec<Message>, StoreError> {
        let mut query = matching(status, page);
        self.read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(rows::message).collect()
            }
            .boxed()
        })
        .await
    }

    async fn redirect_messages(&self, from: &str, to: &str) -> Result<u64, StoreError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.write(move |connection, now| {
            async move {
                let redirected = sqlx::query(include_str!("sql/redirect_messages.sql"))
                    .bind(from)
                    .bind(to)
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(redirected.rows_affected())
            }
            .boxed()
        })
        .await
    }

    async fn retry_message(&self, id: MessageId) -> Result<bool, StoreError> {
        self.write(move |connection, now| {
            async move {
                let retried = sqlx::query(include_str!("sql/retry_message.sql"))
                    .bind(id.0)
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(retried.rows_affected() > 0)
            }
            .boxed()
        })
        .await
    }
}

/// Messages that match, newest first.
pub(super) fn matching(status: Option<MessageStatus>, page: Page<MessageId>) -> Query {
    let mut query = Query::new(include_str!("sql/messages.sql"));
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
    connection: &mut SqliteConnection,
    messages: &[NewMessage],
    now: DateTime<Utc>,
) -> Result<Vec<Posted>, StoreError> {
    let keys: Vec<_> = messages.iter().map(|message| message.dedupe_key.as_str()).collect();
    let found = sqlx::query(include_str!("sql/known_messages.sql"))
        .bind(to_text(&keys)?)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let mut known: HashMap<String, (MessageId, Option<String>)> = HashMap::new();
    for row in &found {
        let mut columns = Columns::of(row);
        known.insert(columns.take()?, (MessageId(columns.take()?), columns.take()?));
    }
    let mut posted = Vec::with_capacity(messages.len());
    let mut rows = Vec::new();
    for message in messages {
        let NewMessage { id, dedupe_key, transport, recipient, body } = message;
        if let Some((id, provider_id)) = known.get(dedupe_key) {
            posted.push(Posted::Known { id: *id, provider_id: provider_id.clone() });
            continue;
        }
        known.insert(dedupe_key.clone(), (*id, None));
        rows.push((Hex(id.0), dedupe_key, transport, recipient, body.as_str()));
        posted.push(Posted::New(*id));
    }
    if !rows.is_empty() {
        let rows = to_text(&rows)?;
        sqlx::query(include_str!("sql/post_messages.sql"))
            .bind(&rows)
            .bind(micros(now))
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
        sqlx::query(include_str!("sql/use_message_keys.sql")).bind(rows).execute(connection).await.map_err(broken)?;
    }
    Ok(posted)
}

async fn post_taken(
    connection: &mut SqliteConnection,
    message: NewMessage,
    lease: Duration,
    now: DateTime<Utc>,
) -> Result<Taken, StoreError> {
    let key = message.dedupe_key.clone();
    let Some(Posted::New(id) | Posted::Known { id, .. }) = post(connection, &[message], now).await?.pop() else {
        return Err(StoreError::Broken("a message was neither written nor found".into()));
    };
    let taken = sqlx::query(include_str!("sql/take_message.sql"))
        .bind(id.0)
        .bind(micros(now))
        .bind(micros_after(now, lease))
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    if let Some(taken) = taken {
        return Ok(Taken::Ours(rows::message(&taken)?));
    }
    let (until, provider_id): (Option<i64>, Option<String>) = sqlx::query_as(include_str!("sql/sender_of_message.sql"))
        .bind(key)
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    Ok(match provider_id {
        Some(provider_id) => Taken::Sent { provider_id },
        None => Taken::Theirs { until: until.map(instant).transpose()?.unwrap_or(now) },
    })
}

async fn record(
    connection: &mut SqliteConnection,
    id: MessageId,
    epoch: Epoch,
    sending: Sending,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let completed_at = Some(micros(now));
    let (status, provider_id, error, next_attempt_at, completed_at) = match sending {
        Sending::Sent { provider_id } => (MessageStatus::Sent, Some(provider_id), None, None, completed_at),
        Sending::Retried { error, after } => {
            (MessageStatus::Pending, None, Some(error), Some(micros_after(now, after)), None)
        }
        Sending::Failed { error } => (MessageStatus::Failed, None, Some(error), None, completed_at),
    };
    let key: Option<String> = sqlx::query_scalar(include_str!("sql/record_sending.sql"))
        .bind(id.0)
        .bind(epoch.0)
        .bind(status.as_str())
        .bind(&provider_id)
        .bind(error)
        .bind(next_attempt_at)
        .bind(completed_at)
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    let Some(key) = key else { return Ok(false) };
    if let Some(provider_id) = provider_id {
        sqlx::query("UPDATE punctual_outbox_keys SET provider_id = ?2 WHERE dedupe_key = ?1")
            .bind(key)
            .bind(provider_id)
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(true)
}
