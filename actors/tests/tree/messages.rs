//! Messages on their way out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use punctual_actors::{Handlers, Running, Settings};
use punctual_domain::delivery::{DeliveryError, Transport, Transports};
use punctual_domain::id::MessageId;
use punctual_domain::json::Json;
use punctual_domain::news::News;
use punctual_domain::outbox::{Message, MessageStatus, NewMessage};
use punctual_domain::store::Page;
use punctual_sdk::{Attempt, Outcome, async_trait};
use tokio::sync::Semaphore;

use crate::support::{World, does, eventually, task};

/// Sends nothing: answers as it was told, and after that that all went well.
struct Post {
    answers: Mutex<VecDeque<Result<String, DeliveryError>>>,
    /// The keys of all it was given.
    given: Mutex<Vec<String>>,
    /// A permit lets one message through.
    gate: Semaphore,
    under_way: AtomicUsize,
}

impl Post {
    fn answering(answers: impl IntoIterator<Item = Result<String, DeliveryError>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::new(Semaphore::MAX_PERMITS) })
    }

    fn closed() -> Arc<Self> {
        Arc::new(Self::new(0))
    }

    fn new(permits: usize) -> Self {
        Self {
            answers: Mutex::default(),
            given: Mutex::default(),
            gate: Semaphore::new(permits),
            under_way: AtomicUsize::new(0),
        }
    }

    fn given(&self) -> Vec<String> {
        self.given.lock().unwrap().clone()
    }
}

#[async_trait]
impl Transport for Post {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        self.given.lock().unwrap().push(message.dedupe_key.clone());
        self.under_way.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(message.recipient, "nobody", "there is no such thing");
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(format!("id of {}", message.dedupe_key)))
    }

    fn concurrency(&self) -> u32 {
        4
    }
}

/// A tree that sends what is for `post` through it.
async fn start(world: &mut World, post: &Arc<Post>) -> Running {
    world.transports = Transports::new("post").with("post", post.clone());
    world.start(Handlers::default()).await
}

fn message(key: &str) -> NewMessage {
    NewMessage {
        id: MessageId::generate(),
        dedupe_key: key.into(),
        transport: "post".into(),
        recipient: "ada@example.com".into(),
        body: Json::empty_object(),
    }
}

async fn post(world: &World, tree: &Running, message: NewMessage) -> MessageId {
    let id = message.id;
    world.store.post(vec![message]).await.unwrap();
    tree.hints().messages_posted();
    id
}

/// Waits until the message is as it should be.
async fn until(world: &World, id: MessageId, is_so: impl Fn(&Message) -> bool) -> Message {
    eventually(|| async { world.store.message(id).await.unwrap().filter(&is_so) }).await
}

async fn stop(tree: Running) {
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_posted_message_is_sent_and_what_the_provider_called_it_is_kept() {
    let mut world = World::new().await;
    let transport = Post::answering([]);
    let tree = start(&mut world, &transport).await;
    let id = post(&world, &tree, message("k")).await;
    let sent = until(&world, id, |message| message.status == MessageStatus::Sent).await;
    assert_eq!((sent.provider_id.as_deref(), sent.attempt, sent.error), (Some("id of k"), 1, None));
    stop(tree).await;
    assert_eq!(transport.given(), ["k"]);
}

#[tokio::test]
async fn what_waited_while_nobody_was_there_is_sent_at_the_start() {
    let mut world = World::new().await;
    world.store.post(vec![message("a"), message("b")]).await.unwrap();
    let transport = Post::answering([]);
    let tree = start(&mut world, &transport).await;
    eventually(|| async { (transport.given().len() == 2).then_some(()) }).await;
    stop(tree).await;
}

#[tokio::test]
async fn a_message_is_tried_again_when_its_time_comes_and_fails_when_that_is_no_use() {
    let mut world = World::new().await;
    let asked = DeliveryError::Later { error: "come back".into(), after: Some(Duration::from_secs(3)) };
    let transport =
        Post::answering([Err(DeliveryError::later("busy")), Err(asked), Err(DeliveryError::never("no such address"))]);
    let tree = start(&mut world, &transport).await;
    let id = post(&world, &tree, message("k")).await;
    let first = until(&world, id, |message| message.error.as_deref() == Some("busy")).await;
    let wait = first.next_attempt_at - first.created_at;
    assert!((TimeDelta::seconds(8)..=TimeDelta::seconds(12)).contains(&wait), "{wait}");
    world.clock.advance(wait);
    let second = until(&world, id, |message| message.error.as_deref() == Some("come back")).await;
    assert_eq!((second.attempt, second.status), (2, MessageStatus::Pending));
    world.clock.advance(TimeDelta::seconds(3));
    let third = until(&world, id, |message| message.status == MessageStatus::Failed).await;
    assert_eq!((third.attempt, third.error.as_deref()), (3, Some("no such address")));

    assert!(world.store.retry_message(id).await.unwrap());
    tree.hints().messages_posted();
    let sent = until(&world, id, |message| message.status == MessageStatus::Sent).await;
    assert_eq!((sent.attempt, sent.error), (1, None));
    stop(tree).await;
}

#[tokio::test]
async fn no_more_are_on_their_way_than_the_transport_sends_side_by_side() {
    let mut world = World::new().await;
    let transport = Post::closed();
    let tree = start(&mut world, &transport).await;
    world.store.post((0..20).map(|i| message(&i.to_string())).collect()).await.unwrap();
    tree.hints().messages_posted();
    for let_through in 0..16 {
        eventually(|| async { (transport.given().len() == 4 + let_through).then_some(()) }).await;
        assert_eq!(transport.under_way.load(Ordering::SeqCst), 4);
        transport.gate.add_permits(1);
    }
    transport.gate.add_permits(4);
    let left = || async { world.store.counts().await.unwrap().outbox };
    eventually(|| async { (left().await == 0).then_some(()) }).await;
    assert_eq!(transport.given().len(), 20);
    stop(tree).await;
}

#[tokio::test]
async fn a_transport_that_hangs_or_panics_holds_up_no_other() {
    let mut world = World::new().await;
    let (hangs, other) = (Post::closed(), Post::answering([]));
    world.transports = Transports::new("post").with("post", hangs.clone()).with("other", other.clone());
    let tree = world.start(Handlers::default()).await;
    world.store.post((0..10).map(|i| message(&i.to_string())).collect()).await.unwrap();
    let panics = NewMessage { transport: "other".into(), recipient: "nobody".into(), ..message("panics") };
    let id = post(&world, &tree, panics).await;
    let panicked = until(&world, id, |message| message.error.is_some()).await;
    assert!(panicked.error.unwrap().contains("there is no such thing"));
    let id = post(&world, &tree, NewMessage { transport: "other".into(), ..message("fine") }).await;
    until(&world, id, |message| message.status == MessageStatus::Sent).await;
    assert_eq!(hangs.under_way.load(Ordering::SeqCst), 4);
    hangs.gate.add_permits(10);
    stop(tree).await;
}

#[tokio::test]
async fn what_no_transport_here_can_send_is_left_to_others() {
    let mut world = World::new().await;
    let transport = Post::answering([]);
    let tree = start(&mut world, &transport).await;
    let elsewhere = post(&world, &tree, NewMessage { transport: "pigeon".into(), ..message("elsewhere") }).await;
    let here = post(&world, &tree, message("here")).await;
    until(&world, here, |message| message.status == MessageStatus::Sent).await;
    stop(tree).await;
    let left = world.store.message(elsewhere).await.unwrap().unwrap();
    assert_eq!((left.status, left.attempt), (MessageStatus::Pending, 0));
}

#[tokio::test]
async fn a_stop_waits_for_messages_on_their_way() {
    let mut world = World::new().await;
    let transport = Post::closed();
    let tree = start(&mut world, &transport).await;
    world.store.post((0..6).map(|i| message(&i.to_string())).collect()).await.unwrap();
    tree.hints().messages_posted();
    eventually(|| async { (transport.given().len() == 4).then_some(()) }).await;
    let stopping = tokio::spawn(stop(tree));
    transport.gate.add_permits(6);
    stopping.await.unwrap();
    // All that were begun are done; the others are left as they were.
    let given = transport.given();
    for message in world.store.messages(None, Page::first(9)).await.unwrap() {
        let (status, attempt) = match given.contains(&message.dedupe_key) {
            true => (MessageStatus::Sent, 1),
            false => (MessageStatus::Pending, 0),
        };
        assert_eq!((message.status, message.attempt), (status, attempt), "{message:?}");
    }
}

#[tokio::test]
async fn a_message_whose_sender_died_is_sent_again_once_its_lease_is_over() {
    let mut world = World::new().await;
    let new = message("k");
    let id = new.id;
    world.store.post(vec![new]).await.unwrap();
    // A node that was killed in the middle of it.
    world.store.take_messages("post", Duration::from_secs(120), 1).await.unwrap();
    let transport = Post::answering([]);
    let tree = start(&mut world, &transport).await;
    let other = post(&world, &tree, message("other")).await;
    until(&world, other, |message| message.status == MessageStatus::Sent).await;
    assert_eq!(transport.given(), ["other"]);
    world.clock.advance(TimeDelta::seconds(120));
    let sent = until(&world, id, |message| message.status == MessageStatus::Sent).await;
    assert_eq!(sent.attempt, 2);
    stop(tree).await;
}

#[tokio::test]
async fn what_takes_longer_than_its_lease_allows_is_given_up_in_time() {
    let mut world = World::new().await;
    let transport = Post::closed();
    world.transports = Transports::new("post").with("post", transport.clone());
    let settings = Settings { message_lease: Duration::from_millis(200), ..Settings::default() };
    let tree = world.start_with(Handlers::default(), settings).await;
    let id = post(&world, &tree, message("k")).await;
    let late = until(&world, id, |message| message.error.is_some()).await;
    assert_eq!((late.error.as_deref(), late.status), (Some("no answer within 150ms"), MessageStatus::Pending));
    stop(tree).await;
}

#[tokio::test]
async fn other_nodes_are_told_of_messages_that_handlers_post() {
    let Some(mut world) = World::on_postgres().await else { return };
    world.transports = Transports::new("post");
    let posts = does(|attempt: Attempt| async move {
        let mut transaction = attempt.database().begin().await.unwrap();
        let message = punctual_sdk::Message::new("ada@example.com", "k").plain("Hello", "you");
        attempt.notifier().enqueue(&mut transaction, message).await.unwrap();
        transaction.commit().await.unwrap();
        Outcome::completed()
    });
    let tree = world.start(Handlers::default().with("letter", posts)).await;
    // The first time one listens, anything may have happened; after that one hears what is said.
    assert_eq!(world.store.hear().await, Ok(News::unheard()));
    world.add(task("letter")).await;
    tree.hints().tasks_written();
    while !world.store.hear().await.unwrap().messages {}
    assert_eq!(world.store.messages(None, Page::first(9)).await.unwrap().len(), 1);
    stop(tree).await;
    world.remove().await;
}
