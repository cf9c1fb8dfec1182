//! What somebody sees who looks at everything at once.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::fire::Fire;
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    ComingTask, EndedMinute, Failure, Fired, FiredSchedule, Glance, Page, StoreError, TaskFilter,
};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use uuid::Uuid;

use super::rows::Columns;
use super::{PostgresStore, broken, fires, list, schedules};
use crate::instant::bounded;

#[async_trait]
impl Glance for PostgresStore {
    async fn recent_fires(&self, ids: &[ScheduleId], each: u32) -> Result<Vec<Fire>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/recent_fires.sql"))
                .bind(ids)
                .bind(i64::from(each))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(fires::fire).collect()
        })
    }

    async fn next_schedules(&self, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        lend!(self, |connection| {
            let found = sqlx::query(include_str!("sql/next_schedules.sql"))
                .bind(i64::from(limit))
                .fetch_all(connection)
                .await
                .map_err(broken)?;
            found.iter().map(schedules::schedule_row).collect()
        })
    }

    async fn coming_tasks(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<ComingTask>, StoreError> {
        lend!(self, |connection| {
            let query = sqlx::query(include_str!("sql/coming_tasks.sql"))
                .bind(bounded(from))
                .bind(bounded(to))
                .bind(i64::from(limit));
            read_each(connection, query, |columns| {
                Ok(ComingTask {
                    task_id: TaskId(columns.take()?),
                    topic: columns.take()?,
                    timezone: columns.take()?,
                    run_at: columns.take()?,
                })
            })
            .await
        })
    }

    async fn ended_minutes(&self, from: DateTime<Utc>, minutes: u32) -> Result<Vec<EndedMinute>, StoreError> {
        lend!(self, |connection| {
            let query = sqlx::query(include_str!("sql/ended_minutes.sql"))
                .bind(bounded(from))
                .bind(i32::try_from(minutes).unwrap_or(i32::MAX))
                .bind(i64::from(EndedMinute::SAMPLE));
            read_each(connection, query, |columns| {
                Ok(EndedMinute {
                    at: columns.take()?,
                    ended: columns.take_count()?,
                    failed: columns.take_count()?,
                    lag: columns.take::<Option<i64>>()?.map(TimeDelta::microseconds),
                })
            })
            .await
        })
    }

    async fn failures(&self, since: DateTime<Utc>, limit: u32) -> Result<Vec<Failure>, StoreError> {
        lend!(self, |connection| {
            let query = sqlx::query(include_str!("sql/failures.sql")).bind(bounded(since)).bind(i64::from(limit));
            read_each(connection, query, |columns| {
                Ok(Failure {
                    task_id: TaskId(columns.take()?),
                    topic: columns.take()?,
                    error: columns.take()?,
                    at: columns.take()?,
                    schedule_id: columns.take::<Option<Uuid>>()?.map(ScheduleId),
                })
            })
            .await
        })
    }

    async fn fired(&self, from: DateTime<Utc>, to: DateTime<Utc>, most: u32, named: u32) -> Result<Fired, StoreError> {
        lend!(self, |connection| {
            let query = sqlx::query(include_str!("sql/fired.sql"))
                .bind(bounded(from))
                .bind(bounded(to))
                .bind(i64::from(most))
                .bind(i64::from(named));
            let found = read_each(connection, query, |columns| {
                let schedule = FiredSchedule {
                    schedule_id: ScheduleId(columns.take()?),
                    name: columns.take()?,
                    at: columns.take()?,
                    fires: columns.take_count()?,
                    failures: columns.take_count()?,
                };
                Ok((schedule, columns.take_count()?, columns.take_count()?))
            });
            Ok(Fired::of(found.await?))
        })
    }

    async fn has_happened_since(&self, at: DateTime<Utc>) -> Result<bool, StoreError> {
        lend!(self, |connection| {
            sqlx::query_scalar(include_str!("sql/has_happened_since.sql"))
                .bind(bounded(at))
                .fetch_one(connection)
                .await
                .map_err(broken)
        })
    }

    async fn count_tasks(&self, filter: &TaskFilter, most: u32) -> Result<u32, StoreError> {
        let mut query = list::ids(filter, Page::first(most));
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            Ok(u32::try_from(found.len()).unwrap_or(most))
        })
    }
}

/// Reads every row that the query finds, column by column.
async fn read_each<T>(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let found = query.fetch_all(connection).await.map_err(broken)?;
    found.iter().map(|row| read(&mut Columns::of(row))).collect()
}
