//! A store as one node has it, with short words for the usual moves.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::fire::{DueSchedule, FireRules, Tick, decide, decide_before_deletion};
use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{
    Backfill, Backfilled, Bulk, ClaimRequest, Created, Creation, Extension, Lateness, Page, Settled, Settling, Store,
    StoreError, Suspects, TaskFilter, Ticked, Want,
};
use punctual_domain::task::{AttemptRecord, NewTask, Settlement, Task, TaskStatus};
use punctual_domain::time::ZoneDatabase;

use super::{TaskBuilder, completed, failed, fresh, topic};

/// How long leases last where the behaviour does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) static ZONES: LazyLock<ZoneDatabase> = LazyLock::new(ZoneDatabase::bundled);

/// A store as one node has it. The shorthands say what the answer has to be, and fail where it is not.
#[derive(Clone)]
pub(crate) struct NodeStore {
    pub(crate) id: NodeId,
    pub(crate) store: Arc<dyn Store>,
}

impl Deref for NodeStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl NodeStore {
    /// Asks for one task to be written.
    pub(crate) async fn create(&self, task: impl Into<NewTask>) -> Result<Created, StoreError> {
        self.create_all(vec![task.into()]).await.map(|mut made| made.remove(0))
    }

    /// Asks for tasks to be written together.
    pub(crate) async fn create_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Created>, StoreError> {
        match self.create_tasks(tasks, None).await? {
            Creation::Made(made) => Ok(made),
            Creation::Replayed(answer) => panic!("replayed without an Idempotency-Key: {answer:?}"),
        }
    }

    /// Writes a task that was not there.
    pub(crate) async fn add(&self, task: impl Into<NewTask>) -> Task {
        fresh(self.create(task).await.unwrap())
    }

    /// Writes tasks that were not there, together.
    pub(crate) async fn add_all(&self, tasks: impl IntoIterator<Item = TaskBuilder>) -> Vec<Task> {
        let tasks = tasks.into_iter().map(NewTask::from).collect();
        self.create_all(tasks).await.unwrap().into_iter().map(fresh).collect()
    }

    /// Cancels a task that is there.
    pub(crate) async fn cancel(&self, id: TaskId) -> Result<Task, StoreError> {
        self.store.cancel(id, None).await?.into_made()
    }

    /// Cancels a task and writes another in its place.
    pub(crate) async fn reschedule(&self, id: TaskId, replacement: NewTask) -> Result<Task, StoreError> {
        self.store.reschedule(id, replacement, None).await?.into_made()
    }

    /// Asks for a failed task to be written once more.
    pub(crate) async fn retry(&self, id: TaskId) -> Result<Created, StoreError> {
        self.store.retry(id, None).await?.into_made()
    }

    /// Cancels what matches; answers how many.
    pub(crate) async fn cancel_matching(&self, filter: &TaskFilter, bulk: Bulk) -> Result<u64, StoreError> {
        Ok(self.store.cancel_matching(filter, bulk, None).await?.into_made()?.count)
    }

    /// Retries what matches; answers how many.
    pub(crate) async fn retry_matching(&self, filter: &TaskFilter, bulk: Bulk) -> Result<u64, StoreError> {
        Ok(self.store.retry_matching(filter, bulk, None).await?.into_made()?.count)
    }

    /// Writes a schedule.
    pub(crate) async fn create_schedule(&self, schedule: &Schedule) -> Result<Schedule, StoreError> {
        self.store.create_schedule(schedule, None).await?.into_made()
    }

    /// Writes an edited schedule.
    pub(crate) async fn update_schedule(&self, schedule: &Schedule) -> Result<Schedule, StoreError> {
        self.store.update_schedule(schedule, None).await?.into_made()
    }

    /// Deletes a schedule that is not due, whatever its version; whether there was one.
    pub(crate) async fn delete_schedule(&self, id: ScheduleId) -> Result<bool, StoreError> {
        Ok(self.store.delete_schedule(id, None).await?.is_some())
    }

    /// Deletes a schedule as those do who are asked to: what is due is decided first.
    pub(crate) async fn delete_schedule_in_order(&self, id: ScheduleId) -> Result<bool, StoreError> {
        loop {
            match self.delete_schedule(id).await {
                Err(StoreError::Moved) => {
                    let decide = |due: &DueSchedule, now| Some(decide_before_deletion(due, now, &rules()).unwrap());
                    self.tick_schedule(id, &decide).await?;
                }
                deleted => return deleted,
            }
        }
    }

    /// Triggers a schedule.
    pub(crate) async fn trigger(&self, id: ScheduleId) -> Result<Task, StoreError> {
        self.store.trigger(id, "2026a", None).await?.into_made()
    }

    /// Fills in these instants of a schedule, however many.
    pub(crate) async fn backfill(
        &self,
        id: ScheduleId,
        instants: Vec<DateTime<Utc>>,
    ) -> Result<Backfilled, StoreError> {
        let backfill = Backfill { instants, most: u64::MAX, bulk: Bulk::Apply, tz_version: "2026a".into() };
        self.store.backfill(id, backfill, None).await?.into_made()
    }

    /// What this node asks for when it claims from one topic.
    pub(crate) fn request(&self, topic_name: &str, slots: u32) -> ClaimRequest {
        ClaimRequest {
            node: self.id,
            lease: LEASE,
            wants: vec![Want { topic: topic(topic_name), slots }],
            suspects: Suspects::Any,
        }
    }

    /// Claims from one topic.
    pub(crate) async fn claim_up_to(&self, slots: u32, topic: &str) -> Vec<Task> {
        self.claim(&self.request(topic, slots)).await.unwrap()
    }

    /// Claims the one task that is due in the topic.
    pub(crate) async fn claim_one(&self, topic: &str) -> Task {
        let mut claimed = self.claim_up_to(2, topic).await;
        assert_eq!(claimed.len(), 1, "claimed {claimed:?}");
        claimed.remove(0)
    }

    /// Writes a task and claims it.
    pub(crate) async fn running(&self, task: impl Into<NewTask>) -> Task {
        let task = task.into();
        let (id, topic) = (task.id, task.topic.to_string());
        self.add(task).await;
        let claimed = self.claim_one(&topic).await;
        assert_eq!(claimed.id, id);
        claimed
    }

    /// Writes a task and brings it to its end.
    pub(crate) async fn ended(&self, task: impl Into<NewTask>, status: TaskStatus) -> Task {
        let running = self.running(task).await;
        let settlement = match status {
            TaskStatus::Completed => completed(),
            TaskStatus::Failed => failed("it broke"),
            TaskStatus::Cancelled => Settlement::Cancelled,
            TaskStatus::Pending | TaskStatus::Running => panic!("{status:?} is no end"),
        };
        self.settle_now(&running, settlement).await
    }

    /// Settles a task by the epoch it was claimed with.
    pub(crate) async fn settle_as(&self, task: &Task, settlement: Settlement) -> Settled {
        self.settle_by(task.id, task.epoch, settlement).await
    }

    /// Settles a task by an epoch.
    pub(crate) async fn settle_by(&self, task_id: TaskId, epoch: Epoch, settlement: Settlement) -> Settled {
        let settled = self.settle(vec![Settling { task_id, epoch, settlement }]).await.unwrap();
        assert_eq!(settled.len(), 1);
        settled[0]
    }

    /// Settles a task that runs, and tells what became of it.
    pub(crate) async fn settle_now(&self, task: &Task, settlement: Settlement) -> Task {
        assert_eq!(self.settle_as(task, settlement).await, Settled::Now);
        self.read(task.id).await
    }

    /// Extends one lease.
    pub(crate) async fn extend_one(&self, task: &Task, lease: Duration) -> Option<DateTime<Utc>> {
        let held = [Extension { task_id: task.id, epoch: task.epoch }];
        let extended = self.extend(&held, lease).await.unwrap();
        assert_eq!(extended.len(), 1);
        extended[0]
    }

    /// A task that is there.
    pub(crate) async fn read(&self, id: TaskId) -> Task {
        self.task(id).await.unwrap().expect("the task").task
    }

    /// The attempts of a task that is there.
    pub(crate) async fn attempts(&self, id: TaskId) -> Vec<AttemptRecord> {
        self.task(id).await.unwrap().expect("the task").attempts
    }

    /// The first thousand tasks that match.
    pub(crate) async fn list(&self, filter: TaskFilter) -> Vec<Task> {
        self.tasks(&filter, Page::first(1000)).await.unwrap()
    }

    /// Decides due schedules by the real rules.
    pub(crate) async fn tick_by_the_rules(&self) -> Ticked {
        self.tick(Lateness::Any, 100, &by_the_rules).await.unwrap()
    }

    /// Decides one schedule by the real rules, if it is due.
    pub(crate) async fn tick_one_by_the_rules(&self, id: ScheduleId) -> Ticked {
        self.tick_schedule(id, &by_the_rules).await.unwrap()
    }
}

/// Decides by the real rules.
pub(crate) fn by_the_rules(due: &DueSchedule, now: DateTime<Utc>) -> Option<Tick> {
    Some(decide(due, now, &rules()).unwrap())
}

fn rules() -> FireRules {
    FireRules { zones: ZONES.clone(), misfire_threshold: TimeDelta::seconds(30) }
}

/// What a tick counted: schedules, fires that made a task, instants that were skipped, races that were lost.
pub(crate) fn counts(ticked: &Ticked) -> [u64; 4] {
    [ticked.schedules, ticked.fired, ticked.skipped, ticked.lost_races]
}

/// Runs one future per node side by side, and answers what each answered.
pub(crate) async fn side_by_side<T, F>(nodes: Vec<NodeStore>, act: impl Fn(NodeStore) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let racing: Vec<_> = nodes.into_iter().map(|node| tokio::spawn(act(node))).collect();
    futures::future::join_all(racing).await.into_iter().map(Result::unwrap).collect()
}
