//! The overview: whether anything is late, what comes, and what was.

use std::sync::Arc;

use chrono::{DurationRound, TimeDelta, Utc};
use punctual_domain::clock::FakeClock;
use punctual_domain::task::{AttemptOutcome, Due, NewTask, Settlement};
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_store::Options;

use super::{Visit, failed_task, make, section};
use crate::on_each_database;
use crate::support::{Database, Past, Server};

on_each_database!(
    tasks_that_should_have_begun_are_named_first,
    what_fires_all_the_time_hides_nothing_else,
    tasks_that_become_due_are_among_what_comes_next,
    numbers_lead_to_what_they_count,
    charts_draw_what_ended_and_how_late_it_began,
);

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
    let page = visit.overview("2 tasks wait to begin").await;
    let (_, headline) = page.split_once("<h1").unwrap();
    let (headline, rest) = headline.split_once("</h1>").unwrap();
    for part in ["headline bad", "2 tasks wait to begin, the oldest late by 4 min: stuck."] {
        assert!(headline.contains(part), "{headline}");
    }
    assert!(rest.contains("1 task waits for a worker to claim it, for 4 min: pulled."), "{rest}");
    let (_, held) = rest.split_once("1 task waits because its topic is paused, for 4 min: held.").unwrap();
    let (held, _) = held.split_once("</li>").unwrap();
    assert!(held.contains("href=\"/topics\""), "where it can be resumed: {held}");
    let list = visit.page(&link_of(held, "held")).await;
    assert!(list.contains("held") && !list.contains("stuck"), "{list}");
    assert!(rest.contains("3 tasks are due and wait."), "beside those whose topic is paused: {rest}");
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
    let page = visit.overview("Next, beside what fires all the time: quarterly").await;
    let ahead = section(&page, "ahead");
    let (band, rest) = ahead.split_once("<svg").unwrap();
    assert!(band.contains("More than once a minute") && band.contains("second-8"), "{ahead}");
    assert!(rest.contains("quarterly") && !rest.contains("second-"), "{ahead}");
    server.stop();
}

/// The address that the link with this text has on a page.
fn link_of(page: &str, text: &str) -> String {
    let (before, _) = page.split_once(&format!(">{text}</a>")).unwrap_or_else(|| panic!("{text}: {page}"));
    let (_, link) = before.rsplit_once("href=\"").unwrap();
    link.trim_end_matches('"').replace("&amp;", "&")
}

async fn tasks_that_become_due_are_among_what_comes_next(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    make(&server, r#"{"name":"now and then","everyMs":1500000,"timezone":"UTC","topic":"quiet"}"#).await;
    let soon = server.make_task(r#"{"topic":"mail.soon","delayMs":1200000}"#).await;
    server.make_task(r#"{"topic":"mail.soon","delayMs":1300000}"#).await;
    server.make_task(r#"{"topic":"mail.tomorrow","delayMs":86400000}"#).await;
    let page = visit.overview("Next: a task of mail.soon in 20 min.").await;
    let ahead = section(&page, "ahead");
    assert_eq!(link_of(ahead, "mail.soon"), format!("/tasks/{}", soon["id"].as_str().unwrap()), "the first of them");
    assert!(ahead.contains("now and then") && ahead.contains("2 fires") && !ahead.contains("mail.tomorrow"), "{ahead}");
    let list = visit.page(&link_of(ahead, "2 tasks")).await;
    assert!(list.contains("mail.soon") && !list.contains("mail.tomorrow"), "{list}");
    server.stop();
}

async fn numbers_lead_to_what_they_count(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    server.put_topic("held", r#"{"route":{"type":"pull"}}"#).await;
    let due = server.make_task(r#"{"topic":"held"}"#).await;
    let later = server.make_task(r#"{"topic":"held","delayMs":3600000}"#).await;
    let [due, later] = [&due, &later].map(|task| task["id"].as_str().unwrap());
    let same = [failed_task(&server, "mail", "no user 17").await, failed_task(&server, "mail", "no user 4711").await];
    let others = [failed_task(&server, "mail", "no paper").await, failed_task(&server, "fax", "no user 9").await];
    let page = visit.overview("2×").await;
    let list = visit.page(&link_of(&page, "Due")).await;
    assert!(list.contains(due) && !list.contains(later), "{list}");
    let list = visit.page(&link_of(&page, "Failed (1 h)")).await;
    assert!(same.iter().chain(&others).all(|id| list.contains(id)) && list.contains("4 tasks"), "{list}");
    // A cause leads to all of its tasks, and to no others.
    let (_, mail) = page.split_once("2×").unwrap_or_else(|| panic!("{page}"));
    let list = visit.page(&link_of(mail, "no user 4711")).await;
    assert!(same.iter().all(|id| list.contains(id)), "{list}");
    assert!(others.iter().all(|id| !list.contains(id)) && list.contains("2 tasks"), "{list}");
    assert!(visit.page("/failures?topic=none").await.contains("No such task failed"));
    for wrong in ["/failures?within=year", "/failures?colour=red"] {
        assert_eq!(visit.get(wrong).await.status, 400, "{wrong}");
    }
    server.stop();
}

async fn charts_draw_what_ended_and_how_late_it_began(database: Database) {
    let this = Utc::now().duration_trunc(TimeDelta::minutes(1)).unwrap();
    let [first, second] = [30, 10].map(|ago| this - TimeDelta::minutes(ago));
    let clock = FakeClock::at(first);
    let past = Past::by(&database, Some(Arc::new(clock.clone()))).await;
    let failed = Settlement::Failed { outcome: AttemptOutcome::Failed, error: "no paper".into() };
    let done = || Settlement::Completed { result: None };
    for (at, lag, settlements) in [(first, 2, vec![done(), done(), done(), failed]), (second, 6, vec![done(), done()])]
    {
        clock.advance_to(at);
        for settlement in settlements {
            past.due("mail").await;
            clock.advance(TimeDelta::seconds(lag));
            past.attempt("mail", settlement, || clock.advance(TimeDelta::seconds(1))).await;
        }
    }
    past.close().await;

    let server = Server::start(&database);
    let page = Visit::of(&server).overview("peak").await;
    let throughput = section(&page, "throughput");
    for part in ["6 in the last hour, ", "1 failed", "peak 4/min", ": 6 in all, 1 failed, at most 4 in a minute\""] {
        assert!(throughput.contains(part), "{part}: {throughput}");
    }
    let columns: Vec<_> = throughput.split("<g>").skip(1).collect();
    assert_eq!(columns.len(), 60, "{throughput}");
    // As high as its number, of 72.
    for (at, said, good, bad) in
        [(first, "4 ended, 1 failed", "72.0", Some("18.0")), (second, "2 ended, 0 failed", "36.0", None)]
    {
        let title = format!("<title>{} UTC: {said}</title>", at.format("%H:%M"));
        let column = columns.iter().find(|column| column.starts_with(&title)).expect(throughput);
        assert_eq!((height_of(column, "good"), height_of(column, "bad")), (Some(good), bad), "{column}");
    }
    let empty: Vec<_> = columns.iter().filter(|column| column.contains(": 0 ended, 0 failed")).collect();
    assert!(empty.len() == 58 && empty.iter().all(|column| height_of(column, "good") == Some("0.0")), "{throughput}");

    let lag = section(&page, "lag");
    let about = "How late tasks began in each minute of the last hour: at most 6 s on average";
    for part in ["lately 6 s after the time asked for, on average", "worst minute 6 s on average", about] {
        assert!(lag.contains(part), "{part}: {lag}");
    }
    let (_, points) = lag.split_once("points=\"").expect(lag);
    let numbers = points.split('"').next().unwrap().split([' ', ',']).map(|number| number.parse().unwrap());
    let points: Vec<f64> = numbers.collect();
    let [x1, y1, x2, y2] = points[..] else { panic!("{points:?}") };
    assert_eq!((y1, y2), (47.3, 2.0), "the higher the later");
    // Twenty minutes of sixty lie between them.
    assert!((x2 - x1 - 600.0 / 59.0 * 20.0).abs() < 0.2, "{points:?}");
    server.stop();
}

/// How high the bar of a column is that has this tone.
fn height_of<'a>(column: &'a str, tone: &str) -> Option<&'a str> {
    let (_, bar) = column.split_once(&format!("<rect class=\"{tone}\""))?;
    bar.split_once("height=\"")?.1.split('"').next()
}
