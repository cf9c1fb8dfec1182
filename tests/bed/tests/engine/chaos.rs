//! Redis is absent, killed, stopped, paused, flushed and full under load: that costs time at the most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::Client;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::bed::{node, scaled, until_all_ended};
use crate::support::{Database, Redis, Server};

/// How late tasks may begin while Redis is in trouble (p99), in milliseconds: as long as a node waits at the most until it looks again for
/// what is due and was not claimed, and a second.
const LATE: i64 = 250 + 1_000;

/// How many tasks are made at a time, and how often: 200 a second.
const AT_A_TIME: usize = 10;
const EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_whatever_redis_does() {
    let Some(database) = Database::postgres().await else { return };
    let mut redis = Redis::absent();
    let url = redis.url();
    let nodes = [(); 2].map(|()| node(&database, &[("REDIS_URL", url.as_str())]));
    let load = Load::begin(&nodes);
    let trouble = Duration::from_secs(scaled(2, 60) as u64);

    look(&database, &nodes, "absent from the start", trouble).await;
    redis.restart();
    let normal = look(&database, &nodes, "there", trouble).await;
    redis.kill();
    look(&database, &nodes, "killed", trouble).await;
    redis.restart();
    redis.signal("STOP");
    look(&database, &nodes, "stopped", trouble).await;
    redis.signal("CONT");
    assert_eq!(redis.ask(&format!("CLIENT PAUSE {} ALL", trouble.as_millis())), "+OK");
    look(&database, &nodes, "paused", trouble).await;
    let forgetting = redis.forget_every(Duration::from_millis(100));
    look(&database, &nodes, "flushed at 10 Hz", trouble).await;
    drop(forgetting);
    assert_eq!(redis.ask("CONFIG SET maxmemory 1mb"), "+OK");
    look(&database, &nodes, "full", trouble).await;
    assert_eq!(redis.ask("CONFIG SET maxmemory 0"), "+OK");
    let afterwards = look(&database, &nodes, "well again", trouble).await;
    assert!(scaled(0, 1) == 0 || afterwards <= (2 * normal).max(100), "{afterwards} ms, which were {normal} ms before");

    let made = load.end().await;
    until_all_ended(&database).await;
    println!("{made} tasks");
    let count = async |what: &str| database.number(&format!("SELECT count(*) FROM {what}")).await;
    assert_eq!(count("punctual_task_history WHERE status = 'completed' AND attempt = 1").await, made, "none is lost");
    assert_eq!(count("bed_counts WHERE again = 0").await, made, "none is doubled");
    assert_eq!(count("bed_counts").await, made);
    for node in nodes {
        node.stop();
    }
}

/// Lets the load go on for a while, and prints how late its tasks were; answers how late nearly all of them were at the most.
async fn look(database: &Database, nodes: &[Server], what: &str, trouble: Duration) -> i64 {
    let from = Utc::now();
    sleep(trouble / 2).await;
    for node in nodes {
        assert_eq!(node.get("/readyz").await.status, 200, "{what}");
    }
    sleep(trouble / 2).await;
    let [median, late] = [0.5, 0.99].map(|part| lag(part, from));
    let (median, late) = (database.number(&median).await, database.number(&late).await);
    println!("Redis {what}: lag {median} ms (p50), {late} ms (p99)");
    assert!(scaled(0, 1) == 0 || late <= LATE, "Redis {what}: {late} ms");
    late
}

/// How late tasks began that were made since then, in milliseconds; those that have not begun are as late as it is now.
fn lag(part: f64, from: DateTime<Utc>) -> String {
    let from = from.to_rfc3339();
    format!(
        "SELECT coalesce(ceil(extract(epoch FROM percentile_disc({part}) WITHIN GROUP (ORDER BY late)) * 1000), 0)::bigint FROM (
             SELECT started_at - run_at AS late FROM punctual_task_history WHERE created_at >= '{from}'
             UNION ALL
             SELECT clock_timestamp() - run_at FROM punctual_tasks WHERE created_at >= '{from}' AND status = 'pending'
         ) AS made"
    )
}

/// Tasks that are made at a steady pace.
struct Load {
    goes_on: Arc<AtomicBool>,
    made: Arc<AtomicI64>,
    making: JoinHandle<()>,
}

impl Load {
    fn begin(nodes: &[Server]) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let made = Arc::new(AtomicI64::new(0));
        let urls: Vec<_> = nodes.iter().map(|node| format!("{}/api/v1/tasks/batch", node.url)).collect();
        let (still, counted) = (Arc::clone(&goes_on), Arc::clone(&made));
        let making = tokio::spawn(async move {
            let client = Client::builder().no_proxy().build().unwrap();
            let tasks = vec![json!({"topic": "bed.count"}); AT_A_TIME];
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for url in urls.iter().cycle() {
                if !still.load(Ordering::Acquire) {
                    return;
                }
                ticks.tick().await;
                let answer = client.post(url).json(&json!({"tasks": tasks})).send().await.unwrap();
                assert_eq!(answer.status(), 201, "no caller is told");
                counted.fetch_add(AT_A_TIME as i64, Ordering::AcqRel);
            }
        });
        Self { goes_on, made, making }
    }

    /// Ends it; answers how many tasks were made.
    async fn end(self) -> i64 {
        self.goes_on.store(false, Ordering::Release);
        self.making.await.unwrap();
        self.made.load(Ordering::Acquire)
    }
}
