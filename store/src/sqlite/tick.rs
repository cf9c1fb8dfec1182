//! Ticking: due schedules become fires and tasks, in one transaction of the writer.
//!
//! The transaction has to know what the caller decides, and the caller's decision may borrow what the writer cannot
//! hold. So the transaction stays with the writer and the decision with the caller: the due schedules travel to the
//! caller, its decisions travel back, and nobody else writes in between. A caller that goes away meanwhile ends the
//! transaction without a change.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::fire::{Disposition, DueSchedule, FireKind, NewFire, Tick};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::store::{Created, Decide, Lateness, StoreError, Ticked};
use punctual_domain::task::{Due, NewTask, Task};
use punctual_domain::topic::{Topic, TopicDefinition};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::rows::{self, Columns, Hex, micros};
use super::{SqliteStore, broken, calendars, schedules, settle, tasks, topics};
use crate::text::{Unreadable, to_text};

/// A due schedule with what was decided about it.
type Decided = Vec<(DueSchedule, Option<Tick>)>;

/// Which schedules are looked at.
#[derive(Clone, Copy)]
pub(super) enum Which {
    /// All, the longest due first.
    All { lateness: Lateness, limit: u32 },
    /// This one.
    One(ScheduleId),
}

pub(super) async fn tick(store: &SqliteStore, which: Which, decide: &Decide<'_>) -> Result<Ticked, StoreError> {
    let (to_caller, due) = oneshot::channel::<(Vec<DueSchedule>, DateTime<Utc>)>();
    let (to_writer, decided) = oneshot::channel::<Decided>();
    let deadline = store.deadline;
    let writing = store.write(move |connection, now| {
        async move {
            let mut ticked = Ticked::default();
            let due = due_schedules(connection, which, now, &mut ticked).await?;
            if !due.is_empty()
                && to_caller.send((due, now)).is_ok()
                && let Ok(Ok(decided)) = tokio::time::timeout(deadline, decided).await
            {
                apply(connection, decided, now, &mut ticked).await?;
            }
            Ok(ticked)
        }
        .boxed()
    });
    let deciding = async {
        // Nothing comes when nothing is due, or when the write failed before.
        if let Ok((due, now)) = due.await {
            let decided = due
                .into_iter()
                .map(|due| {
                    let tick = decide(&due, now);
                    (due, tick)
                })
                .collect();
            let _ = to_writer.send(decided);
        }
    };
    tokio::pin!(writing);
    tokio::select! {
        ticked = &mut writing => ticked,
        () = deciding => writing.await,
    }
}

async fn due_schedules(
    connection: &mut SqliteConnection,
    which: Which,
    now: DateTime<Utc>,
    ticked: &mut Ticked,
) -> Result<Vec<DueSchedule>, StoreError> {
    let due = match which {
        Which::All { lateness, limit } => {
            let found = due_rows(connection, lateness, limit, now).await?;
            let mut due = Vec::with_capacity(found.len());
            for row in &found {
                match rows::schedule(row) {
                    Ok(schedule) => due.push(schedule),
                    Err(error) => {
                        let id = ScheduleId(Columns::of(row).take()?);
                        pause_unreadable(connection, id, &error, now).await?;
                        ticked.paused.push((id, error.to_string()));
                    }
                }
            }
            due
        }
        Which::One(id) => {
            schedules::find(connection, id).await?.into_iter().filter(|schedule| schedule.is_due(now)).collect()
        }
    };
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let mut live = live_tasks(connection, due.iter().map(|schedule| schedule.id)).await?;
    let calendars = if due.iter().any(|schedule| !schedule.definition.exclude_calendars.is_empty()) {
        calendars::all(connection).await?
    } else {
        Vec::new()
    };
    let topics = due.iter().map(|schedule| schedule.definition.topic.as_str());
    let definitions = topics::definitions_for(connection, topics).await?;
    Ok(due
        .into_iter()
        .map(|schedule| {
            let named = &schedule.definition.exclude_calendars;
            let topic = Topic::from_stored(schedule.definition.topic.as_str());
            DueSchedule {
                live_tasks: live.remove(&schedule.id).unwrap_or_default(),
                calendars: calendars.iter().filter(|calendar| named.contains(&calendar.name)).cloned().collect(),
                topic: TopicDefinition::for_topic(&definitions, &topic).cloned(),
                schedule,
            }
        })
        .collect())
}

/// Schedules whose pause has ended, unless only late ones are asked for, then those that are due.
async fn due_rows(
    connection: &mut SqliteConnection,
    lateness: Lateness,
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<SqliteRow>, StoreError> {
    let mut found = Vec::new();
    if !matches!(lateness, Lateness::Over(_)) {
        let resuming = sqlx::query(include_str!("sql/resuming_schedules.sql")).bind(micros(now)).bind(i64::from(limit));
        found = resuming.fetch_all(&mut *connection).await.map_err(broken)?;
    }
    let (from, to) = lateness.span(now);
    let due = sqlx::query(include_str!("sql/due_schedules.sql"))
        .bind(micros(to))
        .bind(micros(from))
        .bind(i64::from(limit) - found.len() as i64)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    found.extend(due);
    Ok(found)
}

/// Takes a schedule that cannot be read out of the line, and says why, in its history too.
async fn pause_unreadable(
    connection: &mut SqliteConnection,
    id: ScheduleId,
    error: &StoreError,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let note = format!("paused because {error}");
    let paused = sqlx::query(include_str!("sql/pause_unreadable.sql"))
        .bind(id.0)
        .bind(&note)
        .bind(micros(now))
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    let mut columns = Columns::of(&paused);
    let unreadable = Unreadable {
        version: columns.take_count()?,
        last_fired_at: columns.take_instant_if_any()?,
        fired_through: columns.take_instant_if_any()?,
        fires_made: columns.take_count()?,
    };
    match unreadable.paused(columns.take()?, note, now) {
        Some(paused) => schedules::note_change(connection, id, paused.version, Some(&paused), now).await,
        None => Ok(()),
    }
}

async fn live_tasks(
    connection: &mut SqliteConnection,
    ids: impl Iterator<Item = ScheduleId>,
) -> Result<HashMap<ScheduleId, u64>, StoreError> {
    let counted = sqlx::query(include_str!("sql/live_tasks_of_schedules.sql"))
        .bind(to_text(&ids.map(|id| Hex(id.0)).collect::<Vec<_>>())?)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    counted
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((ScheduleId(columns.take()?), columns.take_count()?))
        })
        .collect()
}

async fn apply(
    connection: &mut SqliteConnection,
    decided: Decided,
    now: DateTime<Utc>,
    ticked: &mut Ticked,
) -> Result<(), StoreError> {
    let mut fires = Vec::new();
    let (mut resumed, mut stopped) = (Vec::new(), Vec::new());
    let mut cancelling = HashSet::new();
    let mut moves = Vec::new();
    for (due, tick) in decided {
        let Some(tick) = tick else { continue };
        let Tick { fires: new, resumes, stops, cancel_previous, next_fire_at, fired_through, tz_version } = tick;
        let schedule = due.schedule;
        ticked.schedules += 1;
        if let Some(note) = stops {
            stopped.push((schedule.id, note));
            continue;
        }
        for fire in new {
            if schedule.fired_through.is_some_and(|through| fire.scheduled_at <= through) {
                ticked.lost_races += 1;
            } else {
                fires.push(Fire { schedule_id: schedule.id, fire, tz_version: tz_version.clone() });
            }
        }
        if resumes {
            resumed.push(schedule.id);
        }
        if cancel_previous {
            cancelling.insert(schedule.id);
        }
        moves.push((schedule.id, next_fire_at, fired_through, tz_version));
    }
    let asked = fires.len();
    let fires = leave_out_known(connection, FireKind::Schedule, fires).await?;
    ticked.lost_races += (asked - fires.len()) as u64;
    let mut made: HashMap<ScheduleId, u64> = HashMap::new();
    for Fire { schedule_id, fire, .. } in &fires {
        match &fire.disposition {
            Disposition::Fired(task) => {
                *made.entry(*schedule_id).or_default() += 1;
                let run_at = match task.due {
                    Due::At(run_at) => run_at,
                    _ => now,
                };
                ticked.made(&task.topic, run_at, now - fire.scheduled_at);
            }
            Disposition::Skipped { count, .. } => ticked.skipped += count,
        }
    }
    // Only a fire that is really made cancels what went before it.
    cancelling.retain(|id| made.contains_key(id));
    cancel_live_tasks(connection, &cancelling, now, ticked).await?;
    write_fires(connection, FireKind::Schedule, fires, now).await?;

    let moves: Vec<_> = moves
        .into_iter()
        .map(|(id, next_fire_at, fired_through, tz_version)| {
            let made = made.get(&id).copied().unwrap_or_default();
            (Hex(id.0), next_fire_at.map(micros), micros(fired_through), made, tz_version)
        })
        .collect();
    if !moves.is_empty() {
        sqlx::query(include_str!("sql/advance_schedules.sql"))
            .bind(to_text(&moves)?)
            .bind(micros(now))
            .execute(&mut *connection)
            .await
            .map_err(broken)?;
    }
    resume(connection, &resumed, now).await?;
    stop(connection, &stopped, now).await?;
    ticked.paused.extend(stopped);
    Ok(())
}

/// Pauses schedules that cannot be understood any more, and notes it in their history.
async fn stop(
    connection: &mut SqliteConnection,
    stopped: &[(ScheduleId, String)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if stopped.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/stop_schedules.sql"))
        .bind(to_text(&stopped.iter().map(|(id, note)| (Hex(id.0), note)).collect::<Vec<_>>())?)
        .bind(micros(now))
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    for (id, _) in stopped {
        schedules::note(connection, *id, now).await?;
    }
    Ok(())
}

/// Enables schedules whose pause has ended, and notes it in their history.
async fn resume(connection: &mut SqliteConnection, ids: &[ScheduleId], now: DateTime<Utc>) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(include_str!("sql/resume_schedules.sql"))
        .bind(to_text(&ids.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?)
        .bind(micros(now))
        .execute(&mut *connection)
        .await
        .map_err(broken)?;
    for id in ids {
        schedules::note(connection, *id, now).await?;
    }
    Ok(())
}

/// Writes fires of a kind that leaves the schedule's next instant alone; answers the tasks of those that were not there
/// yet.
pub(super) async fn add_fires(
    connection: &mut SqliteConnection,
    schedule_id: ScheduleId,
    kind: FireKind,
    fires: Vec<NewFire>,
    tz_version: &str,
    now: DateTime<Utc>,
) -> Result<Vec<Task>, StoreError> {
    let fires = fires.into_iter().map(|fire| Fire { schedule_id, fire, tz_version: tz_version.to_owned() }).collect();
    let fires = leave_out_known(connection, kind, fires).await?;
    let made = write_fires(connection, kind, fires, now).await?;
    if !made.is_empty() {
        sqlx::query("UPDATE punctual_schedules SET last_fired_at = ?2 WHERE id = ?1")
            .bind(schedule_id.0)
            .bind(micros(now))
            .execute(connection)
            .await
            .map_err(broken)?;
    }
    Ok(made)
}

/// A fire on its way to its row.
struct Fire {
    schedule_id: ScheduleId,
    fire: NewFire,
    tz_version: String,
}

/// The fires whose place is free; of two with the same place, the first.
async fn leave_out_known(
    connection: &mut SqliteConnection,
    kind: FireKind,
    fires: Vec<Fire>,
) -> Result<Vec<Fire>, StoreError> {
    if fires.is_empty() {
        return Ok(fires);
    }
    let places: Vec<_> = fires.iter().map(|fire| (Hex(fire.schedule_id.0), micros(fire.fire.scheduled_at))).collect();
    let known = sqlx::query(include_str!("sql/known_fires.sql"))
        .bind(to_text(&places)?)
        .bind(kind.as_str())
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let mut taken = known
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((ScheduleId(columns.take()?), columns.take()?))
        })
        .collect::<Result<HashSet<(ScheduleId, i64)>, StoreError>>()?;
    Ok(fires.into_iter().filter(|fire| taken.insert((fire.schedule_id, micros(fire.fire.scheduled_at)))).collect())
}

/// Cancels what has not ended of these schedules.
async fn cancel_live_tasks(
    connection: &mut SqliteConnection,
    of: &HashSet<ScheduleId>,
    now: DateTime<Utc>,
    ticked: &mut Ticked,
) -> Result<(), StoreError> {
    if of.is_empty() {
        return Ok(());
    }
    let live: Vec<(Uuid, bool)> = sqlx::query_as(
        "SELECT id, status = 'running' FROM punctual_tasks
         WHERE schedule_id IN (SELECT unhex(value) FROM json_each(?1))",
    )
    .bind(to_text(&of.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?)
    .fetch_all(&mut *connection)
    .await
    .map_err(broken)?;
    let ids: Vec<_> = live.iter().map(|(id, _)| TaskId(*id)).collect();
    settle::cancel(connection, &ids, now).await?;
    ticked.cancelled = settle::by_topic(connection, &ids).await?.into();
    ticked.stopped = live.into_iter().filter(|(_, was_running)| *was_running).map(|(id, _)| TaskId(id)).collect();
    Ok(())
}

/// Writes the tasks of fires, then the fires; answers the tasks.
async fn write_fires(
    connection: &mut SqliteConnection,
    kind: FireKind,
    fires: Vec<Fire>,
    now: DateTime<Utc>,
) -> Result<Vec<Task>, StoreError> {
    if fires.is_empty() {
        return Ok(Vec::new());
    }
    let mut new: Vec<NewTask> = Vec::new();
    let mut rows = Vec::with_capacity(fires.len());
    for Fire { schedule_id, fire, tz_version } in fires {
        let (reason, until, count, task) = match fire.disposition {
            Disposition::Fired(task) => {
                new.push(*task);
                (None, None, 1, Some(new.len() - 1))
            }
            Disposition::Skipped { reason, until, count } => (Some(reason.as_str()), Some(micros(until)), count, None),
        };
        rows.push((
            Hex(fire.id.0),
            Hex(schedule_id.0),
            micros(fire.scheduled_at),
            reason,
            until,
            count,
            tz_version,
            task,
        ));
    }
    let created = tasks::insert(connection, new, now).await?;
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(id, schedule_id, scheduled_at, reason, until, count, tz_version, task)| {
            let task_id = task.and_then(|i| created.get(i)).map(|created| Hex(created.task().id.0));
            (id, schedule_id, scheduled_at, reason, until, count, tz_version, task_id)
        })
        .collect();
    sqlx::query(include_str!("sql/insert_fires.sql"))
        .bind(to_text(&rows)?)
        .bind(kind.as_str())
        .bind(micros(now))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(created.into_iter().map(Created::into_task).collect())
}
