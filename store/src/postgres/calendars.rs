//! Calendars that exclude fires.

use punctual_domain::calendar::Calendar;
use punctual_domain::store::StoreError;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::broken;
use crate::text::{from_text, to_text};

/// Writes a calendar of a new name.
pub(super) async fn create(connection: &mut PgConnection, calendar: &Calendar) -> Result<(), StoreError> {
    let added = sqlx::query("INSERT INTO punctual_calendars (name, definition) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(&calendar.name)
        .bind(to_text(calendar)?)
        .execute(connection)
        .await
        .map_err(broken)?;
    if added.rows_affected() > 0 { Ok(()) } else { Err(StoreError::NameTaken(calendar.name.clone())) }
}

/// Writes a calendar; `true` if it is new.
pub(super) async fn put(connection: &mut PgConnection, calendar: &Calendar) -> Result<bool, StoreError> {
    // A row that was inserted has no deleting transaction yet; one that was updated has.
    sqlx::query_scalar(
        "INSERT INTO punctual_calendars (name, definition) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
         RETURNING xmax = 0",
    )
    .bind(&calendar.name)
    .bind(to_text(calendar)?)
    .fetch_one(connection)
    .await
    .map_err(broken)
}

/// Deletes a calendar that no schedule names; `false` if unknown.
pub(super) async fn delete(connection: &mut PgConnection, name: &str) -> Result<bool, StoreError> {
    // First of all: this waits for schedules that are about to name it, and makes later ones wait.
    let deleted = sqlx::query("DELETE FROM punctual_calendars WHERE name = $1")
        .bind(name)
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    let user: Option<String> = sqlx::query_scalar(include_str!("sql/calendar_user.sql"))
        .bind(name)
        .fetch_optional(connection)
        .await
        .map_err(broken)?;
    user.map_or(Ok(deleted.rows_affected() > 0), |user| Err(StoreError::CalendarInUse(user)))
}

/// All calendars, by name.
pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Calendar>, StoreError> {
    let found = sqlx::query("SELECT definition FROM punctual_calendars ORDER BY name")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.iter().map(|row| from_text("a calendar", row.get(0))).collect()
}

/// Refuses names that no calendar has; those of others cannot be deleted until the transaction ends.
pub(super) async fn check_known(connection: &mut PgConnection, names: &[String]) -> Result<(), StoreError> {
    if names.is_empty() {
        return Ok(());
    }
    let known: Vec<String> =
        sqlx::query_scalar("SELECT name FROM punctual_calendars WHERE name = ANY ($1) ORDER BY name FOR KEY SHARE")
            .bind(names)
            .fetch_all(connection)
            .await
            .map_err(broken)?;
    let unknown = names.iter().find(|name| !known.contains(name));
    unknown.map_or(Ok(()), |name| Err(StoreError::UnknownCalendar(name.clone())))
}
