//! Answers kept under `Idempotency-Key`s, each in the transaction of what it tells. The writer does one job after the
//! other, so a call that comes while the first is under way waits for it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::store::{Answer, Remember, StoreError};
use sqlx::sqlite::SqliteConnection;

use super::broken;
use super::rows::{Columns, micros, micros_before};
use crate::progress::{Kept, Progress};

/// How long an answer is kept.
pub(super) const ANSWERS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The answer of an earlier call with the same key.
pub(super) async fn before<Made: ?Sized>(
    connection: &mut SqliteConnection,
    remember: Option<&Remember<Made>>,
    now: DateTime<Utc>,
) -> Result<Option<Answer>, StoreError> {
    Ok(kept(connection, remember, now).await?.and_then(Kept::answer))
}

/// The same, where a call may have come part of its way.
pub(super) async fn kept<Made: ?Sized>(
    connection: &mut SqliteConnection,
    remember: Option<&Remember<Made>>,
    now: DateTime<Utc>,
) -> Result<Option<Kept>, StoreError> {
    let Some(Remember { owner, key, fingerprint, .. }) = remember else { return Ok(None) };
    look(connection, owner, key, fingerprint, now).await
}

/// Keeps the answer to a call that made `made`.
pub(super) async fn keep<Made: ?Sized>(
    connection: &mut SqliteConnection,
    remember: Option<Remember<Made>>,
    made: &Made,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let Some(Remember { owner, key, fingerprint, answer }) = remember else { return Ok(()) };
    write(connection, [&owner, &key, &fingerprint], answer(made), now).await
}

/// Keeps the answer to a call inside a caller's own transaction; answers the first one where the call came before.
pub(crate) async fn keep_now(
    connection: &mut SqliteConnection,
    remember: Remember<()>,
    now: DateTime<Utc>,
) -> Result<Option<Answer>, StoreError> {
    let first = before(connection, Some(&remember), now).await?;
    if first.is_none() {
        keep(connection, Some(remember), &(), now).await?;
    }
    Ok(first)
}

/// Keeps how far a call came.
pub(super) async fn keep_progress<Made: ?Sized>(
    connection: &mut SqliteConnection,
    remember: &Remember<Made>,
    progress: Progress,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let call = [&remember.owner, &remember.key, &remember.fingerprint];
    write(connection, call.map(String::as_str), progress.to_answer()?, now).await
}

/// The answer that a call with this key was given, if it is still kept.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    owner: &str,
    key: &str,
    fingerprint: &str,
    now: DateTime<Utc>,
) -> Result<Option<Answer>, StoreError> {
    Ok(look(connection, owner, key, fingerprint, now).await?.and_then(Kept::answer))
}

async fn look(
    connection: &mut SqliteConnection,
    owner: &str,
    key: &str,
    fingerprint: &str,
    now: DateTime<Utc>,
) -> Result<Option<Kept>, StoreError> {
    let row = sqlx::query(include_str!("sql/find_answer.sql"))
        .bind(owner)
        .bind(key)
        .bind(micros_before(now, ANSWERS_KEPT))
        .fetch_optional(connection)
        .await
        .map_err(broken)?;
    let Some(row) = row else { return Ok(None) };
    let mut columns = Columns::of(&row);
    let of: String = columns.take()?;
    let answer = Answer { status: columns.take_count()?, body: columns.take()? };
    Kept::read(answer, &of, fingerprint).map(Some)
}

async fn write(
    connection: &mut SqliteConnection,
    [owner, key, fingerprint]: [&str; 3],
    answer: Answer,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(include_str!("sql/keep_answer.sql"))
        .bind(owner)
        .bind(key)
        .bind(fingerprint)
        .bind(answer.status)
        .bind(answer.body)
        .bind(micros(now))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}
