//! Alerts: raised a minute after their cause was seen at the latest, and once an hour, whatever the number of nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_actors::{Deps, Handlers, Running};
use punctual_domain::alert::Address;
use punctual_domain::coordination::{Coordination, CoordinationError, Standing};
use punctual_domain::delivery::Transports;
use punctual_domain::id::NodeId;
use punctual_domain::outbox::{Content, Message};
use punctual_domain::store::Page;
use punctual_domain::task::TaskStatus;
use punctual_sdk::{Attempt, Context, Handler, HealthCheck, Outcome, Plugin, Trouble, async_trait};
use tokio::sync::Notify;

use crate::support::{World, does, eventually, task};

fn address(transport: &'static str, recipient: &str) -> Address {
    Address { transport, recipient: recipient.into() }
}

async fn world() -> World {
    let mut world = World::new().await;
    world.transports = Transports::new("post");
    world.alerts = vec![address("post", "admin@example.com"), address("alert_webhook", "admin")];
    world
}

/// Handlers of a node that fails, and counts its rounds.
fn failing(rounds: &Rounds) -> Handlers {
    Handlers::of([rounds as &dyn Plugin]).with("mail", does(|_: Attempt| async { Outcome::failed("no") }))
}

/// How often a node has looked whether there is something to tell: its plugins are asked after that.
#[derive(Clone, Default)]
struct Rounds(Arc<AtomicUsize>);

impl Rounds {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Plugin for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        Vec::new()
    }

    fn health_checks(&self) -> Vec<(&'static str, Box<dyn HealthCheck>)> {
        let rounds = self.clone();
        let look = move |_: Context, _: DateTime<Utc>| {
            rounds.0.fetch_add(1, Ordering::SeqCst);
            async { Ok(None) }
        };
        vec![("rounds_made", Box::new(look))]
    }
}

/// Lets so many tasks fail.
async fn fail(world: &World, tree: &Running, tasks: usize) {
    for _ in 0..tasks {
        let id = world.add(task("mail")).await;
        tree.hints().tasks_written();
        world.until(id, punctual_domain::task::TaskStatus::Failed).await;
    }
}

async fn posted(world: &World) -> Vec<Message> {
    let mut messages = world.store.messages(None, Page::first(100)).await.unwrap();
    messages.reverse();
    messages
}

/// Lets minutes go by, in each of which every node looks whether there is something to tell.
async fn pass(world: &World, minutes: usize, nodes: &[Rounds]) {
    for _ in 0..minutes {
        let before: Vec<_> = nodes.iter().map(Rounds::count).collect();
        world.clock.advance(TimeDelta::minutes(1));
        let have_looked = || nodes.iter().zip(&before).all(|(node, before)| node.count() > *before);
        eventually(|| async { have_looked().then_some(()) }).await;
    }
}

/// Moves the clock, and waits until a Reconciler has come by: it frees what a node held that died.
async fn pass_one(world: &World, by: TimeDelta) {
    let (dead, lease) = (NodeId::generate(), Duration::from_secs(5));
    let held = world.store.claim_new(task("held"), dead, lease).await.unwrap();
    world.clock.advance(by);
    world.until(held.id, TaskStatus::Completed).await;
}

#[tokio::test]
async fn an_alert_goes_to_every_address_and_not_again_for_an_hour() {
    let world = world().await;
    let nodes = [Rounds::default(), Rounds::default()];
    let (first, second) = (world.start(failing(&nodes[0])).await, world.start(failing(&nodes[1])).await);
    fail(&world, &first, 3).await;
    let messages = eventually(|| async {
        world.clock.advance(TimeDelta::seconds(10));
        Some(posted(&world).await).filter(|messages| !messages.is_empty())
    })
    .await;
    let to: Vec<_> = messages.iter().map(|message| (message.transport.as_str(), message.recipient.as_str())).collect();
    assert_eq!(to, [("post", "admin@example.com"), ("alert_webhook", "admin")]);
    let Content { subject, text, .. } = messages[0].content().unwrap();
    assert_eq!(subject, "Punctual: 3 of 3 one-off tasks failed");
    assert!(text.contains("punctual task list --status failed"), "{text}");

    fail(&world, &second, 3).await;
    pass(&world, 10, &nodes).await;
    assert_eq!(posted(&world).await.len(), 2);
    // An hour later it is told again, with what happened since.
    world.clock.advance(TimeDelta::minutes(49));
    fail(&world, &first, 4).await;
    eventually(|| async {
        world.clock.advance(TimeDelta::seconds(10));
        (posted(&world).await.len() >= 4).then_some(())
    })
    .await;
    pass(&world, 3, &nodes).await;
    // Meanwhile nobody has sent the first ones, and that is told too.
    let subjects: Vec<_> = posted(&world).await.iter().map(|message| message.content().unwrap().subject).collect();
    assert_eq!(subjects.iter().filter(|subject| subject.ends_with("one-off tasks failed")).count(), 4, "{subjects:?}");
    assert_eq!(subjects.iter().filter(|subject| subject.ends_with("wait to be sent")).count(), 2, "{subjects:?}");
    for tree in [first, second] {
        tree.drain(Duration::from_secs(5)).await.unwrap();
    }
}

/// A plugin with a health check that hangs until it is let go.
#[derive(Default)]
struct Hanging(Arc<Looks>);

#[derive(Default)]
struct Looks {
    begun: AtomicUsize,
    ended: AtomicUsize,
    let_go: Notify,
}

/// Tells that a look has ended, in whichever way.
struct Ends(Arc<Looks>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Plugin for Hanging {
    fn name(&self) -> &'static str {
        "hanging"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        Vec::new()
    }

    fn health_checks(&self) -> Vec<(&'static str, Box<dyn HealthCheck>)> {
        let looks = Arc::clone(&self.0);
        let look = move |_: Context, _: DateTime<Utc>| {
            let looks = Arc::clone(&looks);
            async move {
                looks.begun.fetch_add(1, Ordering::SeqCst);
                let _ends = Ends(Arc::clone(&looks));
                looks.let_go.notified().await;
                Ok(Some(Trouble { subject: "it hung".into(), text: "for long".into() }))
            }
        };
        vec![("hanging_long", Box::new(look))]
    }
}

#[tokio::test]
async fn a_health_check_that_hangs_keeps_no_lease_from_being_freed() {
    for mut world in [Some(World::new().await), World::on_postgres().await].into_iter().flatten() {
        world.transports = Transports::new("post");
        world.alerts = vec![address("post", "admin@example.com")];
        let plugin = Hanging::default();
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let tree = world.start(Handlers::of([&plugin as &dyn Plugin])).await;
        let moves = async |is_so: &dyn Fn() -> bool| {
            eventually(|| async {
                world.clock.advance(TimeDelta::seconds(10));
                is_so().then_some(())
            })
            .await;
        };
        moves(&|| count(&plugin.0.begun) == 1).await;
        // Minutes later it still looks, leases are freed, and nobody looks beside it: whoever frees the next lease is done
        // with the round of the one before.
        for _ in 0..3 {
            pass_one(&world, TimeDelta::minutes(1)).await;
        }
        assert_eq!((count(&plugin.0.begun), count(&plugin.0.ended)), (1, 0));
        plugin.0.let_go.notify_one();
        let alert = eventually(|| async {
            let found = posted(&world).await;
            found
                .into_iter()
                .map(|message| message.content().unwrap().subject)
                .find(|subject| subject.contains("it hung"))
        })
        .await;
        assert!(alert.contains("it hung"));
        // The next round looks again.
        moves(&|| count(&plugin.0.begun) == 2).await;
        tree.drain(Duration::from_secs(5)).await.unwrap();
        assert_eq!(count(&plugin.0.ended), 2);
        world.remove().await;
    }
}

#[tokio::test]
async fn what_waited_while_nobody_was_there_is_not_told() {
    let world = world().await;
    let tree = world.start(Handlers::default()).await;
    let message = world.alerts[0].clone();
    let alert =
        punctual_domain::alert::alerts(&punctual_domain::alert::Signs { leader_changes: 9, ..Default::default() });
    world.store.post(vec![alert[0].message(&message).unwrap()]).await.unwrap();
    tree.drain(Duration::from_secs(5)).await.unwrap();
    // A day without a node; the next one has a minute to send what waits.
    world.clock.advance(TimeDelta::days(1));
    let tree = world.start(Handlers::default()).await;
    for _ in 0..5 {
        pass_one(&world, TimeDelta::seconds(11)).await;
    }
    assert_eq!(posted(&world).await.len(), 1);
    eventually(|| async {
        world.clock.advance(TimeDelta::seconds(11));
        (posted(&world).await.len() == 3).then_some(())
    })
    .await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

/// Says what it is told to say.
struct Told(Mutex<Standing>);

#[async_trait]
impl Coordination for Told {
    async fn lead(&self) -> Result<Standing, CoordinationError> {
        Ok(*self.0.lock().unwrap())
    }

    async fn resign(&self) -> Result<(), CoordinationError> {
        Ok(())
    }
}

#[tokio::test]
async fn an_instant_that_nobody_fires_is_told_by_a_node_that_does_not_lead() {
    let world = world().await;
    let follows = Arc::new(Told(Mutex::new(Standing::Follows(Duration::from_secs(60)))));
    let deps = Deps { coordination: follows, ..world.deps(Handlers::default()) };
    let tree = punctual_actors::start(deps).await.unwrap();
    world.store.create_schedule(&world.unwritten(|_| ()), None).await.unwrap();
    let alert = eventually(|| async {
        world.clock.advance(TimeDelta::seconds(5));
        Some(posted(&world).await.first()?.content().unwrap())
    })
    .await;
    assert_eq!(alert.subject, "Punctual: 1 instant of a schedule was missed");
    assert!(alert.text.contains("- minutely at 2026-11-16T12:01:00Z\n"), "{}", alert.text);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_changes_again_and_again_is_told_from_the_notes_of_all_nodes() {
    let world = world().await;
    let coordinations = [(), ()].map(|()| Arc::new(Told(Mutex::new(Standing::Follows(Duration::from_millis(20))))));
    let mut trees = Vec::new();
    for coordination in &coordinations {
        let deps = Deps { coordination: coordination.clone(), ..world.deps(Handlers::default()) };
        trees.push(punctual_actors::start(deps).await.unwrap());
    }
    let changes = || async { world.store.signs().await.unwrap().leader_changes };
    for change in 1..=6 {
        let [leads, follows] = [change % 2, (change + 1) % 2].map(|i| &coordinations[i]);
        *follows.0.lock().unwrap() = Standing::Follows(Duration::from_millis(20));
        *leads.0.lock().unwrap() = Standing::Leads(Duration::from_secs(60));
        for tree in &trees {
            tree.hints().leadership_changed();
        }
        eventually(|| async { (changes().await == change as u64).then_some(()) }).await;
    }
    let subject = eventually(|| async {
        world.clock.advance(TimeDelta::seconds(10));
        Some(posted(&world).await.first()?.content().unwrap().subject)
    })
    .await;
    assert_eq!(subject, "Punctual: the leader changed 6 times within an hour");
    for tree in trees {
        tree.drain(Duration::from_secs(5)).await.unwrap();
    }
}
