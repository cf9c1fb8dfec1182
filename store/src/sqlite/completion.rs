//! The common end: tasks that all completed at their first claim with nothing to show.
//!
//! They are copied and removed by the numbers of their rows, in one text, and so in one hop to SQLite's thread; no attempt
//! of theirs can have been noted. What does not fit goes the way of every other outcome (`settle.rs`).

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use futures::future::ready;
use punctual_domain::id::Epoch;
use punctual_domain::store::{Settling, StoreError};
use punctual_domain::task::Settlement;
use sqlx::Executor;
use sqlx::sqlite::SqliteConnection;

use super::broken;
use super::lines::Lines;
use super::rows::micros;
use crate::text::to_text;

pub(super) struct Completion {
    /// How many there are.
    count: i64,
    /// The numbers of their rows, as a JSON array.
    lines: String,
    /// Their ids in the same order, one after the other.
    ids: Vec<u8>,
    /// The first and the last of their rows.
    ends: (i64, i64),
}

impl Completion {
    /// What these settlings write, if all of them are such ends and it is known where their tasks stand.
    pub(super) fn of(settlings: &[Settling], lines: &Lines) -> Result<Option<Self>, StoreError> {
        let is_plain = |s: &Settling| s.epoch == Epoch(1) && s.settlement == Settlement::Completed { result: None };
        if !settlings.iter().all(is_plain) {
            return Ok(None);
        }
        let Some(lines) = lines.take(settlings.iter().map(|settling| settling.task_id)) else { return Ok(None) };
        let ids = settlings.iter().flat_map(|settling| *settling.task_id.0.as_bytes()).collect();
        let ends = lines.iter().fold((i64::MAX, i64::MIN), |(first, last), line| (first.min(*line), last.max(*line)));
        Ok(Some(Self { count: settlings.len() as i64, lines: to_text(&lines)?, ids, ends }))
    }

    /// Whether their rows stand one after the other, as those of tasks that were written together do.
    fn is_stretch(&self) -> bool {
        let (first, last) = self.ends;
        last.checked_sub(first) == Some(self.count - 1)
    }

    /// Writes all of them. `false`: some can no longer be settled, and nothing was written.
    pub(super) async fn write(
        &self,
        connection: &mut SqliteConnection,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        const COMPLETE: &str =
            concat!(include_str!("sql/complete_tasks.sql"), ";\n", include_str!("sql/remove_completed.sql"));
        const COMPLETE_STRETCH: &str =
            concat!(include_str!("sql/complete_tasks.sql"), ";\n", include_str!("sql/remove_stretch.sql"));
        let (first, last) = self.ends;
        let complete = sqlx::query(if self.is_stretch() { COMPLETE_STRETCH } else { COMPLETE })
            .bind(&self.lines)
            .bind(&self.ids)
            .bind(micros(now))
            .bind(self.count)
            .bind(first)
            .bind(last);
        let changed: Vec<u64> = connection
            .fetch_many(complete)
            .try_filter_map(|done| ready(Ok(done.left().map(|done| done.rows_affected()))))
            .try_collect()
            .await
            .map_err(broken)?;
        let count = self.count as u64;
        if changed == [count; 2] {
            return Ok(true);
        }
        // Undone by a statement: a savepoint would copy every page of every settle that needs none.
        sqlx::query(include_str!("sql/forget_completed.sql"))
            .bind(&self.lines)
            .bind(&self.ids)
            .execute(connection)
            .await
            .map_err(broken)?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_domain::id::{NodeId, TaskId};
    use punctual_domain::store::{ClaimRequest, Claims, Settled, Suspects, Tasks, Want};
    use punctual_domain::task::{NewTask, TaskStatus};

    use crate::Options;
    use crate::sqlite::SqliteStore;

    use super::*;

    async fn claimed(store: &SqliteStore) -> TaskId {
        store.create_tasks(vec![NewTask::new("mail".parse().unwrap())], None).await.unwrap();
        let request = ClaimRequest {
            node: NodeId::generate(),
            lease: Duration::from_secs(30),
            wants: vec![Want { topic: "mail".parse().unwrap(), slots: 10 }],
            suspects: Suspects::Any,
        };
        store.claim(&request).await.unwrap()[0].id
    }

    fn completed(task_id: TaskId) -> Settling {
        Settling { task_id, epoch: Epoch(1), settlement: Settlement::Completed { result: None } }
    }

    #[tokio::test]
    async fn a_row_that_another_task_took_over_is_not_ended_for_the_one_before() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let gone = claimed(&store).await;
        store.cancel(gone, None).await.unwrap();
        // SQLite gives it the number that has become free.
        let here = claimed(&store).await;

        assert_eq!(store.settle(vec![completed(gone)]).await.unwrap(), [Settled::LeaseLost]);
        assert_eq!(store.task(here).await.unwrap().unwrap().task.status, TaskStatus::Running);
        assert_eq!(store.settle(vec![completed(here)]).await.unwrap(), [Settled::Now]);
        assert_eq!(store.task(here).await.unwrap().unwrap().task.status, TaskStatus::Completed);
    }

    #[tokio::test]
    async fn tasks_that_were_settled_before_take_nothing_along() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let (first, second) = (claimed(&store).await, claimed(&store).await);
        assert_eq!(store.settle(vec![completed(first)]).await.unwrap(), [Settled::Now]);
        let both = vec![completed(first), completed(second)];
        assert_eq!(store.settle(both).await.unwrap(), [Settled::Before, Settled::Now]);
    }

    #[tokio::test]
    async fn rows_between_those_that_are_settled_stay() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let (first, between, last) = (claimed(&store).await, claimed(&store).await, claimed(&store).await);
        let ends = vec![completed(last), completed(first)];
        assert_eq!(store.settle(ends).await.unwrap(), [Settled::Now, Settled::Now]);
        for (id, status) in
            [(first, TaskStatus::Completed), (between, TaskStatus::Running), (last, TaskStatus::Completed)]
        {
            assert_eq!(store.task(id).await.unwrap().unwrap().task.status, status);
        }
    }

    #[tokio::test]
    async fn one_that_can_no_longer_be_settled_leaves_the_others_their_way() {
        for with_gap in [false, true] {
            let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
            let mut tasks = Vec::new();
            for _ in 0..4 {
                tasks.push(claimed(&store).await);
            }
            if with_gap {
                tasks.remove(1);
            } else {
                tasks.truncate(3);
            }
            store.cancel(tasks[1], None).await.unwrap();
            let settlings: Vec<_> = tasks.iter().copied().map(completed).collect();
            let completion = Completion::of(&settlings, &store.lines).unwrap().unwrap();
            assert_ne!(completion.is_stretch(), with_gap);
            store
                .lines
                .remember(tasks.iter().copied().zip(serde_json::from_str::<Vec<i64>>(&completion.lines).unwrap()));

            let settled = store.settle(settlings).await.unwrap();
            assert_eq!(settled, [Settled::Now, Settled::LeaseLost, Settled::Now], "with a gap: {with_gap}");
            for (id, status) in
                tasks.into_iter().zip([TaskStatus::Completed, TaskStatus::Cancelled, TaskStatus::Completed])
            {
                assert_eq!(store.task(id).await.unwrap().unwrap().task.status, status);
            }
        }
    }

    #[tokio::test]
    async fn rows_one_after_the_other_are_settled_in_any_order() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let (first, second, third) = (claimed(&store).await, claimed(&store).await, claimed(&store).await);
        let all = [third, first, second].map(completed);
        assert!(Completion::of(&all, &store.lines).unwrap().unwrap().is_stretch());
        store.lines.remember([(first, 1), (second, 2), (third, 3)]);
        assert_eq!(store.settle(all.to_vec()).await.unwrap(), [Settled::Now; 3]);
        for id in [first, second, third] {
            assert_eq!(store.task(id).await.unwrap().unwrap().task.status, TaskStatus::Completed);
        }
    }
}
