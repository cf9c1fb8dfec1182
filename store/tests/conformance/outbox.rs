//! The outbox: messages are sent at least once, and a key makes one for good.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::id::{Epoch, MessageId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{Message, MessageStatus, NewMessage, Sending};
use punctual_domain::store::{Page, Posted, Taken};

use crate::support::*;

fn message(key: &str) -> NewMessage {
    NewMessage {
        id: MessageId::generate(),
        dedupe_key: key.into(),
        transport: "smtp".into(),
        recipient: "søren@example.com".into(),
        body: Json::parse(r#"{ "subject" : "Grüße 🎉", "n": 1.50 }"#).unwrap(),
    }
}

fn sent() -> Sending {
    Sending::Sent { provider_id: "provider é".into() }
}

async fn post_one(node: &NodeStore, key: &str) -> MessageId {
    let new = message(key);
    let id = new.id;
    assert_eq!(node.post(vec![new]).await, Ok(vec![Posted::New(id)]));
    id
}

async fn read(node: &NodeStore, id: MessageId) -> Message {
    node.message(id).await.unwrap().expect("the message")
}

/// Takes the one message that is due.
async fn take_one(node: &NodeStore) -> Message {
    let mut taken = node.take_messages("smtp", LEASE, 2).await.unwrap();
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken.remove(0)
}

pub(crate) async fn a_message_is_posted_and_read_back(world: World) {
    let new = message("k é");
    let expected = Message {
        id: new.id,
        dedupe_key: new.dedupe_key.clone(),
        transport: new.transport.clone(),
        recipient: new.recipient.clone(),
        body: new.body.clone(),
        status: MessageStatus::Pending,
        attempt: 0,
        epoch: Epoch(0),
        next_attempt_at: world.now(),
        provider_id: None,
        error: None,
        created_at: world.now(),
        completed_at: None,
    };
    assert_eq!(world.post(vec![new]).await, Ok(vec![Posted::New(expected.id)]));
    assert_eq!(read(&world, expected.id).await, expected);
    assert_eq!(world.message(MessageId::generate()).await, Ok(None));
    assert_eq!(world.post(vec![]).await, Ok(vec![]));
}

pub(crate) async fn a_second_message_of_a_key_is_the_first(world: World) {
    let first = post_one(&world, "k").await;
    let batch = vec![message("a"), message("k"), message("a"), message("K")];
    let [a, _, _, other] = [0, 1, 2, 3].map(|i: usize| batch[i].id);
    let known = |id| Posted::Known { id, provider_id: None };
    let expected = vec![Posted::New(a), known(first), known(a), Posted::New(other)];
    assert_eq!(world.post(batch).await, Ok(expected));
    assert_eq!(world.database.count("punctual_outbox").await, 3);
}

pub(crate) async fn a_key_that_was_sent_tells_what_the_provider_called_it(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    assert_eq!(world.record_sending(id, taken.epoch, &sent()).await, Ok(true));
    let known = Posted::Known { id, provider_id: Some("provider é".into()) };
    assert_eq!(world.post(vec![message("k")]).await, Ok(vec![known]));
}

pub(crate) async fn a_key_stays_used_after_retention(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    world.record_sending(id, taken.epoch, &sent()).await.unwrap();
    world.advance(TimeDelta::days(2));
    assert_eq!(world.prune(Duration::from_secs(86_400), 10).await.unwrap().messages, 1);
    assert_eq!(world.message(id).await, Ok(None));
    let known = Posted::Known { id, provider_id: Some("provider é".into()) };
    assert_eq!(world.post(vec![message("k")]).await, Ok(vec![known]));
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
}

pub(crate) async fn eight_posts_of_one_key_make_one_message(world: World) {
    let posted = side_by_side(world.eight_nodes().await, |node| async move {
        node.post(vec![message("k")]).await.unwrap().remove(0)
    })
    .await;
    let new: Vec<_> = posted.iter().filter_map(|p| if let Posted::New(id) = p { Some(*id) } else { None }).collect();
    assert_eq!(new.len(), 1);
    let known = Posted::Known { id: new[0], provider_id: None };
    assert_eq!(posted.iter().filter(|p| **p == known).count(), 7);
}

pub(crate) async fn a_taken_message_is_left_alone_until_its_lease_has_passed(world: World) {
    let id = post_one(&world, "k").await;
    let first = take_one(&world).await;
    assert_eq!((first.id, first.attempt, first.epoch), (id, 1, Epoch(1)));
    assert_eq!(first.status, MessageStatus::Pending);
    world.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    world.advance(TimeDelta::microseconds(2));
    let second = take_one(&world).await;
    assert_eq!((second.id, second.attempt, second.epoch), (id, 2, Epoch(2)));
}

pub(crate) async fn no_more_messages_are_taken_than_asked_for(world: World) {
    world.post((0..5).map(|i| message(&i.to_string())).collect()).await.unwrap();
    for expected in [2, 2, 1, 0] {
        assert_eq!(world.take_messages("smtp", LEASE, 2).await.unwrap().len(), expected);
    }
}

pub(crate) async fn eight_senders_never_share_a_message(world: World) {
    world.post((0..200).map(|i| message(&i.to_string())).collect()).await.unwrap();
    let taken = side_by_side(world.eight_nodes().await, |node| async move {
        let mut taken = Vec::new();
        loop {
            let messages = node.take_messages("smtp", LEASE, 7).await.unwrap();
            if messages.is_empty() {
                return taken;
            }
            taken.extend(messages.into_iter().map(|message| message.id));
        }
    })
    .await;
    let mut taken: Vec<_> = taken.into_iter().flatten().collect();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 200);
    assert!(world.messages(None, Page::first(1000)).await.unwrap().iter().all(|message| message.attempt == 1));
}

pub(crate) async fn a_sent_message_is_done(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    world.advance_secs(2);
    assert_eq!(world.record_sending(id, taken.epoch, &sent()).await, Ok(true));
    let done = read(&world, id).await;
    assert_eq!((done.status, done.provider_id.as_deref()), (MessageStatus::Sent, Some("provider é")));
    assert_eq!((done.completed_at, done.attempt), (Some(world.now()), 1));
    // For good, whatever comes later.
    world.advance_secs(3600);
    assert_eq!(world.record_sending(id, taken.epoch, &Sending::Failed { error: "no".into() }).await, Ok(false));
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    assert_eq!(read(&world, id).await, done);
}

pub(crate) async fn a_message_is_sent_again_after_its_wait(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    let again = Sending::Retried { error: "busy é".into(), after: Duration::from_secs(60) };
    assert_eq!(world.record_sending(id, taken.epoch, &again).await, Ok(true));
    let waits = read(&world, id).await;
    assert_eq!((waits.status, waits.error.as_deref()), (MessageStatus::Pending, Some("busy é")));
    assert_eq!((waits.next_attempt_at, waits.completed_at), (world.in_secs(60), None));
    assert_eq!(world.next_message_at(&["smtp"]).await, Ok(Some(world.in_secs(60))));
    world.advance_secs(59);
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    world.advance_secs(1);
    assert_eq!(take_one(&world).await.epoch, Epoch(2));
}

pub(crate) async fn a_message_that_failed_waits_for_somebody(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    world.record_sending(id, taken.epoch, &Sending::Failed { error: "no such address".into() }).await.unwrap();
    let failed = read(&world, id).await;
    assert_eq!((failed.status, failed.error.as_deref()), (MessageStatus::Failed, Some("no such address")));
    assert_eq!(failed.completed_at, Some(world.now()));
    world.advance_secs(3600);
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    assert_eq!(world.next_message_at(&["smtp"]).await, Ok(None));

    assert_eq!(world.retry_message(id).await, Ok(true));
    let due = read(&world, id).await;
    assert_eq!((due.status, due.next_attempt_at, due.completed_at), (MessageStatus::Pending, world.now(), None));
    assert_eq!(due.attempt, 0);
    let again = take_one(&world).await;
    assert!(again.epoch > taken.epoch);
    assert_eq!(world.record_sending(id, again.epoch, &sent()).await, Ok(true));
}

pub(crate) async fn only_failed_messages_are_retried(world: World) {
    let id = post_one(&world, "k").await;
    assert_eq!(world.retry_message(id).await, Ok(false));
    let taken = take_one(&world).await;
    assert_eq!(world.retry_message(id).await, Ok(false));
    world.record_sending(id, taken.epoch, &sent()).await.unwrap();
    assert_eq!(world.retry_message(id).await, Ok(false));
    assert_eq!(world.retry_message(MessageId::generate()).await, Ok(false));
    assert_eq!(read(&world, id).await.status, MessageStatus::Sent);
}

pub(crate) async fn an_old_epoch_records_nothing(world: World) {
    let id = post_one(&world, "k").await;
    let late = take_one(&world).await;
    world.advance_secs(31);
    let present = take_one(&world).await;
    for sending in
        [sent(), Sending::Failed { error: "no".into() }, Sending::Retried { error: "no".into(), after: Duration::ZERO }]
    {
        assert_eq!(world.record_sending(id, late.epoch, &sending).await, Ok(false));
        assert_eq!(world.record_sending(id, Epoch(9), &sending).await, Ok(false));
        assert_eq!(world.record_sending(MessageId::generate(), Epoch(1), &sending).await, Ok(false));
    }
    assert_eq!(read(&world, id).await, present);
    assert_eq!(world.record_sending(id, present.epoch, &sent()).await, Ok(true));
}

pub(crate) async fn a_lease_that_ran_out_still_records_while_nobody_took_over(world: World) {
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    world.advance_secs(3600);
    assert_eq!(world.record_sending(id, taken.epoch, &sent()).await, Ok(true));
}

pub(crate) async fn messages_are_listed_by_status_newest_first(world: World) {
    let mut posted = Vec::new();
    for i in 0..9 {
        posted.push(post_one(&world, &i.to_string()).await);
    }
    for (i, taken) in world.take_messages("smtp", LEASE, 9).await.unwrap().into_iter().enumerate() {
        let sending = match i % 3 {
            0 => sent(),
            1 => Sending::Failed { error: "no".into() },
            _ => continue,
        };
        world.record_sending(taken.id, taken.epoch, &sending).await.unwrap();
    }
    let all = world.messages(None, Page::first(100)).await.unwrap();
    posted.reverse();
    assert_eq!(all.iter().map(|message| message.id).collect::<Vec<_>>(), posted);
    for status in MessageStatus::ALL {
        let expected: Vec<_> = all.iter().filter(|message| message.status == status).cloned().collect();
        assert_eq!(expected.len(), 3);
        let first = world.messages(Some(status), Page::first(2)).await.unwrap();
        assert_eq!(first, expected[..2]);
        let rest = Page { after: Some(first[1].id), limit: 2 };
        assert_eq!(world.messages(Some(status), rest).await.unwrap(), expected[2..]);
    }
}

pub(crate) async fn the_next_message_is_the_earliest_pending_one(world: World) {
    assert_eq!(world.next_message_at(&["smtp"]).await, Ok(None));
    post_one(&world, "first").await;
    let posted_at = world.now();
    world.advance_secs(5);
    post_one(&world, "second").await;
    assert_eq!(world.next_message_at(&["smtp"]).await, Ok(Some(posted_at)));
    for taken in world.take_messages("smtp", LEASE, 9).await.unwrap() {
        world.record_sending(taken.id, taken.epoch, &sent()).await.unwrap();
    }
    assert_eq!(world.next_message_at(&["smtp"]).await, Ok(None));
}

pub(crate) async fn a_message_on_the_databases_own_clock(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    let id = post_one(&world, "k").await;
    let taken = take_one(&world).await;
    let again = Sending::Retried { error: "busy".into(), after: Duration::from_secs(3600) };
    assert_eq!(world.record_sending(id, taken.epoch, &again).await, Ok(true));
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    let waits = read(&world, id).await;
    assert!(waits.next_attempt_at >= waits.created_at + TimeDelta::hours(1));
}

pub(crate) async fn racing_posts_that_share_keys_all_succeed(world: World) {
    let racing = world.eight_nodes().await.into_iter().enumerate().map(|(i, node)| {
        tokio::spawn(async move {
            let mut batch: Vec<_> = (0..50).map(|key| message(&key.to_string())).collect();
            if i % 2 == 1 {
                batch.reverse();
            }
            node.post(batch).await.unwrap()
        })
    });
    let posted = futures::future::join_all(racing).await.into_iter().flat_map(Result::unwrap);
    assert_eq!(posted.filter(|posted| matches!(posted, Posted::New(_))).count(), 50);
    assert_eq!(world.database.count("punctual_outbox").await, 50);
}

pub(crate) async fn messages_are_taken_by_their_transport(world: World) {
    post_one(&world, "mail").await;
    world.advance_secs(5);
    let queued = NewMessage { transport: "queue".into(), ..message("queued") };
    let id = queued.id;
    world.post(vec![queued]).await.unwrap();
    assert_eq!(world.next_message_at(&["queue"]).await, Ok(Some(world.now())));
    assert_eq!(world.next_message_at(&["log", "queue", "smtp"]).await, Ok(Some(world.in_secs(-5))));
    assert_eq!(world.next_message_at(&["log"]).await, Ok(None));
    assert_eq!(world.next_message_at(&[]).await, Ok(None));
    assert_eq!(world.take_messages("log", LEASE, 9).await, Ok(vec![]));
    let taken = world.take_messages("queue", LEASE, 9).await.unwrap();
    assert_eq!(taken.iter().map(|message| message.id).collect::<Vec<_>>(), [id]);
}

/// Writes a message and takes it, or the first of its key.
async fn post_taken(node: &NodeStore, key: &str) -> Taken {
    node.post_taken(message(key), LEASE).await.unwrap()
}

pub(crate) async fn a_message_can_be_taken_as_it_is_written(world: World) {
    let Taken::Ours(taken) = post_taken(&world, "k").await else { panic!("not taken") };
    assert_eq!((taken.dedupe_key.as_str(), taken.attempt, taken.epoch), ("k", 1, Epoch(1)));
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    assert_eq!(post_taken(&world, "k").await, Taken::Theirs { until: world.in_secs(30) });
    assert_eq!(world.record_sending(taken.id, taken.epoch, &sent()).await, Ok(true));
    assert_eq!(post_taken(&world, "k").await, Taken::Sent { provider_id: "provider é".into() });
    world.advance(TimeDelta::days(2));
    assert_eq!(world.prune(Duration::from_secs(86_400), 10).await.unwrap().messages, 1);
    assert_eq!(post_taken(&world, "k").await, Taken::Sent { provider_id: "provider é".into() });
}

pub(crate) async fn a_message_that_waits_or_failed_is_taken_at_once_by_whoever_posts_it_again(world: World) {
    let id = post_one(&world, "k").await;
    let first = take_one(&world).await;
    let again = Sending::Retried { error: "busy".into(), after: Duration::from_secs(60) };
    world.record_sending(id, first.epoch, &again).await.unwrap();
    let Taken::Ours(second) = post_taken(&world, "k").await else { panic!("not taken") };
    assert_eq!((second.id, second.attempt, second.epoch), (id, 2, Epoch(2)));
    world.record_sending(id, second.epoch, &Sending::Failed { error: "no".into() }).await.unwrap();
    let Taken::Ours(third) = post_taken(&world, "k").await else { panic!("not taken") };
    assert_eq!((third.id, third.attempt, third.epoch), (id, 1, Epoch(3)));
    assert_eq!((third.status, third.completed_at), (MessageStatus::Pending, None));
    // Nobody ended this one: it is anybody's once the lease has passed.
    world.advance_secs(31);
    let Taken::Ours(fourth) = post_taken(&world, "k").await else { panic!("not taken") };
    assert_eq!((fourth.id, fourth.epoch), (id, Epoch(4)));
}

pub(crate) async fn of_eight_who_post_and_take_one_key_one_has_it(world: World) {
    let taken = side_by_side(world.eight_nodes().await, |node| async move { post_taken(&node, "k").await }).await;
    assert_eq!(taken.iter().filter(|taken| matches!(taken, Taken::Ours(_))).count(), 1);
    let theirs = Taken::Theirs { until: world.in_secs(30) };
    assert_eq!(taken.iter().filter(|taken| **taken == theirs).count(), 7);
    assert_eq!(world.database.count("punctual_outbox").await, 1);
}

pub(crate) async fn messages_of_one_transport_can_be_sent_by_another(world: World) {
    for key in ["sent", "failed", "put off", "on its way"] {
        post_one(&world, key).await;
    }
    for taken in world.take_messages("smtp", LEASE, 9).await.unwrap() {
        let sending = match taken.dedupe_key.as_str() {
            "sent" => sent(),
            "failed" => Sending::Failed { error: "no".into() },
            "put off" => Sending::Retried { error: "busy".into(), after: Duration::from_secs(60) },
            _ => continue,
        };
        assert_eq!(world.record_sending(taken.id, taken.epoch, &sending).await, Ok(true));
    }
    post_one(&world, "waiting").await;
    world.post(vec![NewMessage { transport: "log".into(), ..message("other") }]).await.unwrap();
    let by_resend = async || {
        let all = world.messages(None, Page::first(9)).await.unwrap().into_iter();
        let mut keys: Vec<_> = all.filter(|m| m.transport == "resend").map(|m| m.dedupe_key).collect();
        keys.sort();
        keys
    };
    assert_eq!(world.redirect_messages("smtp", "resend").await, Ok(3));
    assert_eq!(by_resend().await, ["failed", "put off", "waiting"]);
    // Its sender is gone.
    world.advance_secs(30);
    assert_eq!(world.redirect_messages("smtp", "resend").await, Ok(1));
    assert_eq!(by_resend().await, ["failed", "on its way", "put off", "waiting"]);
    assert_eq!(world.take_messages("smtp", LEASE, 9).await, Ok(vec![]));
    assert_eq!(world.take_messages("resend", LEASE, 9).await.unwrap().len(), 2);
    assert_eq!(world.redirect_messages("pigeon", "resend").await, Ok(0));
}
