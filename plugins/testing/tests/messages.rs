//! What a handler can send: with its transaction, or at once.

use std::time::Duration;

use punctual_sdk::{
    Attempt, Channel, Error, Handler, Message, Migration, NotifyError, Outcome, Plugin, Template, on_either, sqlx,
};
use punctual_testing::TaskStatus;
use serde::Deserialize;
use serde_json::json;

struct Club;

impl Plugin for Club {
    fn name(&self) -> &'static str {
        "club"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![
            ("club.join", Box::new(join)),
            ("club.remind", Box::new(remind)),
            ("club.shout", Box::new(shout)),
            ("club.mistake", Box::new(mistake)),
        ]
    }

    fn templates(&self) -> Vec<Template> {
        vec![Template {
            slug: "club-welcome",
            subject: "Welcome, {{ name }}",
            text: "Good to have you, {{ name }}.",
            html: Some("<b>{{ name }}</b>"),
            sample: r#"{"name": "Ada"}"#,
        }]
    }

    fn migrations(&self) -> Vec<Migration> {
        let members = "CREATE TABLE club_members (name TEXT PRIMARY KEY)";
        vec![Migration { name: "1_members", sqlite: members, postgres: members }]
    }
}

#[derive(Deserialize)]
struct Member {
    name: String,
    email: String,
}

impl Member {
    fn welcome(&self) -> Message {
        let Self { name, email } = self;
        Message::new(email, format!("club-welcome__{name}")).template("club-welcome", json!({ "name": name }))
    }
}

/// A member and a message, or neither.
async fn join(attempt: Attempt) -> Result<Outcome, Error> {
    let member: Member = attempt.payload_as()?;
    let mut transaction = attempt.database().begin().await?;
    let insert = "INSERT INTO club_members VALUES ($1) ON CONFLICT DO NOTHING";
    on_either!(transaction, |connection| {
        sqlx::query(insert).bind(&member.name).execute(connection).await?;
    });
    attempt.notifier().enqueue(&mut transaction, member.welcome()).await?;
    if member.name == "Eve" {
        return Err("not in our club".into());
    }
    transaction.commit().await?;
    Ok(Outcome::completed())
}

/// Sends at once, and tells what came of it.
async fn remind(attempt: Attempt) -> Result<Outcome, Error> {
    let member: Member = attempt.payload_as()?;
    match attempt.notifier().deliver(member.welcome()).await {
        Ok(provider_id) => Ok(Outcome::completed_with(provider_id)),
        Err(error) if error.is_final() => Ok(Outcome::FailedForGood { error: error.to_string() }),
        Err(error) => Ok(Outcome::RetryAfter { delay: Duration::from_secs(60), error: error.to_string() }),
    }
}

async fn shout(attempt: Attempt) -> Result<Outcome, Error> {
    let message = Message::new("everybody", attempt.task_id.to_string()).plain("Listen", "to me");
    let id = attempt.notifier().deliver(message.through(Channel::Webhook)).await?;
    Ok(Outcome::completed_with(id))
}

async fn mistake(attempt: Attempt) -> Result<Outcome, Error> {
    let message = Message::new("ada@example.com", "mistake").template("club-welcome", json!({"nmae": "Ada"}));
    match attempt.notifier().deliver(message).await {
        Err(error @ NotifyError::Template(_)) => Ok(Outcome::FailedForGood { error: error.to_string() }),
        other => Err(format!("{other:?}").into()),
    }
}

fn ada() -> serde_json::Value {
    json!({"name": "Ada", "email": "ada@example.com"})
}

#[tokio::test]
async fn a_message_goes_out_with_the_transaction_or_not_at_all() {
    let punctual = punctual_testing::start(Club).await;
    let refused = punctual.run("club.join", json!({"name": "Eve", "email": "eve@example.com"})).await;
    assert_eq!(refused.status, TaskStatus::Failed);
    assert_eq!(punctual.messages().await, []);

    punctual.run("club.join", ada()).await;
    let [welcome] = punctual.messages().await.try_into().unwrap();
    assert_eq!((welcome.recipient.as_str(), welcome.subject.as_str()), ("ada@example.com", "Welcome, Ada"));
    assert_eq!((welcome.text.as_str(), welcome.html.as_deref()), ("Good to have you, Ada.", Some("<b>Ada</b>")));
    assert_eq!((welcome.template_slug.as_deref(), welcome.data), (Some("club-welcome"), json!({"name": "Ada"})));
    punctual.run("club.join", ada()).await;
    assert_eq!(punctual.messages().await.len(), 1);
    punctual.stop().await;
}

#[tokio::test]
async fn an_enqueued_message_is_tried_again_by_itself() {
    let punctual = punctual_testing::start(Club).await;
    punctual.fail_messages(Some("the mail server is down"));
    punctual.run("club.join", ada()).await;
    assert_eq!(punctual.messages().await, []);
    punctual.fail_messages(None);
    punctual.advance(Duration::from_secs(60)).await;
    assert_eq!(punctual.messages().await.len(), 1);
}

#[tokio::test]
async fn a_message_is_delivered_once_and_the_first_id_is_answered_again() {
    let punctual = punctual_testing::start(Club).await;
    let first = punctual.run("club.remind", ada()).await;
    let second = punctual.run("club.remind", ada()).await;
    assert_eq!((first.status, &first.result), (TaskStatus::Completed, &json!("message-1")));
    assert_eq!(second.result, first.result);
    assert_eq!(punctual.messages().await.len(), 1);
}

#[tokio::test]
async fn what_could_not_be_delivered_is_the_callers_to_try_again() {
    let punctual = punctual_testing::start(Club).await;
    punctual.fail_messages(Some("the mail server is down"));
    let task = punctual_sdk::NewTask::new("club.remind").payload(ada()).attempts(3);
    let id = punctual.enqueue(task).await;
    let waits = punctual.task(id).await;
    assert_eq!((waits.status, waits.error.as_deref()), (TaskStatus::Pending, Some("the mail server is down")));
    punctual.fail_messages(None);
    // Nobody else sends it meanwhile.
    punctual.advance(Duration::from_secs(59)).await;
    assert_eq!(punctual.messages().await, []);
    punctual.advance(Duration::from_secs(1)).await;
    assert_eq!(punctual.task(id).await.result, json!("message-1"));
    assert_eq!(punctual.messages().await.len(), 1);
}

#[tokio::test]
async fn other_channels_are_asked_for_and_templates_are_checked() {
    let punctual = punctual_testing::start(Club).await;
    assert_eq!(punctual.run("club.shout", ()).await.status, TaskStatus::Completed);
    assert_eq!(punctual.messages().await[0].channel, "webhook");
    let mistaken = punctual.run("club.mistake", ()).await;
    assert_eq!(mistaken.error.as_deref(), Some("the template club-welcome needs a value for name"));
    assert_eq!(punctual.messages().await.len(), 1);
}
