//! PostgreSQL goes away under load, and comes back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bed::{node, scaled_seconds, tasks, until_all_ended};
use crate::postgres::Postgres;
use crate::support::{Database, Server};

/// How long it is away.
const AWAY: Duration = Duration::from_secs(20);
/// How many tasks are answered before it goes, and after it is back.
const ENOUGH: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_postgres_is_back_and_nothing_is_lost() {
    // Where no PostgreSQL is asked for, there may be none to start.
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return drop(Database::postgres().await);
    }
    let mut postgres = Postgres::start();
    let database = Database::on(&postgres.url()).await;
    let mut nodes = [node(&database, &[]), node(&database, &[])];
    let mut load = Load::begin(&nodes);
    load.until_answered(ENOUGH).await;

    postgres.stop();
    let stopped_at = Instant::now();
    while stopped_at.elapsed() < AWAY {
        for node in &mut nodes {
            assert_eq!(node.get("/readyz").await.status, 503);
            assert_eq!(node.get("/livez").await.status, 200);
            assert!(node.process.ended().is_none(), "{:#?}", node.process.log());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    postgres.resume();
    let resumed_at = Instant::now();
    for node in &nodes {
        while node.get("/readyz").await.status != 200 {
            assert!(resumed_at.elapsed() < Duration::from_secs(60), "never ready again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    println!("ready {:.1} s after PostgreSQL was back", resumed_at.elapsed().as_secs_f64());
    for node in &nodes {
        let id = make_task(node).await;
        assert_eq!(node.ended_task(&id).await["status"], "completed");
    }
    let worked_after = resumed_at.elapsed();
    println!("both at work {:.1} s after PostgreSQL was back", worked_after.as_secs_f64());
    assert!(worked_after < scaled_seconds(60, 5), "they went on only after {worked_after:?}");
    load.until_answered(ENOUGH).await;
    let answered = load.end();
    until_all_ended(&database).await;
    println!("all had ended {:.1} s after PostgreSQL was back", resumed_at.elapsed().as_secs_f64());

    let completed = tasks(&nodes[0], "status=completed").await;
    let completed: BTreeSet<_> = completed.iter().map(|task| task["id"].as_str().unwrap()).collect();
    let missing: Vec<_> = answered.iter().filter(|id| !completed.contains(id.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new(), "of {} answered", answered.len());
    assert_eq!(tasks(&nodes[0], "status=failed,cancelled").await, Vec::<Value>::new());
    let again = database.number("SELECT count(*) FROM punctual_attempts WHERE outcome = 'lost'").await;
    println!("{} tasks were answered, {again} were attempted again", answered.len());
    for node in nodes {
        node.stop();
    }
}

/// Makes a quick task. A node that is ready again may still find a broken connection: then the caller comes again.
async fn make_task(node: &Server) -> String {
    loop {
        let answer = node.post("/api/v1/tasks", r#"{"topic":"bed.quick"}"#).await;
        match answer.status.as_u16() {
            201 => return answer.json()["id"].as_str().unwrap().to_owned(),
            503 => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => panic!("{answer:?}"),
        }
    }
}

/// Tasks that are sent without a pause, to every node.
struct Load {
    answers: UnboundedReceiver<Option<String>>,
    answered: Vec<String>,
}

impl Load {
    /// Begins, with some connections per node.
    fn begin(nodes: &[Server]) -> Self {
        let (sender, answers) = unbounded_channel();
        for node in nodes {
            for body in [r#"{"topic":"bed.quick"}"#, r#"{"topic":"bed.sleep","payload":{"ms":20}}"#] {
                tokio::spawn(send(format!("{}/api/v1/tasks", node.url), body, sender.clone()));
            }
        }
        Self { answers, answered: Vec::new() }
    }

    /// Waits until so many more were answered.
    async fn until_answered(&mut self, more: usize) {
        let enough = self.answered.len() + more;
        while self.answered.len() < enough {
            let answer = tokio::time::timeout(Duration::from_secs(60), self.answers.recv()).await;
            self.answered.extend(answer.expect("nobody answers").expect("somebody sends"));
        }
    }

    /// Ends; the ids of all tasks that were answered.
    fn end(mut self) -> Vec<String> {
        self.answers.close();
        while let Ok(answer) = self.answers.try_recv() {
            self.answered.extend(answer);
        }
        self.answered
    }
}

/// Sends tasks until nobody wants to know the answers any more; one that was refused is `None`.
async fn send(url: String, body: &'static str, answers: UnboundedSender<Option<String>>) {
    let client = Client::builder().no_proxy().build().unwrap();
    loop {
        let answer = client.post(&url).header(CONTENT_TYPE, "application/json").body(body).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        let id = match status {
            201 => {
                let task: Value = serde_json::from_str(&text).unwrap();
                Some(task["id"].as_str().unwrap().to_owned())
            }
            503 => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
            _ => panic!("{status} {text}"),
        };
        if answers.send(id).is_err() {
            return;
        }
    }
}
