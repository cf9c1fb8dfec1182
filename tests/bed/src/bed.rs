//! The plugin `bed`: one topic per way in which a handler can behave.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_sdk::{Attempt, Error, Handler, Message, Outcome, Plugin, Template, async_trait};
use serde::Deserialize;

use crate::ledger::Ledger;

pub(crate) struct Bed;

impl Plugin for Bed {
    fn name(&self) -> &'static str {
        "bed"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![
            ("bed.count", Box::new(Count(Ledger::default()))),
            ("bed.sleep", Box::new(Sleep)),
            ("bed.hang", Box::new(Hang)),
            ("bed.panic", Box::new(Panic)),
            ("bed.abort", Box::new(Abort)),
            ("bed.stall", Box::new(Stall)),
            ("bed.quick", Box::new(Quick)),
            ("bed.late", Box::new(Late)),
            ("bed.post", Box::new(post)),
            ("bed.deliver", Box::new(deliver)),
        ]
    }

    fn templates(&self) -> Vec<Template> {
        vec![Template {
            slug: "bed-letter",
            subject: "{{ about }}",
            text: "This is about {{ about }}.\n",
            html: Some("<p>This is about <b>{{ about }}</b>.</p>\n"),
            sample: r#"{"about": "the weather"}"#,
        }]
    }
}

/// How long to be at it, and what to say at the end.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Work {
    ms: u64,
    /// The same for all attempts but the first, if that is not the same.
    again_ms: Option<u64>,
    message: String,
}

impl Default for Work {
    fn default() -> Self {
        Self { ms: 0, again_ms: None, message: "boom".to_owned() }
    }
}

impl Work {
    fn of(attempt: &Attempt) -> Self {
        let work: Self = attempt.payload_as().unwrap_or_default();
        match work.again_ms {
            Some(ms) if attempt.epoch > 1 => Self { ms, ..work },
            _ => work,
        }
    }

    async fn wait(&self) {
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
    }
}

/// Writes down that it was here, in the service's own database, and then works for a while.
struct Count(Ledger);

#[async_trait]
impl Handler for Count {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let counted = self.0.count(attempt.task_id, attempt.epoch).await;
        Work::of(&attempt).wait().await;
        counted.map(|()| Outcome::completed()).into()
    }
}

/// Works for a while, and stops when it is told to; completes with its epoch.
struct Sleep;

#[async_trait]
impl Handler for Sleep {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        match attempt.cancelled.run_until_cancelled(Work::of(&attempt).wait()).await {
            Some(()) => Outcome::completed_with(attempt.epoch),
            None => {
                // Read from the log by those who want to know.
                eprintln!("told to stop: {}", attempt.task_id);
                Outcome::Cancelled
            }
        }
    }
}

/// Works for ever, whatever it is told.
struct Hang;

#[async_trait]
impl Handler for Hang {
    async fn handle(&self, _: Attempt) -> Outcome {
        std::future::pending().await
    }
}

/// Panics after a while.
struct Panic;

#[async_trait]
impl Handler for Panic {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let work = Work::of(&attempt);
        work.wait().await;
        panic!("{}", work.message)
    }
}

/// Takes the whole process along after a while.
struct Abort;

#[async_trait]
impl Handler for Abort {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        Work::of(&attempt).wait().await;
        std::process::abort()
    }
}

/// Stops the whole process after a while, until somebody sends it `CONT`, and has completed then, all at its first attempt only;
/// completes with its epoch.
struct Stall;

#[async_trait]
impl Handler for Stall {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        Work::of(&attempt).wait().await;
        if attempt.epoch == 1 {
            // Keeps its thread: where there is only one, nothing is done between the `CONT` and the outcome.
            let sent = Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status();
            assert!(sent.is_ok_and(|sent| sent.success()));
        }
        Outcome::completed_with(attempt.epoch)
    }
}

/// Works for a millisecond.
struct Quick;

#[async_trait]
impl Handler for Quick {
    async fn handle(&self, _: Attempt) -> Outcome {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Outcome::completed()
    }
}

/// Completes at once, with how many microseconds after its instant it began.
struct Late;

#[async_trait]
impl Handler for Late {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        Outcome::completed_with((now - attempt.run_at.timestamp_micros()).max(0))
    }
}

/// What a letter is about, and whom it is for, where the task says so.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Letter {
    about: Option<String>,
    recipient: Option<String>,
}

impl Letter {
    fn of(attempt: &Attempt) -> Message {
        let letter: Self = attempt.payload_as().unwrap_or_default();
        let id = attempt.task_id.to_string();
        let about = letter.about.unwrap_or_else(|| id.clone());
        let recipient = letter.recipient.unwrap_or_else(|| "ada@example.com".to_owned());
        Message::new(recipient, id).template("bed-letter", serde_json::json!({ "about": about }))
    }
}

/// Posts a letter in a transaction of its own.
async fn post(attempt: Attempt) -> Result<Outcome, Error> {
    let mut transaction = attempt.database().begin().await?;
    attempt.notifier().enqueue(&mut transaction, Letter::of(&attempt)).await?;
    transaction.commit().await?;
    Ok(Outcome::completed())
}

/// Sends a letter at once.
async fn deliver(attempt: Attempt) -> Result<Outcome, Error> {
    Ok(Outcome::completed_with(attempt.notifier().deliver(Letter::of(&attempt)).await?))
}
