//! The jobs `sessionExpiry` and `certificateExpiry`: what is long over is marked so.

use chrono::{DateTime, Days, Utc};
use punctual_sdk::{Attempt, Database, Error, Outcome, on_either, run_job, sqlx};
use tracing::info;
use uuid::Uuid;

use crate::email::{MAX_RETRIES, may_be_sent};
use crate::today;

/// How long after its expected completion a test may still get a result.
const GRACE: Days = Days::new(90);

pub(crate) async fn expire_sessions(attempt: Attempt) -> Outcome {
    run_job("sessionExpiry", async |job| {
        let (database, now) = (attempt.database(), attempt.started_at);
        let latest = today(&attempt)?.checked_sub_days(GRACE).ok_or("the calendar ends")?;
        let over = "SELECT id FROM clearpath_sessions WHERE expected_completion_date < $1
            AND status IN ('active', 'retrieval_due', 'mailed', 'results_pending')
            AND NOT EXISTS (SELECT 1 FROM clearpath_results WHERE test_session_id = clearpath_sessions.id) ORDER BY id";
        let over: Vec<(Uuid,)> = on_either!(database, |pool| sqlx::query_as(over).bind(latest).fetch_all(pool).await?);
        let mut expired = 0;
        for (id,) in over {
            match expire_session(&database, id, now).await {
                Ok(true) => {
                    expired += 1;
                    job.processed();
                }
                Ok(false) => job.skipped(id, "not open any more"),
                Err(error) => job.failed(id, error),
            }
        }
        info!(job = "sessionExpiry", expired, "sessions expired");
        Ok(())
    })
    .await
}

/// Expires a session that is still open, and cancels the e-mails it has not had.
async fn expire_session(database: &Database, id: Uuid, now: DateTime<Utc>) -> Result<bool, Error> {
    let mut transaction = database.begin().await?;
    let expire = "UPDATE clearpath_sessions SET status = 'expired', expired_at = $2, updated_at = $2 WHERE id = $1
        AND status IN ('active', 'retrieval_due', 'mailed', 'results_pending')
        AND NOT EXISTS (SELECT 1 FROM clearpath_results WHERE test_session_id = $1)";
    let cancel =
        concat!("UPDATE clearpath_email_log SET status = 'cancelled' WHERE test_session_id = $1 AND ", may_be_sent!());
    let expired = on_either!(transaction, |connection| {
        let expired = sqlx::query(expire).bind(id).bind(now).execute(&mut *connection).await?.rows_affected();
        if expired > 0 {
            sqlx::query(cancel).bind(id).bind(MAX_RETRIES).execute(connection).await?;
        }
        expired
    });
    transaction.commit().await?;
    Ok(expired > 0)
}

pub(crate) async fn expire_certificates(attempt: Attempt) -> Outcome {
    run_job("certificateExpiry", async |job| {
        let (database, now) = (attempt.database(), attempt.started_at);
        let over = "SELECT id FROM clearpath_certificates WHERE status = 'valid' AND valid_until < $1 ORDER BY id";
        let today = today(&attempt)?;
        let over: Vec<(Uuid,)> = on_either!(database, |pool| sqlx::query_as(over).bind(today).fetch_all(pool).await?);
        // The PDF is made anew when somebody asks for it.
        let expire = "UPDATE clearpath_certificates SET status = 'expired', expired_at = $2, updated_at = $2,
            pdf_needs_regeneration = $3 WHERE id = $1 AND status = 'valid'";
        let mut expired = 0;
        for (id,) in over {
            let updated = on_either!(database, |pool| {
                let bound = sqlx::query(expire).bind(id).bind(now).bind(true);
                bound.execute(pool).await.map(|done| done.rows_affected())
            });
            match updated {
                Ok(0) => job.skipped(id, "not valid any more"),
                Ok(_) => {
                    expired += 1;
                    job.processed();
                }
                Err(error) => job.failed(id, error),
            }
        }
        info!(job = "certificateExpiry", expired, "certificates expired");
        Ok(())
    })
    .await
}
