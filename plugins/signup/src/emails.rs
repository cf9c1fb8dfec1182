//! The three e-mails, as tasks.

use punctual_sdk::{Attempt, Error, Message, Outcome, Template};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::session::Session;

pub(crate) const ALERT_TOPIC: &str = "signup.alert.internal";
pub(crate) const EARLY_TOPIC: &str = "signup.reminder.early";
pub(crate) const LATE_TOPIC: &str = "signup.reminder.late";

const ALERT: &str = "signup-alert-internal";
const EARLY: &str = "signup-reminder-early";
const LATE: &str = "signup-reminder-late";

/// Where reminders lead to where nobody says it.
const DASHBOARD: &str = "https://app.leadmetrics.ai";

/// The payload of all three: the sign-up that was begun. The alert goes out even if that is gone by then.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Begun {
    pub(crate) session_id: Uuid,
    pub(crate) email: String,
}

pub(crate) async fn remind_early(attempt: Attempt) -> Result<Outcome, Error> {
    remind(attempt, EARLY).await
}

pub(crate) async fn remind_late(attempt: Attempt) -> Result<Outcome, Error> {
    remind(attempt, LATE).await
}

/// Reminds whoever has not come past step 3.
async fn remind(attempt: Attempt, slug: &'static str) -> Result<Outcome, Error> {
    let Begun { session_id, .. } = attempt.payload_as()?;
    let database = attempt.database();
    let Some(session) = Session::find(&database, session_id).await? else {
        return Ok(Outcome::completed());
    };
    if session.is_past_step_3() {
        debug!(%session_id, stage = session.current_stage, "sign-up not reminded of");
        return Ok(Outcome::completed());
    }
    let dashboard = attempt.context.setting("DASHBOARD_URL").unwrap_or_else(|| DASHBOARD.to_owned());
    let dedupe_key = format!("{slug}__{session_id}");
    // The fields that other producers of the queue `notifications__email` send too.
    let data = json!({
        "templateSlug": slug,
        "recipient": session.email,
        "tenantId": session_id,
        "resumeUrl": format!("{}/signup?session={session_id}", dashboard.trim_end_matches('/')),
        "dedupeKey": dedupe_key,
    });
    enqueue(&attempt, Message::new(session.email, dedupe_key).template(slug, data)).await
}

/// Tells the sales, whatever became of the sign-up; once per address of whoever signs up.
pub(crate) async fn alert(attempt: Attempt) -> Result<Outcome, Error> {
    let Begun { session_id, email } = attempt.payload_as()?;
    let Some(recipient) = attempt.context.setting("SIGNUP_ALERT_EMAIL") else {
        warn!(%session_id, "SIGNUP_ALERT_EMAIL is not set, sign-up alert skipped");
        return Ok(Outcome::completed());
    };
    let dedupe_key = format!("{ALERT}__{email}");
    let data = json!({
        "templateSlug": ALERT,
        "recipient": recipient,
        "tenantId": session_id,
        "email": email,
        "dedupeKey": dedupe_key,
    });
    enqueue(&attempt, Message::new(recipient, dedupe_key).template(ALERT, data)).await
}

async fn enqueue(attempt: &Attempt, message: Message) -> Result<Outcome, Error> {
    let mut transaction = attempt.database().begin().await?;
    attempt.notifier().enqueue(&mut transaction, message).await?;
    transaction.commit().await?;
    Ok(Outcome::completed())
}

pub(crate) fn templates() -> Vec<Template> {
    let sample = r#"{"templateSlug": "signup-reminder-early", "recipient": "ada@example.com", "tenantId": "018f", "resumeUrl": "https://app.leadmetrics.ai/signup?session=018f", "dedupeKey": "signup-reminder-early__018f"}"#;
    vec![
        Template {
            slug: EARLY,
            subject: "Your sign-up is waiting for you",
            text: include_str!("../templates/reminder-early.txt"),
            html: Some(include_str!("../templates/reminder-early.html")),
            sample,
        },
        Template {
            slug: LATE,
            subject: "Do you still want to sign up?",
            text: include_str!("../templates/reminder-late.txt"),
            html: Some(include_str!("../templates/reminder-late.html")),
            sample,
        },
        Template {
            slug: ALERT,
            subject: "New sign-up: {{ email }}",
            text: include_str!("../templates/alert-internal.txt"),
            html: Some(include_str!("../templates/alert-internal.html")),
            sample: r#"{"templateSlug": "signup-alert-internal", "recipient": "sales@example.com", "tenantId": "018f", "email": "ada@example.com", "dedupeKey": "signup-alert-internal__ada@example.com"}"#,
        },
    ]
}
