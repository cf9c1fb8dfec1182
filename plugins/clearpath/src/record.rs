//! What the rows of all tables have in common: they are found and shown by their ids, and some are listed by status and session.

use punctual_sdk::sqlx::FromRow;
use punctual_sdk::sqlx::postgres::PgRow;
use punctual_sdk::sqlx::sqlite::SqliteRow;
use punctual_sdk::{Answer, Database, Page, Problem, Request, Transaction, on_either, sqlx};
use serde_json::Value;
use uuid::Uuid;

/// A row with an id.
pub(crate) trait Record:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Sync + Unpin
{
    /// What it is called.
    const NOUN: &'static str;
    /// Selects the one with the id `$1`.
    const ONE: &'static str;

    /// How it is shown.
    fn view(&self) -> Value;
}

/// One that is changed by several.
pub(crate) trait Shared: Record {
    /// Changes nothing of the one with the id `$1`, and so keeps others from changing it.
    const HOLD: &'static str;
}

/// One that belongs to a test session and has a status, such as an e-mail.
pub(crate) trait OfSession: Record {
    /// What the status may be.
    const STATUSES: &'static [&'static str];
    /// Selects those with ids below `$1`, of the status `$2` and the session `$3` where these are given, newest first, at most `$4`.
    const SOME: &'static str;
}

pub(crate) async fn find<T: Record>(database: &Database, id: Uuid) -> Result<Option<T>, sqlx::Error> {
    on_either!(database, |pool| sqlx::query_as(T::ONE).bind(id).fetch_optional(pool).await)
}

/// The one that the path names.
pub(crate) async fn found<T: Record>(request: &Request) -> Result<T, Problem> {
    let id = request.id(T::NOUN)?;
    find(&request.database(), id).await?.ok_or_else(|| unknown::<T>(id))
}

/// The same, which nobody else changes until the transaction ends.
pub(crate) async fn held<T: Shared>(transaction: &mut Transaction, request: &Request) -> Result<T, Problem> {
    let id = request.id(T::NOUN)?;
    let found = on_either!(transaction, |connection| {
        sqlx::query(T::HOLD).bind(id).execute(&mut *connection).await?;
        sqlx::query_as(T::ONE).bind(id).fetch_optional(connection).await?
    });
    found.ok_or_else(|| unknown::<T>(id))
}

fn unknown<T: Record>(id: Uuid) -> Problem {
    Problem::not_found(format!("{} {id}", T::NOUN))
}

pub(crate) async fn show<T: Record>(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    Answer::ok(found::<T>(&request).await?.view())
}

pub(crate) async fn list<T: OfSession>(request: Request) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    let status = query.word("status", T::STATUSES);
    let session = query.id("sessionId");
    query.finish()?;
    let found: Vec<T> = on_either!(request.database(), |pool| {
        sqlx::query_as(T::SOME).bind(page.before()).bind(status).bind(session).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(T::view))
}
