//! Tasks with a past, written straight into the database before the service opens it.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::clock::Clock;
use punctual_domain::id::{MessageId, NodeId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::outbox::NewMessage;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{ClaimRequest, Settled, Settling, Store, Suspects, Want};
use punctual_domain::task::{AttemptOutcome, NewTask, Settlement, Task};
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_store::Options;

use super::Database;

/// A node that was there before the service.
pub struct Past {
    store: Arc<dyn Store>,
    node: NodeId,
}

impl Past {
    pub async fn of(database: &Database) -> Self {
        Self::by(database, None).await
    }

    /// By another clock than the database's.
    pub async fn by(database: &Database, clock: Option<Arc<dyn Clock>>) -> Self {
        let store = punctual_store::connect(&database.url, Options { clock, ..Options::default() }).await.unwrap();
        Self { store, node: NodeId::generate() }
    }

    /// Writes a task and claims it for an hour.
    pub async fn running(&self, topic: &str) -> Task {
        self.store.create_tasks(vec![NewTask::new(topic.parse().unwrap())], None).await.unwrap();
        self.claim(topic, Duration::from_secs(3600)).await
    }

    /// Writes a task and settles its attempts one after the other.
    pub async fn settled(&self, topic: &str, settlements: impl IntoIterator<Item = Settlement>) -> TaskId {
        let task = NewTask::new(topic.parse().unwrap());
        let id = task.id;
        self.store.create_tasks(vec![task], None).await.unwrap();
        for settlement in settlements {
            let claimed = self.claim(topic, Duration::from_secs(3600)).await;
            let settling = Settling { task_id: claimed.id, epoch: claimed.epoch, settlement };
            assert_eq!(self.store.settle(vec![settling]).await.unwrap(), [Settled::Now]);
        }
        id
    }

    /// Writes a task that is due now.
    pub async fn due(&self, topic: &str) {
        self.store.create_tasks(vec![NewTask::new(topic.parse().unwrap())], None).await.unwrap();
    }

    /// Writes a schedule, and has it triggered.
    pub async fn triggered(&self, schedule: &Schedule) {
        if self.store.schedule(schedule.id).await.unwrap().is_none() {
            self.store.create_schedule(schedule, None).await.unwrap();
        }
        self.store.trigger(schedule.id, "2026a", None).await.unwrap();
    }

    /// Begins a task that is due, lets something happen, and settles it.
    pub async fn attempt(&self, topic: &str, settlement: Settlement, meanwhile: impl FnOnce()) {
        let claimed = self.claim(topic, Duration::from_secs(3600)).await;
        meanwhile();
        let settling = Settling { task_id: claimed.id, epoch: claimed.epoch, settlement };
        assert_eq!(self.store.settle(vec![settling]).await.unwrap(), [Settled::Now]);
    }

    /// Writes a task whose only attempt failed.
    pub async fn failed(&self, topic: &str) -> TaskId {
        let outcome = AttemptOutcome::Failed;
        self.settled(topic, [Settlement::Failed { outcome, error: "it broke".into() }]).await
    }

    /// Writes so many tasks whose only attempts failed.
    pub async fn many_failed(&self, topic: &str, count: u32) {
        let tasks = (0..count).map(|_| NewTask::new(topic.parse().unwrap())).collect();
        self.store.create_tasks(tasks, None).await.unwrap();
        let claimed = self.claims(topic, count, Duration::from_secs(3600)).await;
        let settlement = Settlement::Failed { outcome: AttemptOutcome::Failed, error: "it broke".into() };
        let settle = |task: &Task| Settling { task_id: task.id, epoch: task.epoch, settlement: settlement.clone() };
        self.store.settle(claimed.iter().map(settle).collect()).await.unwrap();
    }

    /// Writes a task that was lost so often that it was given up.
    pub async fn lost(&self, topic: &str) -> TaskId {
        let task = NewTask::new(topic.parse().unwrap());
        let id = task.id;
        self.store.create_tasks(vec![task], None).await.unwrap();
        self.claim(topic, Duration::from_millis(1)).await;
        loop {
            let expired = self.store.expire(1, 10).await.unwrap();
            if expired.failed == 1 {
                return id;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Writes a task that was lost twice, and claims it for no longer than a moment.
    pub async fn lost_twice(&self, topic: &str) {
        self.abandoned(topic).await;
        for _ in 0..2 {
            while self.store.expire(3, 10).await.unwrap().freed == 0 {
                tokio::task::yield_now().await;
            }
            self.claim(topic, Duration::from_millis(1)).await;
        }
    }

    /// Writes a task and claims it for no longer than a moment.
    pub async fn abandoned(&self, topic: &str) -> TaskId {
        self.store.create_tasks(vec![NewTask::new(topic.parse().unwrap())], None).await.unwrap();
        self.claim(topic, Duration::from_millis(1)).await.id
    }

    /// Defines a topic that a webhook serves.
    pub async fn webhook(&self, topic: &str, url: &str, secret: &str) {
        let route = Route::Webhook { url: url.into(), secrets: vec![secret.into()] };
        self.store.put_topic(&TopicDefinition::new(topic.parse().unwrap(), route)).await.unwrap();
    }

    /// Posts a message with such a body to Ada.
    pub async fn message(&self, key: &str, transport: &str, body: serde_json::Value) -> MessageId {
        self.message_to("ada@example.com", key, transport, body).await
    }

    /// Posts a message with such a body.
    pub async fn message_to(&self, recipient: &str, key: &str, transport: &str, body: serde_json::Value) -> MessageId {
        let id = MessageId::generate();
        let message = NewMessage {
            id,
            dedupe_key: key.into(),
            transport: transport.into(),
            recipient: recipient.into(),
            body: Json::parse(body.to_string()).unwrap(),
        };
        self.store.post(vec![message]).await.unwrap();
        id
    }

    async fn claim(&self, topic: &str, lease: Duration) -> Task {
        self.claims(topic, 1, lease).await.pop().unwrap()
    }

    async fn claims(&self, topic: &str, slots: u32, lease: Duration) -> Vec<Task> {
        let wants = vec![Want { topic: topic.parse().unwrap(), slots }];
        self.store.claim(&ClaimRequest { node: self.node, lease, wants, suspects: Suspects::Any }).await.unwrap()
    }

    /// Leaves the database to the service.
    pub async fn close(self) {
        self.store.close().await.unwrap();
    }
}
