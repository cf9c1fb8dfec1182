//! Every rule of notifications about events and tasks, on both databases, with a clock that the test moves.

mod arrival;
mod commands;
mod dates;
mod reconciler;
mod rules;
mod zones;

use std::time::Duration;

use punctual_operations::Operations;
use punctual_testing::{Message, Punctual, Setup, Task, TaskStatus, TestDatabase, setup};
use serde_json::{Value, json};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A node at the beginning of 2026.
pub(crate) async fn start(database: TestDatabase) -> Punctual {
    at_work(database).start().await
}

pub(crate) fn at_work(database: TestDatabase) -> Setup {
    setup(Operations).database(database)
}

/// The two kinds of subjects: path, name, start, end, people.
pub(crate) const EVENT: Names =
    Names { path: "/events", name: "event", start: "startDate", end: "endDate", people: "participants" };
pub(crate) const TASK: Names =
    Names { path: "/tasks", name: "task", start: "startedAt", end: "finishedAt", people: "relatedUsers" };

#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) start: &'static str,
    pub(crate) end: &'static str,
    pub(crate) people: &'static str,
}

impl Names {
    /// A subject with these dates, and Ada and Bob.
    pub(crate) fn body(self, start: Option<&str>, end: Option<&str>) -> Value {
        json!({
            "title": "Stand-up", self.start: start, self.end: end,
            "creator": {"name": "Ada", "email": "ada@example.com"},
            self.people: [{"name": "Bob", "email": "bob@example.com"}],
        })
    }

    /// Makes it, and answers its id.
    pub(crate) async fn make(self, punctual: &Punctual, body: Value) -> String {
        let made = punctual.post(self.path, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id").to_owned()
    }

    pub(crate) async fn made(self, punctual: &Punctual, start: Option<&str>, end: Option<&str>) -> String {
        self.make(punctual, self.body(start, end)).await
    }

    pub(crate) async fn patch(self, punctual: &Punctual, id: &str, changes: Value) {
        let patched = punctual.patch(&format!("{}/{id}", self.path), changes).await;
        assert_eq!(patched.status, 200, "{patched:?}");
    }

    /// The rule of a kind that came with its date, if it is there and not deleted.
    pub(crate) async fn automatic(self, punctual: &Punctual, id: &str, kind: &str) -> Option<Value> {
        let rule = json!({"type": "at_subject_date", "anchor": kind});
        rules(punctual, id).await.into_iter().find(|found| found["rule"] == rule)
    }

    /// The tasks of a kind.
    pub(crate) async fn tasks(self, punctual: &Punctual, kind: &str) -> Vec<Task> {
        punctual.tasks(&format!("operations.{}.{kind}", self.name)).await
    }

    /// Those that have not ended.
    pub(crate) async fn live(self, punctual: &Punctual, kind: &str) -> Vec<Task> {
        let tasks = self.tasks(punctual, kind).await;
        tasks.into_iter().filter(|task| !task.status.has_ended()).collect()
    }
}

/// From now on rules of this kind cannot be written by `INSERT` or `UPDATE`.
pub(crate) async fn refuse_rules(punctual: &Punctual, write: &str, kind: &str) {
    punctual
        .execute(
            format!(
                "CREATE TRIGGER no_{write} BEFORE {write} ON operations_notification_rules WHEN NEW.kind = '{kind}'
                 BEGIN SELECT RAISE(ABORT, 'no rules now'); END"
            ),
            format!(
                "CREATE FUNCTION no_rules() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'no rules now'; END $$;
                 CREATE TRIGGER no_{write} BEFORE {write} ON operations_notification_rules FOR EACH ROW
                 WHEN (NEW.kind = '{kind}') EXECUTE FUNCTION no_rules()"
            ),
        )
        .await;
}

/// They can again.
pub(crate) async fn allow_rules(punctual: &Punctual, write: &str) {
    let drop = format!("DROP TRIGGER no_{write}");
    punctual.execute(drop.clone(), format!("{drop} ON operations_notification_rules")).await;
}

/// The living rules of a subject, newest first.
pub(crate) async fn rules(punctual: &Punctual, subject: &str) -> Vec<Value> {
    punctual.get(&format!("/rules?subjectId={subject}")).await.body["items"].as_array().unwrap().clone()
}

/// A rule, also a deleted one.
pub(crate) async fn rule(punctual: &Punctual, id: &Value) -> Value {
    punctual.get(&format!("/rules/{}", id.as_str().unwrap())).await.body
}

pub(crate) fn instant(text: &str) -> chrono::DateTime<chrono::Utc> {
    text.parse().unwrap()
}

/// Who was told, and how, in order.
pub(crate) fn told(messages: &[Message]) -> Vec<(&str, &str)> {
    messages.iter().map(|message| (message.channel.as_str(), message.recipient.as_str())).collect()
}

pub(crate) fn has_completed(tasks: &[Task]) -> bool {
    tasks.iter().all(|task| task.status == TaskStatus::Completed)
}
