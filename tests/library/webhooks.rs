//! Webhooks of a program that runs Punctual inside itself.

use punctual::{BuildError, NewTask, Punctual, TaskStatus};

use crate::receiver::Receiver;
use crate::support::Database;
use crate::{add, ended, on_each_database};

on_each_database!(a_topic_is_served_by_a_webhook, what_cannot_be_a_webhook_is_refused);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn a_topic_is_served_by_a_webhook(database: Database) {
    let mut receiver = Receiver::start().await;
    receiver.answer(200, &[], "well done");
    let punctual = Punctual::builder()
        .database(&database.url)
        .webhook("orders.*", format!("{}/hook", receiver.url), [SECRET])
        .webhook_network("127.0.0.0/8")
        .start()
        .await
        .unwrap();
    let task = add(&punctual, NewTask::new("orders.paid").payload(7)).await;
    let call = receiver.next().await;
    assert!(call.is_signed_with(SECRET));
    assert_eq!((call.header("webhook-id"), call.path.as_str()), (task.id.to_string().as_str(), "/hook"));
    assert_eq!(call.json()["data"]["userPayload"], 7);
    let task = ended(&punctual, task.id).await.task;
    assert_eq!(task.status, TaskStatus::Completed, "{task:?}");
    assert_eq!(task.result.unwrap().as_str(), r#"{"body":"well done","status":200}"#);
    punctual.stop().await.unwrap();

    // The topic is stored so; where nothing is allowed, it leads nowhere.
    let punctual = Punctual::builder().database(&database.url).start().await.unwrap();
    let task = add(&punctual, NewTask::new("orders.paid")).await;
    let task = ended(&punctual, task.id).await.task;
    assert!(task.error.as_ref().unwrap().contains("not on the open internet"), "{task:?}");
    punctual.stop().await.unwrap();
    assert_eq!(receiver.unasked(), 0);
}

async fn what_cannot_be_a_webhook_is_refused(database: Database) {
    let refused = async |topic: &str, url: &str, secret: &str, network: &str| {
        let builder =
            Punctual::builder().database(&database.url).webhook(topic, url, [secret]).webhook_network(network);
        match builder.start().await {
            Err(error @ (BuildError::Webhook { .. } | BuildError::WebhookNetwork { .. })) => error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("not refused"),
        }
    };
    let fine = "https://example.com/hook";
    assert!(
        refused("a b", fine, SECRET, "10.0.0.0/8")
            .await
            .starts_with("the topic \"a b\" cannot be served by that webhook")
    );
    assert!(refused("a", "http://127.0.0.1/", SECRET, "10.0.0.0/8").await.contains("not on the open internet"));
    assert!(refused("a", fine, "short", "10.0.0.0/8").await.contains("secrets"));
    assert!(refused("a", fine, SECRET, "ten").await.contains("\"ten\" is no network for webhooks"));
}
