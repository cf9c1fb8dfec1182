//! The jobs of clearpath as the service runs them: each killed in its middle and ended after a restart, and its e-mails by way of
//! a real mail server and of Resend's API.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::on_each_database;
use crate::receiver::Receiver;
use crate::support::{Answer, Database, MailServer, Server};

on_each_database!(
    the_email_queue_goes_on_where_it_was_killed,
    the_email_queue_goes_on_where_it_was_killed_with_resend_too,
    the_alert_goes_on_where_it_was_killed,
    the_poll_of_the_lab_is_repeated_after_it_was_killed,
    the_poll_of_the_lab_goes_on_where_it_was_killed_with_one_result_stored,
    the_expiry_of_sessions_goes_on_where_it_was_killed,
    the_expiry_of_certificates_goes_on_where_it_was_killed,
);

const CLEARPATH: &str = "/api/v1/plugins/clearpath";
/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Three people, of whom the second holds up the job.
const PEOPLE: [&str; 3] = ["ada@example.com", "unanswered-once@example.com", "eve@example.com"];

/// A service with clearpath whose schedules fire when they are triggered, and at no other time.
async fn serve(database: &Database, variables: &[(&str, &str)]) -> Server {
    let server = Server::start_with(database, |command| {
        let clearpath = [("PUNCTUAL_PLUGINS", "clearpath"), ("PUNCTUAL_LEASE_SECONDS", "2")];
        command.envs(clearpath).envs(variables.iter().copied())
    });
    for schedule in server.get("/api/v1/schedules").await.json()["items"].as_array().unwrap() {
        server.post(&format!("/api/v1/schedules/{}/pause", schedule["id"].as_str().unwrap()), "").await;
    }
    server
}

/// Begins a job; answers its task's id.
async fn begin(server: &Server, job: &str) -> String {
    let found = server.get(&format!("/api/v1/schedules?name={job}")).await.json();
    let id = found["items"][0]["id"].as_str().unwrap().to_owned();
    let triggered = server.post(&format!("/api/v1/schedules/{id}/trigger"), "").await;
    assert_eq!(triggered.status, 201, "{triggered:?}");
    triggered.json()["id"].as_str().unwrap().to_owned()
}

fn kill(mut server: Server) {
    server.process.signal("KILL");
    assert_eq!(server.process.wait().code(), None, "it was killed");
}

/// Waits for the end of a job that was killed once; answers what it counted.
async fn ended(server: &Server, task: &str) -> Value {
    let task = server.ended_task(task).await;
    let outcomes: Vec<_> = task["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "completed"], "{task:#}");
    task["result"].clone()
}

async fn make(server: &Server, path: &str, body: Value) -> Value {
    let made = server.post(&format!("{CLEARPATH}{path}"), body.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

/// Every item of a list, oldest first.
async fn items(server: &Server, path: &str) -> Vec<Value> {
    let mut items = server.get(&format!("{CLEARPATH}{path}")).await.json()["items"].as_array().unwrap().clone();
    items.reverse();
    items
}

async fn until(database: &Database, statement: &str, count: i64) {
    let asked_at = Instant::now();
    while database.number(statement).await != count {
        assert!(asked_at.elapsed() < PATIENCE, "{statement}: not {count}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// From now on whoever changes a row with this text in this column does not get on.
async fn hold(database: &Database, table: &str, column: &str, text: &str) {
    if database.url.starts_with("sqlite:") {
        database.execute("CREATE TABLE held_numbers (n INTEGER)").await;
        let numbers = vec!["(1)"; 1_000].join(", ");
        database.execute(format!("INSERT INTO held_numbers VALUES {numbers}")).await;
        let forever = "SELECT count(*) FROM held_numbers a, held_numbers b, held_numbers c, held_numbers d";
        let held = format!("CREATE TRIGGER held BEFORE UPDATE ON {table} WHEN OLD.{column} = '{text}'");
        database.execute(format!("{held} BEGIN {forever}; END")).await;
    } else {
        let forever = "BEGIN PERFORM pg_sleep(3600); RETURN NEW; END";
        database.execute(format!("CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS '{forever}'")).await;
        let held = format!("CREATE TRIGGER held BEFORE UPDATE ON {table} FOR EACH ROW WHEN (OLD.{column} = '{text}')");
        database.execute(format!("{held} EXECUTE FUNCTION held()")).await;
    }
}

/// Whoever changes that gets on again; what the killed one had begun is undone.
async fn release(database: &Database, table: &str) {
    if database.url.starts_with("sqlite:") {
        database.execute("DROP TRIGGER held").await;
    } else {
        let asleep = "wait_event = 'PgSleep' AND datname = current_database()";
        database.execute(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {asleep}")).await;
        database.execute(format!("DROP TRIGGER held ON {table}")).await;
    }
}

/// Three sessions whose first e-mails are due, one after the other.
async fn make_due(server: &Server) {
    for (n, email) in PEOPLE.iter().enumerate() {
        let activated_at = chrono::Utc::now() - chrono::TimeDelta::days(31) + chrono::TimeDelta::minutes(n as i64);
        let session = json!({"name": "Ada", "email": email, "activatedAt": activated_at.to_rfc3339()});
        make(server, "/sessions", session).await;
    }
}

/// What became of the e-mails that were due: their recipients and what the provider calls them, in order.
async fn sent(server: &Server) -> Vec<(String, String)> {
    let mut sent = items(server, "/emails?status=sent").await;
    sent.sort_by_key(|email| email["scheduledAt"].to_string());
    let text = |email: &Value, name: &str| email[name].as_str().unwrap().to_owned();
    sent.iter().map(|email| (text(email, "recipient"), text(email, "providerMessageId"))).collect()
}

async fn the_email_queue_goes_on_where_it_was_killed(database: Database) {
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let url = format!("smtp://127.0.0.1:{}", mails.port);
    let variables = [("SMTP_URL", url.as_str()), ("MAIL_FROM", "clearpath@example.com")];
    let server = serve(&database, &variables).await;
    make_due(&server).await;
    let task = begin(&server, "emailQueue").await;
    let first = mails.next();
    assert_eq!((&first["to"], &first["subject"]), (&json!([PEOPLE[0]]), &json!("Day 30 of your radon test")));
    assert_eq!(mails.next()["unanswered"], PEOPLE[1]);
    kill(server);

    let server = serve(&database, &variables).await;
    // The first is not looked at again.
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 2, "skipped": 0, "failed": 0}));
    let (second, third) = (mails.next(), mails.next());
    let ids = [first, second, third].map(|mail| (mail["to"][0].clone(), mail["messageId"].clone()));
    let ids = ids.map(|(to, id)| (to.as_str().unwrap().to_owned(), id.as_str().unwrap().to_owned()));
    assert_eq!(sent(&server).await, ids);
    let again = begin(&server, "emailQueue").await;
    assert_eq!(server.ended_task(&again).await["result"]["processed"], 0);
    server.stop();
    assert_eq!(mails.taken(), Vec::<Value>::new(), "nothing comes twice");
}

async fn the_email_queue_goes_on_where_it_was_killed_with_resend_too(database: Database) {
    let mut resend = Receiver::start().await;
    let url = resend.url.clone();
    let variables = [("RESEND_API_KEY", "re_swordfish"), ("RESEND_URL", url.as_str())];
    let server = serve(&database, &variables).await;
    make_due(&server).await;
    resend.answer(200, &[], r#"{"id":"resend-1"}"#);
    resend.never_answer();
    let task = begin(&server, "emailQueue").await;
    let (first, second) = (resend.next().await, resend.next().await);
    assert_eq!((first.path.as_str(), &first.json()["to"]), ("/emails", &json!([PEOPLE[0]])));
    kill(server);

    resend.answer(200, &[], r#"{"id":"resend-2"}"#);
    resend.answer(200, &[], r#"{"id":"resend-3"}"#);
    let server = serve(&database, &variables).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 2, "skipped": 0, "failed": 0}));
    // Resend knows the call that it may have heard before by its key.
    let (again, third) = (resend.next().await, resend.next().await);
    let keys = [&first, &second, &again, &third].map(|call| call.header("idempotency-key"));
    assert!(keys[1] == keys[2] && keys[0] != keys[1] && keys[3] != keys[2] && keys[0] != keys[3], "{keys:?}");
    assert_eq!(second.body, again.body);
    let named = ["resend-1", "resend-2", "resend-3"];
    let expected: Vec<_> = PEOPLE.iter().zip(named).map(|(to, id)| (to.to_string(), id.to_owned())).collect();
    assert_eq!(sent(&server).await, expected);
    server.stop();
    assert_eq!(resend.unasked(), 0);
}

async fn the_alert_goes_on_where_it_was_killed(database: Database) {
    let mut resend = Receiver::start().await;
    let url = resend.url.clone();
    let variables =
        [("RESEND_API_KEY", "re_swordfish"), ("RESEND_URL", url.as_str()), ("ADMIN_ALERT_EMAIL", "admin@example.com")];
    let server = serve(&database, &variables).await;
    let today = chrono::Utc::now().date_naive();
    for (name, days) in [("First", -10), ("Second", 10), ("Third", 30)] {
        let expires_on = today + chrono::TimeDelta::days(days);
        make(&server, "/contractors", json!({"name": name, "cnrppExpiryDate": expires_on})).await;
    }
    resend.answer(200, &[], r#"{"id":"1"}"#);
    resend.never_answer();
    let task = begin(&server, "cnrppAlert").await;
    let (first, second) = (resend.next().await, resend.next().await);
    assert_eq!(first.json()["subject"], "C-NRPP certification of First");
    kill(server);

    resend.answer(200, &[], r#"{"id":"2"}"#);
    resend.answer(200, &[], r#"{"id":"3"}"#);
    let server = serve(&database, &variables).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 2, "skipped": 0, "failed": 0}));
    let (again, third) = (resend.next().await, resend.next().await);
    assert_eq!(second.header("idempotency-key"), again.header("idempotency-key"));
    assert_eq!(third.json()["subject"], "C-NRPP certification of Third");
    let contractors = items(&server, "/contractors").await;
    let statuses: Vec<_> = contractors.iter().map(|contractor| &contractor["status"]).collect();
    assert_eq!(statuses, ["inactive", "active", "active"]);
    assert!(contractors.iter().all(|contractor| contractor["lastCnrppAlertSentAt"].is_string()), "{contractors:#?}");
    let once_more = begin(&server, "cnrppAlert").await;
    assert_eq!(server.ended_task(&once_more).await["result"]["processed"], 0);
    server.stop();
    assert_eq!(resend.unasked(), 0);
}

/// Two sessions whose detectors are at the lab.
async fn make_mailed(server: &Server) {
    for order in ["CP-1", "CP-2"] {
        let session = json!({"name": "Ada", "email": "ada@example.com", "clearpathOrderId": order});
        let id = make(server, "/sessions", session).await["id"].as_str().unwrap().to_owned();
        let mailed = server.request(Method::PATCH, &format!("{CLEARPATH}/sessions/{id}"));
        let mailed = mailed.header("content-type", "application/json").body(r#"{"status":"mailed"}"#);
        assert_eq!(Answer::to(mailed).await.status, 200);
    }
}

/// What the lab has about them.
fn results() -> String {
    json!([
        {"clearpath_order_id": "CP-1", "radon_level": 80}, {"clearpath_order_id": "CP-2", "radon_level": 250.5},
    ])
    .to_string()
}

/// Both results are stored once, with their certificates; once more they change nothing, and the lab is asked for what is newer than
/// the poll that succeeded.
async fn has_both_once(database: &Database, server: &Server, lab: &mut Receiver) {
    until(database, "SELECT count(*) FROM clearpath_certificates", 2).await;
    lab.answer(200, &[], &results());
    let again = begin(server, "labResultPoll").await;
    assert_eq!(server.ended_task(&again).await["result"]["skipped"], 2);
    let since = lab.next().await.query.expect("since");
    assert!(since.starts_with("since=20"), "{since}");
    for table in ["results", "certificates"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM clearpath_{table}")).await, 2, "{table}");
    }
}

async fn the_poll_of_the_lab_is_repeated_after_it_was_killed(database: Database) {
    let mut lab = Receiver::start().await;
    let url = lab.url.clone();
    let variables = [("LAB_INTEGRATION_MODEL", "api"), ("LAB_API_URL", url.as_str()), ("LAB_API_KEY", "k")];
    let server = serve(&database, &variables).await;
    make_mailed(&server).await;
    lab.never_answer();
    let task = begin(&server, "labResultPoll").await;
    assert_eq!(lab.next().await.query.as_deref(), None);
    kill(server);

    lab.answer(200, &[], &results());
    let server = serve(&database, &variables).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 0, "skipped": 0, "failed": 0}));
    assert_eq!(lab.next().await.query.as_deref(), None, "from the same point");
    has_both_once(&database, &server, &mut lab).await;
    server.stop();
}

async fn the_poll_of_the_lab_goes_on_where_it_was_killed_with_one_result_stored(database: Database) {
    let mut lab = Receiver::start().await;
    let url = lab.url.clone();
    let variables = [("LAB_INTEGRATION_MODEL", "api"), ("LAB_API_URL", url.as_str()), ("LAB_API_KEY", "k")];
    let server = serve(&database, &variables).await;
    make_mailed(&server).await;
    hold(&database, "clearpath_sessions", "clearpath_order_id", "CP-2").await;
    lab.answer(200, &[], &results());
    let task = begin(&server, "labResultPoll").await;
    assert_eq!(lab.next().await.query.as_deref(), None);
    let stored = "SELECT count(*) FROM clearpath_results";
    until(&database, stored, 1).await;
    kill(server);
    release(&database, "clearpath_sessions").await;
    assert_eq!(database.number(stored).await, 1);

    lab.answer(200, &[], &results());
    let server = serve(&database, &variables).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 0, "skipped": 1, "failed": 0}));
    assert_eq!(lab.next().await.query.as_deref(), None, "from the same point");
    assert_eq!(database.number(stored).await, 2);
    has_both_once(&database, &server, &mut lab).await;
    server.stop();
    assert_eq!(lab.unasked(), 0);
}

async fn the_expiry_of_sessions_goes_on_where_it_was_killed(database: Database) {
    let server = serve(&database, &[]).await;
    for email in PEOPLE {
        let session = json!({"name": "Ada", "email": email, "expectedCompletionDate": "2026-01-01"});
        make(&server, "/sessions", session).await;
    }
    hold(&database, "clearpath_sessions", "email", PEOPLE[1]).await;
    let task = begin(&server, "sessionExpiry").await;
    until(&database, "SELECT count(*) FROM clearpath_sessions WHERE status = 'expired'", 1).await;
    kill(server);
    release(&database, "clearpath_sessions").await;
    let queued = "SELECT count(*) FROM clearpath_email_log WHERE status = 'queued'";
    let expired_at = "SELECT count(DISTINCT expired_at) FROM clearpath_sessions";
    assert_eq!(database.number(queued).await, 10, "a session and its e-mails go together");
    assert_eq!(database.number(expired_at).await, 1);

    let server = serve(&database, &[]).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 0, "skipped": 0, "failed": 0}));
    let sessions = items(&server, "/sessions").await;
    assert!(sessions.iter().all(|session| session["status"] == "expired"), "{sessions:#?}");
    assert_eq!(database.number(queued).await, 0);
    assert_eq!(database.number(expired_at).await, 2, "the first was not expired again");
    server.stop();
}

async fn the_expiry_of_certificates_goes_on_where_it_was_killed(database: Database) {
    let server = serve(&database, &[]).await;
    for email in PEOPLE {
        let session = make(&server, "/sessions", json!({"name": "Ada", "email": email})).await;
        let id = session["id"].as_str().unwrap();
        make(&server, &format!("/sessions/{id}/result"), json!({"radonLevel": 80})).await;
        let of_session = format!("/certificates?sessionId={id}");
        let asked_at = Instant::now();
        while items(&server, &of_session).await.is_empty() {
            assert!(asked_at.elapsed() < PATIENCE, "no certificate is made");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let of = |email| format!("(SELECT id FROM clearpath_sessions WHERE email = '{email}')");
    for (email, date) in PEOPLE.iter().zip(["2026-01-01", "2026-01-02", "2026-01-03"]) {
        let over =
            format!("UPDATE clearpath_certificates SET valid_until = '{date}' WHERE test_session_id = {}", of(email));
        database.execute(over).await;
    }
    hold(&database, "clearpath_certificates", "valid_until", "2026-01-02").await;
    let task = begin(&server, "certificateExpiry").await;
    let expired = "SELECT count(*) FROM clearpath_certificates WHERE status = 'expired'";
    until(&database, expired, 1).await;
    kill(server);
    release(&database, "clearpath_certificates").await;
    assert_eq!(database.number(expired).await, 1);

    let server = serve(&database, &[]).await;
    assert_eq!(ended(&server, &task).await, json!({"processed": 2, "sent": 0, "skipped": 0, "failed": 0}));
    for certificate in items(&server, "/certificates").await {
        let shown = (&certificate["status"], &certificate["pdfNeedsRegeneration"]);
        assert_eq!(shown, (&json!("expired"), &json!(true)));
        let path = format!("{CLEARPATH}/certificates/{}/download", certificate["id"].as_str().unwrap());
        let pdf = Answer::to(server.request(Method::GET, &path)).await;
        assert_eq!((pdf.status.as_u16(), pdf.header("content-type")), (200, "application/pdf"));
    }
    let regenerated = "SELECT count(*) FROM clearpath_certificates WHERE NOT pdf_needs_regeneration";
    assert_eq!(database.number(regenerated).await, 3);
    server.stop();
}
