//! What a producer of jobs owes to a queue, point by point: each is looked at with workers of either release.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{attempts, define, fleet, make, make_all, serve, until_answered, working_fleet};
use crate::fleet::{Fleet, RELEASES};
use crate::support::{Database, Redis, Server};

/// Makes tasks one after the other, each when the queue has the one before; answers the ids of their jobs.
async fn hand_over(server: &Server, redis: &Redis, queue: &str, count: usize) -> Vec<String> {
    let mut jobs = Vec::new();
    for n in 0..count {
        let job = format!("t_{}", make(server, json!({"topic": queue, "payload": {"n": n}})).await);
        until_answered(redis, &format!("EXISTS bull:{queue}:{job}"), ":1").await;
        jobs.push(job);
    }
    jobs
}

/// The ids of the jobs that began, in order, once there are so many.
fn order(fleet: &mut Fleet, count: usize) -> Vec<String> {
    fleet.tries(count).iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_has_the_prefix_that_its_route_names() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        for (n, prefix) in ["acme", "{acme}"].into_iter().enumerate() {
            let topic = format!("{release}.{n}");
            let route = json!({"type": "bullmq", "queue": release, "prefix": prefix});
            server.put_topic(&topic, &json!({"route": route}).to_string()).await;
            let Some(mut fleet) = Fleet::with_prefix(&redis, release, release, prefix) else { return };
            fleet.tell("worker");
            let id = make(&server, json!({"topic": topic, "payload": {"n": n}})).await;
            assert_eq!(server.ended_task(&id).await["result"], json!({"did": n}), "{release} {prefix}");
            assert!(fleet.jobs(1).contains_key(&format!("t_{id}")));
            assert_eq!(redis.ask(&format!("EXISTS {prefix}:{release}:t_{id}")), ":1");
        }
        assert_eq!(redis.ask(&format!("EXISTS bull:{release}:meta bull:{release}:events")), ":0");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_every_kind_arrive_as_they_were_sent() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    let payloads = [
        json!([]),
        json!([[], {}, [1, "é", null]]),
        json!({"a": {}, "b": [], "c": {"d": [{}]}}),
        json!("plain"),
        json!(""),
        json!(0),
        json!(-1.5),
        json!(true),
        json!(null),
        json!("✓ \u{1f600} \" \\ \n".repeat(200_000 / 16)),
        json!({"n": "x".repeat(200_000)}),
    ];
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let tasks = payloads.iter().map(|payload| json!({"topic": release, "payload": payload})).collect();
        let ids = make_all(&server, tasks).await;
        let jobs = fleet.jobs(payloads.len());
        for (id, payload) in ids.iter().zip(&payloads) {
            let start: String = payload.to_string().chars().take(80).collect();
            assert!(jobs[&format!("t_{id}")]["data"] == *payload, "{release}: {start}");
            assert_eq!(server.ended_task(id).await["status"], "completed", "{release}: {start}");
        }
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_begin_in_the_order_of_their_hand_over() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        let jobs = hand_over(&server, &redis, release, 10).await;
        fleet.tell(r#"worker {"concurrency":1}"#);
        assert_eq!(order(&mut fleet, 10), jobs, "{release}");
    }
    server.stop();
}

/// What a queue says of its release.
const VERSIONS: [&str; 3] = ["real", "absent", "unknown"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_queue_goes_on_in_order_whatever_it_says_of_its_release() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    let [five, six] = RELEASES;
    // What 6 paused, 5 cannot resume: it loses jobs of its own.
    for (paused_by, resumed_by) in [(five, five), (six, six), (five, six)] {
        for version in VERSIONS {
            for has_jobs in [false, true] {
                let queue = format!("{paused_by}-{resumed_by}-{version}-{has_jobs}");
                let Some(mut pausing) = fleet(&server, &redis, paused_by, &queue).await else { return };
                let mut jobs = hand_over(&server, &redis, &queue, if has_jobs { 2 } else { 0 }).await;
                pausing.tell("pause");
                match version {
                    "absent" => assert_eq!(redis.ask(&format!("HDEL bull:{queue}:meta version")), ":1"),
                    "unknown" => assert_eq!(redis.ask(&format!("HSET bull:{queue}:meta version py:bull9")), ":0"),
                    _ => {}
                }
                jobs.extend(hand_over(&server, &redis, &queue, 2).await);
                pausing.tell("add during");
                jobs.extend(hand_over(&server, &redis, &queue, 2).await);

                let mut working = Fleet::start(&redis, resumed_by, &queue).unwrap();
                working.tell(r#"worker {"concurrency":1}"#);
                // It has looked, and found nothing that it may take.
                working.tell("blocked");
                assert_eq!(order(&mut working, 0), [""; 0], "{queue}");
                working.tell("resume");
                let began = order(&mut working, jobs.len() + 1);
                assert_eq!(began.iter().collect::<BTreeSet<_>>().len(), began.len(), "{queue}: {began:?}");
                assert!(began.contains(&"during".to_owned()), "{queue}: {began:?}");
                let ours: Vec<_> = began.into_iter().filter(|id| id != "during").collect();
                assert_eq!(ours, jobs, "{queue}");
                for job in &ours {
                    let task = server.ended_task(job.strip_prefix("t_").unwrap()).await;
                    assert_eq!(task["status"], "completed", "{queue}: {task}");
                }
            }
        }
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_allows_one_at_a_time_gets_all_done() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        fleet.tell("limit 1");
        fleet.tell("worker");
        let task = |n: usize| json!({"topic": release, "payload": {"n": n, "sleep": 10}});
        let ids = make_all(&server, (0..20).map(task).collect()).await;
        for id in &ids {
            assert_eq!(server.ended_task(id).await["status"], "completed", "{release}");
        }
        let tries = fleet.tries(20);
        assert_eq!(tries.len(), 20, "{release}");
        assert!(tries.iter().all(|job| job["together"] == 1), "{release}: {tries:?}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_a_rate_is_served_at_that_rate() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        fleet.tell("rate 2 200");
        fleet.tell("worker");
        let ids = make_all(&server, (0..10).map(|n| json!({"topic": release, "payload": {"n": n}})).collect()).await;
        for id in &ids {
            assert_eq!(server.ended_task(id).await["status"], "completed", "{release}");
        }
        assert_eq!(fleet.jobs(10).len(), 10);
        let mut begun: Vec<_> = fleet.tries(10).iter().map(|job| job["at"].as_i64().unwrap()).collect();
        begun.sort_unstable();
        // Five windows of 200 ms, of which the first may have begun a little before its first job did.
        assert!(begun[9] - begun[0] >= 600, "{release}: {begun:?}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queues_own_view_of_its_jobs_is_right() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        fleet.tell("later far 3600000");
        let jobs = hand_over(&server, &redis, release, 3).await;
        let fails = make(&server, json!({"topic": release, "payload": {"fails": 9}})).await;
        until_answered(&redis, &format!("LLEN bull:{release}:wait"), ":4").await;
        let check = |fleet: &mut Fleet, expected: Value| {
            let counts = fleet.ask("counts");
            for (state, count) in expected.as_object().unwrap() {
                assert_eq!(&counts[state], count, "{release} {state}: {counts}");
            }
        };
        check(&mut fleet, json!({"waiting": 4, "delayed": 1, "active": 0, "prioritized": 0, "completed": 0}));
        assert_eq!(fleet.ask(&format!("state {}", jobs[0])), "waiting");
        fleet.tell("worker");
        let failed = server.ended_task(&fails).await;
        assert_eq!(failed["status"], "failed", "{failed}");
        for job in &jobs {
            server.ended_task(job.strip_prefix("t_").unwrap()).await;
        }
        check(&mut fleet, json!({"waiting": 0, "delayed": 1, "active": 0, "completed": 3, "failed": 1}));
        assert_eq!(fleet.ask(&format!("state {}", jobs[2])), "completed");
        assert_eq!(fleet.ask(&format!("state t_{fails}")), "failed");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queues_events_tell_of_a_job_in_order() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let id = make(&server, json!({"topic": release})).await;
        server.ended_task(&id).await;
        let once = ["added", "waiting", "active", "completed"];
        assert_eq!(fleet.ask(&format!("heard t_{id} completed")), json!(once), "{release}");
        fleet.tell(&format!("add t_{id}"));
        let heard = fleet.ask(&format!("heard t_{id} duplicated"));
        assert_eq!(heard.as_array().unwrap()[..4], once, "{release}: {heard}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_for_a_job_far_off_begins_at_once() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        fleet.tell("later far 3600000");
        fleet.tell("worker");
        let mut late = Vec::new();
        for n in 1..=5 {
            fleet.tell("blocked");
            let id = make(&server, json!({"topic": release})).await;
            let task = server.ended_task(&id).await;
            let due_at: DateTime<Utc> = task["runAt"].as_str().unwrap().parse().unwrap();
            late.push(fleet.tries(n)[n - 1]["at"].as_i64().unwrap() - due_at.timestamp_millis());
        }
        late.sort_unstable();
        // A worker that nobody wakes looks every five seconds at the soonest.
        assert!(late[2] < 1_000, "{release}: {late:?}");
    }
    server.stop();
}

/// Several services with the same tasks, as after a restored backup: all of them hand all over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_hand_over_at_once_runs_once() {
    for release in RELEASES {
        let (database, redis) = (Database::sqlite(), Redis::start());
        let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()).arg("--paused"));
        let Some(mut fleet) = working_fleet(&server, &redis, release, "jobs").await else { return };
        let ids = make_all(&server, (0..5).map(|n| json!({"topic": "jobs", "payload": {"n": n}})).collect()).await;
        server.stop();
        let copies = [(); 4].map(|()| {
            let copy = Database::sqlite();
            let file = |database: &Database| database.folder.path().join("punctual.db");
            std::fs::copy(file(&database), file(&copy)).unwrap();
            copy
        });
        let starting =
            copies.each_ref().map(|copy| Server::spawn(copy, |command| command.env("REDIS_URL", redis.url())));
        let servers = starting.map(Server::listening);
        let mut queued = 0.0;
        for server in &servers {
            for (n, id) in ids.iter().enumerate() {
                let task = server.ended_task(id).await;
                assert_eq!(task["result"], json!({"did": n}), "{release}: {task}");
            }
            let result = |result| format!("punctual_hand_overs_total{{result=\"{result}\"}}");
            let count = |samples: &crate::support::Samples, name| samples.value(&result(name)).unwrap_or_default();
            let all = |samples: &_| count(samples, "queued") + count(samples, "was_there") == 5.0;
            queued += count(&server.samples(all).await, "queued");
        }
        assert_eq!((queued, fleet.jobs(5).len()), (5.0, 5), "{release}");
        servers.into_iter().for_each(Server::stop);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_have_ended_are_kept_against_the_settings_of_their_worker() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        fleet.tell(r#"worker {"removeOnComplete":{"count":0},"removeOnFail":{"count":0}}"#);
        // One of nobody's shows that the worker means it.
        fleet.tell("add others");
        for (payload, status) in [(json!({}), "completed"), (json!({"fails": 9}), "failed")] {
            let id = make(&server, json!({"topic": release, "payload": payload})).await;
            assert_eq!(server.ended_task(&id).await["status"], status, "{release}");
            assert_eq!(redis.ask(&format!("EXISTS bull:{release}:t_{id}")), ":1", "{release} {status}");
        }
        until_answered(&redis, &format!("EXISTS bull:{release}:others"), ":0").await;
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_are_further_and_further_apart_and_exhausted_in_the_end() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let retry = json!({"attempts": 4, "backoff": {"type": "exponential", "delay": 100, "jitter": 0}});
        let id = make(&server, json!({"topic": release, "payload": {"fails": 9}, "retry": retry})).await;
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], attempts(&task).len()), (&json!("failed"), 4), "{release}: {task:#}");
        let tries = fleet.tries(4);
        let begun: Vec<_> = tries.iter().map(|job| job["at"].as_i64().unwrap()).collect();
        let apart: Vec<_> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(apart.iter().zip([100, 200, 400]).all(|(apart, wait)| *apart >= wait), "{release}: {apart:?}");
        assert_eq!(tries.len(), 4, "{release}");
        let heard = fleet.ask(&format!("heard t_{id} failed"));
        assert!(heard.as_array().unwrap().contains(&json!("retries-exhausted")), "{release}: {heard}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_calls_hopeless_is_not_tried_again() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = working_fleet(&server, &redis, release, release).await else { return };
        let payload = json!({"hopeless": "no such customer"});
        let id = make(&server, json!({"topic": release, "payload": payload, "retry": {"attempts": 3}})).await;
        let task = server.ended_task(&id).await;
        assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("no such customer")), "{task:#}");
        let once = (1, Some("failed".to_owned()), Some("no such customer".to_owned()));
        assert_eq!(attempts(&task), [once], "{release}");
        assert_eq!(fleet.tries(1).len(), 1, "{release}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_the_same_id_is_the_same_whoever_adds_it_first() {
    let database = Database::sqlite();
    let (redis, server) = serve(&database);
    for release in RELEASES {
        let Some(mut fleet) = fleet(&server, &redis, release, release).await else { return };
        let ours = hand_over(&server, &redis, release, 1).await.remove(0);
        fleet.tell(&format!("add {ours}"));

        define(&server, release).await;
        assert_eq!(server.post(&format!("/api/v1/topics/{release}/pause"), "").await.status, 200);
        let id = make(&server, json!({"topic": release, "payload": {"n": 1}})).await;
        let theirs = format!("t_{id}");
        fleet.tell(&format!("add {theirs}"));
        assert_eq!(server.post(&format!("/api/v1/topics/{release}/resume"), "").await.status, 200);
        assert_eq!(fleet.ask(&format!("heard {theirs} duplicated")), json!(["added", "waiting", "duplicated"]));

        fleet.tell("worker");
        assert_eq!(server.ended_task(&ours[2..]).await["result"], json!({"did": 0}), "{release}");
        assert_eq!(server.ended_task(&id).await["result"], json!({"did": null}), "{release}");
        let jobs = fleet.jobs(2);
        assert_eq!((&jobs[&ours]["name"], &jobs[&ours]["data"]), (&json!(release), &json!({"n": 0})));
        assert_eq!((&jobs[&theirs]["name"], &jobs[&theirs]["data"]), (&json!("added"), &json!({})));
    }
    server.stop();
}
