//! The ends of time: instants are those of the years 1 to 9999, and what lies beyond becomes the nearest of them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::id::MessageId;
use punctual_domain::json::Json;
use punctual_domain::outbox::{NewMessage, Sending};
use punctual_domain::store::{ClaimRequest, Pruned, Span, TaskFilter};
use punctual_domain::task::{AttemptOutcome, Due, NewTask, Settlement, TaskStatus};

use crate::support::*;

fn first() -> DateTime<Utc> {
    "0001-01-01T00:00:00Z".parse().unwrap()
}

fn last() -> DateTime<Utc> {
    "9999-12-31T23:59:59.999999Z".parse().unwrap()
}

pub(crate) async fn a_wait_without_end_lasts_until_the_year_9999(world: World) {
    let waiting = world.add(NewTask { due: Due::After(Duration::MAX), ..task("later").build() }).await;
    assert_eq!(waiting.run_at, last());
    assert_eq!(world.read(waiting.id).await, waiting);

    world.add(task("mail")).await;
    let request = ClaimRequest { lease: Duration::MAX, ..world.request("mail", 1) };
    let claimed = world.claim(&request).await.unwrap().remove(0);
    assert_eq!(claimed.lease.as_ref().unwrap().expires_at, Some(last()));
    assert_eq!(world.extend_one(&claimed, Duration::MAX).await, Some(last()));

    let forever = Settlement::Retried { outcome: AttemptOutcome::Failed, error: "no".into(), after: Duration::MAX };
    assert_eq!(world.settle_now(&claimed, forever).await.run_at, last());
    let running = world.running(task("mail")).await;
    assert_eq!(
        world.settle_now(&running, Settlement::Snoozed { after: Duration::MAX, error: None }).await.run_at,
        last()
    );

    let leadership = world.lead("ticker", world.id, Duration::MAX).await.unwrap();
    assert_eq!(leadership.expires_at, last());
}

pub(crate) async fn a_message_without_end_waits_until_the_year_9999(world: World) {
    let new = NewMessage {
        id: MessageId::generate(),
        dedupe_key: "key".into(),
        transport: "log".into(),
        recipient: "somebody".into(),
        body: Json::empty_object(),
    };
    world.post(vec![new]).await.unwrap();
    let taken = world.take_messages("log", Duration::MAX, 1).await.unwrap().remove(0);
    assert_eq!(taken.next_attempt_at, last());
    let forever = Sending::Retried { error: "no".into(), after: Duration::MAX };
    assert_eq!(world.record_sending(taken.id, taken.epoch, &forever).await, Ok(true));
    assert_eq!(world.message(taken.id).await.unwrap().unwrap().next_attempt_at, last());
}

pub(crate) async fn what_is_kept_without_end_is_never_pruned(world: World) {
    world.ended(task("mail"), TaskStatus::Completed).await;
    world.advance_secs(86_400);
    assert_eq!(world.prune(Duration::MAX, 10).await, Ok(Pruned::default()));
    assert_eq!(world.nodes(Duration::MAX).await, Ok(vec![]));
}

pub(crate) async fn instants_outside_the_years_1_to_9999_become_the_nearest_inside(world: World) {
    for (at, stored) in [
        (DateTime::<Utc>::MAX_UTC, last()),
        ("+10000-01-01T00:00:00Z".parse().unwrap(), last()),
        (last(), last()),
        (first(), first()),
        ("0000-12-31T23:59:59Z".parse().unwrap(), first()),
        (DateTime::<Utc>::MIN_UTC, first()),
    ] {
        let written = world.add(task("mail").at(at)).await;
        assert_eq!(written.run_at, stored, "{at}");
        assert_eq!(world.read(written.id).await, written);
    }
    assert_eq!(world.claim_up_to(9, "mail").await.len(), 3);

    let mut schedule = world.unwritten("nightly");
    schedule.paused_until = Some(DateTime::<Utc>::MAX_UTC);
    world.create_schedule(&schedule).await.unwrap();
    let stored = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!(stored.paused_until, Some(last()));
    assert_eq!(world.update_schedule(&schedule).await.unwrap().paused_until, Some(last()));
}

pub(crate) async fn spans_may_reach_beyond_every_year(world: World) {
    let pending = world.add(task("mail")).await;
    let (from, to) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
    let filter = TaskFilter { run_at: Span { from: Some(from), to: Some(to) }, ..Default::default() };
    assert_eq!(ids(&world.list(filter).await), [pending.id]);
    assert_eq!(world.next_due_at(from).await, Ok(Some(pending.run_at)));
    assert_eq!(world.next_due_at(to).await, Ok(None));
}
