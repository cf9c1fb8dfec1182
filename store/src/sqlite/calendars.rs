//! Calendars that exclude fires.

use futures::FutureExt;
use punctual_domain::calendar::Calendar;
use punctual_domain::store::{Remember, Reply, StoreError};
use sqlx::sqlite::SqliteConnection;

use super::{SqliteStore, answers, broken};
use crate::text::{from_text, to_text};

/// Writes a calendar of a new name.
pub(super) async fn create(
    store: &SqliteStore,
    calendar: &Calendar,
    remember: Option<Remember<Calendar>>,
) -> Result<Reply<Calendar>, StoreError> {
    let calendar = calendar.clone();
    store
        .write(move |connection, now| {
            async move {
                if let Some(answer) = answers::before(connection, remember.as_ref(), now).await? {
                    return Ok(Reply::Replayed(answer));
                }
                if !add(connection, &calendar).await? {
                    return Err(StoreError::NameTaken(calendar.name));
                }
                answers::keep(connection, remember, &calendar, now).await?;
                Ok(Reply::Made(calendar))
            }
            .boxed()
        })
        .await
}

/// Writes a calendar; `true` if it is new.
pub(super) async fn put(store: &SqliteStore, calendar: &Calendar) -> Result<bool, StoreError> {
    let calendar = calendar.clone();
    store
        .write(move |connection, _| {
            async move {
                if add(connection, &calendar).await? {
                    return Ok(true);
                }
                sqlx::query("UPDATE punctual_calendars SET definition = ?2 WHERE name = ?1")
                    .bind(&calendar.name)
                    .bind(to_text(&calendar)?)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(false)
            }
            .boxed()
        })
        .await
}

/// Deletes a calendar that no schedule names; `false` if unknown.
pub(super) async fn delete(store: &SqliteStore, name: &str) -> Result<bool, StoreError> {
    let name = name.to_owned();
    store
        .write(move |connection, _| {
            async move {
                let user: Option<String> = sqlx::query_scalar(include_str!("sql/calendar_user.sql"))
                    .bind(&name)
                    .fetch_optional(&mut *connection)
                    .await
                    .map_err(broken)?;
                if let Some(schedule) = user {
                    return Err(StoreError::CalendarInUse(schedule));
                }
                let deleted = sqlx::query("DELETE FROM punctual_calendars WHERE name = ?1")
                    .bind(name)
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(deleted.rows_affected() > 0)
            }
            .boxed()
        })
        .await
}

/// All calendars, by name.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Calendar>, StoreError> {
    let found: Vec<String> = sqlx::query_scalar("SELECT definition FROM punctual_calendars ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(|text| from_text("a calendar", text)).collect()
}

/// Refuses names that no calendar has.
pub(super) async fn check_known(connection: &mut SqliteConnection, names: &[String]) -> Result<(), StoreError> {
    if names.is_empty() {
        return Ok(());
    }
    let unknown: Option<String> = sqlx::query_scalar(
        "SELECT value FROM json_each(?1) WHERE value NOT IN (SELECT name FROM punctual_calendars) LIMIT 1",
    )
    .bind(to_text(&names)?)
    .fetch_optional(connection)
    .await
    .map_err(broken)?;
    unknown.map_or(Ok(()), |name| Err(StoreError::UnknownCalendar(name)))
}

async fn add(connection: &mut SqliteConnection, calendar: &Calendar) -> Result<bool, StoreError> {
    let added = sqlx::query("INSERT INTO punctual_calendars (name, definition) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
        .bind(&calendar.name)
        .bind(to_text(calendar)?)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(added.rows_affected() > 0)
}
