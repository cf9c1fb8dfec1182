//! The page of nodes: what the actors of this one are doing.

use std::time::{Duration, Instant};

use super::{PATIENCE, Visit, section};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(every_actor_of_a_node_says_what_it_is_doing);

async fn every_actor_of_a_node_says_what_it_is_doing(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(task["id"].as_str().unwrap()).await;
    let asked_at = Instant::now();
    // One that does not answer at once on a busy machine does so later.
    let page = loop {
        let page = visit.page("/nodes").await;
        let actors = section(&page, "actors");
        if actors.contains("dispatcher echo") && !actors.contains(">busy<") {
            break page;
        }
        assert!(asked_at.elapsed() < PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let leaves: Vec<_> = section(&page, "actors").split("<div class=\"actor\">").skip(1).collect();
    let expected = [
        ("supervisor", "restarts what fails, stops in order"),
        ("settler", "writes outcomes"),
        ("claimer", "claims due tasks"),
        ("reconciler", "frees expired leases, notes missed fires"),
        ("ticker", "fires schedules, where this node leads"),
        ("elector", "finds out who leads"),
        ("notifier", "sends messages"),
        ("dispatcher echo", ""),
    ];
    assert_eq!(leaves.len(), expected.len(), "{page}");
    for (leaf, (name, duty)) in leaves.iter().zip(expected) {
        assert!(leaf.starts_with(&format!("<span class=\"name\">{name}</span>")), "{name}: {leaf}");
        let (waiting, rest) = leaf.split_once(" waiting</span>").unwrap();
        let waiting = waiting.rsplit('>').next().unwrap();
        assert!(waiting.parse::<u64>().is_ok_and(|waiting| waiting <= 100), "{name}: {leaf}");
        for part in ["answered in ", "never restarted", duty] {
            assert!(rest.contains(part), "{name}: {part}: {leaf}");
        }
    }
    server.stop();
}
