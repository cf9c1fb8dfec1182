//! The stream `punctual:events` in Redis, as listeners in other languages read it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::on_each_database;
use crate::support::{Database, Redis, Server};

on_each_database!(what_happens_is_told_in_redis_with_the_fields_of_the_stream_over_http);

/// Everything in the stream, once it has the ends of these tasks: the data by id.
async fn told(redis: &Redis, ends: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let asked_at = Instant::now();
    loop {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            redis::cmd("XRANGE").arg("punctual:events").arg("-").arg("+").query_async(&mut connection).await.unwrap();
        let mut told = BTreeMap::new();
        for (_, fields) in entries {
            let data: Value = serde_json::from_str(&fields["data"]).unwrap();
            assert_eq!((&data["id"], &data["name"]), (&json!(fields["id"]), &json!(fields["event"])));
            told.insert(fields["id"].clone(), data);
        }
        let ended = told.values().filter(|data| data["name"] == "task.completed");
        let ended: BTreeSet<_> = ended.map(|data| data["scheduledJobId"].as_str().unwrap().to_owned()).collect();
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
    let mut ids = BTreeSet::from([make(&server).await]);
    let told_first = told(&redis, &ids).await;
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
    let mut server = server;
    server.process.signal("KILL");
    server.process.wait();
    let server = serve(&redis);
    ids.insert(make(&server).await);
    told(&redis, &ids).await;
    server.stop();
}
