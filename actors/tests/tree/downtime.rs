//! Nobody is there for long: what is made up for then, and what goes on meanwhile. In the soak that is a day and a thousand
//! schedules of each kind that fire every minute, so 1,440,000 tasks.
//!
//! Figures are printed: `make soak` shows them, and bounds how long others wait.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use punctual_actors::Handlers;
use punctual_domain::fire::SkipReason;
use punctual_domain::schedule::{MisfirePolicy, Schedule};
use punctual_domain::store::Page;
use punctual_domain::task::TaskStatus;

use crate::support::{World, task};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tasks_go_on_while_many_schedules_make_up_for_a_long_time_on_sqlite() {
    make_up_for_a_long_time(World::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tasks_go_on_while_many_schedules_make_up_for_a_long_time_on_postgres() {
    if let Some(world) = World::on_postgres().await {
        make_up_for_a_long_time(world).await;
    }
}

async fn make_up_for_a_long_time(world: World) {
    let (count, hours) = if std::env::var_os("PUNCTUAL_SOAK").is_some() { (1_000, 24) } else { (20, 2) };
    let missed = hours as u64 * 60;
    let once = write(&world, "once", MisfirePolicy::FireOnce, count).await;
    let skip = write(&world, "skip", MisfirePolicy::Skip, count).await;
    let all = write(&world, "all", MisfirePolicy::FireAll, count).await;
    // The last instant is a little too old to be fresh.
    world.clock.advance(TimeDelta::hours(hours) + TimeDelta::seconds(45));
    let tree = world.start(Handlers::default()).await;
    let began_at = Instant::now();
    let total = count * missed + count;
    let (mut made, mut most, mut tasks, mut longest) = (0, 0, 0, Duration::ZERO);
    while made < total {
        // In the topic of those that are made up for: it stands in line with them, and not behind all of them.
        let one_off = world.add(task("report")).await;
        let added_at = Instant::now();
        tree.hints().tasks_written();
        world.until(one_off, TaskStatus::Completed).await;
        longest = longest.max(added_at.elapsed());
        tasks += 1;
        let before = std::mem::replace(&mut made, fires_made(&world).await);
        most = most.max(made - before);
    }
    println!(
        "{made} tasks of {} schedules that missed {missed} instants each, in {:.1} s; {tasks} others meanwhile, the longest \
         waited {longest:?}",
        3 * count,
        began_at.elapsed().as_secs_f64()
    );
    assert_eq!(made, total);
    assert!(longest < longest_wait(), "one waited {longest:?}");
    assert!(most <= total.min(20_000), "{most} were made while one task waited");

    for (schedules, fired, reason) in
        [(once, 1, Some(SkipReason::Coalesced)), (skip, 0, Some(SkipReason::Misfire)), (all, missed, None)]
    {
        for schedule in schedules {
            let fires = world.fires(schedule.id).await;
            let skipped = fires.iter().filter(|fire| fire.reason.is_some());
            assert!(skipped.clone().all(|fire| fire.reason == reason));
            assert_eq!(skipped.map(|fire| fire.count).sum::<u64>(), missed - fired);
            assert_eq!(fires.iter().filter(|fire| fire.task.is_some()).count() as u64, fired);
        }
    }
    tree.drain(Duration::from_secs(60)).await.unwrap();
    world.remove().await;
}

/// How long others may wait meanwhile: a second, three times that in a build that was not optimised, and nobody counts where
/// other tests keep the machine busy.
fn longest_wait() -> Duration {
    match (std::env::var_os("PUNCTUAL_SOAK"), cfg!(debug_assertions)) {
        (None, _) => Duration::MAX,
        (Some(_), true) => Duration::from_secs(3),
        (Some(_), false) => Duration::from_secs(1),
    }
}

/// Writes schedules that fire every minute.
async fn write(world: &World, name: &str, policy: MisfirePolicy, count: u64) -> Vec<Schedule> {
    let mut schedules = Vec::new();
    for i in 0..count {
        let schedule = world.unwritten(|definition| {
            definition.name = format!("{name} {i}");
            definition.misfire_policy = policy;
            definition.misfire_window_seconds = 2 * 86_400;
        });
        world.store.create_schedule(&schedule, None).await.unwrap();
        schedules.push(schedule);
    }
    schedules
}

/// How many tasks were made of all fires.
async fn fires_made(world: &World) -> u64 {
    let mut page = Page::first(1_000);
    let mut made = 0;
    loop {
        let found = world.store.schedules(&Default::default(), page).await.unwrap();
        made += found.iter().map(|schedule| schedule.fires_made).sum::<u64>();
        let Some(last) = found.last() else { return made };
        page.after = Some(last.id);
    }
}
