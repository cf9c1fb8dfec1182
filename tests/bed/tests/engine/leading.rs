//! Schedules of three nodes whose leader is killed or stalls, whose clocks are wrong, and whose Redis forgets everything every
//! second: each instant is fired, and once.

use std::time::Instant;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::bed::{scaled, scaled_seconds};
use crate::cluster::{Clock, Cluster, Faketime, Proof, Terms};
use crate::support::{Samples, Server};

/// How many schedules fire every second.
const SCHEDULES: usize = 200;
/// How often the leader is killed.
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instant_fires_once_however_often_the_leader_is_killed_and_whatever_redis_forgets() {
    let clocks = vec![Clock::Right, Clock::Right, Clock::Right];
    let Some(cluster) = Cluster::start(Terms::scaled(), clocks).await else { return };
    survive_kills(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instant_fires_once_with_a_leader_whose_clock_is_an_hour_ahead() {
    let Some(faketime) = Faketime::find() else { return };
    // The first is there before the others, so it leads first.
    let clocks = vec![Clock::Off { by: "+1h", faketime }, Clock::Right, Clock::Right];
    let Some(cluster) = Cluster::start(Terms::scaled(), clocks).await else { return };
    let ahead = &cluster.nodes[0];
    let offset = |by: std::ops::Range<f64>| {
        move |samples: &Samples| samples.value("punctual_clock_offset_seconds").is_some_and(|found| by.contains(&found))
    };
    ahead.samples(offset(-3_601.0..-3_599.0)).await;
    assert_eq!(cluster.leader(None).await, 0);
    survive_kills(cluster).await;
}

/// The leader is killed in the midst of firing, again and again; in the end all is proven.
async fn survive_kills(mut cluster: Cluster) {
    let seconds = scaled(20, 60);
    let from = cluster.now().await;
    make_schedules(&cluster.nodes[0]).await;
    let forgetting = cluster.redis.forget_every(std::time::Duration::from_secs(1));
    for kill in 1..=KILLS {
        cluster.until_fired(SCHEDULES * seconds * kill / (KILLS + 1)).await;
        let killed = cluster.kill_leader().await;
        println!("killed node {killed}");
        // Beside a cluster that is at it, with nobody leading: what is not decided yet is not missing.
        cluster.prove(from, cluster.now().await);
    }
    cluster.until_fired(SCHEDULES * seconds).await;
    drop(forgetting);
    check(&cluster, from).await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instant_fires_once_on_a_machine_whose_clock_is_set_back_and_ahead() {
    let Some(faketime) = Faketime::find() else { return };
    let Some(cluster) = Cluster::start(Terms::scaled(), vec![Clock::Settable(faketime)]).await else { return };
    let from = cluster.now().await;
    make_schedules(&cluster.nodes[0]).await;
    let mut seconds = 3;
    cluster.until_fired(SCHEDULES * seconds).await;
    for by in ["-1h", "+1h", "+0"] {
        cluster.set_clocks(by);
        seconds += scaled(5, 20);
        cluster.until_fired(SCHEDULES * seconds).await;
        cluster.prove(from, cluster.now().await);
        println!("the longest lag with a clock that was set to {by}: {:?}", cluster.longest_lag().await);
    }
    check(&cluster, from).await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stalls_for_longer_than_its_lease_fires_nothing_twice() {
    let clocks = vec![Clock::Right, Clock::Right, Clock::Right];
    let Some(cluster) = Cluster::start(Terms::scaled(), clocks).await else { return };
    let from = cluster.now().await;
    make_schedules(&cluster.nodes[0]).await;
    cluster.until_fired(SCHEDULES * 3).await;
    let stalled = cluster.leader(None).await;
    cluster.nodes[stalled].process.signal("STOP");
    // Some may wait for what it was at; that too has an end before it wakes up.
    cluster.until_fired(SCHEDULES * scaled(13, 43)).await;
    cluster.until_decided(cluster.now().await).await;
    println!("the longest lag with a leader that stalls: {:?}", cluster.longest_lag().await);

    cluster.nodes[stalled].process.signal("CONT");
    cluster.until_fired(SCHEDULES * scaled(16, 50)).await;
    check(&cluster, from).await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leads_within_the_lease_of_a_leader_that_died_and_at_once_after_one_that_stopped() {
    let terms = Terms::scaled();
    let clocks = vec![Clock::Right, Clock::Right, Clock::Right];
    let Some(mut cluster) = Cluster::start(terms, clocks).await else { return };
    for (how, most) in [("KILL", terms.lease() + scaled_seconds(30, 1)), ("TERM", scaled_seconds(30, 1))] {
        let leader = cluster.leader(None).await;
        let mut ended = cluster.nodes.remove(leader);
        let ended_at = Instant::now();
        ended.process.signal(how);
        cluster.leader(None).await;
        let led_after = ended_at.elapsed();
        println!("another led {led_after:?} after the leader got SIG{how}, with a lease of {:?}", terms.lease());
        assert!(led_after <= most, "{how}: only after {led_after:?}");
        assert_eq!(ended.process.wait().code(), (how == "TERM").then_some(0));
    }
    cluster.stop();
}

/// Schedules that fire every second: half of them all at the same instant, the others each at its own.
async fn make_schedules(server: &Server) {
    for i in 0..SCHEDULES {
        let rhythm = if i % 2 == 0 { json!({"cronExpression": "* * * * * *"}) } else { json!({"everyMs": 1_000}) };
        let mut schedule =
            json!({"name": format!("s{i}"), "timezone": "UTC", "topic": "bed.quick", "overlapPolicy": "allow"});
        schedule.as_object_mut().unwrap().extend(rhythm.as_object().unwrap().clone());
        let answer = server.post("/api/v1/schedules", schedule.to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

/// Proves everything up to now, and counts it by another way.
async fn check(cluster: &Cluster, from: DateTime<Utc>) {
    let to = cluster.now().await;
    cluster.until_decided(to).await;
    let Proof { schedules, expected, fired, skipped, pending } = cluster.prove(from, to);
    println!("{fired} of {expected} instants fired, the longest lag was {:?}", cluster.longest_lag().await);
    assert_eq!((schedules, skipped, pending), (SCHEDULES, 0, 0));
    assert_eq!(fired, expected);

    let number = async |statement: String| cluster.database.number(&statement).await;
    let before = to.to_rfc3339();
    // Every whole second after it was made, by the clock for an expression, since then for an interval.
    let by_the_clock =
        format!("ceil(extract(epoch FROM '{before}'::timestamptz)) - floor(extract(epoch FROM s.created_at)) - 1");
    let since = format!("ceil(extract(epoch FROM '{before}'::timestamptz - s.created_at)) - 1");
    for (remainder, instants) in [(0, by_the_clock), (1, since)] {
        let is_one = format!("substr(s.name, 2)::integer % 2 = {remainder}");
        let count = number(format!("SELECT count(*) FROM punctual_schedules AS s WHERE {is_one}")).await;
        assert_eq!(count, SCHEDULES as i64 / 2);
        let wrong = format!(
            "SELECT count(*) FROM punctual_schedules AS s WHERE {is_one} AND ({instants})::bigint <> (
                SELECT count(DISTINCT scheduled_at) FROM punctual_fires AS f
                WHERE f.schedule_id = s.id AND f.scheduled_at < '{before}' AND f.task_id IS NOT NULL)"
        );
        assert_eq!(number(wrong).await, 0, "{instants}");
    }
    let tasks = format!(
        "(SELECT schedule_id, scheduled_at FROM punctual_tasks WHERE scheduled_at < '{before}'
          UNION ALL SELECT schedule_id, scheduled_at FROM punctual_task_history WHERE scheduled_at < '{before}')"
    );
    assert_eq!(number(format!("SELECT count(*) FROM {tasks} AS t")).await, fired as i64);
    assert_eq!(number(format!("SELECT count(DISTINCT t) FROM {tasks} AS t")).await, fired as i64);
}
