//! Tasks that are claimed come in one piece: a row that travels by itself costs SQLite's thread more than all else about it.
//!
//! U+001F stands between columns and U+001E between rows. Neither can stand in a column: JSON has both escaped, and a
//! topic has neither.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use punctual_domain::id::TaskId;
use punctual_domain::json::Json;
use punctual_domain::store::StoreError;
use punctual_domain::task::Task;
use punctual_domain::topic::Topic;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::broken;
use super::rows::instant;
use crate::claimed::{Claimed, Holder};
use crate::text::to_text;

/// What `claimable_of_topic.sql` and `claimable_rows.sql` answer.
pub(super) struct Piece {
    text: String,
    /// The numbers of its rows, as a JSON array; none if there are none.
    lines: Option<String>,
    /// By the numbers of their rows, payloads that were too large for the text.
    payloads: HashMap<i64, String>,
}

impl Piece {
    /// The piece of rows that are known by their numbers.
    pub(super) async fn of_lines(connection: &mut SqliteConnection, lines: &[i64]) -> Result<Self, StoreError> {
        if lines.is_empty() {
            return Self::of(connection, None, None, None).await;
        }
        let lines = to_text(&lines)?;
        let (text, large) = sqlx::query_as(include_str!("sql/claimable_rows.sql"))
            .bind(&lines)
            .fetch_one(&mut *connection)
            .await
            .map_err(broken)?;
        Self::of(connection, text, Some(lines), large).await
    }

    /// The piece that a statement answered, null if it found no rows, and the numbers of those whose payload is to be
    /// read by itself.
    pub(super) async fn of(
        connection: &mut SqliteConnection,
        text: Option<String>,
        lines: Option<String>,
        large: Option<String>,
    ) -> Result<Self, StoreError> {
        let mut piece = Self { text: text.unwrap_or_default(), lines, payloads: HashMap::new() };
        if let Some(large) = large {
            let payloads: Vec<(i64, String)> = sqlx::query_as(include_str!("sql/payloads.sql"))
                .bind(large)
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            piece.payloads.extend(payloads);
        }
        Ok(piece)
    }

    fn rows(&self) -> impl Iterator<Item = &str> {
        // The piece of no rows is empty; a row never is.
        self.text.split('\u{1e}').filter(|row| !row.is_empty())
    }

    /// The numbers of its rows, as a JSON array; none if there are none.
    pub(super) fn lines(&self) -> Option<&str> {
        self.lines.as_deref()
    }

    /// The tasks and the numbers of their rows, as a claim at `now` leaves them, in the order of claims.
    pub(super) fn into_tasks(self, holder: Holder, now: DateTime<Utc>) -> Result<Vec<(i64, Task)>, StoreError> {
        let mut tasks = self.rows().map(|row| self.task(row, holder, now)).collect::<Result<Vec<_>, _>>()?;
        tasks.sort_unstable_by_key(|(_, task)| (Reverse(task.priority), task.run_at, task.id));
        Ok(tasks)
    }

    fn task(&self, row: &str, holder: Holder, now: DateTime<Utc>) -> Result<(i64, Task), StoreError> {
        let torn = || StoreError::Broken(format!("{row:?} is not a claimed row"));
        let mut columns = row.split('\u{1f}');
        let mut take = || columns.next().ok_or_else(torn);
        let line: i64 = take()?.parse().map_err(|_| torn())?;
        let claimed = Claimed {
            id: TaskId(Uuid::try_parse_ascii(take()?.as_bytes()).map_err(|_| torn())?),
            topic: Topic::from_stored(take()?),
            run_at: instant(take()?.parse().map_err(|_| torn())?)?,
            created_at: instant(take()?.parse().map_err(|_| torn())?)?,
            payload: match take()? {
                "" => Json::from_stored(&**self.payloads.get(&line).ok_or_else(torn)?),
                payload => Json::from_stored(payload),
            },
            started_at: now,
        };
        Ok((line, claimed.into_task(holder, Some(take()?).filter(|rare| !rare.is_empty()))?))
    }
}
