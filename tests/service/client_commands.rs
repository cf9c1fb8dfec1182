//! The commands against a running service, and what they say when there is none.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Database, Past, Process, Server, punctual};

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A service, and the command line beside it.
pub(crate) struct Desk {
    database: Database,
    pub(crate) server: Server,
}

impl Desk {
    pub(crate) fn open() -> Self {
        let database = Database::sqlite();
        let server = Server::start(&database);
        Self { database, server }
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        run(punctual(self.database.folder.path()).args(arguments).env("PUNCTUAL_URL", &self.server.url))
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let (code, out, error) = self.run(arguments);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {out}");
        out
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let (code, out, error) = self.run(arguments);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {error}");
        error
    }
}

#[tokio::test]
async fn payloads_of_the_greatest_depth_are_shown_and_listed() {
    let desk = Desk::open();
    let deepest = "[".repeat(128) + &"]".repeat(128);
    let added = desk.ok(&["task", "add", "later", "--in", "1h", "--payload", &deepest, "--json"]);
    let id = added.split('"').nth(3).unwrap();
    desk.ok(&["schedule", "add", "deep", "--every", "1h", "--tz", "UTC", "--topic", "later", "--payload", &deepest]);
    assert!(desk.ok(&["task", "list"]).contains("later"));
    assert!(desk.ok(&["task", "show", id]).contains(&deepest[..64]));
    assert!(desk.ok(&["schedule", "list"]).contains("deep"));
    assert!(desk.ok(&["task", "cancel", id]).contains("cancelled"));
    desk.server.stop();
}

#[tokio::test]
async fn a_task_is_added_shown_listed_and_moved() {
    let desk = Desk::open();
    let added = desk.json(&["task", "add", "echo", "--payload", r#"{"hello": "world"}"#, "--metadata", "ownerId=me"]);
    let id = added["id"].as_str().unwrap();
    assert_eq!((&added["payload"]["hello"], &added["metadata"]["ownerId"]), (&"world".into(), &"me".into()));
    desk.server.ended_task(id).await;
    let page = desk.ok(&["task", "show", id]);
    assert!(page.contains("completed") && page.contains("attempt   1 of 1") && page.contains("OUTCOME"), "{page}");

    assert!(!page.contains("warning"), "{page}");
    let page = desk.ok(&["task", "add", "ehco"]);
    assert!(page.contains("warning") && page.contains("nobody serves the topic ehco"), "{page}");
    let listed = desk.json(&["task", "list", "--topic", "ehco"])["items"][0].clone();
    assert!(listed["warnings"][0].as_str().unwrap().contains("nobody serves the topic ehco"), "{listed}");
    let ended = listed["id"].as_str().unwrap().to_owned();
    desk.server.ended_task(&ended).await;
    assert!(desk.ok(&["why", &ended]).contains("nobody serves the topic ehco"));
    assert!(desk.ok(&["task", "show", &ended]).contains("nobody serves the topic ehco"));

    let at = ["--at", "2036-12-01 09:00", "--tz", "America/New_York"];
    let later = desk.json(&[&["task", "add", "report.send"][..], &at].concat());
    let later_id = later["id"].as_str().unwrap();
    assert_eq!(later["runAt"], "2036-12-01T14:00:00.000Z");
    let page = desk.ok(&["task", "list", "--status", "pending"]);
    assert!(page.contains(later_id) && page.contains("2036-12-01 09:00:00 -05:00") && !page.contains(id), "{page}");

    let moved = desk.json(&["task", "reschedule", later_id, "--in", "2h", "--priority", "-5"]);
    assert_eq!((&moved["rescheduledFrom"], &moved["priority"]), (&later_id.into(), &(-5).into()));
    let moved_id = moved["id"].as_str().unwrap();
    let page = desk.ok(&["task", "cancel", moved_id]);
    assert!(page.contains("cancelled"), "{page}");
    let (code, _, error) = desk.run(&["task", "cancel", id]);
    assert!(code == Some(0) && error.contains("nothing was cancelled: it had ended already (completed)"), "{error}");
    let count = desk.ok(&["task", "cancel", "--topic", "report.send", "--dry-run"]);
    assert_eq!(count.trim(), "would cancel: 0 tasks");
    let error = desk.refused(&["task", "retry", moved_id]);
    assert!(error.contains("has not failed"), "{error}");
    desk.server.stop();
}

#[tokio::test]
async fn topics_are_written_listed_and_paused() {
    let desk = Desk::open();
    std::fs::write(desk.database.folder.path().join("hook.secret"), "swordfish\n").unwrap();
    let hook = ["--webhook", "https://example.com/hook", "--secret", "@hook.secret"];
    let more =
        ["--attempts", "5", "--backoff-delay", "2s", "--timeout", "30s", "--rate", "2.5", "--retention-days", "7"];
    let put = desk.json(&[&["topic", "put", "mail.*"][..], &hook, &more].concat());
    assert_eq!(put["route"]["url"], "https://example.com/hook");
    assert_eq!((&put["retry"]["attempts"], &put["retry"]["backoff"]["delay"]), (&5.into(), &2000.into()));
    let numbers = (&put["timeoutSeconds"], &put["ratePerSecond"], &put["retentionDays"]);
    assert_eq!(numbers, (&30.into(), &2.5.into(), &7.into()));
    desk.ok(&["topic", "put", "resize", "--route", "pull", "--concurrency", "10"]);
    let error = desk.refused(&["topic", "put", "resize", "--concurrency", "20"]);
    assert!(error.contains("resize has the route pull") && error.contains("`--route pull` keeps it"), "{error}");
    assert!(desk.ok(&["topic", "show", "resize"]).contains("pull"));
    desk.ok(&["topic", "put", "job.*", "--route", "pull"]);
    let error = desk.refused(&["topic", "put", "job.resize", "--concurrency", "2"]);
    assert!(error.contains("job.resize has the route pull"), "{error}");
    desk.ok(&["topic", "delete", "job.*"]);
    let (code, _, error) = desk.run(&["topic", "put", "announced"]);
    assert!(code == Some(0) && error.contains("only announced"), "{error}");
    desk.ok(&["topic", "put", "announced", "--concurrency", "20"]);
    assert!(desk.ok(&["topic", "pause", "resize"]).contains("paused"));
    let list = desk.ok(&["topic", "list"]);
    assert!(list.contains("mail.*") && list.contains("webhook") && list.contains("paused"), "{list}");
    assert!(desk.ok(&["topic", "resume", "resize"]).contains("works"));
    let shown = desk.ok(&["topic", "show", "mail.*"]);
    assert!(shown.contains("2.5 per second") && !shown.contains("swordfish"), "{shown}");
    assert_eq!(desk.ok(&["topic", "delete", "mail.*"]).trim(), "deleted mail.*");
    for (arguments, part) in [
        (&["task", "add", "echo", "--at", "2020-01-01T00:00:00Z", "--tz", "UTC"][..], "--at: "),
        (&["schedule", "add", " ", "--every", "1h", "--tz", "UTC", "--topic", "echo"], "must not be blank"),
        (&["simulate", "--tz", "EST"], "America/New_York"),
        (&["topic", "show", "mail.*"], "there is no definition of the topic"),
        (&["topic", "put", "a", "--webhook", "http://127.0.0.1/", "--secret", "swordfish"], "PUNCTUAL_WEBHOOK_ALLOW"),
        (&["topic", "put", "a", "--webhook", "http://127.0.0.1/", "--secret", "swordfish"], "--webhook: leads to"),
        (&["schedule", "add", "x", "--tz", "UTC", "--topic", "echo"], "--cron: is required, or --every"),
        (&["simulate", "--to", "-1d"], "--to must be after now"),
        (&["topic", "put", "a", "--webhook", "https://example.com/", "--secret", "@none"], "none cannot be read"),
    ] {
        let error = desk.refused(arguments);
        assert!(error.contains(part), "{part:?}: {error}");
    }
    desk.server.stop();
}

#[tokio::test]
async fn nodes_and_keys_of_a_service_are_listed() {
    let desk = Desk::open();
    let nodes = desk.ok(&["nodes"]);
    assert!(nodes.contains("LEADS") && nodes.contains("yes"), "{nodes}");
    let (code, key, error) = desk.run(&["key", "create", "--name", "boss", "--role", "admin"]);
    assert!(code == Some(0) && key.starts_with("pk_") && error.contains("not shown again"), "{key}{error}");
    assert!(error.contains("every caller needs a key"), "{error}");
    assert!(desk.refused(&["key", "list"]).contains("PUNCTUAL_TOKEN"), "now one is needed");
    let with_key = |arguments: &[&str]| {
        let mut command = punctual(desk.database.folder.path());
        command.args(arguments).envs([("PUNCTUAL_URL", desk.server.url.as_str()), ("PUNCTUAL_TOKEN", key.trim())]);
        let (code, out, error) = run(&mut command);
        assert_eq!(code, Some(0), "{error}");
        out
    };
    let made = with_key(&["key", "create", "--name", "mailer", "--role", "submit", "--topic", "mail.*", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap();
    let list = with_key(&["key", "list"]);
    assert!(list.contains("boss") && list.contains("mail.*") && !list.contains("revoked"), "{list}");
    assert_eq!(with_key(&["key", "revoke", id]).trim(), format!("revoked {id}"));
    assert!(with_key(&["key", "list"]).contains("revoked"));
    desk.server.stop();

    // The database itself can be asked once no service has it.
    let direct = |arguments: &[&str]| {
        let mut command = punctual(desk.database.folder.path());
        run(command.args(arguments).args(["--database", &desk.database.url]))
    };
    let (code, out, error) = direct(&["key", "list", "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert!(direct(&["key", "revoke", id]).2.contains("revoked before"));
    let (code, _, error) = direct(&["key", "create", "--name", "second", "--role", "read"]);
    assert!(code == Some(0) && !error.contains("warning"), "{error}");
    assert!(direct(&["key", "revoke", "boss"]).2.contains("`punctual key list` shows the ids"));
    let boss = listed["items"].as_array().unwrap().iter().find(|key| key["name"] == "boss").unwrap();
    let (code, _, error) = direct(&["key", "revoke", boss["id"].as_str().unwrap()]);
    assert!(code == Some(0) && error.contains("--role admin --database URL"), "{error}");
    let (code, _, error) = direct(&["key", "create", "--name", "third", "--role", "operate"]);
    assert!(code == Some(0) && error.contains("no key has the role admin"), "{error}");
}

#[tokio::test]
async fn states_have_the_same_words_as_on_the_dashboard() {
    let desk = Desk::open();
    desk.ok(&["topic", "put", "resize", "--route", "pull"]);
    let id = desk.json(&["task", "add", "resize"])["id"].as_str().unwrap().to_owned();
    let claimed = desk.server.post("/api/v1/claims", r#"{"topics":["resize"],"waitMs":10000}"#).await;
    assert_eq!(claimed.json()["tasks"][0]["id"], id.as_str());
    let page = format!("/tasks/{id}");
    for (arguments, page, word, times) in [
        // A task, and the attempt that has not ended.
        (&["task", "show", &id][..], &*page, "running", 2),
        // This topic, and the plugin's.
        (&["topic", "list"], "/topics", "works", 2),
        (&["nodes"], "/nodes", "works", 1),
    ] {
        let (told, shown) = (desk.ok(arguments), desk.server.get(page).await.text);
        assert_eq!(told.split_whitespace().filter(|said| *said == word).count(), times, "{told}");
        assert_eq!(shown.matches(&format!("\">{word}</span>")).count(), times, "{shown}");
    }
    let shown = desk.server.get(&page).await.text;
    assert!(shown.contains("What it is doing") && !shown.contains(", 1 lost"), "{shown}");
    desk.server.stop();
}

#[tokio::test]
async fn a_node_is_paused_and_resumed() {
    let database = Database::sqlite();
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let desk = Desk { database, server };
    let id = desk.json(&["task", "add", "echo"])["id"].as_str().unwrap().to_owned();
    assert!(desk.ok(&["why", &id]).contains("punctual resume"));
    assert_eq!(desk.ok(&["resume"]).trim(), "the node works");
    assert!(!desk.ok(&["nodes"]).contains("paused"), "at once");
    desk.server.ended_task(&id).await;
    assert_eq!(desk.json(&["pause"]), serde_json::json!({"paused": true}));
    let waits = desk.json(&["task", "add", "echo"])["id"].as_str().unwrap().to_owned();
    assert!(desk.ok(&["why", &waits]).contains("punctual resume"), "at once");
    assert!(desk.ok(&["pause"]).contains("the node is paused"), "also twice");
    assert!(desk.ok(&["nodes"]).contains("paused"));
    assert_eq!(desk.json(&["resume"]), serde_json::json!({"paused": false}));
    let completions = desk.ok(&["completions", "bash"]);
    assert!(completions.contains("pause") && completions.contains("resume"));
    desk.server.stop();
}

#[tokio::test]
async fn events_are_followed_through_a_restart() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let (url, listen) = (server.url.clone(), server.url.replace("http://", ""));
    let mut follow = punctual(database.folder.path());
    follow.args(["events", "--type", "task.completed"]).env("PUNCTUAL_URL", &url);
    let mut follower = Process::start(&mut follow);
    server.samples(|samples| samples.value("punctual_event_streams") == Some(1.0)).await;
    let first = server.make_task(r#"{"topic":"echo"}"#).await;
    let line = follower.wait_for_output(first["id"].as_str().unwrap());
    assert!(line.contains("task.completed") && line.contains("echo"), "{line}");
    server.stop();
    // What happens while nobody is there to tell of it is told later.
    let server = Server::start_with(&database, |command| command.env("PUNCTUAL_LISTEN", &listen));
    let second = server.make_task(r#"{"topic":"echo"}"#).await;
    follower.wait_for_output(second["id"].as_str().unwrap());
    let refused = run(punctual(database.folder.path()).args(["events", "--type", "none"]).env("PUNCTUAL_URL", &url));
    assert!(refused.0 == Some(1) && refused.2.contains("type: must be of"), "{}", refused.2);
    server.stop();
}

#[tokio::test]
async fn what_is_wrong_is_said_before_and_after_asking() {
    let desk = Desk::open();
    let deep = |levels| "[".repeat(levels) + &"]".repeat(levels);
    let error = desk.refused(&["task", "add", "a b", "--priority", "1000"]);
    assert!(
        error.contains("2 fields are wrong") && error.contains("\n  topic: ") && error.contains("\n  --priority: ")
    );
    for (arguments, part) in [
        (
            &["task", "add", "echo", "--at", "2036-03-09 02:30", "--tz", "America/New_York"][..],
            "does not exist in America",
        ),
        (&["task", "add", "echo", "--at", "2036-11-02 01:30", "--tz", "America/New_York"], "comes twice in America"),
        (&["task", "add", "echo", "--at", "2036-12-01 09:00"], "say which zone"),
        (&["task", "add", "echo", "--at", "2036-12-01 09:00", "--tz", "EST"], "America/New_York"),
        (&["task", "add", "echo", "--payload", "{"], "--payload is not JSON"),
        (&["task", "add", "echo", "--payload", &deep(129)], "--payload is nested deeper than 128 levels"),
        (&["task", "add", "echo", "--payload", &deep(500)], "--payload is nested deeper than 128 levels"),
        (&["task", "show", "nonsense"], "there is no task nonsense"),
        (&["task", "cancel"], "Give an id, or a filter"),
    ] {
        let error = desk.refused(arguments);
        assert!(error.contains(part), "{part:?}: {error}");
    }
    let every = ["schedule", "add", "x", "--every", "500ms", "--tz", "UTC", "--topic", "echo"];
    assert!(desk.run(&every).2.contains("must be at least 1s"));
    let url = desk.server.url.replace("http://", "https://");
    let (code, _, error) = desk.run(&["task", "list", "--url", &url]);
    assert!(code == Some(1) && error.contains("does not speak TLS"), "{error}");
    for arguments in [&["task", "add"][..], &["task", "add", "echo", "--in", "soon"], &["task", "nonsense"]] {
        let (code, out, error) = desk.run(arguments);
        assert!(code == Some(2) && out.is_empty() && !error.is_empty(), "{arguments:?}: {error}");
    }
    desk.server.stop();
}

#[tokio::test]
async fn a_dry_backfill_shows_its_instants_in_the_schedules_zone() {
    let desk = Desk::open();
    desk.ok(&["schedule", "add", "nightly", "--cron", "30 2 * * *", "--tz", "America/New_York", "--topic", "echo"]);
    let backfill = |from: &str, more: &[&str]| {
        let stretch =
            ["schedule", "backfill", "nightly", "--from", from, "--to", "2026-01-05", "--tz", "America/New_York"];
        desk.ok(&[&stretch, more].concat())
    };
    let told = backfill("2026-01-03", &["--dry-run"]);
    assert_eq!(
        told,
        "would make 2 fires; 0 instants had fired already, 0 were left out\n  \
         2026-01-03 02:30:00 -05:00\n  2026-01-04 02:30:00 -05:00\n"
    );
    let long = backfill("2025-07-01", &["--dry-run"]);
    assert!(long.contains("\n  2025-07-05 02:30:00 -04:00\n  … 178 more …\n  2025-12-31 02:30:00 -05:00\n"), "{long}");
    let json: Value = serde_json::from_str(&backfill("2026-01-04", &["--dry-run", "--json"])).unwrap();
    assert_eq!(json["instants"], serde_json::json!(["2026-01-04T07:30:00.000Z"]));
    assert_eq!(backfill("2026-01-03", &[]), "made 2 fires; 0 instants had fired already, 0 were left out\n");
    desk.server.stop();
}

#[tokio::test]
async fn a_schedule_is_found_by_its_name_edited_as_it_was_seen_and_previewed() {
    let desk = Desk::open();
    desk.ok(&["schedule", "add", "nightly", "--cron", "30 2 * * *", "--tz", "America/New_York", "--topic", "echo"]);
    desk.ok(&["schedule", "add", "hourly", "--every", "1h", "--tz", "UTC", "--topic", "echo"]);
    let list = desk.ok(&["schedule", "list", "--name", "nightly"]);
    assert!(list.contains("30 2 * * *") && !list.contains("hourly"), "{list}");
    assert!(desk.ok(&["schedule", "list", "--name", "never"]).contains("no schedules"));

    let edited = desk.json(&["schedule", "edit", "nightly", "--if-match", "1", "--cron", "0 4 * * *"]);
    assert_eq!(edited["version"], 2);
    let error = desk.refused(&["schedule", "edit", "nightly", "--if-match", "1", "--cron", "0 5 * * *"]);
    assert!(error.contains("version \"2\", which it has now"), "{error}");

    let spring = ["--cron", "30 2 * * *", "--tz", "America/New_York", "--start-at", "2036-03-08", "--count", "2"];
    let told = desk.ok(&[&["schedule", "preview"][..], &spring].concat());
    assert!(told.contains("2036-03-08T07:30:00.000Z") && told.contains("the clocks skip its time"), "{told}");
    let told = desk.json(&[&["schedule", "preview"][..], &spring].concat());
    assert_eq!(told["next"].as_array().unwrap().len(), 2, "{told}");
    assert!(desk.refused(&["schedule", "preview", "--tz", "UTC"]).contains("--cron: is required, or --every"));
    assert_eq!(desk.json(&["schedule", "list"])["items"].as_array().unwrap().len(), 2, "nothing was kept");
    desk.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_listed_shown_and_sent_again() {
    let database = Database::sqlite();
    let past = Past::of(&database).await;
    let id = past.message("broken", "log", serde_json::json!([])).await.to_string();
    past.close().await;
    let server = Server::start(&database);
    let desk = Desk { database, server };
    let path = format!("/api/v1/outbox/{id}");
    desk.server.wait_for(&path, |message| message["status"] == "failed").await;
    let list = desk.ok(&["outbox", "list", "--status", "failed"]);
    assert!(list.contains(&id) && list.contains("the message cannot be read"), "{list}");
    assert_eq!(desk.ok(&["outbox", "list", "--status", "pending"]).trim(), "no messages");
    assert_eq!(desk.json(&["outbox", "list"])["items"][0]["id"], id.as_str());
    let shown = desk.ok(&["outbox", "show", &id]);
    assert!(shown.contains("dedupe key") && shown.contains("failed"), "{shown}");
    assert!(desk.ok(&["outbox", "retry", &id]).contains("pending"));
    desk.server.wait_for(&path, |message| message["status"] == "failed").await;
    assert!(desk.refused(&["outbox", "show", "x"]).contains("there is no message x"));
    assert!(desk.refused(&["outbox", "list", "--status", "lost"]).contains("--status: must be one of"));

    let list = desk.ok(&["audit", "list"]);
    assert!(list.contains("POST /api/v1/outbox/{id}/retry") && list.contains(&id) && list.contains("local"), "{list}");
    assert_eq!(desk.ok(&["audit", "list", "--actor", "nobody"]).trim(), "no changes");
    let found = desk.json(&["audit", "list", "--target", &id, "--from", "-1h", "--limit", "1"]);
    assert_eq!((&found["items"][0]["target"], &found["nextCursor"]), (&id.as_str().into(), &Value::Null));
    desk.server.stop();
}

#[tokio::test]
async fn lists_that_are_not_long_are_told_to_their_end() {
    let desk = Desk::open();
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001)";
    let name = "format('off-%04d', i)";
    let definition = format!("json_object('name', {name})");
    let insert = format!("INSERT INTO punctual_calendars (name, definition) SELECT {name}, {definition} FROM n");
    desk.database.execute(format!("{many} {insert}")).await;
    assert!(desk.ok(&["calendar", "list"]).contains("off-1001"));
    let found = desk.json(&["calendar", "list"]);
    let names: Vec<_> = found["items"].as_array().unwrap().iter().map(|calendar| &calendar["name"]).collect();
    assert_eq!((names.len(), names[0], names[1000]), (1001, &"off-0001".into(), &"off-1001".into()));
    assert_eq!(found["nextCursor"], Value::Null);
    desk.server.stop();
}

#[tokio::test]
async fn a_second_retry_names_the_first() {
    let desk = Desk::open();
    // A result has at most 64 KiB: an echo of more fails.
    let large = format!("\"{}\"", "x".repeat(65 * 1024));
    let id = desk.json(&["task", "add", "echo", "--payload", &large])["id"].as_str().unwrap().to_owned();
    desk.server.ended_task(&id).await;
    let first = desk.json(&["task", "retry", &id])["id"].as_str().unwrap().to_owned();
    let page = desk.ok(&["task", "retry", &id]);
    assert!(page.contains(&format!("task {id} was retried before, by {first}")), "{page}");
    desk.server.stop();
}

#[test]
fn whoever_names_nothing_is_told_what_to_name() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, part) in [
        (&["why", ""][..], "give the id of a task or an execution, or the name or id of a schedule"),
        (&["why", " "], "give the id of a task"),
        (&["task", "show", ""], "give a task's id"),
        (&["task", "cancel", ""], "give a task's id"),
        (&["task", "reschedule", "", "--in", "1h"], "give a task's id"),
        (&["task", "cancel", "--schedule", ""], "give the name or id of a schedule"),
        (&["prove", ""], "give the name or id of a schedule"),
        (&["schedule", "show", ""], "give the name or id of a schedule"),
        (&["schedule", "edit", "", "--priority", "1"], "give the name or id of a schedule"),
        (&["schedule", "pause", " "], "give the name or id of a schedule"),
        (&["schedule", "resume", ""], "give the name or id of a schedule"),
        (&["schedule", "trigger", ""], "give the name or id of a schedule"),
        (&["schedule", "backfill", "", "--from", "-3d", "--to", "now"], "give the name or id of a schedule"),
        (&["schedule", "delete", ""], "`punctual schedule list` shows those there are"),
        (&["schedule", "executions", ""], "give the name or id of a schedule"),
        (&["schedule", "next", ""], "give the name or id of a schedule"),
        (&["topic", "show", ""], "give a topic, or a prefix"),
        (&["topic", "put", "", "--route", "pull"], "give a topic, or a prefix"),
        (&["topic", "delete", " "], "give a topic, or a prefix"),
        (&["topic", "pause", ""], "give a topic, or a prefix"),
        (&["calendar", "show", ""], "give the name of a calendar"),
        (&["calendar", "put", "", "--weekday", "sat"], "give the name of a calendar"),
        (&["calendar", "put", "holidays", "--date", "2026-2-3"], "give a day such as 2026-12-25"),
        (&["calendar", "delete", ""], "give the name of a calendar"),
    ] {
        let (code, out, error) = run(punctual(folder.path()).args(arguments));
        assert!(code == Some(2) && out.is_empty() && error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn without_a_service_it_is_said_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["task", "list"][..],
        &["prove"],
        &["why", "x"],
        &["simulate"],
        &["schedule", "list"],
        &["nodes"],
        &["events"],
        &["key", "list"],
    ] {
        let mut command = punctual(folder.path());
        let (code, out, error) = run(command.args(arguments).env("PUNCTUAL_URL", "http://127.0.0.1:1"));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(
            error.contains("nothing answers at http://127.0.0.1:1: start the service by `punctual serve`"),
            "{error}"
        );
        let takes_database = matches!(arguments[0], "prove" | "why" | "simulate" | "key");
        assert_eq!(error.contains("(--database)"), takes_database, "{arguments:?}: {error}");
    }
    let (code, _, error) = run(punctual(folder.path()).args(["task", "list", "--url", "nonsense"]));
    assert!(code == Some(1) && error.contains("http://127.0.0.1:7878"), "{error}");
    let missing = ["prove", "--database", "sqlite://missing.db"];
    let (code, _, error) = run(punctual(folder.path()).args(missing));
    assert!(code == Some(1) && error.contains("there is no database at missing.db"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn the_password_of_an_address_and_a_key_show_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["http://me:swordfish@127.0.0.1:1", "ftp://me:swordfish@127.0.0.1", "me:swordfish@127.0.0.1"] {
        for arguments in [&["task", "list"][..], &["task", "list", "-h"], &["task", "list", "--help"], &["task", "lst"]]
        {
            let secrets = [("PUNCTUAL_URL", url), ("PUNCTUAL_TOKEN", "pk_swordfish")];
            let (_, out, error) = run(punctual(folder.path()).args(arguments).envs(secrets));
            let told = out + &error;
            assert!(!told.is_empty() && !told.contains("swordfish"), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn every_command_has_help_with_examples_and_shells_complete_them() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["task"][..],
        &["task", "add"],
        &["schedule"],
        &["schedule", "add"],
        &["schedule", "edit"],
        &["schedule", "backfill"],
        &["calendar"],
        &["topic"],
        &["events"],
        &["key", "create"],
        &["backup"],
        &["restore"],
        &["prove"],
        &["why"],
        &["simulate"],
        &["tz", "diff"],
        &["completions"],
    ] {
        let (code, out, _) = run(punctual(folder.path()).args(arguments).arg("--help"));
        assert!(code == Some(0) && out.contains("Examples:"), "{arguments:?}: {out}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run(punctual(folder.path()).args(["completions", shell]));
        assert!(code == Some(0) && out.contains("simulate"), "{shell}");
    }
}
