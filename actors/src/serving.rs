//! What serves a topic on this node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::task::Task;
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use punctual_sdk::engine::{Engine, context};
use punctual_sdk::{Attempt, Context, Handler, Listener, Outcome, Plugin, Template};

use crate::alerting::Check;
use crate::audience::{Audience, Seat};
use crate::host::{FindHints, Host};
use crate::meters::OTHER_TOPICS;
use crate::{Announcer, Deps};

/// The handlers and listeners that plugins registered on this node.
#[derive(Clone)]
pub struct Handlers {
    registered: Vec<(TopicPattern, Arc<Performer>)>,
    seats: Vec<Seat>,
    /// Performs what nobody else does.
    announce: Arc<Performer>,
    carriers: Vec<Arc<dyn Carrier>>,
    /// What the plugins send, each with its plugin.
    templates: Vec<(&'static str, Template)>,
    /// What the plugins look after.
    checks: Vec<Check>,
    /// What the configuration says to plugins.
    settings: Arc<BTreeMap<String, String>>,
    /// Who is told when attempts begin, once there is an engine.
    audience: Option<Arc<Audience>>,
}

impl Default for Handlers {
    fn default() -> Self {
        let announce = Performer::of("announce", Arc::new(Announce(None)));
        Self {
            registered: Vec::new(),
            seats: Vec::new(),
            announce: Arc::new(announce),
            carriers: Vec::new(),
            templates: Vec::new(),
            checks: Vec::new(),
            settings: Arc::default(),
            audience: None,
        }
    }
}

impl Handlers {
    /// Collects the handlers and listeners of plugins. The first plugin that registers a topic serves it; all who listen are
    /// told.
    pub fn of<'a>(plugins: impl IntoIterator<Item = &'a dyn Plugin>) -> Self {
        let mut handlers = Self::default();
        for plugin in plugins {
            for (topic, handler) in plugin.handlers() {
                handlers.register(topic, Performer::of(plugin.name(), Arc::from(handler)));
            }
            for (topics, listener) in plugin.listeners() {
                handlers.seat(topics, plugin.name(), Arc::from(listener));
            }
            for (cause, check) in plugin.health_checks() {
                let check = Arc::from(check);
                handlers.checks.push(Check { plugin: plugin.name(), cause, check, context: Context::default() });
            }
            handlers.templates.extend(plugin.templates().into_iter().map(|template| (plugin.name(), template)));
        }
        handlers
    }

    /// With what the configuration says to plugins, by the names of its variables.
    pub fn with_settings(self, settings: BTreeMap<String, String>) -> Self {
        Self { settings: Arc::new(settings), ..self }
    }

    /// Adds a handler that belongs to no plugin.
    pub fn with(mut self, topic: &str, handler: impl Handler + 'static) -> Self {
        self.register(topic, Performer::of("", Arc::new(handler)));
        self
    }

    /// Adds a listener that belongs to no plugin.
    pub fn with_listener(mut self, topics: &str, listener: impl Listener + 'static) -> Self {
        self.seat(topics, "", Arc::new(listener));
        self
    }

    /// Adds what serves a kind of route beside handlers.
    pub fn with_carrier(mut self, carrier: Arc<dyn Carrier>) -> Self {
        self.carriers.push(carrier);
        self
    }

    /// The topics that have a handler here.
    pub fn topics(&self) -> impl Iterator<Item = &TopicPattern> {
        self.registered.iter().map(|(topic, _)| topic)
    }

    /// What plugins look after.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The same, with a database behind them and the listeners in their seats.
    pub(crate) fn connected(self, deps: &Deps, hints: FindHints) -> Self {
        let engine = self.engine(deps, hints);
        let seats: Vec<_> =
            self.seats.into_iter().map(|seat| Seat { context: context(seat.plugin, engine.clone()), ..seat }).collect();
        let audience = Audience::of(seats.clone());
        let connect = |performer: &Performer| Performer {
            context: context(performer.plugin, engine.clone()),
            audience: audience.clone(),
            ..performer.clone()
        };
        Self {
            registered: self
                .registered
                .iter()
                .map(|(topic, performer)| (topic.clone(), Arc::new(connect(performer))))
                .collect(),
            seats,
            // It waits for them itself.
            announce: Arc::new(Performer::of("announce", Arc::new(Announce(audience.clone())))),
            carriers: self.carriers,
            templates: self.templates,
            checks: self
                .checks
                .into_iter()
                .map(|check| Check { context: context(check.plugin, engine.clone()), ..check })
                .collect(),
            settings: self.settings,
            audience,
        }
    }

    /// What this node provides to its plugins.
    pub(crate) fn engine(&self, deps: &Deps, hints: FindHints) -> Arc<dyn Engine> {
        Arc::new(Host {
            store: deps.store.clone(),
            hints,
            announcer: Announcer::start(&deps.store),
            zones: deps.zones.clone(),
            transports: deps.transports.clone(),
            message_lease: deps.settings.message_lease,
            templates: self.templates.iter().map(|(plugin, template)| ((*plugin, template.slug), *template)).collect(),
            settings: self.settings.clone(),
        })
    }

    fn register(&mut self, topic: &str, performer: Performer) {
        self.registered.push((TopicPattern::from_stored(topic), Arc::new(performer)));
    }

    fn seat(&mut self, topics: &str, plugin: &'static str, listener: Arc<dyn Listener>) {
        self.seats.push(Seat {
            topics: TopicPattern::from_stored(topics),
            plugin,
            listener,
            context: Context::default(),
        });
    }

    fn for_route(&self, route: &Route) -> Option<Arc<Performer>> {
        let carrier = self.carriers.iter().find(|carrier| carrier.serves(route))?.clone();
        let work = Work::Carried { carrier, route: route.clone() };
        Some(Arc::new(Performer { work, plugin: "", context: Context::default(), audience: self.audience.clone() }))
    }

    fn for_topic(&self, topic: &Topic) -> Option<Arc<Performer>> {
        // Of equals the last is the largest: backwards, that is the one registered first.
        self.registered
            .iter()
            .rev()
            .filter(|(pattern, _)| pattern.matches(topic))
            .max_by_key(|(pattern, _)| pattern.closeness())
            .map(|(_, performer)| performer.clone())
    }
}

/// Performs the attempts of a kind of route that no plugin serves.
#[async_trait]
pub trait Carrier: Send + Sync {
    /// Whether it serves such a route.
    fn serves(&self, route: &Route) -> bool;

    /// Performs an attempt of a task that was claimed.
    async fn carry(&self, route: &Route, task: &Task, attempt: Attempt) -> Carried;
}

/// What became of an attempt that a [`Carrier`] performed.
pub enum Carried {
    /// It ended.
    Ended(Outcome),
    /// It could not begin, for a reason that is not the task's: it waits, and this does not count.
    PutOff {
        /// How long it waits.
        delay: Duration,
        /// What is wrong.
        error: String,
    },
    /// Somebody else has it now and settles it. The slot is free, and the lease is not extended here any more.
    Elsewhere,
}

/// What performs attempts.
#[derive(Clone)]
enum Work {
    Handled(Arc<dyn Handler>),
    Carried { carrier: Arc<dyn Carrier>, route: Route },
}

/// What performs attempts, and all that they need.
#[derive(Clone)]
pub(crate) struct Performer {
    work: Work,
    plugin: &'static str,
    pub(crate) context: Context,
    /// Who is told when an attempt begins.
    pub(crate) audience: Option<Arc<Audience>>,
}

impl Performer {
    pub(crate) fn of(plugin: &'static str, handler: Arc<dyn Handler>) -> Self {
        Self { work: Work::Handled(handler), plugin, context: Context::default(), audience: None }
    }

    pub(crate) async fn perform(&self, task: &Task, attempt: Attempt) -> Carried {
        match &self.work {
            Work::Handled(handler) => Carried::Ended(handler.handle(attempt).await),
            Work::Carried { carrier, route } => carrier.carry(route, task, attempt).await,
        }
    }
}

/// How a topic is served here.
#[derive(Clone)]
pub(crate) struct Server {
    /// What performs the attempts.
    pub(crate) handler: Arc<Performer>,
    /// How many at a time.
    pub(crate) concurrency: u32,
    /// How many begin per second at the most.
    pub(crate) rate_per_second: Option<f64>,
    /// What its tasks are counted under.
    pub(crate) label: Box<str>,
}

/// How `topic` is served on this node; `None` if its tasks wait for somebody else, or it is paused.
pub(crate) fn server(handlers: &Handlers, definitions: &[TopicDefinition], topic: &Topic) -> Option<Server> {
    let definition = TopicDefinition::for_topic(definitions, topic);
    if definition.is_some_and(|definition| definition.paused) {
        return None;
    }
    let handler = match definition.map(|definition| &definition.route) {
        Some(Route::Handler) => handlers.for_topic(topic)?,
        Some(Route::Event) => handlers.announce.clone(),
        Some(route @ (Route::Webhook { .. } | Route::Bullmq { .. })) => handlers.for_route(route)?,
        Some(Route::Pull) => return None,
        // A topic nobody defined: a plugin's, or one that is only announced.
        None => handlers.for_topic(topic).unwrap_or_else(|| handlers.announce.clone()),
    };
    Some(Server {
        handler,
        concurrency: definition.map_or(TopicDefinition::DEFAULT_CONCURRENCY, |definition| definition.concurrency),
        rate_per_second: definition.and_then(|definition| definition.rate_per_second),
        label: definition.map_or(OTHER_TOPICS, |definition| definition.name.as_str()).into(),
    })
}

/// Serves topics that nobody serves: a due task is announced and completed, once all listeners have heard of it.
struct Announce(Option<Arc<Audience>>);

#[async_trait]
impl Handler for Announce {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let Some(audience) = &self.0 else { return Outcome::completed() };
        audience.hear(&Topic::from_stored(&*attempt.topic), &attempt).await.map(|()| Outcome::completed()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Queues;

    #[async_trait]
    impl Carrier for Queues {
        fn serves(&self, route: &Route) -> bool {
            matches!(route, Route::Bullmq { .. })
        }

        async fn carry(&self, _: &Route, _: &Task, _: Attempt) -> Carried {
            Carried::Elsewhere
        }
    }

    #[tokio::test]
    async fn an_attempt_that_somebody_else_has_is_not_settled_here() {
        use crate::attempt::{Stop, Stops, perform};
        let now = "2026-11-16T12:00:00Z".parse().unwrap();
        let task = punctual_domain::task::NewTask::new("queue".parse().unwrap()).into_task(now, now);
        let route = Route::Bullmq { queue: "jobs".into(), prefix: "bull".into() };
        let performer = Handlers::default().with_carrier(Arc::new(Queues)).for_route(&route).unwrap();
        for stop in [None, Some(Stop::HandBack), Some(Stop::Cancelled)] {
            let stops = Stops::default();
            stop.map(|why| stops.stop(why));
            assert_eq!(perform(&performer, &task, &stops, now).await, None, "{stop:?}");
        }
    }

    #[test]
    fn a_topic_is_served_by_its_route_or_a_handler_or_announced() {
        let handlers = Handlers::default().with("mail", Announce(None)).with("bulk.*", Announce(None));
        let handlers = handlers.with_carrier(Arc::new(Queues));
        let define = |name: &str, route: Route| TopicDefinition::new(name.parse().unwrap(), route);
        let mut paused = define("paused", Route::Event);
        paused.paused = true;
        let definitions = [
            define("mail", Route::Handler),
            define("elsewhere", Route::Handler),
            define("pull", Route::Pull),
            define("event", Route::Event),
            define("queue", Route::Bullmq { queue: "jobs".into(), prefix: "bull".into() }),
            define("webhook", Route::Webhook { url: "https://example.com".into(), secrets: vec![] }),
            paused,
        ];
        for (topic, served) in [
            ("mail", true),
            ("elsewhere", false),
            ("pull", false),
            ("event", true),
            ("queue", true),
            ("webhook", false),
            ("paused", false),
            ("bulk.x", true),
            ("nobody", true),
        ] {
            assert_eq!(server(&handlers, &definitions, &topic.parse().unwrap()).is_some(), served, "{topic}");
        }
    }
}
