//! What serves a topic on this node.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use punctual_sdk::{Attempt, Handler, Outcome, Plugin};

/// The handlers that plugins registered on this node.
#[derive(Clone, Default)]
pub struct Handlers {
    registered: Vec<(TopicPattern, Arc<dyn Handler>)>,
}

impl Handlers {
    /// Collects the handlers of plugins. The first plugin that registers a topic serves it.
    pub fn of<'a>(plugins: impl IntoIterator<Item = &'a dyn Plugin>) -> Self {
        let registered = plugins
            .into_iter()
            .flat_map(|plugin| plugin.handlers())
            .map(|(topic, handler)| (TopicPattern::from_stored(topic), Arc::from(handler)))
            .collect();
        Self { registered }
    }

    /// Adds a handler.
    pub fn with(mut self, topic: &str, handler: impl Handler + 'static) -> Self {
        self.registered.push((TopicPattern::from_stored(topic), Arc::new(handler)));
        self
    }

    /// The topics that have a handler here.
    pub fn topics(&self) -> impl Iterator<Item = &TopicPattern> {
        self.registered.iter().map(|(topic, _)| topic)
    }

    fn for_topic(&self, topic: &Topic) -> Option<Arc<dyn Handler>> {
        // Of equals the last is the largest: backwards, that is the one registered first.
        self.registered
            .iter()
            .rev()
            .filter(|(pattern, _)| pattern.matches(topic))
            .max_by_key(|(pattern, _)| pattern.closeness())
            .map(|(_, handler)| handler.clone())
    }
}

/// How a topic is served here.
#[derive(Clone)]
pub(crate) struct Server {
    /// What performs the attempts.
    pub(crate) handler: Arc<dyn Handler>,
    /// How many at a time.
    pub(crate) concurrency: u32,
    /// How many begin per second at the most.
    pub(crate) rate_per_second: Option<f64>,
}

/// How `topic` is served on this node; `None` if its tasks wait for somebody else, or it is paused.
pub(crate) fn server(handlers: &Handlers, definitions: &[TopicDefinition], topic: &Topic) -> Option<Server> {
    let definition = TopicDefinition::for_topic(definitions, topic);
    if definition.is_some_and(|definition| definition.paused) {
        return None;
    }
    let handler: Arc<dyn Handler> = match definition.map(|definition| &definition.route) {
        Some(Route::Handler) => handlers.for_topic(topic)?,
        Some(Route::Event) => Arc::new(Announce),
        Some(Route::Pull | Route::Webhook { .. } | Route::Bullmq { .. }) => return None,
        // A topic nobody defined: a plugin's, or one that is only announced.
        None => handlers.for_topic(topic).unwrap_or_else(|| Arc::new(Announce)),
    };
    Some(Server {
        handler,
        concurrency: definition.map_or(TopicDefinition::DEFAULT_CONCURRENCY, |definition| definition.concurrency),
        rate_per_second: definition.and_then(|definition| definition.rate_per_second),
    })
}

/// Serves topics that nobody serves: a due task is announced and completed.
struct Announce;

#[async_trait]
impl Handler for Announce {
    async fn handle(&self, _: Attempt) -> Outcome {
        Outcome::completed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_served_by_its_route_or_a_handler_or_announced() {
        let handlers = Handlers::default().with("mail", Announce).with("bulk.*", Announce);
        let define = |name: &str, route: Route| TopicDefinition::new(name.parse().unwrap(), route);
        let mut paused = define("paused", Route::Event);
        paused.paused = true;
        let definitions = [
            define("mail", Route::Handler),
            define("elsewhere", Route::Handler),
            define("pull", Route::Pull),
            define("event", Route::Event),
            paused,
        ];
        for (topic, served) in [
            ("mail", true),
            ("elsewhere", false),
            ("pull", false),
            ("event", true),
            ("paused", false),
            ("bulk.x", true),
            ("nobody", true),
        ] {
            assert_eq!(server(&handlers, &definitions, &topic.parse().unwrap()).is_some(), served, "{topic}");
        }
    }
}
