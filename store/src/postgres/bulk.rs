//! Bulk changes: many tasks in many small transactions, so that nobody waits long and nothing is lost in between.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Bulk, Changed, Page, Remember, Reply, StoreError, TaskFilter};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::tasks::{self, Running, end_as_cancelled};
use super::{PostgresStore, answers, broken, list, rows};
use crate::progress::{ByTopic, Kept, Progress};

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

/// What one transaction did.
enum Step {
    /// There is more to do.
    On(Progress),
    /// All is done; so many were changed.
    Done(u64),
    /// Another call did the rest.
    Replayed(Answer),
}

/// Makes a bulk change, or counts what it would change.
pub(super) async fn run(
    store: &PostgresStore,
    change: Change,
    filter: &TaskFilter,
    bulk: Bulk,
    mut remember: Option<Remember<u64>>,
) -> Result<Reply<Changed>, StoreError> {
    let filter = match change {
        Change::Cancel => filter.live_only(),
        Change::Retry => filter.failed_only(),
    };
    let mut progress = Progress::default();
    let (mut stopped, mut by_topic) = (Vec::new(), ByTopic::default());
    loop {
        let step = {
            let (filter, remember) = (&filter, &mut remember);
            let (stopped, by_topic) = (&mut stopped, &mut by_topic);
            lend!(store, |connection| {
                let mut transaction = connection.begin().await.map_err(broken)?;
                match answers::reserve(&mut transaction, remember.as_ref(), store.now()).await? {
                    Some(Kept::Answer(answer)) => return Ok(Step::Replayed(answer)),
                    Some(Kept::Progress(kept)) => progress = kept,
                    None => {}
                }
                let next = match (filter, bulk) {
                    (None, _) => None,
                    (Some(filter), Bulk::DryRun) => {
                        progress.count = count(&mut transaction, change, filter).await?;
                        None
                    }
                    (Some(filter), Bulk::Apply) => {
                        let ids = page(&mut transaction, filter, progress.after).await?;
                        progress.count += apply(&mut transaction, store, change, &ids, stopped, by_topic).await?;
                        ids.last().filter(|_| ids.len() == BATCH as usize).map(|id| TaskId(*id))
                    }
                };
                match (next, remember.as_ref()) {
                    (None, _) => answers::keep(&mut transaction, remember.take(), &progress.count).await?,
                    (Some(_), None) => progress.after = next,
                    (Some(_), Some(remember)) => {
                        progress.after = next;
                        answers::keep_progress(&mut transaction, remember, progress).await?;
                    }
                }
                transaction.commit().await.map_err(broken)?;
                Ok(if next.is_some() { Step::On(progress) } else { Step::Done(progress.count) })
            })?
        };
        match step {
            Step::On(reached) => progress = reached,
            Step::Done(count) => return Ok(Reply::Made(Changed { count, stopped, by_topic: by_topic.into() })),
            Step::Replayed(answer) => return Ok(Reply::Replayed(answer)),
        }
    }
}

/// Changes these tasks; answers how many, and notes those that ran.
async fn apply(
    connection: &mut PgConnection,
    store: &PostgresStore,
    change: Change,
    ids: &[Uuid],
    stopped: &mut Vec<TaskId>,
    by_topic: &mut ByTopic,
) -> Result<u64, StoreError> {
    match change {
        Change::Cancel => {
            let ended = end_as_cancelled(&mut *connection, ids, Running::Too, store.now()).await?;
            by_topic.merge(tasks::by_topic(&ended));
            stopped.extend(ended.iter().filter(|ended| ended.was_running).map(|ended| ended.id));
            Ok(ended.len() as u64)
        }
        Change::Retry => {
            let new: Vec<_> = ids.iter().map(|_| TaskId::generate().0).collect();
            let written = sqlx::query(include_str!("sql/retry_tasks.sql"))
                .bind(store.now())
                .bind(new)
                .bind(ids)
                .execute(connection)
                .await
                .map_err(broken)?;
            Ok(written.rows_affected())
        }
    }
}

async fn page(
    connection: &mut PgConnection,
    filter: &TaskFilter,
    after: Option<TaskId>,
) -> Result<Vec<Uuid>, StoreError> {
    let found = list::ids(filter, Page { after, limit: BATCH }).build().fetch_all(connection).await.map_err(broken)?;
    found.iter().map(|row| rows::Columns::of(row).take()).collect()
}

async fn count(connection: &mut PgConnection, change: Change, filter: &TaskFilter) -> Result<u64, StoreError> {
    let mut query = match change {
        Change::Cancel => list::count_live(filter),
        Change::Retry => list::count_retriable(filter),
    };
    let row = query.build().fetch_one(connection).await.map_err(broken)?;
    rows::Columns::of(&row).take_count()
}
