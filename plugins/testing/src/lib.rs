//! Runs a plugin on the real engine inside a test: the actors that run it in the service, a SQLite database in memory, and a
//! clock that only the test moves.
//!
//! ```
//! use punctual_sdk::{Attempt, Handler, Outcome, Plugin};
//! use punctual_testing::TaskStatus;
//!
//! struct Greeting;
//!
//! impl Plugin for Greeting {
//!     fn name(&self) -> &'static str {
//!         "greeting"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("greeting.say", Box::new(say))]
//!     }
//! }
//!
//! async fn say(attempt: Attempt) -> Result<Outcome, serde_json::Error> {
//!     let name: String = attempt.payload_as()?;
//!     Ok(Outcome::completed_with(format!("hello, {name}")))
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Greeting).await;
//! let task = punctual.run("greeting.say", "Ada").await;
//! assert_eq!((task.status, task.result), (TaskStatus::Completed, "hello, Ada".into()));
//! # }
//! ```
//!
//! Nothing hangs: a task that does not get on within ten seconds of real time fails the test, with what is known about it. A
//! handler's panic is the error of its task.
#![deny(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_actors::{Deps, Handlers, Running, Settings};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::coordination::Alone;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::outbox::{self, MessageStatus};
use punctual_domain::store::{Page, Span, Store, TaskFilter};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Topic, TopicPattern};
use punctual_sdk::{Database, NewTask, Plugin};
use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

mod post;
mod task;

pub use post::Message;
pub use punctual_domain::task::{AttemptOutcome, TaskStatus};
pub use task::Task;

use post::Post;

/// How long, in real time, a task may take to get on, where nobody said otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the clock stands at first.
const FIRST_INSTANT: &str = "2026-01-01T00:00:00Z";

/// A node with one plugin.
pub struct Punctual {
    store: Arc<dyn Store>,
    clock: FakeClock,
    tree: Running,
    /// What the plugin serves or listens to.
    topics: Vec<TopicPattern>,
    post: Post,
    patience: Duration,
}

/// Starts a node with one plugin, its migrations applied. The clock stands at the beginning of 2026.
///
/// # Panics
/// When the service would refuse the plugin too.
pub async fn start(plugin: impl Plugin) -> Punctual {
    let clock = FakeClock::at_text(FIRST_INSTANT);
    let options = punctual_store::Options { clock: Some(Arc::new(clock.clone())), ..Default::default() };
    let store = punctual_store::connect("sqlite::memory:", options).await.expect("a database in memory");
    if let Err(refused) = store.migrate_plugin(plugin.name(), &plugin.migrations()).await {
        panic!("{refused}");
    }
    let mut topics = Vec::new();
    for (topic, _) in plugin.handlers() {
        let topic: TopicPattern = topic.parse().unwrap_or_else(|refused| panic!("{refused}"));
        topics.push(topic.clone());
        store.register_topic(&topic).await.expect("the topic is written");
    }
    topics.extend(plugin.listeners().into_iter().map(|(topics, _)| TopicPattern::from_stored(topics)));
    for template in plugin.templates() {
        if let Err(refused) = template.preview() {
            panic!("{refused}");
        }
    }
    let post = Post::default();
    let deps = Deps {
        store: store.clone(),
        clock: Arc::new(clock.clone()),
        zones: ZoneDatabase::bundled(),
        coordination: Arc::new(Alone),
        node: NodeId::generate(),
        handlers: Handlers::of([&plugin as &dyn Plugin]),
        transports: post.transports(),
        alerts: Vec::new(),
        settings: Settings::default(),
        happened: Arc::default(),
    };
    let tree = punctual_actors::start(deps).await.expect("the actors start");
    Punctual { store, clock, tree, topics, post, patience: PATIENCE }
}

impl Punctual {
    /// With another limit, in real time, for a task to get on.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Writes a task that is due at once, and waits until it has ended or was put off.
    ///
    /// # Panics
    /// When the task cannot be written, or does neither in time.
    pub async fn run(&self, topic: &str, payload: impl Serialize) -> Task {
        let id = self.enqueue(NewTask::new(topic).payload(payload)).await;
        self.task(id).await
    }

    /// Writes a task, and answers its id.
    ///
    /// # Panics
    /// When the task is refused, or the plugin has neither handler nor listener for its topic.
    pub async fn enqueue(&self, task: NewTask) -> Uuid {
        let topic = Topic::from_stored(&*task.topic);
        let served: Vec<_> = self.topics.iter().map(TopicPattern::as_str).collect();
        assert!(
            self.topics.iter().any(|pattern| pattern.matches(&topic)),
            "the plugin has no handler or listener for the topic {topic}, but for {served:?}"
        );
        let id = self.database().enqueue(task).await.unwrap_or_else(|refused| panic!("{refused}"));
        self.tree.hints().tasks_written();
        id
    }

    /// The task, once it has ended or is put off to an instant that the clock has not reached.
    ///
    /// # Panics
    /// When there is no such task, or it does neither in time.
    pub async fn task(&self, id: Uuid) -> Task {
        self.until(|| async {
            let found = self.store.task(TaskId(id)).await.expect("the store answers");
            let task = Task::of(found.unwrap_or_else(|| panic!("there is no task {id}")));
            let waits = task.status == TaskStatus::Pending && task.run_at > self.now();
            if waits || task.status.has_ended() { Ok(task) } else { Err(vec![task]) }
        })
        .await
    }

    /// The messages that were sent, in order, once none is on its way any more.
    ///
    /// # Panics
    /// When one is on its way for too long.
    pub async fn messages(&self) -> Vec<Message> {
        self.until(|| async {
            let pending = self.store.messages(Some(MessageStatus::Pending), Page::first(1000)).await;
            let is_due = |message: &outbox::Message| message.error.is_none() || message.next_attempt_at <= self.now();
            if pending.expect("the store answers").iter().any(is_due) { Err(Vec::new()) } else { Ok(()) }
        })
        .await;
        self.post.sent()
    }

    /// From now on no message can be sent, for this reason, or all can again.
    pub fn fail_messages(&self, error: Option<&str>) {
        self.post.fail(error);
    }

    /// Moves the clock, from one instant at which a task or a message is due to the next, and waits at each until nothing is
    /// due or running any more.
    ///
    /// # Panics
    /// When that is not so in time.
    pub async fn advance(&self, by: Duration) {
        let until = self.now() + TimeDelta::from_std(by).expect("a time that the calendar can hold");
        loop {
            self.quiet().await;
            let task = self.store.next_due_at(self.now()).await.expect("the store answers");
            let message = self.store.next_message_at(&["email", "webhook", "queue"]).await.expect("the store answers");
            match [task, message].into_iter().flatten().min().filter(|next| *next <= until) {
                Some(next) => self.clock.advance_to(next),
                None => break,
            }
        }
        self.clock.advance_to(until);
        self.quiet().await;
    }

    /// What the clock shows.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The database, to look into the plugin's tables.
    pub fn database(&self) -> &Database {
        self.store.database()
    }

    /// Stops the node in order. A test that just ends is as good, unless it looks at what happens then.
    pub async fn stop(self) {
        self.tree.drain(PATIENCE).await.expect("the actors were well");
    }

    /// Waits until nothing is due or running.
    async fn quiet(&self) {
        self.messages().await;
        self.until(|| async {
            // Both in one look: a task moves from one to the other at any time. What runs was due.
            let unfinished = TaskFilter {
                status: vec![TaskStatus::Pending, TaskStatus::Running],
                run_at: Span { from: None, to: Some(self.now() + TimeDelta::microseconds(1)) },
                ..TaskFilter::default()
            };
            let busy = self.store.tasks(&unfinished, Page::first(10)).await.expect("the store answers");
            if busy.is_empty() { Ok(()) } else { Err(busy.into_iter().map(Task::without_attempts).collect()) }
        })
        .await;
    }

    /// Looks at the store again and again: what counts is what is written there, by whomever.
    async fn until<T, F: Future<Output = Result<T, Vec<Task>>>>(&self, look: impl Fn() -> F) -> T {
        let begun_at = Instant::now();
        loop {
            match look().await {
                Ok(seen) => return seen,
                Err(unfinished) if begun_at.elapsed() > self.patience => {
                    let (patience, now) = (self.patience, self.now());
                    panic!(
                        "nothing moved within {patience:?}; the clock shows {now}, and these are due or run: {unfinished:#?}"
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
