//! Fires as they are listed, and those that somebody adds: triggered, or filled in.

use std::collections::HashSet;

use chrono::{DateTime, SubsecRound, Utc};
use punctual_domain::fire::{Disposition, Fire, FireKind, NewFire, SkipReason, TaskOfFire};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Backfill, Backfilled, Bulk, Created, FireFilter, Page, StoreError};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::topic::{Topic, TopicDefinition};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::tasks::insert_tasks;
use super::tick::{FireToWrite, insert_fires};
use super::{broken, rows, topics};
use crate::instant::bounded;

/// Makes a fire that somebody triggers, and its task; the schedule is locked.
pub(super) async fn trigger(
    connection: &mut PgConnection,
    schedule: &Schedule,
    tz_version: &str,
    now: DateTime<Utc>,
) -> Result<Task, StoreError> {
    let taken: Vec<DateTime<Utc>> =
        sqlx::query_scalar("SELECT scheduled_at FROM punctual_fires WHERE schedule_id = $1 AND scheduled_at >= $2")
            .bind(schedule.id.0)
            .bind(now.trunc_subsecs(3))
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
    let taken: HashSet<i64> = taken.into_iter().map(|at| at.timestamp_millis()).collect();
    let at = schedule.instant_of_trigger(now, |at| taken.contains(&at.timestamp_millis()));
    let topic = topic_of(connection, schedule).await?;
    let fires = vec![schedule.manual_fire(at, topic.as_ref())];
    let made = add(connection, schedule.id, FireKind::Manual, fires, tz_version, now).await?;
    made.into_iter().next().ok_or_else(|| StoreError::Broken("a fire at an instant of its own made no task".into()))
}

/// Makes fires at those instants that have none that made a task and that the schedule has not still to decide, or counts
/// them; the schedule is locked.
pub(super) async fn backfill(
    connection: &mut PgConnection,
    schedule: &Schedule,
    backfill: &Backfill,
    now: DateTime<Utc>,
) -> Result<Backfilled, StoreError> {
    let instants = backfill.instants_before(schedule.due_at());
    let left = (backfill.instants.len() - instants.len()) as u64;
    let instants: Vec<_> = instants.iter().map(|at| bounded(*at)).collect();
    let fired: Vec<DateTime<Utc>> = sqlx::query_scalar(include_str!("sql/fired_instants.sql"))
        .bind(schedule.id.0)
        .bind(&instants)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let fired: HashSet<_> = fired.into_iter().collect();
    let missing: Vec<_> = instants.into_iter().filter(|at| !fired.contains(at)).collect();
    let count = missing.len() as u64;
    if count > backfill.most {
        return Err(StoreError::TooManyFires(count));
    }
    if backfill.bulk == Bulk::Apply {
        let topic = topic_of(connection, schedule).await?;
        let fires = missing.iter().map(|at| schedule.backfilled_fire(*at, topic.as_ref())).collect();
        add(connection, schedule.id, FireKind::Backfill, fires, &backfill.tz_version, now).await?;
    }
    Ok(Backfilled { made: missing, already_fired: fired.len() as u64, left })
}

/// Writes fires that leave the schedule's next instant alone; answers the tasks of those that were not there yet.
async fn add(
    connection: &mut PgConnection,
    id: ScheduleId,
    kind: FireKind,
    fires: Vec<NewFire>,
    tz_version: &str,
    now: DateTime<Utc>,
) -> Result<Vec<Task>, StoreError> {
    let fires: Vec<_> = fires
        .into_iter()
        .map(|fire| FireToWrite { schedule_id: id, tz_version: tz_version.to_owned(), fire })
        .collect();
    let written = insert_fires(connection, kind, &fires, now).await?;
    let tasks: Vec<_> = fires
        .into_iter()
        .map(|f| f.fire)
        .filter(|fire| written.contains(&fire.id))
        .filter_map(|fire| match fire.disposition {
            Disposition::Fired(task) => Some(*task),
            Disposition::Skipped { .. } => None,
        })
        .collect();
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let made = insert_tasks(connection, tasks, Some(now)).await?;
    sqlx::query("UPDATE punctual_schedules SET last_fired_at = $2 WHERE id = $1")
        .bind(id.0)
        .bind(now)
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(made.into_iter().map(Created::into_task).collect())
}

async fn topic_of(connection: &mut PgConnection, schedule: &Schedule) -> Result<Option<TopicDefinition>, StoreError> {
    let topic = Topic::from_stored(schedule.definition.topic.as_str());
    let definitions = topics::definitions_for(connection, std::iter::once(topic.as_str())).await?;
    Ok(TopicDefinition::for_topic(&definitions, &topic).cloned())
}

/// Lists the fires that match, newest first.
pub(super) fn matching(id: ScheduleId, filter: &FireFilter, page: Page<FireId>) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::<Postgres>::new(include_str!("sql/fires.sql"));
    query.push("WHERE f.schedule_id = ").push_bind(id.0);
    if let Some(after) = page.after {
        query.push(" AND f.id < ").push_bind(after.0);
    }
    if !filter.status.is_empty() {
        let names: Vec<_> = filter.statuses_with_task().collect();
        query.push(" AND (CASE WHEN t.status = 'running' AND t.lease_expires_at IS NULL THEN 'dispatched' ");
        query.push("ELSE coalesce(t.status, h.status) END = ANY (").push_bind(names);
        query.push(") OR (f.reason IS NOT NULL AND ").push_bind(filter.asks_for_skipped()).push("))");
    }
    // A run of skipped instants is in the stretch if any of it is.
    if let Some(from) = filter.scheduled_at.from {
        query.push(" AND coalesce(f.until_at, f.scheduled_at) >= ").push_bind(bounded(from));
    }
    if let Some(to) = filter.scheduled_at.to {
        query.push(" AND f.scheduled_at < ").push_bind(bounded(to));
    }
    query.push(" ORDER BY f.id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

/// A row of `fires.sql`.
pub(super) fn fire(row: &PgRow) -> Result<Fire, StoreError> {
    let mut columns = rows::Columns::of(row);
    let id = FireId(columns.take()?);
    let schedule_id = ScheduleId(columns.take()?);
    let kind = rows::word(columns.take()?, FireKind::from_name)?;
    let scheduled_at = columns.take()?;
    let fired_at = columns.take()?;
    let reason: Option<&str> = columns.take()?;
    let until = columns.take()?;
    let count = columns.take_count()?;
    let tz_version = columns.take()?;
    let task_id: Option<Uuid> = columns.take()?;
    let status: Option<&str> = columns.take()?;
    let attempt = columns.take_small()?;
    let (started_at, completed_at, error) = (columns.take()?, columns.take()?, columns.take()?);
    let is_handed_over = columns.take()?;
    let status = status.map(|status| rows::word(status, TaskStatus::from_name)).transpose()?;
    Ok(Fire {
        id,
        schedule_id,
        kind,
        scheduled_at,
        fired_at,
        reason: reason.map(|reason| rows::word(reason, SkipReason::from_name)).transpose()?,
        until,
        count,
        tz_version,
        task: task_id.map(|id| TaskOfFire {
            id: TaskId(id),
            status,
            is_handed_over,
            attempt,
            started_at,
            completed_at,
            error,
        }),
    })
}
