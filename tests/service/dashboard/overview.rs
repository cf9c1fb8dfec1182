//! The overview: whether anything is late, and what comes.

use chrono::{TimeDelta, Utc};
use punctual_domain::task::{Due, NewTask};
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_store::Options;

use super::{Visit, make};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(tasks_that_should_have_begun_are_named_first, what_fires_all_the_time_hides_nothing_else);

async fn tasks_that_should_have_begun_are_named_first(database: Database) {
    let store = punctual_store::connect(&database.url, Options::default()).await.unwrap();
    for (name, route, paused) in
        [("stuck", Route::Handler, false), ("held", Route::Handler, true), ("pulled", Route::Pull, false)]
    {
        let definition = TopicDefinition { paused, ..TopicDefinition::new(name.parse().unwrap(), route) };
        store.put_topic(&definition).await.unwrap();
    }
    let due = Due::At(Utc::now() - TimeDelta::minutes(4));
    let task = |topic: &str| NewTask { due, ..NewTask::new(topic.parse().unwrap()) };
    store.create_tasks(["stuck", "stuck", "held", "pulled"].map(task).into(), None).await.unwrap();
    drop(store);
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    let page = visit.page("/").await;
    let (_, headline) = page.split_once("<h1").unwrap();
    let (headline, rest) = headline.split_once("</h1>").unwrap();
    for part in ["headline bad", "2 tasks wait to begin, the oldest late by 4 min: stuck."] {
        assert!(headline.contains(part), "{headline}");
    }
    assert!(rest.contains("1 task waits for a worker to claim it, for 4 min: pulled."), "{rest}");
    let (_, link) = rest.split_once("href=\"/tasks?status=pending").unwrap();
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    let list = visit.page(&format!("/tasks?status=pending{link}")).await;
    assert!(list.contains("stuck") && !list.contains("pulled"), "{list}");
    server.stop();
}

async fn what_fires_all_the_time_hides_nothing_else(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    for i in 0..9 {
        let body = format!(r#"{{"name":"second-{i}","everyMs":1000,"timezone":"UTC","topic":"quiet"}}"#);
        make(&server, &body).await;
    }
    make(&server, r#"{"name":"quarterly","cronExpression":"*/15 * * * *","timezone":"UTC","topic":"quiet"}"#).await;
    let page = visit.page("/").await;
    let ahead = &page[page.find("id=\"ahead\"").unwrap()..];
    let ahead = &ahead[..ahead.find("</section>").unwrap()];
    let (band, rest) = ahead.split_once("<svg").unwrap();
    assert!(band.contains("More than once a minute") && band.contains("second-8"), "{ahead}");
    assert!(rest.contains("quarterly") && !rest.contains("second-"), "{ahead}");
    assert!(page.contains("Next: quarterly"), "{page}");
    server.stop();
}
