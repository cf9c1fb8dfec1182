//! Due schedules become fires and tasks, in one transaction.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{Disposition, DueSchedule, FireKind, NewFire, Tick};
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Decide, Lateness, StoreError, Ticked};
use punctual_domain::task::Due;
use punctual_domain::topic::{Topic, TopicDefinition};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::schedules::{lock, note_change, schedule_row};
use super::tasks::{Running, by_topic, end_as_cancelled, insert_tasks};
use super::{broken, calendars, rows, topics};
use crate::instant::bounded;
use crate::text::Unreadable;

/// Which schedules are looked at.
#[derive(Clone, Copy)]
pub(super) enum Which {
    /// All that nobody else is deciding, the longest due first.
    All { lateness: Lateness, limit: u32 },
    /// This one, as soon as nobody else is deciding it.
    One(ScheduleId),
}

/// Decides due schedules and writes the decisions; the caller's transaction makes it one.
pub(super) async fn tick(
    connection: &mut PgConnection,
    which: Which,
    decide: &Decide<'_>,
    now: Option<DateTime<Utc>>,
) -> Result<Ticked, StoreError> {
    let mut ticked = Ticked::default();
    let (schedules, now) = match which {
        Which::All { lateness, limit } => {
            let now: DateTime<Utc> = sqlx::query_scalar("SELECT coalesce($1, statement_timestamp())")
                .bind(now)
                .fetch_one(&mut *connection)
                .await
                .map_err(broken)?;
            (due_schedules(connection, lateness, limit, now, &mut ticked).await?, now)
        }
        Which::One(id) => match lock(connection, id, now).await {
            Ok((schedule, now)) if schedule.is_due(now) => (vec![schedule], now),
            Ok(_) | Err(StoreError::NotFound) => return Ok(ticked),
            Err(error) => return Err(error),
        },
    };
    let due = with_surroundings(connection, schedules).await?;
    let decided: Vec<_> =
        due.into_iter().filter_map(|due| decide(&due, now).map(|tick| (due.schedule, tick))).collect();
    if !decided.is_empty() {
        apply(connection, decided, now, &mut ticked).await?;
    }
    Ok(ticked)
}

async fn due_schedules(
    connection: &mut PgConnection,
    lateness: Lateness,
    limit: u32,
    now: DateTime<Utc>,
    ticked: &mut Ticked,
) -> Result<Vec<Schedule>, StoreError> {
    let mut found = Vec::new();
    if !matches!(lateness, Lateness::Over(_)) {
        let resuming = sqlx::query(include_str!("sql/resuming_schedules.sql")).bind(now).bind(i64::from(limit));
        found = resuming.fetch_all(&mut *connection).await.map_err(broken)?;
    }
    let (from, to) = lateness.span(now);
    let due = sqlx::query(include_str!("sql/due_schedules.sql"))
        .bind(bounded(to))
        .bind(bounded(from))
        .bind(i64::from(limit) - found.len() as i64)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    found.extend(due);
    let mut schedules = Vec::with_capacity(found.len());
    for row in &found {
        match schedule_row(row) {
            Ok(schedule) => schedules.push(schedule),
            Err(error) => {
                let id = ScheduleId(rows::Columns::of(row).take()?);
                pause_unreadable(connection, id, &error, now).await?;
                ticked.paused.push((id, error.to_string()));
            }
        }
    }
    Ok(schedules)
}

/// Takes a schedule that cannot be read out of the line, and says why, in its history too.
async fn pause_unreadable(
    connection: &mut PgConnection,
    id: ScheduleId,
    error: &StoreError,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let note = format!("paused because {error}");
    let paused = sqlx::query(include_str!("sql/pause_unreadable.sql"))
        .bind(id.0)
        .bind(&note)
        .bind(now)
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let mut columns = rows::Columns::of(&paused);
    let unreadable = Unreadable {
        version: columns.take_count()?,
        last_fired_at: columns.take()?,
        fired_through: columns.take()?,
        fires_made: columns.take_count()?,
    };
    match unreadable.paused(columns.take()?, note, now) {
        Some(paused) => note_change(connection, id, paused.version, Some(&paused), Some(now)).await,
        None => Ok(()),
    }
}

/// The schedules with what else a decision rests on.
async fn with_surroundings(
    connection: &mut PgConnection,
    schedules: Vec<Schedule>,
) -> Result<Vec<DueSchedule>, StoreError> {
    if schedules.is_empty() {
        return Ok(Vec::new());
    }
    // Not with the statement that locks: a row it had to wait for is read anew, what it counted beside it is not.
    let live = live_tasks(connection, &schedules).await?;
    let calendars = if schedules.iter().any(|schedule| !schedule.definition.exclude_calendars.is_empty()) {
        calendars::all(connection).await?
    } else {
        Vec::new()
    };
    let topics = schedules.iter().map(|schedule| schedule.definition.topic.as_str());
    let definitions = topics::definitions_for(connection, topics).await?;
    let named = |schedule: &Schedule| -> Vec<Calendar> {
        let names = &schedule.definition.exclude_calendars;
        calendars.iter().filter(|calendar| names.contains(&calendar.name)).cloned().collect()
    };
    let topic = |schedule: &Schedule| {
        let topic = Topic::from_stored(schedule.definition.topic.as_str());
        TopicDefinition::for_topic(&definitions, &topic).cloned()
    };
    Ok(schedules
        .into_iter()
        .map(|schedule| DueSchedule {
            live_tasks: live.get(&schedule.id).copied().unwrap_or(0),
            calendars: named(&schedule),
            topic: topic(&schedule),
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
    ticked: &mut Ticked,
) -> Result<(), StoreError> {
    ticked.schedules = decided.len() as u64;
    let (mut resumed, mut stopped, mut cancelling) = (Vec::new(), Vec::new(), HashSet::new());
    let mut advances = Vec::with_capacity(decided.len());
    let mut fires = Vec::new();
    for (schedule, tick) in decided {
        let through = schedule.fired_through;
        if tick.resumes {
            resumed.push(schedule.id.0);
        }
        if let Some(note) = tick.stops {
            stopped.push((schedule.id, note));
            continue;
        }
        if tick.cancel_previous {
            cancelling.insert(schedule.id);
        }
        for fire in tick.fires {
            // The row is locked, so the watermark cannot move under us.
            if through.is_some_and(|through| fire.scheduled_at <= through) {
                ticked.lost_races += 1;
            } else {
                fires.push(FireToWrite { schedule_id: schedule.id, tz_version: tick.tz_version.clone(), fire });
            }
        }
        advances.push((schedule.id, tick.next_fire_at, Some(tick.fired_through).max(through), tick.tz_version));
    }
    let written = match fires.as_slice() {
        [] => HashSet::new(),
        fires => insert_fires(connection, FireKind::Schedule, fires, now).await?,
    };

    let mut made: HashMap<ScheduleId, i64> = HashMap::new();
    let mut tasks = Vec::new();
    for FireToWrite { schedule_id, fire, .. } in fires {
        match fire.disposition {
            _ if !written.contains(&fire.id) => ticked.lost_races += 1,
            Disposition::Fired(task) => {
                let run_at = match task.due {
                    Due::At(run_at) => run_at,
                    _ => now,
                };
                ticked.made(&task.topic, run_at, now - fire.scheduled_at);
                *made.entry(schedule_id).or_default() += 1;
                tasks.push(*task);
            }
            Disposition::Skipped { count, .. } => ticked.skipped += count,
        }
    }
    // Only a fire that is really made cancels what went before it.
    cancelling.retain(|id| made.contains_key(id));
    if !cancelling.is_empty() {
        let previous: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM punctual_tasks WHERE schedule_id = ANY ($1)")
            .bind(cancelling.iter().map(|id| id.0).collect::<Vec<_>>())
            .fetch_all(&mut *connection)
            .await
            .map_err(broken)?;
        let cancelled = end_as_cancelled(connection, &previous, Running::Too, Some(now)).await?;
        ticked.stopped.extend(cancelled.iter().filter(|task| task.was_running).map(|task| task.id));
        ticked.cancelled = by_topic(&cancelled).into();
    }
    if !tasks.is_empty() {
        insert_tasks(connection, tasks, Some(now)).await?;
    }

    sqlx::query(include_str!("sql/advance_schedules.sql"))
        .bind(now)
        .bind(advances.iter().map(|(id, ..)| id.0).collect::<Vec<_>>())
        .bind(advances.iter().map(|(_, next, ..)| next.map(bounded)).collect::<Vec<_>>())
        .bind(advances.iter().map(|(_, _, through, _)| *through).collect::<Vec<_>>())
        .bind(advances.iter().map(|(id, ..)| made.get(id).copied().unwrap_or(0)).collect::<Vec<_>>())
        .bind(advances.iter().map(|(.., tz_version)| tz_version.as_str()).collect::<Vec<_>>())
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    resume(connection, &resumed, now).await?;
    stop(connection, &stopped, now).await?;
    ticked.paused.extend(stopped);
    Ok(())
}

/// Enables schedules whose pause has ended, and notes it in their history.
async fn resume(connection: &mut PgConnection, ids: &[Uuid], now: DateTime<Utc>) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let resumed = sqlx::query(include_str!("sql/resume_schedules.sql"))
        .bind(now)
        .bind(ids)
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    for row in &resumed {
        let schedule = schedule_row(row)?;
        note_change(connection, schedule.id, schedule.version, Some(&schedule), Some(now)).await?;
    }
    Ok(())
}

/// Pauses schedules that cannot be understood any more, and notes it in their history.
async fn stop(
    connection: &mut PgConnection,
    stopped: &[(ScheduleId, String)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if stopped.is_empty() {
        return Ok(());
    }
    let paused = sqlx::query(include_str!("sql/stop_schedules.sql"))
        .bind(now)
        .bind(stopped.iter().map(|(id, _)| id.0).collect::<Vec<_>>())
        .bind(stopped.iter().map(|(_, note)| note.as_str()).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await
        .map_err(broken)?;
    for row in &paused {
        let schedule = schedule_row(row)?;
        note_change(connection, schedule.id, schedule.version, Some(&schedule), Some(now)).await?;
    }
    Ok(())
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
