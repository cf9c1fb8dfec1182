//! Topics, and what is counted of them.

use std::time::Duration;

use punctual_domain::hand_over::{NewHandOver, Queue};
use punctual_domain::store::Extension;
use punctual_store::Options;

use super::{Visit, api};
use crate::on_each_database;
use crate::support::{Database, Past, Server};

on_each_database!(many_visitors_at_once_all_see_the_topics, what_a_queue_has_accepted_runs_on_every_page);

async fn many_visitors_at_once_all_see_the_topics(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let seen = futures::future::join_all((0..20).map(|_| visit.get("/topics"))).await;
    for seen in seen {
        assert!(seen.status == 200 && seen.text.contains("0 tasks wait"), "{seen:?}");
    }
    server.stop();
}

async fn what_a_queue_has_accepted_runs_on_every_page(database: Database) {
    let task = Past::of(&database).await.running("jobs").await;
    let store = punctual_store::connect(&database.url, Options::default()).await.unwrap();
    let queue = Queue { prefix: "bull".into(), name: "jobs".into() };
    let hand_over = NewHandOver { queue, job_id: task.id.to_string(), limit: Duration::from_secs(3600) };
    let held = Extension { task_id: task.id, epoch: task.epoch };
    assert!(store.hand_over(held, &hand_over).await.unwrap());
    drop(store);
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let listed = api(&server, "/api/v1/tasks?status=running").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(visit.page("/topics").await.contains("0 tasks wait, 1 is running"));
    visit.overview("Running</a></dt><dd>1</dd>").await;
    server.stop();
}
