//! The job `emailQueue`: sends the e-mails that are due, at most fifty a run.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_sdk::{
    Attempt, Context, Database, Error, Job, Message, NotifyError, Outcome, Trouble, on_either, run_job, shown, sqlx,
};
use serde_json::json;
use tracing::error;

use crate::email::{Email, MAX_RETRIES, may_be_sent, select_emails};
use crate::record::find;
use crate::session::Session;

/// How many a run takes; the rest wait for the next.
const MOST: i64 = 50;
/// How long an e-mail may wait to go out, which is two runs, before somebody is told.
const STUCK_AFTER: TimeDelta = TimeDelta::minutes(30);

pub(crate) async fn run(attempt: Attempt) -> Outcome {
    run_job("emailQueue", async |job| {
        let due = concat!(
            select_emails!("WHERE scheduled_at <= $1 AND "),
            may_be_sent!(),
            " ORDER BY scheduled_at ASC, id LIMIT $3"
        );
        let due: Vec<Email> = on_either!(attempt.database(), |pool| {
            sqlx::query_as(due).bind(attempt.started_at).bind(MAX_RETRIES).bind(MOST).fetch_all(pool).await?
        });
        for email in due {
            if let Err(failed) = dispatch(&attempt, job, &email).await {
                job.failed(email.id, failed);
            }
        }
        Ok(())
    })
    .await
}

/// Sends one, unless nobody wants it any more.
async fn dispatch(attempt: &Attempt, job: &Job, email: &Email) -> Result<(), Error> {
    let database = attempt.database();
    let session = match email.test_session_id {
        Some(id) => find::<Session>(&database, id).await?,
        None => None,
    };
    if let Some(session) = &session
        && ["cancelled", "expired"].contains(&session.status.as_str())
    {
        end(&database, email, "cancelled").await?;
        job.skipped(email.id, "session is cancelled or expired");
        return Ok(());
    }
    if was_sent(&database, email).await? {
        end(&database, email, "duplicate").await?;
        job.skipped(email.id, "duplicate");
        return Ok(());
    }
    let order = session.as_ref().and_then(|session| session.clearpath_order_id.clone());
    let values = json!({
        "name": session.as_ref().map_or("there", |session| session.name.as_str()),
        "orderId": order.unwrap_or_else(|| email.test_session_id.map(|id| id.to_string()).unwrap_or_default()),
    });
    // After a crash in between, the second time answers what the provider called the first.
    let message =
        Message::new(&email.recipient, format!("clearpath-email__{}", email.id)).template(email.slug(), values);
    match attempt.notifier().deliver(message).await {
        Ok(provider_id) => {
            // Whatever it has become meanwhile, such as cancelled with its session: sent is sent.
            let sent = "UPDATE clearpath_email_log SET status = 'sent', sent_at = $2, provider_message_id = $3,
                last_error = NULL WHERE id = $1";
            on_either!(database, |pool| {
                sqlx::query(sent).bind(email.id).bind(attempt.started_at).bind(&provider_id).execute(pool).await?;
            });
            job.sent();
        }
        Err(NotifyError::Template(refused)) => {
            error!(job = "emailQueue", recordId = %email.id, err = %refused, "template error");
            fail(&database, email, "failed", true, &refused.to_string()).await?;
            job.failed(email.id, refused);
        }
        Err(refused) => {
            let status = if email.retry_count + 1 >= MAX_RETRIES { "abandoned" } else { "failed" };
            fail(&database, email, status, false, &refused.to_string()).await?;
            job.failed(email.id, refused);
        }
    }
    Ok(())
}

/// Looks for e-mails that should have gone out long ago and still may; those that were given up are no news.
pub(crate) async fn look_for_stuck(context: Context, now: DateTime<Utc>) -> Result<Option<Trouble>, Error> {
    // One that was late when it was written has waited since then.
    let stuck = concat!(
        "SELECT count(*), min(scheduled_at) FROM clearpath_email_log WHERE scheduled_at <= $1 AND created_at <= $1 AND ",
        may_be_sent!()
    );
    let (count, since): (i64, Option<DateTime<Utc>>) = on_either!(context.database(), |pool| {
        sqlx::query_as(stuck).bind(now - STUCK_AFTER).bind(MAX_RETRIES).fetch_one(pool).await?
    });
    let Some(since) = since else { return Ok(None) };
    let waiting = if count == 1 { "1 e-mail waits".to_owned() } else { format!("{count} e-mails wait") };
    Ok(Some(Trouble {
        subject: format!("{waiting} in the email_log"),
        text: format!(
            "{waiting} in the email_log of clearpath for more than {} minutes, the oldest is due since {}. Does the schedule emailQueue fire, \
             and what do its executions say? A run sends {MOST} e-mails at the most. GET /api/v1/plugins/clearpath/emails?status=failed shows what \
             went wrong last.",
            STUCK_AFTER.num_minutes(),
            shown(since)
        ),
    }))
}

/// Whether the same e-mail went out before: to the same user, of the same session, of the same kind.
async fn was_sent(database: &Database, email: &Email) -> Result<bool, sqlx::Error> {
    let count = "SELECT count(*) FROM clearpath_email_log WHERE status = 'sent' AND user_id = $1 AND email_type = $2
        AND id <> $4 AND (test_session_id = $3 OR (test_session_id IS NULL AND $3 IS NULL))";
    let count: i64 = on_either!(database, |pool| {
        let bound = sqlx::query_scalar(count).bind(&email.user_id).bind(&email.email_type);
        bound.bind(email.test_session_id).bind(email.id).fetch_one(pool).await?
    });
    Ok(count > 0)
}

async fn end(database: &Database, email: &Email, status: &str) -> Result<(), sqlx::Error> {
    let update = "UPDATE clearpath_email_log SET status = $2 WHERE id = $1 AND status IN ('queued', 'failed')";
    on_either!(database, |pool| sqlx::query(update).bind(email.id).bind(status).execute(pool).await.map(drop))
}

async fn fail(
    database: &Database,
    email: &Email,
    status: &str,
    is_template_error: bool,
    error: &str,
) -> Result<(), sqlx::Error> {
    let update = "UPDATE clearpath_email_log SET status = $2, is_template_error = $3, last_error = $4,
        retry_count = retry_count + 1 WHERE id = $1 AND status IN ('queued', 'failed')";
    on_either!(database, |pool| {
        let bound = sqlx::query(update).bind(email.id).bind(status).bind(is_template_error).bind(error);
        bound.execute(pool).await.map(drop)
    })
}
