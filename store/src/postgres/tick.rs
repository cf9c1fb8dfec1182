//! Due schedules become fires and tasks, in one transaction.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{Disposition, DueSchedule, FireKind, NewFire, Tick};
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Decide, StoreError, Ticked};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::schedules::{all_calendars, schedule_row};
use super::tasks::{Running, cancel_tasks, insert_tasks};
use super::{broken, rows};
use crate::instant::bounded;

/// Decides due schedules and writes the decisions; the caller's transaction makes it one.
pub(super) async fn tick(
    connection: &mut PgConnection,
    limit: u32,
    decide: &Decide,
    now: Option<DateTime<Utc>>,
) -> Result<Ticked, StoreError> {
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT coalesce($1, statement_timestamp())")
        .bind(now)
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let due = due_schedules(connection, limit, now).await?;
    let decided: Vec<_> =
        due.into_iter().filter_map(|due| decide(&due, now).map(|tick| (due.schedule, tick))).collect();
    if decided.is_empty() {
        return Ok(Ticked::default());
    }
    apply(connection, decided, now).await
}

async fn due_schedules(
    connection: &mut PgConnection,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<DueSchedule>, StoreError> {
    let found = sqlx::query(include_str!("sql/due_schedules.sql"))
        .bind(now)
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    let schedules = found.iter().map(schedule_row).collect::<Result<Vec<_>, _>>()?;
    let live = live_tasks(connection, &schedules).await?;
    let calendars = if schedules.iter().any(|schedule| !schedule.definition.exclude_calendars.is_empty()) {
        all_calendars(connection).await?
    } else {
        Vec::new()
    };
    let named = |schedule: &Schedule| -> Vec<Calendar> {
        let names = &schedule.definition.exclude_calendars;
        calendars.iter().filter(|calendar| names.contains(&calendar.name)).cloned().collect()
    };
    Ok(schedules
        .into_iter()
        .map(|schedule| DueSchedule {
            live_tasks: live.get(&schedule.id).copied().unwrap_or(0),
            calendars: named(&schedule),
            schedule,
        })
        .collect())
}

async fn live_tasks(
    connection: &mut PgConnection,
    schedules: &[Schedule],
) -> Result<HashMap<ScheduleId, u64>, StoreError> {
    let found = sqlx::query(
        "SELECT schedule_id, count(*) FROM punctual_tasks WHERE schedule_id = ANY ($1) GROUP BY schedule_id",
    )
    .bind(schedules.iter().map(|schedule| schedule.id.0).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
    .map_err(broken)?;
    found
        .iter()
        .map(|row| {
            let mut columns = rows::Columns::of(row);
            Ok((ScheduleId(columns.take()?), columns.take_count()?))
        })
        .collect()
}

async fn apply(
    connection: &mut PgConnection,
    decided: Vec<(Schedule, Tick)>,
    now: DateTime<Utc>,
) -> Result<Ticked, StoreError> {
    let cancelling: Vec<Uuid> =
        decided.iter().filter(|(_, tick)| tick.cancel_previous).map(|(schedule, _)| schedule.id.0).collect();
    if !cancelling.is_empty() {
        let previous: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = ANY ($1)")
            .bind(&cancelling)
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
        cancel_tasks(connection, &previous, Running::Too, Some(now)).await?;
    }

    let mut ticked = Ticked { schedules: decided.len() as u64, ..Ticked::default() };
    let mut advances = Vec::with_capacity(decided.len());
    let mut fires = Vec::new();
    for (schedule, tick) in decided {
        let through = schedule.fired_through;
        advances.push((schedule.id, tick.next_fire_at, Some(tick.fired_through).max(through)));
        for fire in tick.fires {
            // The row is locked, so the watermark cannot move under us.
            if through.is_some_and(|through| fire.scheduled_at <= through) {
                ticked.lost_races += 1;
            } else {
                fires.push(FireToWrite { schedule_id: schedule.id, tz_version: tick.tz_version.clone(), fire });
            }
        }
    }
    let written = insert_fires(connection, FireKind::Schedule, &fires, now).await?;

    let mut made: HashMap<ScheduleId, i64> = HashMap::new();
    let mut tasks = Vec::new();
    for FireToWrite { schedule_id, fire, .. } in fires {
        match fire.disposition {
            _ if !written.contains(&fire.id) => ticked.lost_races += 1,
            Disposition::Fired(task) => {
                ticked.fired += 1;
                *made.entry(schedule_id).or_default() += 1;
                tasks.push(*task);
            }
            Disposition::Skipped { count, .. } => ticked.skipped += count,
        }
    }
    insert_tasks(connection, tasks, Some(now)).await?;

    sqlx::query(include_str!("sql/advance_schedules.sql"))
        .bind(now)
        .bind(advances.iter().map(|(id, _, _)| id.0).collect::<Vec<_>>())
        .bind(advances.iter().map(|(_, next, _)| next.map(bounded)).collect::<Vec<_>>())
        .bind(advances.iter().map(|(_, _, through)| *through).collect::<Vec<_>>())
        .bind(advances.iter().map(|(id, _, _)| made.get(id).copied().unwrap_or(0)).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(ticked)
}

/// A fire with what it needs beside itself.
pub(super) struct FireToWrite {
    pub(super) schedule_id: ScheduleId,
    pub(super) tz_version: String,
    pub(super) fire: NewFire,
}

/// Writes fires that are not there yet; answers which.
pub(super) async fn insert_fires(
    connection: &mut PgConnection,
    kind: FireKind,
    fires: &[FireToWrite],
    now: DateTime<Utc>,
) -> Result<HashSet<FireId>, StoreError> {
    fn column<T>(fires: &[FireToWrite], read: impl Fn(&FireToWrite) -> T) -> Vec<T> {
        fires.iter().map(read).collect()
    }
    let skipped = |f: &FireToWrite| match &f.fire.disposition {
        Disposition::Fired(_) => None,
        Disposition::Skipped { reason, until, count } => Some((reason.as_str(), *until, *count as i64)),
    };
    let written: Vec<Uuid> = sqlx::query_scalar(include_str!("sql/insert_fires.sql"))
        .bind(now)
        .bind(kind.as_str())
        .bind(column(fires, |f| f.fire.id.0))
        .bind(column(fires, |f| f.schedule_id.0))
        .bind(column(fires, |f| bounded(f.fire.scheduled_at)))
        .bind(column(fires, |f| skipped(f).map(|(reason, _, _)| reason)))
        .bind(column(fires, |f| skipped(f).map(|(_, until, _)| bounded(until))))
        .bind(column(fires, |f| skipped(f).map_or(1, |(_, _, count)| count)))
        .bind(column(fires, |f| f.tz_version.clone()))
        .bind(column(fires, |f| match &f.fire.disposition {
            Disposition::Fired(task) => Some(task.id.0),
            Disposition::Skipped { .. } => None,
        }))
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    Ok(written.into_iter().map(FireId).collect())
}
