//! What belongs to test sessions and has a status, such as their e-mails: how it is listed.

use punctual_sdk::sqlx::FromRow;
use punctual_sdk::sqlx::postgres::PgRow;
use punctual_sdk::sqlx::sqlite::SqliteRow;
use punctual_sdk::{Answer, Page, Problem, Request, on_either, sqlx};
use serde_json::Value;

/// A row that belongs to a session and has a status.
pub(crate) trait OfSession: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {
    /// What the status may be.
    const STATUSES: &'static [&'static str];
    /// Selects those with ids below `$1`, of the status `$2` and the session `$3` where these are given, newest first, at most `$4`.
    const SOME: &'static str;

    /// How it is shown.
    fn view(&self) -> Value;
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
