//! The e-mail log: every e-mail of a session, from when it is planned until it is out or given up.

use chrono::{DateTime, Utc};
use punctual_sdk::{Answer, Problem, Request, Route, Schema, Template, on_either, row, shown, sqlx};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::record::{OfSession, Record, found, list, show};

const STATUSES: [&str; 6] = ["queued", "sent", "failed", "abandoned", "cancelled", "duplicate"];

/// How often an e-mail may fail.
pub(crate) const MAX_RETRIES: i32 = 3;

/// Whether an e-mail may still be sent, as a condition; `$2` is [`MAX_RETRIES`].
macro_rules! may_be_sent {
    () => {
        "(status = 'queued' OR (status = 'failed' AND retry_count < $2 AND NOT is_template_error))"
    };
}
pub(crate) use may_be_sent;

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct Email {
        pub(crate) id: Uuid,
        pub(crate) user_id: String,
        pub(crate) test_session_id: Option<Uuid>,
        pub(crate) email_type: String,
        pub(crate) recipient: String,
        pub(crate) status: String,
        pub(crate) scheduled_at: DateTime<Utc>,
        pub(crate) sent_at: Option<DateTime<Utc>>,
        pub(crate) provider_message_id: Option<String>,
        pub(crate) retry_count: i32,
        /// Sending it again does not help until the template is mended.
        pub(crate) is_template_error: bool,
        pub(crate) last_error: Option<String>,
        pub(crate) created_at: DateTime<Utc>,
    }
}

/// Selects e-mails, by the names of all columns; the rest of the statement says which.
macro_rules! select_emails {
    ($which:literal) => {
        concat!(
            "SELECT id, user_id, test_session_id, email_type, recipient, status, scheduled_at, sent_at, \
             provider_message_id, retry_count, is_template_error, last_error, created_at FROM clearpath_email_log ",
            $which
        )
    };
}
pub(crate) use select_emails;

impl Email {
    /// The template that says it.
    pub(crate) fn slug(&self) -> String {
        format!("clearpath-{}", self.email_type.replace('_', "-"))
    }
}

impl Record for Email {
    const NOUN: &'static str = "e-mail";
    const ONE: &'static str = select_emails!("WHERE id = $1");

    fn view(&self) -> Value {
        json!({
            "id": self.id,
            "userId": self.user_id,
            "testSessionId": self.test_session_id,
            "emailType": self.email_type,
            "recipient": self.recipient,
            "status": self.status,
            "scheduledAt": shown(self.scheduled_at),
            "sentAt": self.sent_at.map(shown),
            "providerMessageId": self.provider_message_id,
            "retryCount": self.retry_count,
            "lastError": self.last_error,
            "createdAt": shown(self.created_at),
        })
    }
}

impl OfSession for Email {
    const STATUSES: &'static [&'static str] = &STATUSES;
    const SOME: &'static str = select_emails!(
        "WHERE id < $1 AND ($2 IS NULL OR status = $2) AND ($3 IS NULL OR test_session_id = $3)
        ORDER BY id DESC LIMIT $4"
    );
}

pub(crate) fn routes() -> Vec<Route> {
    let shape = || {
        Schema::object([
            ("id", Schema::id()),
            ("userId", Schema::text().example("user-17")),
            ("testSessionId", Schema::id().or_null()),
            ("emailType", Schema::text().example("day_30")),
            ("recipient", Schema::text().example("ada@example.com")),
            ("status", Schema::word(STATUSES)),
            ("scheduledAt", Schema::instant()),
            ("sentAt", Schema::instant().or_null()),
            ("providerMessageId", Schema::text().or_null()),
            ("retryCount", Schema::count()),
            ("lastError", Schema::text().or_null()),
            ("createdAt", Schema::instant()),
        ])
    };
    vec![
        Route::get("/emails", list::<Email>)
            .named("listSessionEmails", "Lists the e-mails of test sessions, newest first")
            .query("status", Schema::word(STATUSES))
            .query("sessionId", Schema::id())
            .answers_page(shape()),
        Route::get("/emails/{id}", show::<Email>)
            .named("getSessionEmail", "Shows an e-mail of a test session")
            .answers(200, "The e-mail", shape()),
        Route::post("/emails/{id}/retry", retry)
            .named("retrySessionEmail", "Queues an e-mail again that failed or was abandoned")
            .may_conflict()
            .answers(200, "The e-mail", shape()),
    ]
}

async fn retry(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    request.fields().finish()?;
    let id = request.id(Email::NOUN)?;
    // It waits from now on, unless it is not even due.
    let update =
        "UPDATE clearpath_email_log SET status = 'queued', retry_count = 0, is_template_error = $2, last_error = NULL,
        scheduled_at = CASE WHEN scheduled_at > $3 THEN scheduled_at ELSE $3 END
        WHERE id = $1 AND status IN ('failed', 'abandoned')";
    let updated = on_either!(request.database(), |pool| {
        sqlx::query(update).bind(id).bind(false).bind(request.now).execute(pool).await?.rows_affected()
    });
    let email: Email = found(&request).await?;
    if updated == 0 {
        return Err(Problem::conflict(format!(
            "the e-mail is {}, and only failed and abandoned ones are tried again",
            email.status
        )));
    }
    Answer::ok(email.view())
}

/// The two files of a template.
macro_rules! files {
    ($name:literal) => {
        [include_str!(concat!("../templates/", $name, ".txt")), include_str!(concat!("../templates/", $name, ".html"))]
    };
}

pub(crate) fn templates() -> Vec<Template> {
    let template = |slug, subject, [text, html]: [&'static str; 2]| Template {
        slug,
        subject,
        text,
        html: Some(html),
        sample: r#"{"name": "Ada", "orderId": "CP-17"}"#,
    };
    vec![
        template("clearpath-day-30", "Day 30 of your radon test", files!("day-30")),
        template("clearpath-day-60", "Day 60 of your radon test", files!("day-60")),
        template("clearpath-day-80", "Your radon test is almost complete", files!("day-80")),
        template("clearpath-day-88", "Time to mail your detector", files!("day-88")),
        template("clearpath-results-prompt", "Your radon test should be complete", files!("results-prompt")),
    ]
}
