//! The definitions of topics as this node knows them: read from the store at most once a second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_domain::store::{Store, StoreError};
use punctual_domain::topic::{Topic, TopicDefinition};
use tokio::sync::Mutex;

/// How soon this node notices what another one wrote.
const FRESH: Duration = Duration::from_secs(1);

/// Knows the definitions of topics, and which topics this node has handlers for.
pub(crate) struct TopicDirectory {
    store: Arc<dyn Store>,
    handled: BTreeSet<&'static str>,
    seen: Mutex<Option<(Instant, Arc<[TopicDefinition]>)>>,
}

impl TopicDirectory {
    pub(crate) fn new(store: Arc<dyn Store>, handled: BTreeSet<&'static str>) -> Self {
        Self { store, handled, seen: Mutex::new(None) }
    }

    /// All definitions, at most a second old.
    pub(crate) async fn definitions(&self) -> Result<Arc<[TopicDefinition]>, StoreError> {
        let mut seen = self.seen.lock().await;
        if let Some((at, definitions)) = &*seen
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(definitions));
        }
        let definitions: Arc<[_]> = self.store.topics().await?.into();
        *seen = Some((Instant::now(), Arc::clone(&definitions)));
        Ok(definitions)
    }

    /// What a caller should know about sending tasks to `topic`.
    pub(crate) fn warnings(&self, definitions: &[TopicDefinition], topic: &Topic) -> Vec<String> {
        if self.handled.contains(topic.as_str()) || TopicDefinition::for_topic(definitions, topic).is_some() {
            return Vec::new();
        }
        vec![format!("the topic {topic} has no definition and no handler: when due, its tasks are only announced")]
    }
}
