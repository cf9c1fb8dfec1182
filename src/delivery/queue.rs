//! The transport `queue`: messages become jobs of a BullMQ queue, for a service that sends them by itself.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::hand_over::{MessageJob, Queue};
use punctual_domain::outbox::{Content, Message};
use punctual_domain::store::Store;
use serde_json::{Map, Value, json};

use super::content;
use crate::routes::bullmq::{Accepted, Attention, Job, Queues};

/// The name of a message's job that was not made from a template.
const PLAIN: &str = "message";

/// Sends messages to a queue. What the queue loses before a worker has ended it, the [`Keeper`](crate::routes::bullmq::Keeper)
/// gives to it again.
pub(crate) struct ToQueue {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
    pub(crate) queues: Queues,
    pub(crate) queue: Queue,
}

#[async_trait]
impl Transport for ToQueue {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        let job = job_of(message)?;
        // Noted first: nobody may hear of its end before it is known whose it is.
        let noted = MessageJob { message_id: message.id, job_id: job.id.clone() };
        self.store.note_message_job(&self.queue, &noted).await.map_err(DeliveryError::later)?;
        // One that was there is the same message: somebody was first, or an answer of ours got lost.
        if self.queues.hand_over(&self.queue, &job).await.map_err(DeliveryError::later)? == Accepted::WasThere {
            self.attention.ended(&self.queue, &job.id);
        }
        self.attention.handed_to(&self.queue);
        Ok(job.id)
    }
}

/// The job of a message.
///
/// # Errors
/// When the message says nothing that can be understood.
pub(crate) fn job_of(message: &Message) -> Result<Job, DeliveryError> {
    Ok(job(message, content(message)?))
}

/// The job of a message: what the template was filled with, for those who have templates of their own, or else what it says.
fn job(message: &Message, content: Content) -> Job {
    let Content { subject, text, html, template_slug, data } = content;
    let mut fields = match (&template_slug, data) {
        (Some(_), Some(Value::Object(fields))) => fields,
        (Some(_), Some(data)) => Map::from_iter([("data".to_owned(), data)]),
        (Some(_), None) => Map::new(),
        (None, _) => Map::from_iter([
            ("subject".to_owned(), json!(subject)),
            ("text".to_owned(), json!(text)),
            ("html".to_owned(), json!(html)),
        ]),
    };
    if let Some(slug) = &template_slug {
        fields.insert("templateSlug".to_owned(), json!(slug));
    }
    fields.insert("recipient".to_owned(), json!(message.recipient));
    fields.insert("dedupeKey".to_owned(), json!(message.dedupe_key));
    Job::of_key(&message.dedupe_key, template_slug.as_deref().unwrap_or(PLAIN), &Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use punctual_domain::id::{Epoch, MessageId};
    use punctual_domain::json::Json;
    use punctual_domain::outbox::MessageStatus;

    use super::*;

    fn message(dedupe_key: &str) -> Message {
        let now = "2026-11-16T12:00:00Z".parse().unwrap();
        Message {
            id: MessageId::generate(),
            dedupe_key: dedupe_key.into(),
            transport: "queue".into(),
            recipient: "ada@example.com".into(),
            body: Json::empty_object(),
            status: MessageStatus::Pending,
            attempt: 1,
            epoch: Epoch(1),
            next_attempt_at: now,
            provider_id: None,
            error: None,
            created_at: now,
            completed_at: None,
        }
    }

    #[test]
    fn a_message_of_a_template_brings_what_that_is_filled_with() {
        let content = Content {
            subject: "s".into(),
            text: "t".into(),
            template_slug: Some("signup-reminder-early".into()),
            data: Some(json!({"tenantId": "5", "resumeUrl": "https://x"})),
            ..Content::default()
        };
        let job = job(&message("signup-reminder-early__5"), content);
        assert_eq!((job.id.as_str(), job.name.as_str()), ("signup-reminder-early__5", "signup-reminder-early"));
        let data: Value = serde_json::from_str(&job.data).unwrap();
        let expected = json!({
            "templateSlug": "signup-reminder-early", "recipient": "ada@example.com", "tenantId": "5",
            "resumeUrl": "https://x", "dedupeKey": "signup-reminder-early__5",
        });
        assert_eq!(data, expected);
    }

    #[test]
    fn a_plain_message_brings_what_it_says() {
        let content = Content { subject: "s".into(), text: "t".into(), ..Content::default() };
        let job = job(&message("a:b"), content);
        assert_eq!((job.id.as_str(), job.name.as_str()), ("k_a%3Ab", "message"));
        let data: Value = serde_json::from_str(&job.data).unwrap();
        let expected = json!({
            "subject": "s", "text": "t", "html": null, "recipient": "ada@example.com", "dedupeKey": "a:b",
        });
        assert_eq!(data, expected);
    }
}
