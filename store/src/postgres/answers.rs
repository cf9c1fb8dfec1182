//! Answers kept under `Idempotency-Key`s, each in the transaction of what it tells.

use chrono::{DateTime, Utc};
use punctual_domain::store::{Answer, Remember, StoreError};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::broken;
use crate::progress::{Kept, Progress};

/// The answer of an earlier call with the same key. If there is none, the place of this one's is reserved: a second call
/// waits until this transaction ends.
pub(super) async fn before<Made: ?Sized>(
    connection: &mut PgConnection,
    remember: Option<&Remember<Made>>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Answer>, StoreError> {
    Ok(reserve(connection, remember, now).await?.and_then(Kept::answer))
}

/// The same, where a call may have come part of its way.
pub(super) async fn reserve<Made: ?Sized>(
    connection: &mut PgConnection,
    remember: Option<&Remember<Made>>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Kept>, StoreError> {
    let Some(remember) = remember else { return Ok(None) };
    let reserved = sqlx::query(include_str!("sql/take_answer.sql"))
        .bind(now)
        .bind(&remember.owner)
        .bind(&remember.key)
        .bind(&remember.fingerprint)
        .fetch_optional(&mut *connection)
        .await
        .map_err(broken)?;
    if reserved.is_some() {
        return Ok(None);
    }
    let row = sqlx::query("SELECT fingerprint, status, body FROM punctual_answers WHERE owner = $1 AND key = $2")
        .bind(&remember.owner)
        .bind(&remember.key)
        .fetch_one(connection)
        .await
        .map_err(broken)?;
    kept(&row, &remember.fingerprint).map(Some)
}

/// Keeps the answer to a call that made `made`.
pub(super) async fn keep<Made: ?Sized>(
    connection: &mut PgConnection,
    remember: Option<Remember<Made>>,
    made: &Made,
) -> Result<(), StoreError> {
    let Some(Remember { owner, key, answer, .. }) = remember else { return Ok(()) };
    write(connection, &owner, &key, answer(made)).await
}

/// Keeps the answer to a call inside a caller's own transaction; answers the first one where the call came before.
pub(crate) async fn keep_now(
    connection: &mut PgConnection,
    remember: Remember<()>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Answer>, StoreError> {
    let first = before(connection, Some(&remember), now).await?;
    if first.is_none() {
        keep(connection, Some(remember), &()).await?;
    }
    Ok(first)
}

/// Keeps how far a call came.
pub(super) async fn keep_progress<Made: ?Sized>(
    connection: &mut PgConnection,
    remember: &Remember<Made>,
    progress: Progress,
) -> Result<(), StoreError> {
    write(connection, &remember.owner, &remember.key, progress.to_answer()?).await
}

/// The answer that a call with this key was given, if it is still kept.
pub(super) async fn find(
    connection: &mut PgConnection,
    owner: &str,
    key: &str,
    fingerprint: &str,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Answer>, StoreError> {
    let row = sqlx::query(include_str!("sql/find_answer.sql"))
        .bind(now)
        .bind(owner)
        .bind(key)
        .fetch_optional(connection)
        .await
        .map_err(broken)?;
    let found = row.map(|row| kept(&row, fingerprint)).transpose()?;
    Ok(found.and_then(Kept::answer))
}

async fn write(connection: &mut PgConnection, owner: &str, key: &str, answer: Answer) -> Result<(), StoreError> {
    sqlx::query("UPDATE punctual_answers SET status = $3, body = $4 WHERE owner = $1 AND key = $2")
        .bind(owner)
        .bind(key)
        .bind(i32::from(answer.status))
        .bind(answer.body)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}

fn kept(row: &PgRow, fingerprint: &str) -> Result<Kept, StoreError> {
    let status = u16::try_from(row.get::<i32, _>(1)).unwrap_or(200);
    Kept::read(Answer { status, body: row.get(2) }, row.get(0), fingerprint)
}
