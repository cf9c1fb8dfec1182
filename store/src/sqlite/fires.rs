//! Fires as they are listed, and those that somebody adds: triggered, or filled in.

use std::collections::HashSet;

use chrono::{DateTime, SubsecRound, Utc};
use futures::FutureExt;
use punctual_domain::fire::{Fire, FireKind, SkipReason, TaskOfFire};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Backfill, Backfilled, Bulk, FireFilter, Page, StoreError};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::topic::{Topic, TopicDefinition};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::list::Query;
use super::rows::{Columns, instant, micros};
use super::{SqliteStore, broken, tick, topics};
use crate::text::to_text;

/// Fires that match, newest first.
pub(super) async fn list(
    store: &SqliteStore,
    id: ScheduleId,
    filter: &FireFilter,
    page: Page<FireId>,
) -> Result<Vec<Fire>, StoreError> {
    let mut query = matching(id, filter, page);
    store
        .read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(fire).collect()
            }
            .boxed()
        })
        .await
}

/// Makes a fire that somebody triggers, and its task.
pub(super) async fn trigger(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
    tz_version: &str,
    now: DateTime<Utc>,
) -> Result<Task, StoreError> {
    let taken: Vec<i64> =
        sqlx::query_scalar("SELECT scheduled_at FROM punctual_fires WHERE schedule_id = ?1 AND scheduled_at >= ?2")
            .bind(schedule.id.0)
            .bind(micros(now.trunc_subsecs(3)))
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    let taken: HashSet<i64> = taken.into_iter().map(|micros| micros / 1000).collect();
    let at = schedule.instant_of_trigger(now, |at| taken.contains(&at.timestamp_millis()));
    let topic = topic_of(connection, schedule).await?;
    let fires = vec![schedule.manual_fire(at, topic.as_ref())];
    let made = tick::add_fires(connection, schedule.id, FireKind::Manual, fires, tz_version, now).await?;
    made.into_iter().next().ok_or_else(|| StoreError::Broken("a fire at an instant of its own made no task".into()))
}

/// Makes fires at those instants that have none that made a task and that the schedule has not still to decide, or counts
/// them.
pub(super) async fn backfill(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
    backfill: &Backfill,
    now: DateTime<Utc>,
) -> Result<Backfilled, StoreError> {
    let instants = backfill.instants_before(schedule.due_at());
    let left = (backfill.instants.len() - instants.len()) as u64;
    let fired: Vec<i64> = sqlx::query_scalar(include_str!("sql/fired_instants.sql"))
        .bind(schedule.id.0)
        .bind(to_text(&instants.iter().map(|at| micros(*at)).collect::<Vec<_>>())?)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let fired: HashSet<i64> = fired.into_iter().collect();
    let missing: Vec<_> = instants.into_iter().filter(|at| !fired.contains(&micros(*at))).collect();
    let count = missing.len() as u64;
    if count > backfill.most {
        return Err(StoreError::TooManyFires(count));
    }
    if backfill.bulk == Bulk::Apply {
        let topic = topic_of(connection, schedule).await?;
        let fires = missing.iter().map(|at| schedule.backfilled_fire(*at, topic.as_ref())).collect();
        tick::add_fires(connection, schedule.id, FireKind::Backfill, fires, &backfill.tz_version, now).await?;
    }
    Ok(Backfilled { made: missing, already_fired: fired.len() as u64, left })
}

async fn topic_of(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
) -> Result<Option<TopicDefinition>, StoreError> {
    let topic = Topic::from_stored(schedule.definition.topic.as_str());
    let definitions = topics::definitions_for(connection, std::iter::once(topic.as_str())).await?;
    Ok(TopicDefinition::for_topic(&definitions, &topic).cloned())
}

pub(super) fn matching(id: ScheduleId, filter: &FireFilter, page: Page<FireId>) -> Query {
    let mut query = Query::new(include_str!("sql/fires.sql"));
    query.push("WHERE f.schedule_id = ").push_bind(id.0);
    if let Some(after) = page.after {
        query.push(" AND f.id < ").push_bind(after.0);
    }
    if !filter.status.is_empty() {
        query.push(if filter.asks_for_skipped() { " AND (f.reason IS NOT NULL OR " } else { " AND (" });
        query.push("CASE WHEN t.status = 'running' AND t.lease_expires_at IS NULL THEN 'dispatched' ");
        let mut names = query.push("ELSE coalesce(t.status, h.status) END IN (").separated(", ");
        for status in filter.statuses_with_task() {
            names.push_bind(status);
        }
        query.push("))");
    }
    // A run of skipped instants is in the stretch if any of it is.
    if let Some(from) = filter.scheduled_at.from {
        query.push(" AND coalesce(f.until_at, f.scheduled_at) >= ").push_bind(micros(from));
    }
    if let Some(to) = filter.scheduled_at.to {
        query.push(" AND f.scheduled_at < ").push_bind(micros(to));
    }
    query.push(" ORDER BY f.id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

/// A row of `fires.sql`.
pub(super) fn fire(row: &SqliteRow) -> Result<Fire, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Fire {
        id: FireId(columns.take()?),
        schedule_id: ScheduleId(columns.take()?),
        kind: columns.take_word(FireKind::from_name)?,
        scheduled_at: columns.take_instant()?,
        fired_at: columns.take_instant()?,
        reason: columns.take_word_if_any(SkipReason::from_name)?,
        until: columns.take_instant_if_any()?,
        count: columns.take_count()?,
        tz_version: columns.take()?,
        task: match columns.take::<Option<Uuid>>()? {
            None => None,
            Some(id) => Some(TaskOfFire {
                id: TaskId(id),
                status: columns.take_word_if_any(TaskStatus::from_name)?,
                attempt: columns.take_count()?,
                started_at: columns.take::<Option<i64>>()?.map(instant).transpose()?,
                completed_at: columns.take_instant_if_any()?,
                error: columns.take()?,
                is_handed_over: columns.take()?,
            }),
        },
    })
}
