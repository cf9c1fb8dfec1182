//! The definitions of topics as this node knows them: read from the store at most once a second.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_actors::{OTHER_TOPICS, TopicMeters, topic_label};
use punctual_domain::store::{Created, Store, StoreError};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::topic::{Route, Topic, TopicDefinition};
use tokio::sync::Mutex;

/// How soon this node notices what another one wrote.
const FRESH: Duration = Duration::from_secs(1);

/// What the store says its definitions are.
type Answer = Result<Arc<[TopicDefinition]>, StoreError>;

/// Knows the definitions of topics, and which topics this node has handlers for.
pub(crate) struct TopicDirectory {
    store: Arc<dyn Store>,
    handled: BTreeSet<&'static str>,
    /// Whether this node can hand tasks to queues.
    has_redis: bool,
    /// What the store last answered, a refusal too: while it is away, callers do not wait for it one after another.
    seen: Mutex<Option<(Instant, Answer)>>,
    /// Definitions changed since.
    is_stale: AtomicBool,
    /// By the label of their topics; there are no more of them than there were definitions.
    meters: SyncMutex<HashMap<String, Arc<TopicMeters>>>,
}

impl TopicDirectory {
    pub(crate) fn new(store: Arc<dyn Store>, handled: BTreeSet<&'static str>, has_redis: bool) -> Self {
        Self {
            store,
            handled,
            has_redis,
            seen: Mutex::new(None),
            is_stale: AtomicBool::new(false),
            meters: SyncMutex::default(),
        }
    }

    /// All definitions, at most a second old.
    pub(crate) async fn definitions(&self) -> Answer {
        let mut seen = self.seen.lock().await;
        if self.is_stale.swap(false, Ordering::AcqRel) {
            *seen = None;
        }
        if let Some((at, definitions)) = &*seen
            && at.elapsed() < FRESH
        {
            return definitions.clone();
        }
        let definitions = self.store.topics().await.map(Arc::from);
        *seen = Some((Instant::now(), definitions.clone()));
        definitions
    }

    /// What is measured of the tasks of a topic. While the definitions are not known it counts among the others.
    pub(crate) async fn meters(&self, topic: &Topic) -> Arc<TopicMeters> {
        let definitions = self.definitions().await;
        let label = definitions.as_deref().map_or(OTHER_TOPICS, |definitions| topic_label(definitions, topic));
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        match meters.get(label) {
            Some(known) => Arc::clone(known),
            None => Arc::clone(meters.entry(label.to_owned()).or_insert_with(|| TopicMeters::of(label))),
        }
    }

    /// Counts those of newly made tasks that will only be announced.
    pub(crate) fn count_undefined(&self, definitions: &[TopicDefinition], made: &[Created]) {
        let is_undefined = |made: &&Created| match made {
            Created::Fresh(task) => !self.is_served(definitions, &task.topic),
            Created::Deduplicated(_) => false,
        };
        let undefined = made.iter().filter(is_undefined).count();
        if undefined > 0 {
            metrics::counter!("punctual_tasks_undefined_total").increment(undefined as u64);
        }
    }

    fn is_served(&self, definitions: &[TopicDefinition], topic: &Topic) -> bool {
        self.handled.contains(topic.as_str()) || TopicDefinition::for_topic(definitions, topic).is_some()
    }

    /// Has the store asked the next time.
    pub(crate) fn forget(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Why nothing happens to the tasks of a route on this node, if nothing does.
    pub(crate) fn unserved(&self, route: &Route) -> Option<&'static str> {
        match route {
            Route::Bullmq { .. } if !self.has_redis => {
                Some("BullMQ needs Redis, and this node has none (REDIS_URL): the tasks wait for a node that has one")
            }
            Route::Handler | Route::Webhook { .. } | Route::Pull | Route::Bullmq { .. } | Route::Event => None,
        }
    }

    /// What a caller should know about sending tasks to `topic`.
    pub(crate) fn warnings(&self, definitions: &[TopicDefinition], topic: &Topic) -> Vec<String> {
        if self.handled.contains(topic.as_str()) {
            return Vec::new();
        }
        if let Some(definition) = TopicDefinition::for_topic(definitions, topic) {
            return self.unserved(&definition.route).map(str::to_owned).into_iter().collect();
        }
        vec![format!(
            "nobody serves the topic {topic}: it has no definition and no handler, so its tasks are only announced when they \
             are due, and completed; is it spelled right?"
        )]
    }

    /// What whoever looks at a task should know.
    pub(crate) fn warnings_of(&self, definitions: &[TopicDefinition], task: &Task) -> Vec<String> {
        let may_surprise = match task.status {
            TaskStatus::Pending | TaskStatus::Running => true,
            // Nothing else tells it from work that somebody did; what a topic waits for does not matter to it.
            TaskStatus::Completed => !self.is_served(definitions, &task.topic),
            // Whatever became of these, it is not that they were announced and completed.
            TaskStatus::Failed | TaskStatus::Cancelled => false,
        };
        if may_surprise { self.warnings(definitions, &task.topic) } else { Vec::new() }
    }
}
