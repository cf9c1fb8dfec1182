//! Bulk changes: many tasks in many small transactions, so that nobody waits long and nothing is lost in between.

use chrono::{DateTime, Utc};
use futures::FutureExt;
use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Bulk, Changed, Page, Remember, Reply, StoreError, TaskFilter};
use sqlx::sqlite::SqliteConnection;

use super::rows::{Columns, Hex, micros};
use super::{SqliteStore, answers, broken, list, settle};
use crate::progress::{ByTopic, Kept, Progress};
use crate::text::to_text;

/// How many tasks are changed in one transaction.
const BATCH: u32 = 1_000;

/// What a bulk change does to its tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Ends live ones.
    Cancel,
    /// Writes failed ones once more.
    Retry,
}

/// A bulk change on its way.
struct UnderWay {
    change: Change,
    /// `None` if it asks for none of the tasks that can be changed.
    filter: Option<TaskFilter>,
    bulk: Bulk,
    remember: Option<Remember<u64>>,
    progress: Progress,
    stopped: Vec<TaskId>,
    by_topic: ByTopic,
}

/// What one transaction did.
enum Step {
    /// There is more to do.
    On(Box<UnderWay>),
    /// All is done.
    Done(Changed),
    /// Another call did the rest.
    Replayed(Answer),
}

/// Makes a bulk change, or counts what it would change.
pub(super) async fn run(
    store: &SqliteStore,
    change: Change,
    filter: &TaskFilter,
    bulk: Bulk,
    remember: Option<Remember<u64>>,
) -> Result<Reply<Changed>, StoreError> {
    let filter = match change {
        Change::Cancel => filter.live_only(),
        Change::Retry => filter.failed_only(),
    };
    let (progress, stopped, by_topic) = (Progress::default(), Vec::new(), ByTopic::default());
    let mut under_way = UnderWay { change, filter, bulk, remember, progress, stopped, by_topic };
    loop {
        let only_reads = under_way.bulk == Bulk::DryRun && under_way.remember.is_none();
        let step = match only_reads {
            true => store.read(move |connection, now| under_way.step(connection, now).boxed()).await?,
            false => store.write(move |connection, now| under_way.step(connection, now).boxed()).await?,
        };
        match step {
            Step::On(next) => under_way = *next,
            Step::Done(changed) => return Ok(Reply::Made(changed)),
            Step::Replayed(answer) => return Ok(Reply::Replayed(answer)),
        }
    }
}

impl UnderWay {
    async fn step(mut self, connection: &mut SqliteConnection, now: DateTime<Utc>) -> Result<Step, StoreError> {
        match answers::kept(connection, self.remember.as_ref(), now).await? {
            Some(Kept::Answer(answer)) => return Ok(Step::Replayed(answer)),
            Some(Kept::Progress(progress)) => self.progress = progress,
            None => {}
        }
        let Some(filter) = &self.filter else { return self.done(connection, now).await };
        if self.bulk == Bulk::DryRun {
            self.progress.count = self.count(connection, filter).await?;
            return self.done(connection, now).await;
        }
        let ids = self.page(connection, filter).await?;
        self.progress.count += self.apply(connection, &ids, now).await?;
        if ids.len() < BATCH as usize {
            return self.done(connection, now).await;
        }
        self.progress.after = ids.last().copied();
        if let Some(remember) = &self.remember {
            answers::keep_progress(connection, remember, self.progress, now).await?;
        }
        Ok(Step::On(Box::new(self)))
    }

    async fn done(self, connection: &mut SqliteConnection, now: DateTime<Utc>) -> Result<Step, StoreError> {
        answers::keep(connection, self.remember, &self.progress.count, now).await?;
        Ok(Step::Done(Changed { count: self.progress.count, stopped: self.stopped, by_topic: self.by_topic.into() }))
    }

    /// Changes these tasks; answers how many, and notes those that ran.
    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
        ids: &[TaskId],
        now: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        match self.change {
            Change::Cancel => {
                let hex = to_text(&ids.iter().map(|id| Hex(id.0)).collect::<Vec<_>>())?;
                let running = sqlx::query(include_str!("sql/running_tasks.sql"))
                    .bind(&hex)
                    .fetch_all(&mut *connection)
                    .await
                    .map_err(broken)?;
                for row in &running {
                    self.stopped.push(TaskId(Columns::of(row).take()?));
                }
                let count = settle::cancel(connection, ids, now).await?;
                self.by_topic.merge(settle::by_topic(connection, ids).await?);
                Ok(count)
            }
            Change::Retry => {
                let rows: Vec<_> = ids.iter().map(|id| (Hex(TaskId::generate().0), Hex(id.0))).collect();
                let written = sqlx::query(include_str!("sql/retry_tasks.sql"))
                    .bind(to_text(&rows)?)
                    .bind(micros(now))
                    .execute(connection)
                    .await
                    .map_err(broken)?;
                Ok(written.rows_affected())
            }
        }
    }

    async fn page(&self, connection: &mut SqliteConnection, filter: &TaskFilter) -> Result<Vec<TaskId>, StoreError> {
        let page = Page { after: self.progress.after, limit: BATCH };
        let found = list::ids(filter, page).build().fetch_all(connection).await.map_err(broken)?;
        found.iter().map(|row| Columns::of(row).take().map(TaskId)).collect()
    }

    async fn count(&self, connection: &mut SqliteConnection, filter: &TaskFilter) -> Result<u64, StoreError> {
        let mut query = match self.change {
            Change::Cancel => list::count_live(filter),
            Change::Retry => list::count_retriable(filter),
        };
        let row = query.build().fetch_one(connection).await.map_err(broken)?;
        Columns::of(&row).take_count()
    }
}
