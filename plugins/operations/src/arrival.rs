//! A rule's task is due: people are told, each once, or it is said why not.

use chrono::{DateTime, Utc};
use punctual_sdk::{Attempt, Channel, Error, Message, NotifyError, Outcome, Template, on_either, shown, sqlx};
use serde::Deserialize;
use serde_json::json;
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::rule::Rule;
use crate::subject::{Person, Subject};

/// The payload of a rule's task: ids only, so that what is told is what holds when it is due.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    subject_type: SubjectType,
    subject_id: Uuid,
    notification_rule_id: Uuid,
    kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SubjectType {
    Event,
    Task,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Start,
    End,
}

impl Payload {
    fn words(&self) -> (&'static str, &'static str) {
        let subject = match self.subject_type {
            SubjectType::Event => "event",
            SubjectType::Task => "task",
        };
        let kind = match self.kind {
            Kind::Start => "start",
            Kind::End => "end",
        };
        (subject, kind)
    }
}

/// Why nobody is told. A task whose date no longer holds was cancelled with that date: its rule is canceled as far as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    RuleMissing,
    RuleCanceled,
    RuleInactive,
    AlreadyDelivered,
    SubjectMissing,
    NoRecipients,
}

impl Skip {
    fn reason(self) -> &'static str {
        match self {
            Self::RuleMissing => "rule-missing",
            Self::RuleCanceled => "rule-canceled",
            Self::RuleInactive => "rule-inactive",
            Self::AlreadyDelivered => "already-delivered",
            Self::SubjectMissing => "subject-missing",
            Self::NoRecipients => "no-recipients",
        }
    }

    /// Whether somebody should look at it.
    fn is_odd(self) -> bool {
        matches!(self, Self::RuleMissing | Self::SubjectMissing | Self::NoRecipients)
    }
}

/// What became of an arrival that did not fail.
enum Told {
    Skipped(Skip),
    Sent { recipients: usize },
}

pub(crate) async fn notify(attempt: Attempt) -> Outcome {
    let payload: Payload = match attempt.payload_as() {
        Ok(payload) => payload,
        Err(error) => {
            let (topic, task_id) = (&attempt.topic, attempt.task_id);
            warn!(reason = "invalid-payload", topic, %task_id, %error, "notifications.operations.skipped");
            return Outcome::completed();
        }
    };
    let id = payload.notification_rule_id;
    let (subject, kind) = payload.words();
    match tell(&attempt, &payload).await {
        Ok(Told::Sent { recipients }) => {
            info!(
                recipientCount = recipients,
                notificationRuleId = %id,
                subjectType = subject,
                subjectId = %payload.subject_id,
                kind,
                "notifications.operations.sent"
            );
            Outcome::completed()
        }
        Ok(Told::Skipped(skip)) => {
            let (reason, subject_id) = (skip.reason(), payload.subject_id);
            if skip.is_odd() {
                warn!(reason, notificationRuleId = %id, subjectType = subject, subjectId = %subject_id, kind, "notifications.operations.skipped");
            } else {
                info!(reason, notificationRuleId = %id, subjectType = subject, subjectId = %subject_id, kind, "notifications.operations.skipped");
            }
            Outcome::completed()
        }
        Err(failure) => {
            let (name, message) = (name(&failure), failure.to_string());
            error!(errorName = name, errorMessage = message, notificationRuleId = %id, "notifications.operations.failed");
            Outcome::failed(message)
        }
    }
}

/// What kind of failure it is, as the log has it.
fn name(failure: &Error) -> &'static str {
    if failure.is::<sqlx::Error>() {
        return "DatabaseError";
    }
    match failure.downcast_ref() {
        Some(NotifyError::Unavailable(_)) => "DatabaseError",
        Some(NotifyError::Template(_)) => "TemplateError",
        Some(NotifyError::Refused(_) | NotifyError::NotSent(_)) => "NotificationError",
        // What is stored about the rule or its subject makes no sense, such as a zone that there is not.
        None => "DataError",
    }
}

async fn tell(attempt: &Attempt, payload: &Payload) -> Result<Told, Error> {
    let (context, database) = (&attempt.context, attempt.database());
    let Some(rule) = Rule::find(&database, payload.notification_rule_id).await? else {
        return Ok(Told::Skipped(Skip::RuleMissing));
    };
    let guard = match &rule {
        rule if rule.deleted_at.is_some() => Some(Skip::RuleCanceled),
        rule if !rule.active => Some(Skip::RuleInactive),
        rule if rule.last_sent_at.is_some() => Some(Skip::AlreadyDelivered),
        _ => None,
    };
    if let Some(skip) = guard {
        return Ok(Told::Skipped(skip));
    }
    let Some(subject) = Subject::find(&database, payload.subject_id).await? else {
        return Ok(Told::Skipped(Skip::SubjectMissing));
    };
    let recipients = subject.recipients()?;
    if recipients.is_empty() {
        return Ok(Told::Skipped(Skip::NoRecipients));
    }
    let due_at = rule.run_at(&subject, context)?.unwrap_or(attempt.run_at);
    if is_stale(attempt, &rule, due_at).await? {
        return Ok(Told::Skipped(Skip::RuleCanceled));
    }
    let when = subject.when_label(&rule.kind, context)?;
    let mut failure = None;
    for channel in rule.channels()? {
        let Some(channel) = Channel::from_name(&channel) else { continue };
        for (email, person) in &recipients {
            let key = format!("{}__{}__{}__{}", rule.id, channel.as_str(), email.to_lowercase(), shown(due_at));
            let message = message(&rule, &subject, &when, person, email, key).through(channel);
            // Whoever can be told is; the others are tried again.
            if let Err(error) = send(attempt, &rule, channel, email, message).await {
                failure.get_or_insert(error);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    // Not if it was planned anew meanwhile: it has something else to tell then.
    let mark =
        "UPDATE operations_notification_rules SET last_sent_at = $2, updated_at = $2 WHERE id = $1 AND version = $3";
    let now = attempt.started_at;
    on_either!(database, |pool| {
        sqlx::query(mark).bind(rule.id).bind(now).bind(rule.version).execute(pool).await?;
    });
    Ok(Told::Sent { recipients: recipients.len() })
}

/// Whether the task stands for a date that no longer holds, and was cancelled with it: somebody retried it, or the date moves at
/// this moment. To tell now would be too early, and would use up what the new date tells.
async fn is_stale(attempt: &Attempt, rule: &Rule, due_at: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    // Its own task is never early, whatever the zone's rules have become since it was planned.
    if rule.schedule_id != Some(attempt.task_id) && due_at > attempt.run_at {
        return Ok(true);
    }
    // The subject was read after the rule: both are of one moment only if the rule was not planned anew in between.
    let is_same = |again: Rule| again.version == rule.version;
    Ok(!Rule::find(&attempt.database(), rule.id).await?.is_some_and(is_same))
}

async fn send(
    attempt: &Attempt,
    rule: &Rule,
    channel: Channel,
    email: &str,
    message: Message,
) -> Result<(), NotifyError> {
    let template_key = template_key(rule);
    let notifier = attempt.notifier();
    match notifier.deliver(message).await {
        Ok(_) => {
            info!(templateKey = template_key, recipient = email, "notifications.sender.sent");
            Ok(())
        }
        Err(refused) => {
            let provider = notifier.provider(channel).unwrap_or_default();
            error!(templateKey = template_key, recipient = email, provider, error = %refused, "notifications.sender.failed");
            Err(refused)
        }
    }
}

fn template_key(rule: &Rule) -> String {
    format!("operations-{}-{}", rule.subject_type, rule.kind)
}

fn message(rule: &Rule, subject: &Subject, when: &str, person: &Person, email: &str, key: String) -> Message {
    let values = json!({
        "title": subject.title,
        "whenLabel": when,
        "recipientName": person.name,
        "verb": if rule.kind == "start" { "starts" } else { "ends" },
        "subjectType": rule.subject_type,
        "subjectId": rule.subject_id,
        "notificationRuleId": rule.id,
        "kind": rule.kind,
    });
    Message::new(email, key).template(template_key(rule), values)
}

pub(crate) fn templates() -> Vec<Template> {
    let template = |slug, subject, sample| Template {
        slug,
        subject,
        text: include_str!("../templates/notice.txt"),
        html: Some(include_str!("../templates/notice.html")),
        sample,
    };
    const START: &str = r#"{"title": "Stand-up", "whenLabel": "2026-11-16 08:30 (America/Edmonton)", "recipientName": "Ada", "verb": "starts"}"#;
    const END: &str = r#"{"title": "Stand-up", "whenLabel": "2026-11-16 09:00 (America/Edmonton)", "recipientName": "Ada", "verb": "ends"}"#;
    vec![
        template("operations-event-start", "Event starts: {{ title }}", START),
        template("operations-event-end", "Event ends: {{ title }}", END),
        template("operations-task-start", "Task starts: {{ title }}", START),
        template("operations-task-end", "Task ends: {{ title }}", END),
    ]
}

#[cfg(test)]
mod tests {
    use punctual_sdk::TemplateError;

    use super::*;

    #[test]
    fn a_failure_has_the_name_of_its_kind() {
        let nonsense = serde_json::from_str::<Person>("nonsense").unwrap_err();
        let failures: [(Error, &str); 7] = [
            (sqlx::Error::PoolTimedOut.into(), "DatabaseError"),
            (NotifyError::Unavailable("locked".into()).into(), "DatabaseError"),
            (NotifyError::from(TemplateError::Unknown("x".to_owned())).into(), "TemplateError"),
            (NotifyError::Refused("no transport".to_owned()).into(), "NotificationError"),
            (NotifyError::NotSent("503".to_owned()).into(), "NotificationError"),
            (nonsense.into(), "DataError"),
            ("unknown time zone \"Mars/Base\"".into(), "DataError"),
        ];
        for (failure, expected) in failures {
            assert_eq!(name(&failure), expected, "{failure}");
        }
    }
}
