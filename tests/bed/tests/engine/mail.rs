//! Messages through a real mail server, while the service that sends them is killed; and what cannot be smuggled into them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::bed::{node, queue, until, until_all_ended};
use crate::on_each_database;
use crate::support::{Database, MailServer, Server, punctual};

on_each_database!(
    five_hundred_messages_arrive_though_their_sender_is_killed_twice,
    five_hundred_messages_arrive_once_if_nobody_is_killed,
);

const MESSAGES: usize = 500;

/// How many messages some node has taken and not ended.
pub(crate) const ON_THEIR_WAY: &str =
    "SELECT count(*) FROM punctual_outbox WHERE status = 'pending' AND lease_expires_at IS NOT NULL";

/// A node that sends by that mail server; a message that was on its way is free again after four seconds.
fn sender(database: &Database, mails: &MailServer) -> Server {
    let url = format!("smtp://127.0.0.1:{}", mails.port);
    let variables = [("SMTP_URL", url.as_str()), ("MAIL_FROM", "bed@example.com"), ("PUNCTUAL_LEASE_SECONDS", "1")];
    node(database, &variables)
}

/// Half of them are posted with a transaction, half sent by the handler itself.
async fn queue_all(database: &Database) {
    queue(database, "bed.post", json!({}), MESSAGES / 2).await;
    queue(database, "bed.deliver", json!({}), MESSAGES / 2).await;
}

/// What arrived: of each letter, by its recipient and subject, all ids that it came with, one for every time.
#[derive(Default)]
pub(crate) struct Arrived(BTreeMap<String, Vec<String>>);

impl Arrived {
    pub(crate) fn note(&mut self, mail: &Value) {
        let text = |mail: &Value| mail.as_str().unwrap().to_owned();
        let letter = format!("{}: {}", text(&mail["to"][0]), text(&mail["subject"]));
        self.0.entry(letter).or_default().push(text(&mail["messageId"]));
    }

    /// How many different letters there are.
    pub(crate) fn letters(&self) -> usize {
        self.0.len()
    }

    /// Waits until so many different letters have arrived.
    pub(crate) fn until(&mut self, letters: usize, mails: &mut MailServer) {
        while self.0.len() < letters {
            self.note(&mails.next());
        }
    }

    /// How many came again; each of them has to be recognizable as a repeat.
    pub(crate) fn repeats(&self) -> usize {
        let ids: BTreeSet<_> = self.0.values().map(|ids| ids[0].as_str()).collect();
        assert_eq!(ids.len(), self.0.len(), "each letter has an id of its own");
        for (letter, ids) in &self.0 {
            assert!(ids.iter().all(|id| *id == ids[0]), "{letter} came with {ids:?}");
        }
        self.0.values().map(|ids| ids.len() - 1).sum()
    }
}

async fn until_all_sent(database: &Database) {
    until_all_ended(database).await;
    until(database, "SELECT count(*) FROM punctual_outbox WHERE status = 'sent'", |sent| sent == MESSAGES as i64).await;
}

async fn five_hundred_messages_arrive_though_their_sender_is_killed_twice(database: Database) {
    let Some(mut mails) = MailServer::start(&json!({"delay": 0.05})) else { return };
    queue_all(&database).await;
    let (mut arrived, mut on_their_way) = (Arrived::default(), 0);
    for letters in [100, 300] {
        let mut killed = sender(&database, &mails);
        arrived.until(letters, &mut mails);
        killed.process.signal("KILL");
        assert_eq!(killed.process.wait().code(), None, "it was killed");
        on_their_way += database.number(ON_THEIR_WAY).await;
    }
    let server = sender(&database, &mails);
    until_all_sent(&database).await;
    server.stop();
    arrived.until(MESSAGES, &mut mails);
    mails.taken().iter().for_each(|mail| arrived.note(mail));
    let repeats = arrived.repeats();
    println!("of {on_their_way} messages on their way at the kills, {repeats} arrived twice");
    assert!(repeats as i64 <= on_their_way, "{repeats} repeats, {on_their_way} on their way");
}

async fn five_hundred_messages_arrive_once_if_nobody_is_killed(database: Database) {
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    queue_all(&database).await;
    let server = sender(&database, &mails);
    let mut arrived = Arrived::default();
    arrived.until(MESSAGES, &mut mails);
    until_all_sent(&database).await;
    server.stop();
    mails.taken().iter().for_each(|mail| arrived.note(mail));
    assert_eq!(arrived.repeats(), 0);
}

/// What somebody would write who wants a header, a recipient or a body of their own.
fn injections() -> Vec<String> {
    let breaks = [
        "\r\n",
        "\n",
        "\r",
        "\r\n ",
        "\r\n\t",
        "\n\n",
        "\r\n\r\n",
        "\u{b}",
        "\u{c}",
        "\u{85}",
        "\u{2028}",
        "\u{2029}",
        "%0d%0a",
        "=0D=0A",
        "\\r\\n",
        "\u{560d}\u{560a}",
        "\r\n.\r\n",
        "\u{1c}",
        "\u{1e}",
        "=?utf-8?Q?=0D=0A?=",
    ];
    let headers = [
        "Bcc: eve@example.com",
        "To: eve@example.com",
        "Subject: something else",
        "Content-Type: text/html",
        "X-Injected: yes\r\n\r\n<b>body</b>",
    ];
    breaks.iter().flat_map(|line| headers.iter().map(move |header| format!("Hello{line}{header}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_in_a_message_becomes_a_header() {
    let database = Database::sqlite();
    let Some(mut mails) = MailServer::start(&json!({})) else { return };
    let server = sender(&database, &mails);
    let corpus = injections();
    assert_eq!(corpus.len(), 100);
    let expected = json!(["From", "To", "Subject", "Message-ID", "Date", "MIME-Version", "Content-Type"]);
    let letter = |payload: Value| {
        let body = json!({"topic": "bed.deliver", "payload": payload}).to_string();
        let server = &server;
        async move { server.ended_task(server.make_task(&body).await["id"].as_str().unwrap()).await }
    };
    for about in &corpus {
        let task = letter(json!({"about": about})).await;
        assert_eq!(task["status"], "completed", "{about:?}: {task}");
        let mail = mails.next();
        assert_eq!(mail["headers"], expected, "{about:?}: {mail}");
        assert_eq!(mail["to"], json!(["ada@example.com"]), "{about:?}: {mail}");
    }
    for name in &corpus {
        for recipient in [name.clone(), format!("{name} <ada@example.com>"), format!("ada@example.com{name}")] {
            let task = letter(json!({"about": "x", "recipient": recipient})).await;
            if task["status"] == "completed" {
                let mail = mails.next();
                assert_eq!(mail["headers"], expected, "{recipient:?}: {mail}");
                assert_eq!(mail["to"], json!(["ada@example.com"]), "{recipient:?}: {mail}");
            }
        }
    }
    server.stop();
    assert_eq!(mails.taken(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_can_be_looked_at_before_anything_is_sent() {
    let database = Database::sqlite();
    let server = node(&database, &[]);
    let listed = server.get("/api/v1/templates").await.json();
    let letter = json!({
        "plugin": "bed", "slug": "bed-letter", "values": {"about": "the weather"}, "subject": "the weather",
        "text": "This is about the weather.\n", "html": "<p>This is about <b>the weather</b>.</p>\n",
    });
    assert_eq!(listed, json!({"items": [letter], "nextCursor": null}));
    assert_eq!(server.get("/api/v1/templates/bed/bed-letter").await.json(), letter);
    server.get("/api/v1/templates/bed/nothing").await.problem(404, "NOT_FOUND");
    server.stop();

    let run = |arguments: &[&str]| {
        let output = punctual(database.folder.path()).arg("template").args(arguments).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    // Those of every plugin in the binary, whether it is turned on or not.
    let listed = run(&["list"]).1;
    let lines: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.first().unwrap(), &["PLUGIN", "TEMPLATE", "SUBJECT"]);
    assert_eq!(lines.last().unwrap(), &["bed", "bed-letter", "the", "weather"]);
    let preview = "template  bed/bed-letter\nsubject   <rain>\nhtml      yes, see --html\n\nThis is about <rain>.\n";
    assert_eq!(run(&["preview", "bed-letter", "--values", r#"{"about": "<rain>"}"#]), (Some(0), preview.to_owned()));
    let html = run(&["preview", "bed/bed-letter", "--html", "--values", r#"{"about": "<rain>"}"#]).1;
    assert_eq!(html, "<p>This is about <b>&lt;rain&gt;</b>.</p>\n");
    let (code, refused) = run(&["preview", "bed-letter", "--values", "{}"]);
    assert_eq!((code, refused.trim()), (Some(1), "punctual: the template bed-letter needs a value for about"));
}
