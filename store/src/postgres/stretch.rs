//! Lists of tasks by when they are due, and by nothing else but their status.
//!
//! They are in the order of creation, and no index has both. A stretch that holds few tasks is read whole and sorted. One
//! that holds many is found by going through the ids from the newest on, which soon meets enough of them: among the ended
//! ones not from the newest of all, but from those that were created when the stretch ended. What was created later and due
//! earlier all the same is looked for by itself; there is hardly ever any.
//!
//! The planner takes it that what matches is spread evenly over all ids, and reads half of a table for a page. So each way
//! is spelled in such a manner that one index fits.

use chrono::{DateTime, Utc};
use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, Part, StoreError, TaskFilter};
use punctual_domain::task::TaskStatus;
use sqlx::PgConnection;
use uuid::Uuid;

use super::list::{Query, push_conditions, push_part};
use super::{broken, rows};

/// As many as may be read whole.
pub(super) const FEW: u32 = 5_000;

/// Leaves the planner nothing but going through the ids, until [`BY_ANY`] is said or the transaction ends.
pub(super) const BY_ID: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off";
/// Leaves it every way again.
const BY_ANY: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on";

/// The newest of a part, newest first.
pub(super) struct Newest {
    pub(super) part: Part,
    pub(super) ids: Vec<Uuid>,
}

/// The newest of each part that would be slow to find in one statement. To be called in a transaction.
pub(super) async fn newest(
    connection: &mut PgConnection,
    filter: &TaskFilter,
    page: Page<TaskId>,
    few: u32,
) -> Result<Vec<Newest>, StoreError> {
    let mut found = Vec::new();
    for part in filter.parts() {
        let ids = match part {
            Part::Of(TaskStatus::Pending | TaskStatus::Completed) | Part::Ended => {
                newest_of(connection, part, filter, page, few).await?
            }
            // An index has these by themselves.
            Part::Live | Part::Of(_) => continue,
        };
        found.push(Newest { part, ids });
    }
    Ok(found)
}

async fn newest_of(
    connection: &mut PgConnection,
    part: Part,
    filter: &TaskFilter,
    page: Page<TaskId>,
    few: u32,
) -> Result<Vec<Uuid>, StoreError> {
    if let Some(ids) = fetch_few(connection, few_from(None, part, filter, page, few)).await? {
        return Ok(ids);
    }
    let end = filter.run_at.to.and_then(first_id_at).filter(|end| page.after.is_none_or(|after| *end < after));
    let late = match end {
        // Live tasks were nearly all created before the stretch ended.
        Some(end) if !part.is_live() => fetch_few(connection, few_from(Some(end), part, filter, page, few)).await?,
        _ => None,
    };
    // Many that were created after the stretch: nothing is gained by beginning at its end.
    let after = if late.is_some() { end } else { page.after };
    let mut ids = late.unwrap_or_default();
    ids.extend(through_ids(connection, by_id(part, filter, Page { after, ..page })).await?);
    ids.truncate(page.limit as usize);
    Ok(ids)
}

/// The newest tasks of the stretch from an id on, if there are few of them.
pub(super) fn few_from(from: Option<TaskId>, part: Part, filter: &TaskFilter, page: Page<TaskId>, few: u32) -> Query {
    let mut query = Query::new(format!("WITH found AS MATERIALIZED (SELECT id FROM {} ", table(part)));
    push_conditions(&mut query, filter, page.after);
    if let Some(from) = from {
        query.push(" AND id >= ").push_bind(from.0);
    }
    push_part(&mut query, part);
    // In the order of an index, so that it need not be read further than to one too many.
    query.push(format!(
        " ORDER BY run_at LIMIT {few} + 1)
        SELECT CASE WHEN (SELECT count(*) FROM found) <= {few}
            THEN ARRAY(SELECT id FROM found ORDER BY id DESC LIMIT {}) END",
        page.limit
    ));
    query
}

/// The newest tasks of the stretch.
pub(super) fn by_id(part: Part, filter: &TaskFilter, page: Page<TaskId>) -> Query {
    let mut query = Query::new(format!("SELECT id FROM {} ", table(part)));
    push_conditions(&mut query, filter, page.after);
    push_part(&mut query, part);
    query.push(format!(" ORDER BY id DESC LIMIT {}", page.limit));
    query
}

fn table(part: Part) -> &'static str {
    if part.is_live() { "punctual_tasks" } else { "punctual_task_history" }
}

/// An id that those of earlier instants come before.
fn first_id_at(at: DateTime<Utc>) -> Option<TaskId> {
    let millis = u64::try_from(at.timestamp_millis()).unwrap_or_default();
    (millis < 1 << 48).then(|| TaskId(Uuid::from_u128(u128::from(millis) << 80)))
}

// None of these is prepared for good: a plan for any stretch is a bad one for most.

async fn fetch_few(connection: &mut PgConnection, mut query: Query) -> Result<Option<Vec<Uuid>>, StoreError> {
    let row = query.build().persistent(false).fetch_one(connection).await.map_err(broken)?;
    rows::Columns::of(&row).take()
}

async fn through_ids(connection: &mut PgConnection, mut query: Query) -> Result<Vec<Uuid>, StoreError> {
    say(connection, BY_ID).await?;
    let found = query.build().persistent(false).fetch_all(&mut *connection).await.map_err(broken)?;
    say(connection, BY_ANY).await?;
    found.iter().map(|row| rows::Columns::of(row).take()).collect()
}

async fn say(connection: &mut PgConnection, settings: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(settings).execute(connection).await.map_err(broken)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use punctual_domain::store::Span;
    use sqlx::Connection;

    use super::*;
    use crate::postgres::{list, plans};

    /// Sixty of each kind, one a minute. Every seventh was due an hour before it was created, every third an hour after.
    const FILL: &str = "
CREATE FUNCTION pg_temp.due(i integer) RETURNS timestamptz LANGUAGE sql AS $$
    SELECT timestamptz '2026-03-01' + i * interval '1 minute'
        + CASE WHEN i % 7 = 0 THEN -1 WHEN i % 3 = 0 THEN 1 ELSE 0 END * interval '1 hour' $$;
CREATE FUNCTION pg_temp.id(i integer, kind text) RETURNS uuid LANGUAGE sql AS $$
    SELECT (lpad(to_hex((extract(epoch FROM timestamptz '2026-03-01' + i * interval '1 minute') * 1000)::bigint), 12, '0')
        || right(md5(i || kind), 20))::uuid $$;
INSERT INTO punctual_tasks (id, topic, status, run_at, first_run_at, created_at)
SELECT pg_temp.id(i, status), 'topic', status, pg_temp.due(i), pg_temp.due(i), timestamptz '2026-03-01' + i * interval '1 minute'
FROM generate_series(1, 60) AS i CROSS JOIN unnest(ARRAY['pending', 'running']) AS s (status);
INSERT INTO punctual_task_history (id, topic, status, priority, run_at, timezone, payload, timeout_seconds, attempt, lost,
    snoozes, epoch, created_at, completed_at)
SELECT pg_temp.id(i, status), 'topic', status, 0, pg_temp.due(i), 'UTC', '{}', 3600, 1, 0, 0, 1,
    timestamptz '2026-03-01' + i * interval '1 minute', timestamptz '2026-03-02'
FROM generate_series(1, 60) AS i CROSS JOIN unnest(ARRAY['completed', 'failed', 'cancelled']) AS s (status);";

    #[tokio::test]
    async fn every_way_finds_the_same_tasks() {
        let Some((scratch, mut connection)) = plans::filled(FILL).await else { return };

        let instant = |text: &str| Some(text.parse::<DateTime<Utc>>().unwrap());
        let (early, late) = (instant("2026-03-01T00:10:00Z"), instant("2026-03-01T00:50:00Z"));
        let spans =
            [(early, late), (None, late), (early, None), (late, early), (None, instant("9999-12-31T23:59:59Z"))];
        for (from, to) in spans {
            for status in [vec![], vec![TaskStatus::Pending], vec![TaskStatus::Completed, TaskStatus::Failed]] {
                let filter = TaskFilter { status, run_at: Span { from, to }, ..Default::default() };
                let everything = Page::first(1_000);
                let rows = list::ids(&filter, everything).build().fetch_all(&mut connection).await.unwrap();
                let expected: Vec<Uuid> = rows.iter().map(|row| rows::Columns::of(row).take().unwrap()).collect();
                for few in [0, 5, 20, 1_000] {
                    let mut transaction = connection.begin().await.unwrap();
                    let mut page = Page::first(7);
                    let mut found = Vec::new();
                    loop {
                        let newest = newest(&mut transaction, &filter, page, few).await.unwrap();
                        let mut query = list::tasks(&filter, page, &newest);
                        let rows = query.build().fetch_all(&mut *transaction).await.unwrap();
                        let ids = rows.iter().map(|row| rows::Columns::of(row).take().unwrap());
                        found.extend(ids.collect::<Vec<Uuid>>());
                        page.after = found.last().copied().map(TaskId);
                        if rows.len() < page.limit as usize {
                            break;
                        }
                    }
                    assert_eq!(found, expected, "{few} are few: {filter:?}");
                    transaction.rollback().await.unwrap();
                }
            }
        }
        scratch.remove().await.unwrap();
    }

    #[test]
    fn ids_of_earlier_instants_come_before() {
        let at = "2026-03-01T00:00:00.123Z".parse().unwrap();
        let id = |seconds: u64, nanos| Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos));
        let first = first_id_at(at).unwrap().0;
        assert!(id(1_772_323_200, 122_999_999) < first);
        assert!(first < id(1_772_323_200, 123_000_000));
        assert_eq!(first_id_at(DateTime::<Utc>::MIN_UTC), Some(TaskId(Uuid::nil())));
        assert_eq!(first_id_at(DateTime::<Utc>::MAX_UTC), None);
    }
}
