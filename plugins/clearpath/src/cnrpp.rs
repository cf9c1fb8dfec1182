//! The job `cnrppAlert`: tells of contractors whose C-NRPP certification expires, once in a calendar month each.

use chrono::{Datelike, Days, NaiveDate, NaiveTime};
use punctual_sdk::{Attempt, Error, Job, Message, Outcome, Template, on_either, run_job, sqlx};
use serde_json::json;
use tracing::{info, warn};

use crate::contractor::{Contractor, select_contractors};
use crate::{ZONE, fired_at, today};

/// How long before it expires somebody is told.
const AHEAD: Days = Days::new(60);
const SLUG: &str = "clearpath-cnrpp-alert";

pub(crate) async fn run(attempt: Attempt) -> Outcome {
    run_job("cnrppAlert", async |job| {
        let today = today(&attempt)?;
        let month = today.with_day(1).ok_or("a month begins with its first")?;
        let month_began = attempt.context.zone(ZONE)?.instant(month.and_time(NaiveTime::MIN));
        let until = today.checked_add_days(AHEAD).ok_or("the calendar ends")?;
        let due = select_contractors!(
            "WHERE status = 'active' AND cnrpp_expiry_date <= $1
            AND (last_cnrpp_alert_sent_at IS NULL OR last_cnrpp_alert_sent_at < $2) ORDER BY cnrpp_expiry_date, id"
        );
        let due: Vec<Contractor> = on_either!(attempt.database(), |pool| {
            sqlx::query_as(due).bind(until).bind(month_began).fetch_all(pool).await?
        });
        let recipient = attempt.context.setting("ADMIN_ALERT_EMAIL");
        if recipient.is_none() && !due.is_empty() {
            warn!(job = "cnrppAlert", contractors = due.len(), "ADMIN_ALERT_EMAIL is not set, alerts skipped");
        }
        for contractor in due {
            if let Err(error) = alert(&attempt, job, &contractor, recipient.as_deref(), today).await {
                job.failed(contractor.id, error);
            }
        }
        Ok(())
    })
    .await
}

/// Tells of one. Who is not told stays as it is, so that the next run tells.
async fn alert(
    attempt: &Attempt,
    job: &Job,
    contractor: &Contractor,
    recipient: Option<&str>,
    today: NaiveDate,
) -> Result<(), Error> {
    let is_expired = |date: Option<NaiveDate>| date.is_some_and(|date| date < today);
    let stamp = match recipient {
        Some(recipient) => {
            // With the recipient: a known key is sent to whom it was meant for first, and that address may have been wrong.
            let (id, month) = (contractor.id, today.format("%Y-%m"));
            let key = format!("{SLUG}__{id}__{month}__{}", recipient.to_lowercase());
            let values = json!({
                "contractorName": contractor.name,
                "contractorId": contractor.id,
                "expiryDate": contractor.cnrpp_expiry_date,
                "isExpired": is_expired(contractor.cnrpp_expiry_date),
            });
            attempt.notifier().deliver(Message::new(recipient, key).template(SLUG, values)).await?;
            // By the fire: one that comes late, in another month, is no alert of that month.
            Some(fired_at(attempt))
        }
        None => None,
    };
    // In one write, with the date as it is by now: whoever has a stamp is not looked at again this month.
    let note = "UPDATE clearpath_contractors SET last_cnrpp_alert_sent_at = COALESCE($2, last_cnrpp_alert_sent_at),
        status = CASE WHEN cnrpp_expiry_date < $3 THEN 'inactive' ELSE status END, updated_at = $4
        WHERE id = $1 AND ($2 IS NOT NULL OR cnrpp_expiry_date < $3) RETURNING cnrpp_expiry_date";
    let noted: Option<(Option<NaiveDate>,)> = on_either!(attempt.database(), |pool| {
        let bound = sqlx::query_as(note).bind(contractor.id).bind(stamp).bind(today).bind(attempt.started_at);
        bound.fetch_optional(pool).await?
    });
    if noted.is_some_and(|(date,)| is_expired(date)) {
        info!(job = "cnrppAlert", recordId = %contractor.id, "contractor deactivated, certification expired");
    }
    match stamp {
        Some(_) => job.sent(),
        None => job.skipped(contractor.id, "ADMIN_ALERT_EMAIL is not set"),
    }
    Ok(())
}

pub(crate) fn templates() -> Vec<Template> {
    vec![Template {
        slug: SLUG,
        subject: "C-NRPP certification of {{ contractorName }}",
        text: include_str!("../templates/cnrpp-alert.txt"),
        // A plain-text e-mail, on purpose.
        html: None,
        sample: r#"{"contractorName": "Radon Ltd.", "contractorId": "018f", "expiryDate": "2026-12-31", "isExpired": false}"#,
    }]
}
