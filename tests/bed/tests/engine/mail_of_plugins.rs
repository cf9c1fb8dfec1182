//! Three nodes with every plugin send what is due through a real mail server, and are killed at random.

use chrono::{TimeDelta, Utc};
use futures::StreamExt;
use punctual_domain::json::Json;
use punctual_domain::news::News;
use punctual_domain::task::NewTask;
use serde_json::json;
use uuid::Uuid;

use crate::bed::{node, scaled, until, until_all_ended};
use crate::mail::{Arrived, ON_THEIR_WAY};
use crate::support::{Database, MailServer, Server};

const PLUGINS: (&str, &str) = ("PUNCTUAL_PLUGINS", "signup,operations,clearpath,bed");
/// Whom an event tells: its creator and participants.
const PEOPLE: usize = 5;
/// How many e-mails a run of clearpath's queue takes.
const A_RUN: usize = 50;

/// How many tasks were lost and have not had their turn again; one that runs counts as possibly lost.
const LOST: &str = "SELECT count(*) FROM punctual_tasks WHERE lost > CASE WHEN status = 'pending' THEN 0 ELSE 1 END";

/// How many letters each plugin has to send.
struct Due {
    signup: usize,
    operations: usize,
    clearpath: usize,
}

impl Due {
    fn scaled() -> Self {
        let (signup, operations, clearpath) = (scaled(100, 4_500), scaled(100, 4_000), scaled(100, 1_500));
        Self { signup, operations, clearpath }
    }

    fn letters(&self) -> usize {
        self.signup + self.operations + self.clearpath
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_arrives_though_nodes_are_killed_at_random() {
    let Some(database) = Database::postgres().await else { return };
    let Some(mut mails) = MailServer::start(&json!({"delay": 0.02})) else { return };
    let due = Due::scaled();
    make_due(&database, &due).await;
    let mut nodes = [(); 3].map(|()| sender(&database, &mails, "3"));
    let queue = tokio::spawn(run_email_queue(database.url.clone(), due.clearpath / A_RUN));
    let (mut arrived, mut on_their_way) = (Arrived::default(), 0);
    let kills = scaled(2, 10);
    for kill in 0..kills {
        let stretch = due.letters() / (kills + 1);
        arrived.until(stretch * kill + stretch / 2 + random(stretch), &mut mails);
        // A task that is lost three times is given up, which is another story: what was lost has its turn again before that.
        if kill >= 2 {
            until(&database, LOST, |lost| lost == 0).await;
        }
        let node = &mut nodes[random(3)];
        node.process.signal("KILL");
        assert_eq!(node.process.wait().code(), None, "it was killed");
        on_their_way += database.number(ON_THEIR_WAY).await;
        *node = sender(&database, &mails, "3");
    }
    queue.await.unwrap();
    check_all_sent(&database, &due).await;
    nodes.into_iter().for_each(Server::stop);
    arrived.until(due.letters(), &mut mails);
    mails.taken().iter().for_each(|mail| arrived.note(mail));
    let (letters, repeats) = (arrived.letters(), arrived.repeats());
    println!("{letters} letters, {kills} kills, {on_their_way} on their way then, {repeats} arrived again");
    assert_eq!(letters, due.letters());
    assert!(repeats as i64 <= on_their_way, "{repeats} repeats, {on_their_way} on their way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_arrives_once_if_no_node_is_killed() {
    let Some(database) = Database::postgres().await else { return };
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let due = Due::scaled();
    make_due(&database, &due).await;
    // Long enough that no mail server is too slow: one that took a message too late gets it again.
    let nodes = [(); 3].map(|()| sender(&database, &mails, "30"));
    let queue = tokio::spawn(run_email_queue(database.url.clone(), due.clearpath / A_RUN));
    let mut arrived = Arrived::default();
    arrived.until(due.letters(), &mut mails);
    queue.await.unwrap();
    check_all_sent(&database, &due).await;
    nodes.into_iter().for_each(Server::stop);
    mails.taken().iter().for_each(|mail| arrived.note(mail));
    assert_eq!((arrived.letters(), arrived.repeats()), (due.letters(), 0));
    println!("{} letters, none of them twice", arrived.letters());
}

/// A node with every plugin that sends by that mail server, with leases of so many seconds.
fn sender(database: &Database, mails: &MailServer, lease: &str) -> Server {
    let url = format!("smtp://127.0.0.1:{}", mails.port);
    let variables = [("SMTP_URL", url.as_str()), ("MAIL_FROM", "bed@example.com"), ("PUNCTUAL_LEASE_SECONDS", lease)];
    node(database, &[&[PLUGINS], &variables[..]].concat())
}

/// Sign-ups to be reminded of, events that start, and e-mails of test sessions, while nobody works yet.
async fn make_due(database: &Database, due: &Due) {
    let planner = Server::start_with(database, |command| command.envs([PLUGINS]).arg("--paused"));
    let starts_at = Utc::now() + TimeDelta::hours(1);
    let events = (0..due.operations / PEOPLE).map(|event| {
        let person = |n: usize| json!({"name": "Ada", "email": format!("operations-{event}-{n}@example.com")});
        json!({
            "title": format!("Event {event}"), "startDate": starts_at.to_rfc3339(), "creator": person(0),
            "participants": (1..PEOPLE).map(person).collect::<Vec<_>>(),
        })
        .to_string()
    });
    let planner_at = &planner;
    let saving = events.map(|event| async move {
        let answer = planner_at.post("/api/v1/plugins/operations/events", event).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    });
    futures::stream::iter(saving).buffer_unordered(8).collect::<Vec<_>>().await;
    planner.stop();
    // The hour is over.
    database.execute("UPDATE punctual_tasks SET run_at = now() WHERE topic = 'operations.event.start'").await;
    database
        .execute(format!(
            "INSERT INTO clearpath_email_log (id, user_id, email_type, recipient, status, scheduled_at, retry_count,
                is_template_error, created_at)
             SELECT gen_random_uuid(), n::text, 'day_30', 'clearpath-' || n || '@example.com', 'queued', now(), 0, false, now()
             FROM generate_series(1, {}) n",
            due.clearpath
        ))
        .await;
    let sessions: Vec<_> = (0..due.signup).map(|n| (Uuid::now_v7(), format!("signup-{n}@example.com"))).collect();
    for some in sessions.chunks(1_000) {
        let rows: Vec<_> =
            some.iter().map(|(id, email)| format!("('{id}', '{email}', 'step_1', now(), now())")).collect();
        database.execute(format!("INSERT INTO signup_sessions VALUES {}", rows.join(", "))).await;
    }
    let reminders = sessions.into_iter().map(|(id, email)| {
        let mut task = NewTask::new("signup.reminder.early".parse().unwrap());
        task.payload = Json::parse(json!({"sessionId": id, "email": email}).to_string()).unwrap();
        task
    });
    let store = punctual_store::connect(&database.url, punctual_store::Options::default()).await.unwrap();
    store.create_tasks(reminders.collect(), None).await.unwrap();
    store.close().await.unwrap();
}

/// Has the e-mails of test sessions sent, one run after the other: a quarter of an hour is over at once here.
async fn run_email_queue(url: String, runs: usize) {
    let store = punctual_store::connect(&url, punctual_store::Options::default()).await.unwrap();
    // One that is lost three times is given up; what it leaves is for the next, as is what waits for a lease to end.
    for _ in 0..runs + 3 {
        let task = NewTask::new("clearpath.emailQueue".parse().unwrap());
        let id = task.id;
        store.create_tasks(vec![task], None).await.unwrap();
        store.announce(&News::of_tasks()).await.unwrap();
        while !store.task(id).await.unwrap().expect("it is kept").task.status.has_ended() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    store.close().await.unwrap();
}

/// Waits until every task has ended and every message is out, and looks whether all ended well.
async fn check_all_sent(database: &Database, due: &Due) {
    until_all_ended(database).await;
    let failed =
        "SELECT count(*) FROM punctual_task_history WHERE status <> 'completed' AND topic <> 'clearpath.emailQueue'";
    assert_eq!(database.number(failed).await, 0, "a task failed");
    let sent = "SELECT count(*) FROM punctual_outbox WHERE status = 'sent'";
    until(database, sent, |sent| sent == due.letters() as i64).await;
    let unmarked = "SELECT (SELECT count(*) FROM clearpath_email_log WHERE status <> 'sent')
        + (SELECT count(*) FROM operations_notification_rules WHERE last_sent_at IS NULL)";
    assert_eq!(database.number(unmarked).await, 0, "each plugin knows what it sent");
}

/// A number below this one.
fn random(below: usize) -> usize {
    (Uuid::new_v4().as_u128() % below as u128) as usize
}
