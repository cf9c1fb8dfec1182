//! What somebody sees who looks at everything at once.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use punctual_domain::fire::Fire;
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    ComingTask, EndedMinute, Failure, Fired, FiredSchedule, Glance, Page, StoreError, TaskFilter,
};
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use uuid::Uuid;

use super::rows::{self, Columns, Hex, micros};
use super::{SqliteStore, broken, fires, list};
use crate::text::to_text;

#[async_trait]
impl Glance for SqliteStore {
    async fn recent_fires(&self, ids: &[ScheduleId], each: u32) -> Result<Vec<Fire>, StoreError> {
        let ids = to_text(&ids.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?;
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/recent_fires.sql"))
                    .bind(ids)
                    .bind(i64::from(each))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(fires::fire).collect()
            }
            .boxed()
        })
        .await
    }

    async fn next_schedules(&self, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let found = sqlx::query(include_str!("sql/next_schedules.sql"))
                    .bind(i64::from(limit))
                    .fetch_all(connection)
                    .await
                    .map_err(broken)?;
                found.iter().map(rows::schedule).collect()
            }
            .boxed()
        })
        .await
    }

    async fn coming_tasks(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<ComingTask>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let query = sqlx::query(include_str!("sql/coming_tasks.sql"))
                    .bind(micros(from))
                    .bind(micros(to))
                    .bind(i64::from(limit));
                read_each(connection, query, |columns| {
                    Ok(ComingTask {
                        task_id: TaskId(columns.take()?),
                        topic: columns.take()?,
                        timezone: columns.take()?,
                        run_at: columns.take_instant()?,
                    })
                })
                .await
            }
            .boxed()
        })
        .await
    }

    async fn ended_minutes(&self, from: DateTime<Utc>, minutes: u32) -> Result<Vec<EndedMinute>, StoreError> {
        if minutes == 0 {
            return Ok(Vec::new());
        }
        self.read(move |connection, _| {
            async move {
                let query = sqlx::query(include_str!("sql/ended_minutes.sql"))
                    .bind(micros(from))
                    .bind(i64::from(minutes))
                    .bind(i64::from(EndedMinute::SAMPLE));
                read_each(connection, query, |columns| {
                    Ok(EndedMinute {
                        at: columns.take_instant()?,
                        ended: columns.take_count()?,
                        failed: columns.take_count()?,
                        lag: columns.take::<Option<i64>>()?.map(TimeDelta::microseconds),
                    })
                })
                .await
            }
            .boxed()
        })
        .await
    }

    async fn failures(&self, since: DateTime<Utc>, limit: u32) -> Result<Vec<Failure>, StoreError> {
        self.read(move |connection, _| {
            async move {
                let query = sqlx::query(include_str!("sql/failures.sql")).bind(micros(since)).bind(i64::from(limit));
                read_each(connection, query, |columns| {
                    Ok(Failure {
                        task_id: TaskId(columns.take()?),
                        topic: columns.take()?,
                        error: columns.take()?,
                        at: columns.take_instant()?,
                        schedule_id: columns.take::<Option<Uuid>>()?.map(ScheduleId),
                    })
                })
                .await
            }
            .boxed()
        })
        .await
    }

    async fn fired(&self, from: DateTime<Utc>, to: DateTime<Utc>, most: u32, named: u32) -> Result<Fired, StoreError> {
        self.read(move |connection, _| {
            async move {
                let query = sqlx::query(include_str!("sql/fired.sql"))
                    .bind(micros(from))
                    .bind(micros(to))
                    .bind(i64::from(most))
                    .bind(i64::from(named));
                let found = read_each(connection, query, |columns| {
                    let schedule = FiredSchedule {
                        schedule_id: ScheduleId(columns.take()?),
                        name: columns.take()?,
                        at: columns.take_instant()?,
                        fires: columns.take_count()?,
                        failures: columns.take_count()?,
                    };
                    Ok((schedule, columns.take_count()?, columns.take_count()?))
                });
                Ok(Fired::of(found.await?))
            }
            .boxed()
        })
        .await
    }

    async fn has_happened_since(&self, at: DateTime<Utc>) -> Result<bool, StoreError> {
        self.read(move |connection, _| {
            async move {
                sqlx::query_scalar(include_str!("sql/has_happened_since.sql"))
                    .bind(micros(at))
                    .fetch_one(connection)
                    .await
                    .map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn count_tasks(&self, filter: &TaskFilter, most: u32) -> Result<u32, StoreError> {
        let mut query = list::ids(filter, Page::first(most));
        self.read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                Ok(u32::try_from(found.len()).unwrap_or(most))
            }
            .boxed()
        })
        .await
    }
}

/// Reads every row that the query finds, column by column.
async fn read_each<T>(
    connection: &mut SqliteConnection,
    query: Query<'_, Sqlite, SqliteArguments>,
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let found = query.fetch_all(connection).await.map_err(broken)?;
    found.iter().map(|row| read(&mut Columns::of(row))).collect()
}
