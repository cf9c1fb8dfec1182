//! The stream `punctual:events` in Redis, as listeners in other languages read it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::packages;
use crate::on_each_database;
use crate::support::{Database, Process, Redis, Server, Stream};

on_each_database!(what_happens_is_told_in_redis_with_the_fields_of_the_stream_over_http);

/// Everything in the stream, in order, once it has the ends of these tasks: the data by id, as often as they were told.
async fn told(redis: &Redis, ends: &BTreeSet<String>) -> Vec<(String, Value)> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let asked_at = Instant::now();
    loop {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            redis::cmd("XRANGE").arg("punctual:events").arg("-").arg("+").query_async(&mut connection).await.unwrap();
        let mut told = Vec::new();
        for (_, fields) in entries {
            let data: Value = serde_json::from_str(&fields["data"]).unwrap();
            assert_eq!((&data["id"], &data["name"]), (&json!(fields["id"]), &json!(fields["event"])));
            told.push((fields["id"].clone(), data));
        }
        let ended = told.iter().filter(|(_, data)| data["name"] == "task.completed");
        let ended: BTreeSet<_> = ended.map(|(_, data)| data["scheduledJobId"].as_str().unwrap().to_owned()).collect();
        if ends.is_subset(&ended) {
            return told;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{ended:?} of {ends:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn what_happens_is_told_in_redis_with_the_fields_of_the_stream_over_http(database: Database) {
    let mut redis = Redis::start();
    let serve = |redis: &Redis| {
        let url = redis.url();
        Server::start_with(&database, |command| {
            command
                .env("REDIS_URL", url)
                .env("PUNCTUAL_LEADER_LEASE_SECONDS", "3")
                .env("PUNCTUAL_LEADER_HEARTBEAT_SECONDS", "1")
        })
    };
    let server = serve(&redis);
    let make = async |server: &Server| {
        let body = r#"{"topic":"echo","payload":{"n": 1.50},"metadata":{"ownerId":"o"}}"#;
        let id = server.make_task(body).await["id"].as_str().unwrap().to_owned();
        server.ended_task(&id).await;
        id
    };
    let mut stream = Stream::open(server.request(reqwest::Method::GET, "/api/v1/events")).await;
    let mut ids = BTreeSet::from([make(&server).await]);
    let told_first: BTreeMap<_, _> = told(&redis, &ids).await.into_iter().collect();
    for frame in stream.take(2).await {
        assert_eq!(told_first.get(&frame.id), Some(&frame.json()), "field by field");
        assert_eq!(frame.json()["name"], frame.event);
    }
    assert_eq!(told_first.len(), 2, "{told_first:?}");
    let arrived = told_first.values().find(|data| data["name"] == "schedule.arrived").expect("an arrival");
    assert_eq!((&arrived["alias"], &arrived["topic"]), (&json!("schedule.echo.arrived"), &json!("echo")));
    assert_eq!((&arrived["userPayload"], &arrived["metadata"]), (&json!({"n": 1.5}), &json!({"ownerId": "o"})));
    assert_eq!((&arrived["attempt"], &arrived["scheduleId"]), (&json!(1), &Value::Null));

    // What happens while Redis is away is told when it is back.
    redis.kill();
    ids = BTreeSet::from([make(&server).await]);
    redis.restart();
    told(&redis, &ids).await;
    // And so is what happened just before a crash, by whoever comes next.
    ids.insert(make(&server).await);
    let crash = |mut server: Server| {
        server.process.signal("KILL");
        server.process.wait();
    };
    crash(server);
    let server = serve(&redis);
    ids.insert(make(&server).await);
    told(&redis, &ids).await;
    // What nobody noted to be told is told again, and is the same event.
    crash(server);
    let an_hour_back = "UPDATE punctual_facts SET value = CAST(CAST(value AS bigint) - 3600000000 AS text)
                        WHERE name = 'events_told_until'";
    database.execute(an_hour_back).await;
    let server = serve(&redis);
    ids.insert(make(&server).await);
    let told = told(&redis, &ids).await;
    let mut by_event: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, data) in &told {
        let event = (data["scheduledJobId"].to_string(), data["name"].to_string(), data["attempt"].to_string());
        by_event.entry(event).or_default().push(id);
    }
    assert_eq!(by_event.len(), 2 * ids.len() + 2, "all of them, and what was told before Redis was away: {told:?}");
    for (event, ids) in &by_event {
        assert!(ids.iter().all(|id| id == &ids[0]), "{event:?}: {ids:?}");
    }
    assert!(by_event.values().any(|ids| ids.len() > 1), "nothing was told again: {told:?}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_of_the_page_on_monitoring_hears() {
    let (database, redis) = (Database::sqlite(), Redis::start());
    let Some(packages) = packages() else { return };
    let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()));
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(task["id"].as_str().unwrap()).await;
    let page = include_str!("../../docs/monitoring.md");
    let code = page.split("```js\n").nth(1).and_then(|block| block.split("```").next()).expect("a listener");
    let mut command = Command::new("node");
    command.args(["-e", code]).env("NODE_PATH", packages).envs([("REDIS_URL", redis.url().as_str()), ("AFTER", "0")]);
    let mut listener = Process::start(&mut command);
    let id = task["id"].as_str().unwrap();
    assert_eq!(listener.wait_for_output("task.completed"), format!("task.completed {id}"));
    // It goes on, and says the same thing once.
    let next = server.make_task(r#"{"topic":"echo"}"#).await;
    let id = next["id"].as_str().unwrap();
    assert_eq!(listener.wait_for_output("schedule.arrived"), format!("schedule.arrived {id}"));
    server.stop();
}
